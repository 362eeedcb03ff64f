"""`streambank state` as an installation has it: found by the entry point that pyproject.toml declares."""

from __future__ import annotations

import importlib.metadata
import tomllib
from typing import Any

import pytest

from streambank.cli import plugins
from tests.support.paths import ROOT


def declared_commands() -> list[importlib.metadata.EntryPoint]:
    """The verbs that pyproject.toml adds to the command line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = plugins.COMMANDS_GROUP
    found = project["entry-points"][group]
    return [importlib.metadata.EntryPoint(name, value, group) for name, value in found.items()]


def install_commands(patch: pytest.MonkeyPatch) -> None:
    """Let them be found, whatever was installed when this environment was made."""
    entries = declared_commands()
    real = importlib.metadata.entry_points

    def entry_points(**wanted: Any) -> Any:
        # Who imports this function meanwhile keeps it, and asks for groups of its own.
        if wanted.get("group") != plugins.COMMANDS_GROUP:
            return real(**wanted)
        return [entry for entry in entries if wanted.get("name") in (None, entry.name)]

    patch.setattr(importlib.metadata, "entry_points", entry_points)
    patch.setattr(plugins, "_added", lambda: [entry.name for entry in entries])
