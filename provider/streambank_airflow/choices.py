"""What a form or a template chose, checked before the engine is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from streambank.core.errors import InputError, check_choice
from streambank.declaration.objectives import PROMISES
from streambank.recovery.choices import parse_new_sinks
from streambank.storage import scheme_of

IF_RUNNING = ("refuse", "stop")
"""What can be asked for where a job's driver lives."""
ON_BREACH = ("fail", "warn", "report")
"""What a check does about an objective that is broken."""


def new_sink_choices(value: Any) -> dict[str, str]:
    """The new output directories of a restore: a mapping, or `OLD=NEW` in a list or one in each line.

    A task runs in a folder of Airflow's choosing, and plan and restore are two tasks, so a relative path
    would mean nothing.

    Raises:
        InputError: It is something else (code `bad-option`), a line does not name one new directory (code
            `bad-new-sink`), or a directory is neither an absolute path nor a URI (code `bad-option`).
    """
    if value is None or value == "" or value == "None":
        return {}
    if isinstance(value, Mapping):
        found = {str(old): str(new) for old, new in value.items()}
    elif isinstance(value, str):
        found = parse_new_sinks(line.strip() for line in value.splitlines() if line.strip())
    elif isinstance(value, Sequence):
        found = parse_new_sinks(str(line).strip() for line in value if str(line).strip())
    else:
        raise InputError(
            f"new_sinks must be a list of OLD=NEW, not {value!r}.",
            code="bad-option",
            hint='Write ["/data/out=/data/new-out"].',
        )
    for place in (*found, *found.values()):
        if (
            scheme_of(place) == "file"
            and not place.startswith("file:")
            and not PurePosixPath(place).is_absolute()
        ):
            raise InputError(
                f"new_sinks must name directories by absolute paths or URIs, not {place!r}.",
                code="bad-option",
                hint="A relative path means nothing on a worker: write an absolute path or a URI.",
            )
    return found


def check_objectives(names: Sequence[str]) -> list[str]:
    """Names of objectives, checked when the DAG is read rather than waited for in vain.

    Raises:
        InputError: There is no such objective (code `bad-choice`).
    """
    known = ("history", *PROMISES)
    return [check_choice(name, "An objective", known) for name in names]
