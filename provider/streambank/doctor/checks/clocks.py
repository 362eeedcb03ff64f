"""Clocks that are apart: of this machine, of the driver's, and of the storage.

`now` is by this machine's clock, taken after what is compared with it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from streambank.checkpoint.closure import ClosurePlanner
from streambank.control.progress import ProgressRecord
from streambank.core.errors import StorageError
from streambank.core.finding import Finding
from streambank.core.units import from_epoch_ms, say_duration, time_or_none, to_json_time
from streambank.doctor.subject import CheckResult, SkippedCheck
from streambank.repository.manifest import Manifest
from streambank.storage.store import FileInfo, Served, Store

MOST = timedelta(seconds=5)
"""Clocks that are kept by NTP differ by milliseconds; files of a service have times in whole seconds."""
_STORAGE = "by the clock of its storage"
_EFFECT = (
    "Ages, limits, schedules and leases that cross machines are off by as much, and S3 refuses requests that "
    "are 15 minutes off."
)
_HINT = "Let NTP (chrony, systemd-timesyncd) keep the clocks of all machines; `timedatectl` shows its state."


def check_files(listing: Mapping[str, FileInfo], now: datetime) -> Iterator[Finding]:
    """Files of the logs that are newer than now, by this machine's clock."""
    logs = [info for path, info in listing.items() if path.startswith(("commits/", "offsets/"))]
    newest = max(logs, key=lambda info: info.mtime_ns, default=None)
    written = None if newest is None else from_epoch_ms(newest.mtime_ns // 1_000_000)
    if newest is not None and written is not None:
        here = f"here it is {to_json_time(now)}"
        yield from _ahead(newest.path, "It was written", _STORAGE, written, here, now)


def check_planned(planner: ClosurePlanner, batch: int | None) -> Iterator[Finding]:
    """A batch that was written down before it was planned: the driver's clock against that of the storage."""
    path = None if batch is None else planner.index.offsets.get(batch)
    if path is None:
        return
    planned = from_epoch_ms(planner.files.offsets(path).timestamp_ms)
    written_ns = planner.index.listing[path].mtime_ns
    written = from_epoch_ms(written_ns // 1_000_000) if written_ns > 0 else None
    if planned is not None and written is not None:
        there = f"it was written at {to_json_time(written)} {_STORAGE}"
        yield from _ahead(path, "Its driver planned it", "by its own clock", planned, there, written)


def check_driver(newest: ProgressRecord | None, now: datetime) -> Iterator[Finding]:
    """A record that its driver wrote later than now."""
    if newest is not None:
        wrote = f"Its driver wrote the record of batch {newest.batch}"
        here = f"here it is {to_json_time(now)}"
        yield from _ahead("progress", wrote, "by its own clock", newest.at, here, now)


def _ahead(
    file: str, what: str, clock: str, moment: datetime, there: str, other: datetime
) -> Iterator[Finding]:
    """A moment by one clock that is later than what comes after it, by another one."""
    if moment - other > MOST:
        apart = say_duration((moment - other).total_seconds())
        yield _apart(file, f"{what} at {to_json_time(moment)} {clock}, and {there}: {apart} earlier.")


def check_taken(savepoints: Iterable[Manifest], now: datetime) -> Iterator[Finding]:
    """Savepoints that were taken later than now."""
    ahead = [savepoint for savepoint in savepoints if savepoint.taken_at - now > MOST]
    if ahead:
        last = max(ahead, key=lambda one: one.taken_at)
        others = f" (and {len(ahead) - 1} others)" if ahead[1:] else ""
        yield Finding(
            "time-in-the-future",
            "warning",
            f"savepoint {last.savepoint}",
            f"Savepoint {last.savepoint}{others} was taken at {to_json_time(last.taken_at)} by its clock, "
            f"and here it is {to_json_time(now)}.",
            "References by time find it too late, it looks newer than it is, and retention keeps it longer.",
            f"{_HINT} `latest` and `latest-good` go by batches; name other savepoints by id or batch.",
        )


def check_happened(events: Iterable[Mapping[str, Any]], now: datetime) -> Iterator[Finding]:
    """Records of the job that were written later than now."""
    ahead = [
        (at, event)
        for event in events
        if (at := time_or_none(event.get("at"))) is not None and at - now > MOST
    ]
    if ahead:
        at, last = max(ahead, key=lambda pair: pair[0])
        yield Finding(
            "time-in-the-future",
            "warning",
            "events",
            f"{len(ahead)} of the newest events are of a time that has not come, such as {last.get('kind')} "
            f"at {to_json_time(at)}; here it is {to_json_time(now)}.",
            "How long a job is down, or unwatched, is said wrongly until that time is over.",
            _HINT,
        )


def check_service(store: Store, clock: Callable[[], datetime]) -> Iterator[CheckResult]:
    """The clock of a storage service against this machine's."""
    if not isinstance(store, Served):
        return
    before = clock()
    try:
        there = store.server_time()
    except StorageError as error:
        yield SkippedCheck("the clock of the storage service", error.message, error.hint)
        return
    after = clock()
    # The answer was made between the two, and tells whole seconds only.
    apart = max(before - there - timedelta(seconds=1), there - after)
    if apart > MOST:
        yield _apart(
            store.uri,
            f"Its service says that it is {to_json_time(there)}, and this machine {to_json_time(after)}.",
        )


def _apart(file: str, cause: str) -> Finding:
    return Finding("clock-skew", "warning", file, cause, _EFFECT, _HINT)
