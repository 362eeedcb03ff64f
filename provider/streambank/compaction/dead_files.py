"""Which files of a checkpoint are dead.

A file is dead for a reason that can be named, or it stays: what is not understood stays, and so do the logs
of sources, schemas, and operator metadata of version 1. Checksums share the fate of the file that they are
about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.grammar import Kind, Part, classify
from streambank.checkpoint.index import CheckpointIndex
from streambank.storage import FileInfo

StoreKey = tuple[int, int, str]
"""Operator, partition, store."""

FILES = "files"
"""The folder of a quarantine that dead files are moved to."""

_VERSIONED = frozenset({Kind.SNAPSHOT, Kind.DELTA, Kind.ZIP, Kind.CHANGELOG})
_DATA = frozenset({Kind.SST, Kind.WAL})


class DeadFile(NamedTuple):
    """A file that Spark will never read again; its identity tells it from others of its name."""

    path: str
    size_bytes: int
    reason: DeadReason
    identity: str

    @property
    def key(self) -> str:
        """What it is called in a quarantine."""
        return f"{FILES}/{self.path}"


@dataclass(slots=True)
class Needed:
    """What the batches that are kept need, sorted for the questions that are asked of each file.

    Attributes:
        partitions: How many partitions an operator has in any kept batch, and at least as many as the offset
            log says: a global aggregation has one, and others are not judged by that.
        operator_metadata: The first batch whose operator metadata of version 2 is needed.
    """

    paths: frozenset[str]
    newest: int
    oldest_offsets: int
    oldest_commit: int
    stores: dict[int, set[str]] = field(default_factory=dict)
    partitions: dict[int, int] = field(default_factory=dict)
    operator_metadata: dict[int, int] = field(default_factory=dict)
    versions: dict[StoreKey, set[tuple[int, str | None]]] = field(default_factory=dict)
    oldest_version: dict[StoreKey, int] = field(default_factory=dict)

    @classmethod
    def by(cls, closures: Sequence[Closure]) -> Needed:
        """What some closures need, the one of the newest committed batch among them."""
        paths = frozenset(path for closure in closures for path in closure.paths)
        batches = [closure.batch for closure in closures]
        needed = cls(paths, max(batches), max(min(batches) - 1, 0), min(batches))
        for closure in closures:
            for operator in closure.operators:
                number = operator.operator
                needed.stores.setdefault(number, set()).update(store.store for store in operator.stores)
                counts = [store.partitions for store in operator.stores]
                most = max([needed.partitions.get(number, 0), closure.spark.shuffle_partitions or 0, *counts])
                needed.partitions[number] = most
        for path in paths:
            needed._take_in(classify(path))
        return needed

    def keep_commits_from(self, batch: int) -> None:
        self.oldest_commit = min(self.oldest_commit, batch)

    def _take_in(self, part: Part) -> None:
        if part.kind is Kind.OPERATOR_V2 and part.operator is not None and part.batch is not None:
            first = self.operator_metadata.get(part.operator, part.batch)
            self.operator_metadata[part.operator] = min(first, part.batch)
        if part.kind in _VERSIONED and (key := _store(part)) is not None and part.version is not None:
            self.versions.setdefault(key, set()).add((part.version, part.unique_id))
            self.oldest_version[key] = min(self.oldest_version.get(key, part.version), part.version)


class _Judge(ABC):
    def __init__(self, listing: Mapping[str, FileInfo]) -> None:
        self._listing = listing

    def dead(self) -> Iterator[DeadFile]:
        for path, info in self._listing.items():
            if (reason := self.judge(path)) is not None:
                yield DeadFile(path, info.size_bytes, reason, info.identity)

    @abstractmethod
    def judge(self, path: str) -> DeadReason | None: ...


class Stopped(_Judge):
    """Judges the files of a query that does not run."""

    def __init__(self, listing: Mapping[str, FileInfo], needed: Needed) -> None:
        super().__init__(listing)
        self._needed = needed

    def judge(self, path: str) -> DeadReason | None:
        if path in self._needed.paths:
            return None
        part = classify(path)
        match part.kind:
            case Kind.TEMPORARY:
                return DeadReason.TEMPORARY
            case Kind.CHECKSUM | Kind.HIDDEN_CHECKSUM if part.of is not None:
                return self.judge(part.of) if part.of in self._listing else DeadReason.ORPHAN_CHECKSUM
            case Kind.OFFSETS if part.batch is not None and part.batch < self._needed.oldest_offsets:
                return DeadReason.OLD_LOG_ENTRY
            case Kind.COMMITS if part.batch is not None and part.batch < self._needed.oldest_commit:
                return DeadReason.OLD_LOG_ENTRY
            case Kind.OPERATOR_V2 if part.operator is not None and part.batch is not None:
                first = self._needed.operator_metadata.get(part.operator)
                return DeadReason.OLD_OPERATOR_METADATA if first is not None and part.batch < first else None
            case kind if kind in _VERSIONED or kind in _DATA:
                return self._state(part)
        return None

    def _state(self, part: Part) -> DeadReason | None:
        key = _store(part)
        if key is None:
            return None
        operator, partition, store = key
        if store not in self._needed.stores.get(operator, ()):
            return None  # nobody knows whose it is
        if partition >= self._needed.partitions[operator]:
            return DeadReason.ABANDONED_PARTITION
        versions = self._needed.versions.get(key)
        if versions is None:
            return None  # such as the other partitions of a store that has rows in one only
        if part.kind in _DATA:
            return DeadReason.UNNAMED_DATA
        assert part.version is not None
        if part.version > self._needed.newest + 1:
            return DeadReason.ABANDONED_ATTEMPT
        committed = {unique_id for version, unique_id in versions if version == part.version}
        if part.unique_id is not None and committed and part.unique_id not in committed:
            return DeadReason.OTHER_ATTEMPT
        return DeadReason.SUPERSEDED


class RunningQuery(_Judge):
    """Judges the files of a query that may run: unfinished writes, old ones that nobody can go on with.

    Args:
        before_ns: Only files that nobody has written to since then, in nanoseconds since the epoch.
    """

    def __init__(self, index: CheckpointIndex, before_ns: int) -> None:
        super().__init__(index.listing)
        self._index = index
        self._before_ns = before_ns
        self._newest = max(index.commits, default=-1)

    def judge(self, path: str) -> DeadReason | None:
        part = classify(path)
        if part.of is None or part.kind not in (Kind.TEMPORARY, Kind.HIDDEN_CHECKSUM):
            return None
        if part.kind is Kind.HIDDEN_CHECKSUM:
            is_unfinished = classify(part.of).kind is Kind.TEMPORARY and part.of in self._listing
            return self.judge(part.of) if is_unfinished else None
        mtime_ns = self._listing[path].mtime_ns
        if not 0 < mtime_ns < self._before_ns:
            return None
        return DeadReason.TEMPORARY if self._is_over(classify(part.of)) else None

    def _is_over(self, target: Part) -> bool:
        """Whether what a file was to become is there already, or belongs to what was committed long ago."""
        if target.kind is Kind.CHECKSUM and target.of is not None:
            target = classify(target.of)
        if target.kind in _VERSIONED:
            return target.version is not None and target.version <= self._newest + 1
        if target.kind is Kind.SOURCE_LOG and target.source is not None and target.batch is not None:
            entries = [part.batch for part in self._index.sources.get(target.source, ())]
            return any(batch is not None and batch >= target.batch for batch in entries)
        if target.kind in (Kind.OFFSETS, Kind.COMMITS, Kind.OPERATOR_V2, Kind.SCHEMA_V3):
            return target.batch is not None and target.batch <= self._newest
        if target.kind in (Kind.METADATA, Kind.OPERATOR_V1, Kind.SCHEMA_V2):
            return target.path in self._listing
        return False


def _store(part: Part) -> StoreKey | None:
    if part.operator is None or part.partition is None or part.store is None:
        return None
    return part.operator, part.partition, part.store


class DeadReason(StrEnum):
    """Why Spark will never read a file again."""

    OLD_LOG_ENTRY = "old-log-entry"
    OLD_OPERATOR_METADATA = "old-operator-metadata"
    ABANDONED_PARTITION = "abandoned-partition"
    ABANDONED_ATTEMPT = "abandoned-attempt"
    OTHER_ATTEMPT = "other-attempt"
    SUPERSEDED = "superseded"
    UNNAMED_DATA = "unnamed-data"
    TEMPORARY = "temporary"
    ORPHAN_CHECKSUM = "orphan-checksum"


WHY = {
    DeadReason.OLD_LOG_ENTRY: "an entry of the offset or commit log before the batches that are kept",
    DeadReason.OLD_OPERATOR_METADATA: (
        "operator metadata older than what the batches that are kept were run with"
    ),
    DeadReason.ABANDONED_PARTITION: "a partition beyond the number that the state has",
    DeadReason.ABANDONED_ATTEMPT: "state of a batch that was never committed, and that is run again",
    DeadReason.OTHER_ATTEMPT: "state of an attempt at a batch that another attempt committed",
    DeadReason.SUPERSEDED: "state older than what the batches that are kept start from",
    DeadReason.UNNAMED_DATA: "a data file of RocksDB that no kept snapshot names",
    DeadReason.TEMPORARY: "a write that was never finished",
    DeadReason.ORPHAN_CHECKSUM: "a checksum of a file that is not there",
}
"""Each reason as a sentence without its end."""

NEVER_NEEDED = frozenset({DeadReason.ABANDONED_ATTEMPT, DeadReason.TEMPORARY, DeadReason.ORPHAN_CHECKSUM})
"""What no batch ever needed: an undo may leave it where it is, if something else has its name by now."""

IN_ORDER = frozenset({DeadReason.OLD_LOG_ENTRY})
"""What goes one after the other, and comes back the other way round: a log never has a gap."""

_STAGES = (
    # What names other files goes before what it names: nobody who looks in the middle finds it torn.
    {DeadReason.OLD_LOG_ENTRY, DeadReason.OLD_OPERATOR_METADATA},
    {
        DeadReason.ABANDONED_PARTITION,
        DeadReason.ABANDONED_ATTEMPT,
        DeadReason.OTHER_ATTEMPT,
        DeadReason.SUPERSEDED,
    },
    {DeadReason.UNNAMED_DATA, DeadReason.TEMPORARY, DeadReason.ORPHAN_CHECKSUM},
)


def stage(reason: DeadReason) -> int:
    """When files of a reason go: those of a lower stage first."""
    return next(number for number, reasons in enumerate(_STAGES) if reason in reasons)
