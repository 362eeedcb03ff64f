"""What a person chooses for a restore."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streambank.core.choices import SinkChoice, SourceChoice
from streambank.core.errors import InputError


@dataclass(frozen=True, slots=True)
class PossibleChoices:
    """The choices with which a restore could go on, for a person who is asked to choose.

    What speaks against the restore whatever is chosen (a living job, a target in the way) is not counted.

    Attributes:
        sink: Choices for the sinks under which no sink speaks against the restore.
        source: The same for its sources.
    """

    sink: tuple[SinkChoice, ...]
    source: tuple[SourceChoice, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"sink": list(self.sink), "source": list(self.source)}


_OLD_NEW = re.compile(r"(?P<old>.+?)=(?P<new>(?:/|[A-Za-z][A-Za-z0-9+.-]*://).*|[^=]+)\Z", re.DOTALL)


def parse_new_sinks(given: Iterable[str]) -> dict[str, str]:
    """Split each OLD=NEW; either may have an equals sign of its own where NEW is absolute.

    Returns:
        The file sinks of the savepoint, each with its new directory, both as they were written.

    Raises:
        InputError: One says no such thing, or a file sink is named twice (code `bad-new-sink`).
    """
    found: dict[str, str] = {}
    for each in given:
        parts = _OLD_NEW.match(each)
        if parts is None or parts["old"] in found:
            raise InputError(
                f"{each!r} does not name one file sink and its new directory.",
                code="bad-new-sink",
                hint="Give OLD=NEW once for each file sink, with absolute paths or URIs.",
            )
        found[parts["old"]] = parts["new"]
    return found
