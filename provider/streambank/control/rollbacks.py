"""Sinks that a restore takes back, noted before it does, so that no older checkpoint goes on ahead of them.

A restore takes the sinks back and switches the generation after that. Where it ends in between, killed or by
an error, the generation that counts is not the one that its sinks are at: a query that went on in it would
skip batches or leave a gap in its output, without a word. So the note comes first, right before the first
sink is changed, and a start compares it with the sinks. A restore that is refused before that leaves none,
and a table whose keeper refused the commit is taken out of it again. A note is over once there is a
generation of the number that it names, or a higher one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.records import Record, RecordStream
from streambank.core.errors import ConflictError, RefusedError
from streambank.core.names import MAIN, QueryRef
from streambank.core.shape import JsonName
from streambank.core.units import to_json_time, utc_now
from streambank.storage import open_store
from streambank.storage.store import Store


@dataclass(frozen=True, slots=True)
class _Note:
    """What a restore left behind.

    Attributes:
        generation: The number that its generation would have.
        before: Output directories, each with the rollbacks that it had before.
    """

    generation: int
    before: Annotated[Mapping[str, Sequence[str]], JsonName("sinks")]
    tables: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RollbackNote:
    """The note of one restore, written before each sink is changed; with the operation lock in hand.

    What an earlier note says counts as long as no generation came of it: it knows which sinks a restore
    rolled back before it ended, and this one finds those where they have to be.
    """

    control: JobControl
    query: str | None
    _: KW_ONLY
    savepoint: str
    batch: int
    location: str
    by: Mapping[str, str]

    def files(self, sinks: Sequence[Store]) -> None:
        """Note that file sinks are changed from now on. Their own journals tell later whether they were."""
        from streambank.sinks.file.rollback import rollbacks  # what parses DAGs needs none of it

        if sinks:
            self._write({sink.uri: list(rollbacks(sink)) for sink in sinks}, ())

    @contextmanager
    def table(self, name: str) -> Iterator[None]:
        """Note that a table is changed from now on, and withdraw that where its keeper refused the change.

        Args:
            name: The table, as messages call it.
        """
        _, tables = self._said()
        self._write({}, (name,))
        try:
            yield
        except (RefusedError, ConflictError):
            if name not in tables:  # an earlier restore may have changed it
                self._write({}, (), without=name)
            raise

    def _said(self) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
        """What notes of which no generation came say already."""
        current = self.control.generation(self.query)
        record = taken_back_records(self.control, self.query).latest()
        if record is None:
            return {}, ()
        earlier = _read(record)
        over = current is not None and earlier.generation <= current.number
        return ({}, ()) if over else (earlier.before, earlier.tables)

    def _write(
        self, sinks: Mapping[str, Sequence[str]], tables: Sequence[str], *, without: str | None = None
    ) -> None:
        current = self.control.generation(self.query)
        before, named = self._said()
        taken_back_records(self.control, self.query).append(
            {
                "at": to_json_time(utc_now()),
                "by": dict(self.by),
                "generation": (1 if current is None else current.number) + 1,
                "location": self.location,
                "savepoint": self.savepoint,
                "batch": self.batch,
                "sinks": {**sinks, **before},
                "tables": [name for name in dict.fromkeys([*named, *tables]) if name != without],
            }
        )


@dataclass(frozen=True, slots=True)
class PendingRollback:
    """A restore that has begun to roll sinks back, and has made no generation yet.

    Attributes:
        location: Where the restored checkpoint would be; empty where the note does not say.
        outputs: Output directories, as URIs, whose set-aside files say how far it came.
    """

    location: str
    savepoint: str
    outputs: tuple[str, ...]


def pending_rollback(control: JobControl, query: str | None) -> PendingRollback | None:
    """The note of a restore that no generation came of; None where there is none.

    Raises:
        FormatError: The note cannot be read.
    """
    record = taken_back_records(control, query).latest()
    if record is None:
        return None
    said, current = _read(record), control.generation(query)
    over = current is not None and said.generation <= current.number
    if over or not (said.before or said.tables):
        return None
    location, savepoint = (str(record.data.get(name) or "") for name in ("location", "savepoint"))
    return PendingRollback(location, savepoint, tuple(said.before))


def check_not_rolled_back(control: JobControl, query: str | None, generation: Generation) -> None:
    """Make sure that no restore has taken a query's sinks back without making a generation for them.

    Raises:
        RefusedError: One has (code `sinks-taken-back`).
        FormatError: Its note cannot be read.
    """
    from streambank.sinks.file.rollback import was_rolled_back

    record = taken_back_records(control, query).latest()
    if record is None:
        return
    note, said = record.data, _read(record)
    if said.generation <= generation.number:
        return
    outputs = [
        f"output {uri}" for uri, names in said.before.items() if was_rolled_back(open_store(uri), names)
    ]
    # Whether a table was rolled back is not asked here: a start must not depend on a database.
    for name in (*outputs, *said.tables):
        was = "was" if name in outputs else "was or may have been"
        raise RefusedError(
            f"The {name} {was} rolled back to batch {note.get('batch')} by a restore into "
            f"{note.get('location')}, and job {control.name} is still at generation {generation.number}: "
            f"rows would be lost if it went on there ({record.where}).",
            code="sinks-taken-back",
            hint=f"Restore the job: `streambank restore {note.get('savepoint')} --job "
            f"{QueryRef.of(control.name, query)} --generation --sink rollback`. If that is not possible "
            "any more, restore with --sink accept.",
        )


def _read(record: Record) -> _Note:
    return record.decode(
        _Note,
        hint="It records that a restore rolled outputs back. Restore the job again with --sink rollback, "
        "and move the record away.",
    )


def taken_back_records(control: JobControl, query: str | None) -> RecordStream:
    """The notes of a query."""
    return control.signed(f"taken-back/{query or MAIN}")
