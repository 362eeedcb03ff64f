"""Which queries of a job are restored as one: noted before the first of them is, and asked before a start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streambank.control.control import JobControl
from streambank.core.errors import RefusedError
from streambank.core.shape import encode
from streambank.core.units import to_json_time, utc_now

TOGETHER = "restored-together"


@dataclass(frozen=True, slots=True)
class Noted:
    """What a query of a job gets from a restore of all of them.

    Attributes:
        generation: The number of the generation that it becomes, or of a higher one.
    """

    savepoint: str
    generation: int


def note_together(control: JobControl, queries: Mapping[str, Noted], *, by: Mapping[str, str]) -> None:
    """Leave behind which queries are restored as one, before the first of them is; with the lock in hand."""
    control.signed(TOGETHER).append(
        {
            "at": to_json_time(utc_now()),
            "by": dict(by),
            "queries": {name: encode(one) for name, one in queries.items()},
        }
    )


def noted_together(control: JobControl) -> dict[str, Noted]:
    """What the newest restore of all queries of a job was to do, by query; empty where there was none.

    Raises:
        FormatError: The note cannot be read (code `damaged-record`).
    """
    record = control.signed(TOGETHER).latest()
    if record is None:
        return {}
    return record.decode(
        dict[str, Noted],
        at="queries",
        hint="It records that all queries of the job were restored as one. Restore each of them, and "
        "move the record away.",
    )


def left_together(control: JobControl, queries: Collection[str]) -> tuple[str, ...]:
    """Queries that the newest restore of all of them has left, having restored others; empty for none.

    Args:
        queries: The queries that the job declares; others do not count.

    Raises:
        FormatError: Its note cannot be read (code `damaged-record`).
    """
    noted = {name: one for name, one in noted_together(control).items() if name in queries}
    left = []
    for name, one in noted.items():
        numbers = control.generations(name).records.numbers()
        if not numbers or numbers[-1] < one.generation:
            left.append(name)
    return tuple(left) if len(left) < len(noted) else ()


def check_together(control: JobControl, queries: Collection[str]) -> None:
    """Make sure that no restore of all queries of a job has ended with some of them restored.

    Raises:
        RefusedError: One has (code `restore-unfinished`).
        FormatError: Its note cannot be read.
    """
    left = left_together(control, queries)
    if left:
        raise RefusedError(
            f"A restore of all queries of job {control.name} has ended before it restored {', '.join(left)}: "
            "the others would go on from their savepoints, and these would not "
            f"({control.store.uri}/{TOGETHER}).",
            code="restore-unfinished",
            hint=f"`streambank job restore {control.name}` restores those, too; or restore each alone.",
        )
