"""Every objective that can be declared: what it is about, how it is measured, and its usual limits.

The table for people is in docs/reference/sla-objectives.md, which a test holds to this one. A new objective
has a row here; one that is `reported` has an object of `sla/judge/facts.py`, too, which looks its fact up and
judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Unit = Literal["bytes", "bytes/h", "rows", "rows/h", "s", "ms", "batches", "count", "ratio"]
Statistic = Literal["last", "mean", "median", "p5", "p90", "p95", "p99", "max", "min"]
Kind = Literal["window", "trend", "reported"]

STATISTICS: tuple[Statistic, ...] = ("last", "mean", "median", "p5", "p90", "p95", "p99", "max", "min")

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
GB = 1e9


@dataclass(frozen=True, slots=True)
class Promise:
    """One objective that can be declared, and what holds where it is not.

    Attributes:
        kind: `window`: a statistic of a metric over a window; `trend`: its growth; `reported`: a fact that is
            not in the history, such as a savepoint's age (`sla/judge/facts.py`).
        unit: In which its limits are written: sizes (`"10GB"`), sizes an hour (`"1MB/h"`), durations
            (`"60s"`) and, in the others, numbers.
        metrics: Names of the metrics; of several the worst counts.
        per_operator: Whether every stateful operator is judged by itself.
        stays: Whether the newest value still holds when no batch runs: a size does, a duration does not.
        reset: Whether a new driver begins from nothing, as memory does.
        statistic: What of the window is held against the limits; None where that is not a choice.
        below: Whether it is broken by what is *below* its limits.
        of_job: Whether it is of the job as a whole: each of its queries has the same verdict.
        tells_of_code: Whether new code can be why it is broken. Others an upgrade itself touches, or the code
            has nothing to do with them.
    """

    kind: Kind
    unit: Unit
    meaning: str
    advice: str
    metrics: tuple[str, ...] = ()
    per_operator: bool = False
    stays: bool = False
    reset: bool = False
    warn: float | None = None
    breach: float | None = None
    statistic: Statistic | None = None
    window_s: float | None = None
    below: bool = False
    of_job: bool = False
    tells_of_code: bool = True

    @property
    def begin(self) -> str:
        """The meaning as the beginning of a sentence: `Size of the state`, `How long a batch takes`."""
        return self.meaning[:1].upper() + self.meaning[1:]

    def exceeds(self, value: float, limit: float | None) -> bool:
        return limit is not None and (value < limit if self.below else value > limit)


_SHRINK = "See what the state keeps (is there a watermark, a TTL?), compact it, or give it a larger limit."

PROMISES: Mapping[str, Promise] = {
    "alive": Promise(
        "reported",
        "s",
        "how long a job that must run has had no live driver, only failed starts, or no watcher",
        "Unpause and trigger `<job>.run`, or read the last error in the driver's log. If the job must "
        "not run, trigger `<job>.stop`.",
        breach=5 * MINUTE_S,
        of_job=True,
    ),
    "free_space": Promise(
        "reported",
        "bytes",
        "free space of the job's fullest disk: of checkpoint, records, repository, output, local state "
        "and temporary files",
        "Free some space on that disk, or make it larger. If it holds the repository, see what the "
        "retention keeps; put `control` on another disk than the repository.",
        warn=GB,
        breach=0.1 * GB,
        below=True,
        of_job=True,
        tells_of_code=False,
    ),
    "state_bytes": Promise(
        "window",
        "bytes",
        "size of the state",
        _SHRINK,
        ("state_bytes",),
        stays=True,
        warn=10 * GB,
        breach=100 * GB,
        statistic="median",
        window_s=10 * MINUTE_S,
    ),
    "state_memory_bytes": Promise(
        "window",
        "bytes",
        "memory that the state takes",
        "Give the executors more memory, or let RocksDB hold the state.",
        ("state_memory_bytes",),
        stays=True,
        reset=True,
        statistic="median",
        window_s=10 * MINUTE_S,
    ),
    "state_rows": Promise(
        "window",
        "rows",
        "rows in the state of each operator (cardinality)",
        _SHRINK,
        ("state_rows",),
        per_operator=True,
        stays=True,
        statistic="median",
        window_s=10 * MINUTE_S,
    ),
    "checkpoint_bytes": Promise(
        "window",
        "bytes",
        "size of the checkpoint directory",
        "Look for what Spark no longer cleans up, and compact the checkpoint.",
        ("checkpoint_bytes",),
        stays=True,
        statistic="last",
        window_s=HOUR_S,
    ),
    "checkpoint_duration": Promise(
        "window",
        "s",
        "how long the checkpoint takes in a batch",
        "Use RocksDB with changelog checkpointing, fewer partitions, or faster storage.",
        ("checkpoint_s",),
        warn=60.0,
        breach=600.0,
        statistic="p95",
        window_s=HOUR_S,
    ),
    "batch_duration": Promise(
        "window",
        "s",
        "how long a batch takes",
        "Give the query more cores, less input in a batch, or less state to go through.",
        ("batch_s",),
        statistic="p95",
        window_s=HOUR_S,
    ),
    "failed_batches": Promise(
        "reported",
        "count",
        "failed or abandoned batches in a row",
        "Read the last error in the driver's log; if the error stays, restore the last good savepoint.",
        warn=0.0,
        breach=3.0,
    ),
    "restart_rate": Promise(
        "reported",
        "count",
        "drivers that failed, or were replaced for making no progress, in a day",
        "Read the errors of the last drivers in their logs: each restart repeats a batch and costs time.",
        warn=2.0,
        breach=9.0,
        window_s=DAY_S,
        of_job=True,
        tells_of_code=False,
    ),
    "access_latency": Promise(
        "window",
        "ms",
        "time of one read or write of the state, on average",
        "Let the state fit into RocksDB's block cache, use local disks, or make the state smaller.",
        ("get_ms", "put_ms"),
        breach=100.0,
        statistic="p95",
        window_s=HOUR_S,
    ),
    "recovery_time": Promise(
        "reported",
        "s",
        "time from a launch, restart or restore to the next committed batch (RTO)",
        "Take snapshots more often, so that fewer changelogs are replayed, and keep the state small.",
        breach=300.0,
        statistic="max",
        window_s=30 * DAY_S,
        tells_of_code=False,
    ),
    "growth": Promise(
        "trend",
        "bytes/h",
        "growth of the state's size",
        _SHRINK,
        ("state_bytes",),
        stays=True,
        warn=1e6,
        window_s=14 * DAY_S,
    ),
    "row_growth": Promise(
        "trend",
        "rows/h",
        "growth of the rows in the state",
        _SHRINK,
        ("state_rows",),
        stays=True,
        window_s=14 * DAY_S,
    ),
    "time_to_limit": Promise(
        "trend",
        "s",
        "time until the first growing size reaches its own limit",
        _SHRINK,
        ("state_bytes", "state_memory_bytes", "state_rows", "checkpoint_bytes"),
        stays=True,
        warn=7 * DAY_S,
        breach=DAY_S,
        window_s=14 * DAY_S,
        below=True,
    ),
    "partition_skew": Promise(
        "reported",
        "ratio",
        "the largest partition compared with the mean",
        "Salt the hot keys, or change the number of partitions.",
        warn=3.0,
    ),
    "hot_key": Promise(
        "reported",
        "ratio",
        "the largest key compared with the mean",
        "Salt the key, or handle it separately.",
        warn=10.0,
    ),
    "watermark_lag": Promise(
        "window",
        "s",
        "how far event time is behind the clock",
        "See whether the source is behind, or one of its partitions stands still.",
        ("watermark_lag_s",),
        statistic="median",
        window_s=HOUR_S,
    ),
    "source_lag": Promise(
        "window",
        "rows",
        "rows that wait in the source",
        "Give the query more cores, or let a batch read more rows.",
        ("source_lag_rows",),
        statistic="median",
        window_s=HOUR_S,
    ),
    "dropped_rows": Promise(
        "window",
        "rows",
        "rows of a batch that came too late",
        "Give the watermark a longer delay, or see why the source is late.",
        ("dropped_rows",),
        statistic="max",
        window_s=HOUR_S,
    ),
    "snapshot_age": Promise(
        "window",
        "batches",
        "changes that a restart has to replay",
        "See why snapshots are not uploaded: maintenance may be starved or failing.",
        ("snapshot_age_batches",),
        stays=True,
        breach=1000.0,
        statistic="last",
        window_s=HOUR_S,
    ),
    "savepoint_age": Promise(
        "reported",
        "s",
        "how old the newest savepoint is (RPO)",
        "Take one now, and see why the schedule did not.",
        tells_of_code=False,
    ),
    "replayable_for": Promise(
        "reported",
        "s",
        "how long from now the sources still have the input after the newest savepoint",
        "Take a savepoint now, and more often (`savepoint.schedule`). Or let the source keep its input "
        "longer: a longer `retention.ms` of the topic, files that stay where they are, no `cleanSource`.",
        below=True,
    ),
    "replica_age": Promise(
        "reported",
        "s",
        "how old the newest savepoint in a replica is: in that of the standby, if the job has one (RPO "
        "of a disaster)",
        "Replicate now, and see why the schedule did not: the replica may be out of reach, or full.",
        tells_of_code=False,
    ),
    "drill_age": Promise(
        "reported",
        "s",
        "how long ago a drill of the job passed: a restore that was rehearsed",
        "Trigger `<job>.drill`, and read in the report of the newest drill at which step it fails.",
        of_job=True,
        tells_of_code=False,
    ),
    "copy_age": Promise(
        "reported",
        "s",
        "how old the savepoint is that a copy of the job's state holds",
        "Trigger `<job>.refresh.<copy>`, and see why the last refresh did not: the job may be running on "
        "the copy.",
        tells_of_code=False,
    ),
    "progress_age": Promise(
        "reported",
        "s",
        "how long ago a batch was committed, or a trigger found nothing to do",
        "See where the driver hangs: look at its log, and at the running stages in its Spark UI.",
        breach=30 * MINUTE_S,
    ),
    "pause": Promise(
        "window",
        "s",
        "time from the end of a batch to the beginning of the next",
        "The query hardly rests: give it more cores, or a longer trigger interval.",
        ("gap_s",),
        statistic="median",
        window_s=HOUR_S,
        below=True,
    ),
}
"""Every objective. Without any limit it is not judged until a job declares one."""

OF_JOB = frozenset(name for name, promise in PROMISES.items() if promise.of_job)
