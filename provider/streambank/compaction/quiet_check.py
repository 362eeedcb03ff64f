"""Signs that a query runs, of a checkpoint whose query nobody holds.

They are a net below the word of whoever says that the query is stopped, no proof: a query that waits for data
writes nothing. A declared job is held by its lease instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import RefusedError
from streambank.storage import FileInfo, Store

QUIET_S = 600.0
WATCH_S = 5.0


@dataclass(frozen=True, slots=True)
class QuietCheck:
    """How hard a checkpoint is looked at.

    Attributes:
        quiet_s: Nothing in it may be younger than this, in seconds; 0 where somebody holds the job.
        now_ns: The time, in nanoseconds since the epoch.
    """

    quiet_s: float = QUIET_S
    watch_s: float = WATCH_S
    now_ns: Callable[[], int] = time.time_ns
    sleep: Callable[[float], None] = time.sleep


HELD = QuietCheck(quiet_s=0.0, watch_s=0.0)
"""For a job whose lease is held, which was stopped a moment ago."""


def check_quiet(store: Store, listing: Mapping[str, FileInfo], watch: QuietCheck) -> None:
    """Refuse a checkpoint that somebody has written to a short while ago.

    Raises:
        RefusedError: `signs-of-life`.
    """
    newest = max(listing.values(), key=lambda info: info.mtime_ns, default=None)
    if newest is None or watch.quiet_s <= 0:
        return
    age_s = (watch.now_ns() - newest.mtime_ns) / 1e9
    if age_s < watch.quiet_s:
        said = (
            f"{age_s:.0f} s ago" if age_s >= 0 else f"{-age_s:.0f} s in the future, by this machine's clock"
        )
        raise RefusedError(
            f"{newest.path} in {store.uri} was written {said}: the query may run.",
            code="signs-of-life",
            hint=f"Stop it, and wait until nothing was written for {watch.quiet_s:g} s (--quiet); or leave "
            "--stopped out, which moves unfinished writes only.",
        )


def check_still(store: Store, before: Mapping[str, FileInfo], watch: QuietCheck) -> None:
    """Watch a checkpoint for a while, and refuse it if anything in it changes.

    Raises:
        RefusedError: `signs-of-life`.
    """
    if watch.watch_s > 0:
        watch.sleep(watch.watch_s)
    after = CheckpointReader(store).listing()
    changed = sorted(
        path
        for path in {*before, *after}
        if path not in before or path not in after or before[path].identity != after[path].identity
    )
    if changed:
        raise RefusedError(
            f"{changed[0]} in {store.uri} changed while it was read: the query runs.",
            code="signs-of-life",
            hint="Stop it first; or leave --stopped out, which moves unfinished writes only.",
        )


def check_not_started(store: Store, batch: int | None, planned: int | None) -> None:
    """Refuse a checkpoint whose logs are not where they were, committed and planned.

    Raises:
        RefusedError: The query was started (code `signs-of-life`).
    """
    reader = CheckpointReader(store)
    if (reader.last_committed(), reader.last_planned()) != (batch, planned):
        raise RefusedError(
            f"The query of {store.uri} was started meanwhile.",
            code="signs-of-life",
            hint="Stop it, and try again. What it needs was left alone.",
        )
