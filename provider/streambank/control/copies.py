"""What the records of a copy say of its refreshes: `refreshes/` and `refreshed/`.

```
refreshes/<number>.json   a refresh was begun: the directories that it fills
refreshed/<number>.json   a refresh was done: the generation of each query that counts from then on
```

A record in `refreshed/` is the one step by which a copy changes, for all queries at once. The records of the
generations follow it; where that was cut off, the next start or refresh makes up for it (`settle_refresh`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.operation import Operation
from streambank.control.records import Record
from streambank.core.errors import ConflictError, RefusedError
from streambank.core.shape import JsonObject
from streambank.core.units import to_json_time, utc_now
from streambank.storage import open_store

BEGUN, REFRESHED = "refreshes", "refreshed"


@dataclass(frozen=True, slots=True)
class CopiedQuery(JsonObject):
    """What a copy holds of one query."""

    generation: Generation
    savepoint: str
    batch: int
    taken_at: datetime


def begin_refresh(control: JobControl, directories: Sequence[str], *, by: Mapping[str, str]) -> int:
    """Leave behind which directories a refresh is about to fill."""
    data = {"at": to_json_time(utc_now()), "by": dict(by), "directories": list(directories)}
    return control.signed(BEGUN).append(data)


def begun_refreshes(control: JobControl) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The refreshes whose directories may still be there: the number of each record, and the directories.

    Raises:
        FormatError: A record is damaged (code `damaged-record`).
    """
    for record in control.signed(BEGUN).all():
        directories = record.decode(
            tuple[str, ...],
            at="directories",
            hint="Move it away. What that refresh has left is then not removed by itself.",
        )
        yield record.number, directories


def forget_refreshes(control: JobControl, numbers: Collection[int]) -> None:
    """Drop the records of refreshes none of whose directories is there any more."""
    control.signed(BEGUN).drop(numbers)


def last_refresh(control: JobControl) -> int:
    """The number of the newest refresh that was done; 0 where there was none."""
    return max(control.signed(REFRESHED).numbers(), default=0)


def commit_refresh(
    control: JobControl, queries: Mapping[str, CopiedQuery], details: Mapping[str, Any], *, seen: int
) -> None:
    """Let what a refresh has filled be the copy, for all queries at once.

    Args:
        seen: What `last_refresh` said when the operation lock was taken.

    Raises:
        ConflictError: Another refresh was done since (code `generation-moved`).
    """
    said = {"at": to_json_time(utc_now()), **details}
    record = {**said, "queries": {name: one.to_dict() for name, one in queries.items()}}
    if not control.signed(REFRESHED).create(seen + 1, record):
        raise ConflictError(
            f"Another refresh of the copy {control.name} was done meanwhile.",
            code="generation-moved",
            hint="The copy is what that one made. Make it again if that is too old.",
        )


def settle_refresh(control: JobControl, *, operation: Operation) -> None:
    """Bring the generations of a copy to what its newest refresh has committed.

    Raises:
        ConflictError: The lock was lost (code `claim-lost`).
        FormatError: A record is damaged.
    """
    for name, one in copied(control).items():
        generations = control.generations(name)
        numbers = generations.records.numbers()
        if not numbers or numbers[-1] < one.generation.number:
            generations.switch(one.generation, operation=operation)


def copied(control: JobControl) -> dict[str, CopiedQuery]:
    """What a copy holds, by query; empty where it was never made.

    Raises:
        FormatError: The newest record is damaged (code `damaged-record`).
    """
    record = control.signed(REFRESHED).latest()
    return {} if record is None else queries_of(record)


def is_refreshed(control: JobControl, query: str, made: CopiedQuery) -> bool:
    """Whether what a copy uses of a query is what its newest refresh made, and is there.

    A restore on the copy makes another generation, and a directory may be removed by hand.

    Args:
        made: What the newest refresh made of it (`copied`).
    """
    current = control.generation(query)
    if current is not None and current.number < made.generation.number:
        current = made.generation  # the refresh was cut off: the next start makes up for it
    return (
        current is not None
        and current.location == made.generation.location
        and open_store(current.location).exists("metadata")
    )


def outputs_unknown(control: JobControl, query: str, generation: Generation) -> RefusedError | None:
    """Why nothing may run on a generation of a copy: its records do not say where it writes; None otherwise.

    Each refresh begins other outputs, whose logs reach the batch of its savepoint. A query that went on in
    those of another one would write batches that are there, and Spark would skip them in silence.
    """
    if generation.new_sinks:
        return None
    made = copied(control).get(query)
    if made is None or not made.generation.new_sinks:
        return None
    return RefusedError(
        f"It is not known which outputs query {query} of {control.name} had when its savepoint "
        f"{generation.from_savepoint} was taken, and those of the last refresh are of other batches.",
        code="copy-not-made",
        hint="Make the copy again: `streambank fork`.",
    )


def committed_refreshes(control: JobControl) -> Iterator[dict[str, CopiedQuery]]:
    """What each refresh made of a copy, newest first."""
    for record in control.signed(REFRESHED).newest_first():
        yield queries_of(record)


def queries_of(record: Record) -> dict[str, CopiedQuery]:
    """What a record in `refreshed/` says of each query.

    Raises:
        FormatError: It is incomplete (code `damaged-record`).
    """
    return record.decode(
        dict[str, CopiedQuery],
        at="queries",
        hint="It says which directories are the copy. Move the record away, and make the copy again.",
    )
