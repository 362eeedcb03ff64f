"""The metrics by name: what each one is, where Spark says it, and what stands for it without the runner.

docs/reference/sla.md begins with the same table; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is measured of each batch.

    Attributes:
        name: Its name in declarations, verdicts and JSON.
        unit: `rows`, `bytes`, `s`, `ms`, `batches` or `files`. A kB is 1000 bytes, a GB 10^9.
        source: Where it comes from: fields of Spark's progress, or other records.
        summed: How partitions and operators come to one value.
        unmanaged: What stands for it where there are no progress records, only a checkpoint; `-` for nothing.
    """

    name: str
    unit: str
    meaning: str
    source: str
    summed: str
    unmanaged: str


NOTHING = "-"
_SUM = "sum of partitions and operators"
_BATCH = "one per batch"

_ALL = (
    Metric("input_rows", "rows", "rows that the batch read", "`numInputRows`", "sum of sources", NOTHING),
    Metric(
        "state_rows",
        "rows",
        "rows in the state after the batch",
        "`stateOperators[].numRowsTotal`",
        _SUM,
        "RocksDB: rows that the newest snapshots count (`numKeys`, of all column families)",
    ),
    Metric(
        "state_bytes",
        "bytes",
        "size of the state: RocksDB's SST files (without its memory and its changelogs); HDFS-backed: "
        "Spark's estimate of the current version in memory",
        "`rocksdbSstFileSize`; `stateOnCurrentVersionSizeBytes`, or `memoryUsedBytes` if that is missing",
        _SUM,
        "SST files that the newest snapshots name, or bytes of HDFS-backed snapshot files (compressed); "
        "for a partition without a snapshot, the changes so far",
    ),
    Metric(
        "state_memory_bytes",
        "bytes",
        "memory that state stores take; HDFS-backed ones hold several versions",
        "`memoryUsedBytes`",
        _SUM,
        NOTHING,
    ),
    Metric("updated_rows", "rows", "state rows that the batch wrote", "`numRowsUpdated`", _SUM, NOTHING),
    Metric("removed_rows", "rows", "state rows that the batch removed", "`numRowsRemoved`", _SUM, NOTHING),
    Metric(
        "dropped_rows",
        "rows",
        "rows that came too late for the watermark",
        "`numRowsDroppedByWatermark`, which counts after any partial aggregation",
        _SUM,
        NOTHING,
    ),
    Metric(
        "batch_s",
        "s",
        "how long the batch took",
        "`durationMs.triggerExecution`",
        _BATCH,
        "from the writing of `offsets/N` to that of `commits/N`",
    ),
    Metric("wal_s", "s", "writing the offset log", "`durationMs.walCommit`", _BATCH, NOTHING),
    Metric(
        "state_commit_s",
        "s",
        "committing the state: the time that one task takes on average",
        "`commitTimeMs`, a sum over tasks, divided by their number: `numShufflePartitions`, or "
        "`numStateStoreInstances` if there are fewer of those",
        "mean of partitions, sum of operators",
        NOTHING,
    ),
    Metric("commit_s", "s", "writing the commit log", "`durationMs.commitOffsets`", _BATCH, NOTHING),
    Metric(
        "checkpoint_s",
        "s",
        "how long the checkpoint takes in the batch",
        "`wal_s` + `state_commit_s` + `commit_s`",
        "as for its parts",
        NOTHING,
    ),
    Metric(
        "get_ms",
        "ms",
        "one read of the state (RocksDB)",
        "`rocksdbGetLatency` / `rocksdbGetCount`; Spark rounds each task's sum down to whole milliseconds",
        "total time divided by all calls",
        NOTHING,
    ),
    Metric(
        "put_ms",
        "ms",
        "one write to the state (RocksDB)",
        "`rocksdbPutLatency` / `rocksdbPutCount`; rounded down likewise",
        "total time divided by all calls",
        NOTHING,
    ),
    Metric(
        "snapshot_age_batches",
        "batches",
        "how many changes Spark replays to load the state: batches since the newest snapshot",
        "batch + 1 - `SnapshotLastUploaded.partition_P_STORE`; if that is -1, nothing was uploaded since "
        "the store was loaded, and batches of the run are counted",
        "the largest: Spark reports the five oldest",
        "the same, from the files of the batch",
    ),
    Metric(
        "watermark_lag_s",
        "s",
        "how far event time is behind the clock",
        "time of the batch - `eventTime.watermark`",
        _BATCH,
        "time of `commits/N` - `batchWatermarkMs` of `offsets/N`",
    ),
    Metric(
        "source_lag_rows",
        "rows",
        "rows that wait in the source, if the source reports it (Kafka)",
        "`sources[].latestOffset` - `endOffset` of every partition of every topic",
        "sum of the sources that report it",
        NOTHING,
    ),
    Metric(
        "gap_s",
        "s",
        "time from the end of the previous batch to the beginning of this one, restarts included",
        "`timestamp` - (`timestamp` + `durationMs.triggerExecution` of the previous batch)",
        _BATCH,
        "from the writing of `commits/N-1` to that of `offsets/N`, the next batch's planning included",
    ),
    Metric(
        "checkpoint_bytes",
        "bytes",
        "size of the checkpoint directory, only for the newest batch",
        "its listing",
        "sum of files",
        "the same",
    ),
    Metric(
        "checkpoint_files",
        "files",
        "files in the checkpoint directory, only for the newest batch",
        "its listing",
        "number of files",
        "the same",
    ),
    Metric(
        "oldest_snapshot_age_batches",
        "batches",
        "batches since the oldest snapshot that still exists, only for the newest batch; it grows if Spark "
        "no longer cleans up",
        "names in the checkpoint directory",
        "the largest",
        "the same",
    ),
    Metric(
        "savepoint_age_s",
        "s",
        "how old the newest savepoint's batch is: how far a restore would go back (RPO)",
        "the repository",
        "one per query",
        "the same, if the repository has savepoints of the query",
    ),
    Metric(
        "replayable_for_s",
        "s",
        "how long from now the sources still have the input after the newest savepoint",
        "the brokers of a topic: its retention, and the time of the oldest record that is needed; the files "
        "of a file source",
        "the shortest of the sources",
        NOTHING,
    ),
    Metric(
        "replica_age_s",
        "s",
        "how old the newest savepoint's batch in a replica is: how far a restore would go back after a "
        "disaster",
        "the replicas",
        "one per query: the oldest of all replicas, or that of the standby",
        NOTHING,
    ),
    Metric(
        "drill_age_s",
        "s",
        "how long ago a drill of the job passed",
        "the job's records",
        "one per job",
        NOTHING,
    ),
    Metric(
        "copy_age_s",
        "s",
        "how old the batch of the savepoint is that a copy of the job's state holds",
        "the records of the copy",
        "one per query: the oldest of all copies",
        NOTHING,
    ),
    Metric(
        "recovery_s",
        "s",
        "time from the launch of a driver, the request to restart it, or the start of a restore, to the next "
        "committed batch (RTO)",
        "the job's records",
        "one per start, restart or restore",
        NOTHING,
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric, in the order of the table in the docs."""
