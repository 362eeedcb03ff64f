"""What each teller has told of a job's SLA, kept among the job's records: `sla/told/<teller>/`.

A teller is whatever tells somebody: a notifier, a mail, a page. Each has a record of its own, so that one
that fails neither keeps the others from telling nor makes them tell again.
"""

from __future__ import annotations

from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.errors import ConflictError
from streambank.core.times import to_json_time, utc_now
from streambank.sla.alerts import Told, read_told
from streambank.storage.names import check_name


def read(control: JobControl, teller: str) -> Told:
    """What a teller has told and has not healed; nothing before its first time.

    Args:
        control: The job's records.
        teller: Its name, such as `mail`: letters, digits, `.`, `_` and `-`.

    Raises:
        InputError: That is no name (code `bad-name`).
        FormatError: The newest record is damaged (`damaged-record`), or of a later version (`bad-told`).
        StorageError: It cannot be read.
    """
    return _latest(_stream(control, teller))[1]


def keep(control: JobControl, teller: str, told: Told, before: Told) -> None:
    """Keep what has been told, after the telling has worked. Nothing is written where nothing changed.

    Args:
        control: The job's records.
        teller: Its name.
        told: What has been told by now.
        before: What `read` gave.

    Raises:
        InputError: `teller` is no name (code `bad-name`).
        ConflictError: Another process has told under this name meanwhile (code `told-meanwhile`): judging
            again tells what is still to be told, and no more.
        FormatError: As `read`.
        StorageError: It could not be written.
    """
    if told.to_dict() == before.to_dict():
        return
    records = _stream(control, teller)
    number, newest = _latest(records)
    same = newest.to_dict() == before.to_dict()
    if not same or not records.create(number + 1, {"at": to_json_time(utc_now()), **told.to_dict()}):
        raise ConflictError(
            f"Another process has told of job {control.name} as {teller} meanwhile.",
            code="told-meanwhile",
            hint="Judge again: it knows by then what was told.",
        )


def _stream(control: JobControl, teller: str) -> RecordStream:
    return RecordStream(control.store, f"sla/told/{check_name(teller, 'teller')}")


def _latest(records: RecordStream) -> tuple[int, Told]:
    """The newest record's number and what it says; 0 and nothing where there is none."""
    record = records.latest()
    return (0, Told()) if record is None else (record.number, read_told(record.data))
