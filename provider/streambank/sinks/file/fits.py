"""Whether the log of a file sink is a query's own, by when its entries were written.

Nothing in the log names its query. But in each batch Spark writes `offsets/N`, then the sink's entry N, then
`commits/N` (4.3.0: MicroBatchExecution; on a local disk, the times of these files keep that order). So an
entry that was written outside of that time is not of this query. Many that were written inside are hardly
another one's, unless that runs in step with it: whoever relies on it makes sure that no other query fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streambank.checkpoint.position import is_batch

Windows = Mapping[int, tuple[int, int]]
"""By batch: when its offsets and its commit were written, in nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """What the times of a log say: which entries were written while the query ran their batches."""

    agree: tuple[int, ...]
    against: tuple[int, ...]


def windows_of(files: Iterable[tuple[str, int]]) -> Windows:
    """When each batch of a checkpoint ran, of those that ran in this directory.

    What a restore has written there is older than `metadata`, which it writes last. A copy whose files do not
    keep their times shows no batch, or ones that no log agrees with.
    """
    times = dict(files)
    began = times.get("metadata", 0)
    found = {}
    for path, committed in times.items():
        folder, _, name = path.rpartition("/")
        if folder == "commits" and is_batch(name):
            planned = times.get(f"offsets/{name}", 0)
            if began <= planned <= committed and planned > 0:
                found[int(name)] = (planned, committed)
    return found


def fit_of(windows: Windows, entries: Iterable[tuple[int, int]]) -> ClockFit:
    """Compare a log with the batches of a checkpoint."""
    agree: list[int] = []
    against: list[int] = []
    for batch, written in entries:
        if (window := windows.get(batch)) is not None:
            (agree if window[0] <= written <= window[1] else against).append(batch)
    return ClockFit(tuple(sorted(agree)), tuple(sorted(against)))
