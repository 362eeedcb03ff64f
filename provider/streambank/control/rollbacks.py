"""Sinks that a restore takes back, noted before it does, so that no older checkpoint goes on ahead of them.

A restore takes the sinks back and switches the generation after that. Where it ends in between, killed or by
an error, the generation that counts is not the one that its sinks are at: a query that went on in it would
skip batches or leave a gap in its output, without a word. So the note comes first, and a start compares it
with the sinks. It is over once there is a generation of the number that it names, or a higher one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.records import RecordStream
from streambank.core.errors import FormatError, RefusedError
from streambank.core.names import MAIN, QueryRef
from streambank.core.units import to_json_time, utc_now
from streambank.sinks.file.rollback import rollbacks, was_rolled_back
from streambank.storage import open_store
from streambank.storage.store import Store


def note_rollback(
    control: JobControl,
    query: str | None,
    sinks: Sequence[Store],
    tables: Sequence[str],
    *,
    savepoint: str,
    batch: int,
    location: str,
    by: Mapping[str, str],
) -> None:
    """Leave behind that sinks are taken back from now on; with the operation lock in hand.

    Args:
        control: The job's records.
        query: Whose sinks.
        sinks: Output directories of file sinks.
        tables: Tables that are rolled back, as messages call them.
        savepoint: The savepoint that they are taken back to.
        batch: Its batch.
        location: Where the restored checkpoint will be.
        by: Who asks.
    """
    current = control.generation(query)
    if current is None or not (sinks or tables):
        return  # nobody can start an older checkpoint by these records
    _stream(control, query).append(
        {
            "at": to_json_time(utc_now()),
            "by": dict(by),
            "generation": current.number + 1,
            "location": location,
            "savepoint": savepoint,
            "batch": batch,
            "sinks": {sink.uri: list(rollbacks(sink)) for sink in sinks},
            "tables": list(tables),
        }
    )


def check_not_rolled_back(control: JobControl, query: str | None, generation: Generation) -> None:
    """Make sure that no restore has taken a query's sinks back without making a generation for them.

    Raises:
        RefusedError: One has (code `sinks-taken-back`).
        FormatError: Its note cannot be read.
    """
    stream = _stream(control, query)
    record = stream.latest()
    if record is None:
        return
    note = record.data
    try:
        if int(note["generation"]) <= generation.number:
            return
        before = {str(uri): set(names) for uri, names in note["sinks"].items()}
        tables = [str(name) for name in note.get("tables", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"The record {stream.describe(record.number)} is incomplete: {error!r}.",
            code="damaged-record",
            hint="It records that a restore rolled outputs back. Restore the job again with --sink rollback, "
            "and move the record away.",
        ) from error
    outputs = [f"output {uri}" for uri, names in before.items() if was_rolled_back(open_store(uri), names)]
    # Whether a table was rolled back is not asked here: a start must not depend on a database.
    for name in (*outputs, *tables):
        was = "was" if name in outputs else "was or may have been"
        raise RefusedError(
            f"The {name} {was} rolled back to batch {note.get('batch')} by a restore into "
            f"{note.get('location')}, and job {control.name} is still at generation {generation.number}: "
            "rows would be lost if it went on there.",
            code="sinks-taken-back",
            hint=f"Restore the job: `streambank restore {note.get('savepoint')} --job "
            f"{QueryRef.of(control.name, query)} --generation --sink rollback`.",
        )


def _stream(control: JobControl, query: str | None) -> RecordStream:
    return RecordStream(control.store, f"taken-back/{query or MAIN}")
