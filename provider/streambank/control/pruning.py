"""Deleting old records of a job, so that a job that lives for years does not drown in what it remembers.

Of each stream the newest 100 records stay, and every one younger than 30 days. Beyond that stay:

* of `events/` the newest of each kind, since a job's status asks for the last launch, death or stop, however
  long ago that was;
* of `requests/` those to the newest epoch of the lease and, as long as their request is there, answers;
* of `launches/` those that a record of the lease names: a driver that lives is found again by them; with a
  launch go its records in `located/` and `released/`.

`generation/`, `removed/`, `restores/`, `upgrades/`, `chosen/` and `taken-back/` are never pruned: they grow
by a few with a restore or an upgrade, and tell where data came from. A record's age is judged by the clock of
whoever wrote it. That is good enough, since only the length of the history rests on it: what counts is always
the newest record, and no number is used twice (records.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from streambank.control.control import JobControl
from streambank.control.records import Record, RecordStream
from streambank.core.errors import FormatError, NotFoundError, StreambankError
from streambank.core.units import from_json_time, utc_now

NEWEST = 100
"""How many records of a stream stay, however old they are."""
AGE = timedelta(days=30)
"""Younger records stay, however many there are."""
AT_MOST = 100
"""How many records of a stream one call looks at, so that whoever calls is soon done."""
NOT_PRUNED = "records-not-pruned"
"""The kind of event that says why old records could not be deleted."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays.

    Attributes:
        newest: So many records of each stream.
        before: Every record that was written at this time or later.
        at_most: How many records of a stream one call looks at.
    """

    newest: int
    before: datetime
    at_most: int = AT_MOST


def prune_records(control: JobControl, retention: Retention | None = None) -> int:
    """Delete old records of a job. Safe beside anybody, at any time; a crash leaves less to do for the next.

    Args:
        retention: What stays; `NEWEST` and `AGE` when left out.
    """
    what = retention or Retention(NEWEST, utc_now() - AGE)
    lease = control.lease.claims.records
    requests, answers = control.requests.records, control.requests.answers
    count = 0
    several = [
        control.stream(f"{folder}/{name}")
        for folder in ("queries", "sla/told", "alerts", "sla/hot-keys")
        for name in control.store.names(folder)
    ]
    claims = (control.operation_lock.claims.records, control.watches.records)
    for stream in (control.desired_records, control.stream("launched"), *claims, *several):
        count += _drop(stream, _old(stream, what))
    count += _drop(control.event_records, _but_last_of_each_kind(_old(control.event_records, what)))
    epoch = max(lease.numbers(), default=0)
    count += _drop(requests, [one for one in _old(requests, what) if one.data.get("epoch") != epoch])
    # An answer goes after its request, or the request would look as if it were still to be answered. It has
    # the request's number, so none can be used twice here.
    asked, gone_up_to = set(requests.numbers()), requests.pruned_up_to()
    for number in answers.numbers():
        if number <= gone_up_to and number not in asked:
            control.store.delete(answers.key(number))
    count += _drop(lease, _old(lease, what))
    return count + _prune_launches(control, what)


def prune_and_tell(control: JobControl) -> None:
    """`prune_records` for whoever does something else: where it fails an event says so, and they go on.

    Raises:
        StorageError: Not even that could be recorded.
    """
    try:
        prune_records(control)
    except StreambankError as error:
        control.record_event(NOT_PRUNED, code=error.code, why=error.message)


def _old(stream: RecordStream, what: Retention) -> list[Record]:
    """Records that may go, ascending. One that cannot be read, or does not say when it was, is left alone."""
    found: list[Record] = []
    for number in stream.numbers()[: -what.newest][: what.at_most]:
        try:
            record = stream.record(number, stream.read(number))
            at = from_json_time(str(record.data["at"]))
        except NotFoundError:
            continue  # somebody else prunes, too
        except (FormatError, KeyError, ValueError):
            continue
        if at >= what.before:
            break
        found.append(record)
    return found


def _but_last_of_each_kind(records: list[Record]) -> list[Record]:
    last = {record.data.get("kind"): record.number for record in records}
    return [record for record in records if last[record.data.get("kind")] != record.number]


def _drop(stream: RecordStream, records: Collection[Record]) -> int:
    stream.drop([record.number for record in records])
    return len(records)


def _prune_launches(control: JobControl, what: Retention) -> int:
    before_ns = what.before.timestamp() * 1e9
    launches = sorted(control.store.list("launches"), key=lambda info: info.mtime_ns)
    old = [info for info in launches[: -what.newest][: what.at_most] if 0 < info.mtime_ns < before_ns]
    named = control.lease.launches() if old else set()
    doomed = [info for info in old if _launch_id(info.path) not in named]
    for info in doomed:
        for beside in ("located", "released"):
            control.store.delete(f"{beside}/{_launch_id(info.path)}.json")
        control.store.delete(info.path)
    return len(doomed)


def _launch_id(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".json")
