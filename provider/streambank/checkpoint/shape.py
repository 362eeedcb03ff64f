"""What a closure is: its files, and what they tell about the query after the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from streambank.checkpoint.sources import SourceState
from streambank.core.choices import ClosureKind
from streambank.core.shape import HIDDEN, JsonObject

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
URGENCY_LOG = 0
"""Logs go first: Spark keeps only `minBatchesToRetain` batches of them."""
URGENCY_LAST = 1 << 62
"""Metadata and schemas, which Spark keeps."""


@dataclass(frozen=True, slots=True)
class ClosureFile:
    """One file of a closure.

    Attributes:
        role: metadata, offsets, commits, source, operator, schema, state-snapshot, state-changelog, state-sst
            (any of RocksDB's data files) or checksum.
        urgency: Lower is deleted sooner by Spark, so it is held and copied first: logs, then state by
            version.
        required: Spark cannot go on without it. Checksums, schemas that Spark rewrites and operator
            metadata of version 1 are carried, but may be missing.
    """

    path: str
    size_bytes: int
    role: str
    urgency: int
    required: bool = True


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a store after the batch, as far as its files tell.

    Attributes:
        rows: Its rows; None where there are changes after the newest snapshot, or nobody counted.
        base_version: The state version of its newest snapshot; 0 where there is none yet.
        base_rows: Rows at that version; None where nobody counted.
        base_bytes: Bytes of the rows of that snapshot: of its SST files, or of the HDFS-backed snapshot.
        largest_change_bytes: Bytes of the largest of them; 0 for none.
    """

    partition: int
    rows: int | None
    base_version: int
    base_rows: int | None
    base_bytes: int
    change_files: int
    change_bytes: int
    largest_change_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes that Spark reads to have the partition, but for the little that RocksDB says of itself."""
        return self.base_bytes + self.change_bytes


@dataclass(frozen=True, slots=True)
class StoreState:
    """One store of an operator after the batch; rows (of all column families) where the files count them."""

    store: str
    partitions: int
    rows: int | None
    bytes: int
    parts: Annotated[tuple[PartitionState, ...], HIDDEN] = ()


@dataclass(frozen=True, slots=True)
class OperatorState(JsonObject):
    """One stateful operator after the batch; Spark 3.5 left no name of it."""

    operator: int
    name: str | None
    stores: tuple[StoreState, ...]
    variables: Annotated[tuple[str, ...], HIDDEN] = ()
    timers: Annotated[bool, HIDDEN] = False


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """What the files tell about the Spark that wrote them; its version is not among it.

    Attributes:
        checkpoint_format: 2 where state versions have unique ids, else 1.
        provider: `hdfs` or `rocksdb`; None where the query has no state.
        provider_class: The class as the offset log names it.
        shuffle_partitions: Partitions of the state, as the offset log says.
        snapshot_version: The newest format that one of its RocksDB snapshots has (`ZipMetadata.version`);
            None where there is no snapshot.
    """

    offsets_version: int
    commits_version: int
    checkpoint_format: int
    provider: str | None
    provider_class: str | None
    codec: str | None
    shuffle_partitions: int | None
    snapshot_version: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files that are not understood: no closure has them. A pattern has `<n>` and `<id>` for what differs."""

    pattern: str
    example: str
    files: int


@dataclass(frozen=True, slots=True)
class Closure:
    """Everything Spark needs to go on after a batch, and what the files tell about it.

    Attributes:
        kind: `minimal` is enough; `safe` has one older snapshot of each store too, where there is one.
        watermark_ms: Event-time watermark after the batch, milliseconds since the epoch; None for none.
        operators: Stateful operators by id; empty for a stateless query.
        offset_conf: The settings in the offset log, which win over a session's.
        notes: What was found damaged on the way and could be done without.
    """

    batch: int
    kind: ClosureKind
    files: tuple[ClosureFile, ...]
    query_id: str
    watermark_ms: int | None
    operators: tuple[OperatorState, ...]
    offset_conf: Mapping[str, str]
    sources: tuple[SourceState, ...]
    spark: SparkFacts
    notes: tuple[str, ...] = field(default=())
    left_out: tuple[LeftOut, ...] = field(default=())

    @property
    def bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def paths(self) -> Sequence[str]:
        return [file.path for file in self.files]
