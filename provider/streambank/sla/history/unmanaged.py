"""What a checkpoint tells by itself of a query that nobody manages: when it committed, how its state grows.

Times are those of the files: when `offsets/N` and `commits/N` were written, by the clock of their storage. A
copy of a checkpoint tells the times of the copying. State is told by its newest snapshots: Spark's files
since then say what changed, not how much there is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from streambank.checkpoint.closure import Closure, ClosurePlanner, require_commit_log
from streambank.checkpoint.grammar import Kind
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.listing import list_checkpoint
from streambank.checkpoint.shape import PartitionState
from streambank.core.errors import NotFoundError, StorageError, StreambankError
from streambank.core.shape import JsonObject
from streambank.core.units import EPOCH, from_epoch_ms
from streambank.sla.history.clock_order import in_order
from streambank.sla.history.point import History, Point, over_all
from streambank.sla.history.summary import HistoryMetrics
from streambank.storage.store import Store

MOST_STORES = 5000
"""How many stores' files are looked at, of all batches together; where there are more, batches between the
oldest and the newest are left out."""
_SNAPSHOTS = (Kind.SNAPSHOT, Kind.ZIP)
_SPENT = ("batch-not-retained", "checkpoint-moved")


@dataclass(frozen=True, slots=True)
class PartitionMeasure:
    """One store of an operator in one partition, as its newest snapshot and the changes since tell."""

    operator: int
    store: str
    state: PartitionState

    @property
    def bytes(self) -> int:
        """What counts as its size: the snapshot; before the first one, the changes so far."""
        return self.state.base_bytes if self.state.base_version else self.state.change_bytes

    def to_dict(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "partition": self.state.partition,
            "store": self.store,
            "snapshot_version": self.state.base_version,
            "rows": self.state.base_rows,
            "bytes": self.bytes,
            "changes": self.state.change_files,
            "change_bytes": self.state.change_bytes,
        }


@dataclass(frozen=True, slots=True)
class StateGrowth(JsonObject):
    """How the state changed between two batches, by their snapshots; rows are None where files count none."""

    from_batch: int
    to_batch: int
    seconds: float
    rows: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointMeasurement:
    """A checkpoint as it was measured.

    Attributes:
        history: A point for each committed batch whose files are still there; those that were not looked into
            have times only.
        partitions: Every store of every partition after the newest batch that could be looked into.
        growth: From the oldest to the newest of the batches that were looked into; None for fewer than two.
    """

    history: History
    partitions: tuple[PartitionMeasure, ...]
    growth: StateGrowth | None

    def to_dict(self) -> dict[str, Any]:
        gathered = HistoryMetrics.of(self.history).to_dict()
        return {
            **{name: gathered[name] for name in ("batches", "from", "to", "metrics", "operators")},
            "partitions": [partition.to_dict() for partition in self.partitions],
            "growth": self.growth.to_dict() if self.growth else None,
            "notes": gathered["notes"],
        }


def measure_checkpoint(
    store: Store, *, planner: ClosurePlanner | None = None, most_stores: int = MOST_STORES
) -> CheckpointMeasurement:
    """Measure a checkpoint, live or not; never writes, and never reads again what `planner` has.

    Raises:
        NotFoundError: It has no committed batch (code `no-committed-batch`).
        FormatError: It has batches and no commit log (code `no-commit-log`).
        StorageError: It cannot be read. What cannot be read of some batches alone is a note.
    """
    planner = planner or ClosurePlanner(CheckpointIndex.build(list_checkpoint(store)), store.read)
    index = planner.index
    require_commit_log(index)
    if not index.commits:
        raise NotFoundError(
            f"The query at {store.uri} has not committed any batch: there is nothing in commits/ to measure.",
            code="no-committed-batch",
            hint="Wait for its first batch, or give the directory that is its checkpointLocation.",
        )
    batches = sorted(index.commits)
    notes: list[str] = []
    measured = _look(planner, _chosen(index, batches, most_stores), notes)
    times = _Times(planner, batches, notes)
    points = []
    for place, batch in enumerate(batches):
        at = times.committed[place]
        values = times.durations(place)
        watermark = _watermark(planner, batch) if batch in measured else None
        if watermark is not None:
            values["watermark_lag_s"] = (at - watermark).total_seconds()
        operators = _operators(measured.get(batch, ()), batch)
        values |= over_all(operators, ("state_rows", "state_bytes"))
        if place == len(batches) - 1:
            values |= _directory(index, batch)
        points.append(Point(at, batch, None, None, values, operators, watermark))
    newest = max(measured, default=None)
    return CheckpointMeasurement(
        History(store.uri, tuple(points), 0, tuple(notes)),
        tuple(measured[newest]) if newest is not None else (),
        _growth(measured, dict(zip(batches, times.committed, strict=True))),
    )


class _Times:
    """When batches were planned and committed: when their log entries were written."""

    def __init__(self, planner: ClosurePlanner, batches: list[int], notes: list[str]) -> None:
        index = planner.index
        lost = batches[-1] - batches[0] + 1 - len(batches)
        if lost:
            notes.append(f"{lost} lost: batches without a commit, between others that have one.")
        self._batches = batches
        self._planned: dict[int, datetime] = {}
        stamped = [_written(index, index.commits[batch]) for batch in batches]
        if all(moment is not None for moment in stamped):
            for batch in batches:
                moment = _written(index, index.offsets[batch]) if batch in index.offsets else None
                if moment is not None:
                    self._planned[batch] = moment
        else:
            notes.append("Times are those of planning: this storage does not record when files were written.")
            stamped = [_planned_at(planner, batch) for batch in batches]
        known = [moment for moment in stamped if moment is not None]
        jumps = sum(two < one for one, two in pairwise(known))
        if jumps:
            notes.append(
                f"{jumps} clock jumps: batches with an earlier time than the one before, as in copies."
            )
        first = known[0] if known else EPOCH
        filled: list[datetime] = []
        for moment in stamped:
            filled.append(moment if moment is not None else filled[-1] if filled else first)
        self.committed = in_order(filled, None, None)

    def durations(self, place: int) -> dict[str, float]:
        """`batch_s` and `gap_s` of a batch, where the times of both its ends are known."""
        batch = self._batches[place]
        planned = self._planned.get(batch)
        found: dict[str, float] = {}
        if planned is None:
            return found
        took_s = (self.committed[place] - planned).total_seconds()
        if took_s >= 0:
            found["batch_s"] = took_s
        if place and self._batches[place - 1] == batch - 1:
            gap_s = (planned - self.committed[place - 1]).total_seconds()
            if gap_s >= 0:
                found["gap_s"] = gap_s
        return found


def _written(index: CheckpointIndex, path: str) -> datetime | None:
    written_ns = index.listing[path].mtime_ns
    return None if written_ns <= 0 else EPOCH + timedelta(microseconds=written_ns // 1000)


def _planned_at(planner: ClosurePlanner, batch: int) -> datetime | None:
    path = planner.index.offsets.get(batch)
    try:
        return None if path is None else from_epoch_ms(planner.files.offsets(path).timestamp_ms)
    except StreambankError:
        return None


def _watermark(planner: ClosurePlanner, batch: int) -> datetime | None:
    """The watermark that a batch ran with, as progress records have it; its log entry was read before."""
    watermark_ms = planner.files.offsets(planner.index.offsets[batch]).watermark_ms
    return from_epoch_ms(watermark_ms) if watermark_ms > 0 else None


def _chosen(index: CheckpointIndex, batches: list[int], most_stores: int) -> list[int]:
    """Which batches to look into: all, or so many evenly spread ones, from the oldest to the newest."""
    stores = sum(len(operator.stores) for operator in index.operators.values())
    count = max(2, most_stores // max(1, stores))
    if count >= len(batches):
        return batches
    return sorted({batches[step * (len(batches) - 1) // (count - 1)] for step in range(count)})


def _look(planner: ClosurePlanner, batches: list[int], notes: list[str]) -> dict[int, list[PartitionMeasure]]:
    measured: dict[int, list[PartitionMeasure]] = {}
    broken: dict[str, int] = {}
    unread: StorageError | None = None
    for batch in batches:
        try:
            measured[batch] = _partitions(planner.plan(batch, "minimal"))
        except StreambankError as error:
            if isinstance(error, StorageError):
                unread = error
            if error.code not in _SPENT:
                broken[error.code] = broken.get(error.code, 0) + 1
    if unread is not None and not measured:
        raise unread
    for code, number in broken.items():
        notes.append(f"{number} incomplete: batches whose state could not be read ({code}).")
    return measured


def _partitions(closure: Closure) -> list[PartitionMeasure]:
    return sorted(
        (
            PartitionMeasure(operator.operator, store.store, part)
            for operator in closure.operators
            for store in operator.stores
            for part in store.parts
        ),
        key=lambda one: (one.operator, one.state.partition, one.store),
    )


def _operators(partitions: Iterable[PartitionMeasure], batch: int) -> dict[int, dict[str, float]]:
    by_operator: dict[int, list[PartitionMeasure]] = {}
    for state in partitions:
        by_operator.setdefault(state.operator, []).append(state)
    found: dict[int, dict[str, float]] = {}
    for operator, states in by_operator.items():
        found[operator] = {
            "state_bytes": sum(state.bytes for state in states),
            "snapshot_age_batches": max(batch + 1 - state.state.base_version for state in states),
        }
        rows = _rows(states)
        if rows is not None:
            found[operator]["state_rows"] = rows
    return found


def _rows(states: Iterable[PartitionMeasure]) -> int | None:
    total = 0
    for state in states:
        if state.state.base_rows is None:
            return None
        total += state.state.base_rows
    return total


def directory_sizes(index: CheckpointIndex) -> dict[str, float]:
    """What the listing of a checkpoint says of the whole directory."""
    return {"checkpoint_bytes": index.listing.bytes, "checkpoint_files": len(index.listing)}


def _directory(index: CheckpointIndex, batch: int) -> dict[str, float]:
    values = directory_sizes(index)
    oldest = min(
        (
            version
            for operator in index.operators.values()
            for files in operator.stores.values()
            for kind in _SNAPSHOTS
            for version, _ in files.of(kind)
        ),
        default=None,
    )
    if oldest is not None:
        values["oldest_snapshot_age_batches"] = max(0, batch + 1 - oldest)
    return values


def _growth(measured: Mapping[int, list[PartitionMeasure]], at: Mapping[int, datetime]) -> StateGrowth | None:
    """From the oldest to the newest batch that stands on snapshots alone in every partition."""
    whole = [batch for batch, states in measured.items() if all(state.state.base_version for state in states)]
    whole = [batch for batch in whole if measured[batch]]
    if len(whole) < 2:
        return None
    first, last = min(whole), max(whole)
    rows = (_rows(measured[first]), _rows(measured[last]))
    return StateGrowth(
        first,
        last,
        (at[last] - at[first]).total_seconds(),
        None if rows[0] is None or rows[1] is None else rows[1] - rows[0],
        sum(state.bytes for state in measured[last]) - sum(state.bytes for state in measured[first]),
    )
