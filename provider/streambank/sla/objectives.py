"""The objectives that hold for a job, and how each of them is measured.

What may be declared, and the usual limits, are in `streambank.declaration.sla`; the table for people is in
docs/reference/sla-objectives.md, which a test holds to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from streambank.core.choices import Severity
from streambank.declaration.sla import (
    MIN_HISTORY_S,
    PROMISES,
    Declared,
    Mute,
    Promise,
    SlaPolicy,
    Statistic,
)

Kind = Literal["window", "trend", "reported"]
HISTORY = "history"
"""The objective that nobody declares: that the history can be read."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How an objective is measured.

    Attributes:
        kind: `window`: a statistic of a metric over a window; `trend`: its growth; `reported`: a fact that is
            not in the history, such as a savepoint's age.
        meaning: What it is about, for people.
        advice: What to do where it is broken.
        metrics: Names of the metrics; of several the worst counts.
        per_operator: Whether every stateful operator is judged by itself.
        stays: Whether the newest value still holds when no batch runs: a size does, a duration does not.
        reset: Whether a new driver begins from nothing, as memory does.
    """

    kind: Kind
    meaning: str
    advice: str
    metrics: tuple[str, ...] = ()
    per_operator: bool = False
    stays: bool = False
    reset: bool = False

    @property
    def begin(self) -> str:
        """The meaning as the beginning of a sentence: `Size of the state`, `How long a batch takes`."""
        return self.meaning[:1].upper() + self.meaning[1:]


OF_JOB = frozenset({"alive", "restart_rate"})
"""Objectives of the job as a whole: each of its queries has the same verdict."""

_SHRINK = "See what the state keeps (is there a watermark, a TTL?), compact it, or give it a larger limit."

MEASURES: Mapping[str, Measure] = {
    "alive": Measure(
        "reported",
        "how long a job that must run has had no live driver, only failed starts, or no watcher",
        "Unpause and trigger `<job>.run`, or read the last error in the driver's log. If the job must not "
        "run, trigger `<job>.stop`.",
    ),
    "state_bytes": Measure("window", "size of the state", _SHRINK, ("state_bytes",), stays=True),
    "state_memory_bytes": Measure(
        "window",
        "memory that the state takes",
        "Give the executors more memory, or let RocksDB hold the state.",
        ("state_memory_bytes",),
        stays=True,
        reset=True,
    ),
    "state_rows": Measure(
        "window",
        "rows in the state of each operator (cardinality)",
        _SHRINK,
        ("state_rows",),
        per_operator=True,
        stays=True,
    ),
    "checkpoint_bytes": Measure(
        "window",
        "size of the checkpoint directory",
        "Look for what Spark no longer cleans up: streambank inspect names it.",
        ("checkpoint_bytes",),
        stays=True,
    ),
    "checkpoint_duration": Measure(
        "window",
        "how long the checkpoint takes in a batch",
        "Use RocksDB with changelog checkpointing, fewer partitions, or faster storage.",
        ("checkpoint_s",),
    ),
    "batch_duration": Measure(
        "window",
        "how long a batch takes",
        "Give the query more cores, less input in a batch, or less state to go through.",
        ("batch_s",),
    ),
    "failed_batches": Measure(
        "reported",
        "failed or abandoned batches in a row",
        "Read the last error in the driver's log; if the error stays, restore the last good savepoint.",
    ),
    "restart_rate": Measure(
        "reported",
        "drivers that failed, or were replaced for making no progress, in a day",
        "Read the errors of the last drivers in their logs: each restart repeats a batch and costs time.",
    ),
    "access_latency": Measure(
        "window",
        "time of one read or write of the state, on average",
        "Let the state fit into RocksDB's block cache, use local disks, or make the state smaller.",
        ("get_ms", "put_ms"),
    ),
    "recovery_time": Measure(
        "reported",
        "time from a launch, restart or restore to the next committed batch (RTO)",
        "Take snapshots more often, so that fewer changelogs are replayed, and keep the state small.",
    ),
    "growth": Measure("trend", "growth of the state's size", _SHRINK, ("state_bytes",), stays=True),
    "row_growth": Measure("trend", "growth of the rows in the state", _SHRINK, ("state_rows",), stays=True),
    "time_to_limit": Measure(
        "trend",
        "time until the first growing size reaches its own limit",
        _SHRINK,
        ("state_bytes", "state_memory_bytes", "state_rows", "checkpoint_bytes"),
        stays=True,
    ),
    "partition_skew": Measure(
        "reported",
        "the largest partition compared with the mean",
        "Salt the hot keys, or change the number of partitions.",
    ),
    "hot_key": Measure(
        "reported", "the largest key compared with the mean", "Salt the key, or handle it separately."
    ),
    "watermark_lag": Measure(
        "window",
        "how far event time is behind the clock",
        "See whether the source is behind, or one of its partitions stands still.",
        ("watermark_lag_s",),
    ),
    "source_lag": Measure(
        "window",
        "rows that wait in the source",
        "Give the query more cores, or let a batch read more rows.",
        ("source_lag_rows",),
    ),
    "dropped_rows": Measure(
        "window",
        "rows of a batch that came too late",
        "Give the watermark a longer delay, or see why the source is late.",
        ("dropped_rows",),
    ),
    "snapshot_age": Measure(
        "window",
        "changes that a restart has to replay",
        "See why snapshots are not uploaded: maintenance may be starved or failing.",
        ("snapshot_age_batches",),
        stays=True,
    ),
    "savepoint_age": Measure(
        "reported",
        "how old the newest savepoint is (RPO)",
        "Take one with `streambank job savepoint`, and see why the schedule did not.",
    ),
    "progress_age": Measure(
        "reported",
        "how long ago a batch was committed, or a trigger found nothing to do",
        "See where the driver hangs: look at its log, and at the running stages in its Spark UI.",
    ),
    "pause": Measure(
        "window",
        "time from the end of a batch to the beginning of the next",
        "The query hardly rests: give it more cores, or a longer trigger interval.",
        ("gap_s",),
    ),
}


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective of one job: limits in the unit of its promise.

    Attributes:
        name: Its name.
        promise: Its unit, and which side of a limit is wrong.
        measure: How it is measured.
        warn: From where on it warns; None for not.
        breach: From where on it is broken; None for not.
        window_s: Over how long; None where there is no window.
        statistic: What of the window is held against the limits.
        severity: `warn`: never worse than a warning.
        min_history_s: How much history a trend needs.
        mute: Nobody is told for a while.
        usual: Whether its limits are the usual ones, none of them declared.
    """

    name: str
    promise: Promise
    measure: Measure
    warn: float | None
    breach: float | None
    window_s: float | None
    statistic: Statistic | None
    severity: Severity = "breach"
    min_history_s: float = MIN_HISTORY_S
    mute: Mute | None = None
    usual: bool = False

    @property
    def size_limit(self) -> float | None:
        """The limit that a forecast is made for."""
        return self.warn if self.breach is None else self.breach


def objectives(policy: SlaPolicy | None = None) -> tuple[Objective, ...]:
    """The objectives that are judged: those with a limit, declared or usual, that were not switched off.

    A usual warning that would come after a declared breach is left out.
    """
    declared = SlaPolicy() if policy is None else policy
    found = (
        _objective(
            name,
            replace(promise, breach=declared.usual.get(name, promise.breach)),
            declared.objectives.get(name, Declared()),
            declared.mute,
            follows=name in declared.usual,
        )
        for name, promise in PROMISES.items()
    )
    return tuple(one for one in found if one is not None)


def _objective(
    name: str, promise: Promise, declared: Declared, mute: Mute | None, *, follows: bool
) -> Objective | None:
    """An objective with the limits that hold for it.

    Args:
        name: Its name.
        promise: Its usual limits.
        declared: What the job says of it.
        mute: Of all objectives.
        follows: Whether the usual breach follows from what else the job declares: such a one gives way to a
            declared warning that comes after it.
    """
    breach = promise.breach if declared.breach is None else declared.breach
    warn = promise.warn if declared.warn is None else declared.warn
    if follows and declared.breach is None and declared.warn is not None and breach is not None:
        breach = None if promise.exceeds(declared.warn, breach) else breach
    if warn is not None and breach is not None and promise.exceeds(warn, breach):
        warn = None
    if declared.off or (warn is None and breach is None):
        return None
    return Objective(
        name,
        promise,
        MEASURES[name],
        warn,
        breach,
        promise.window_s if declared.window_s is None else declared.window_s,
        declared.statistic or promise.statistic,
        declared.severity or "breach",
        MIN_HISTORY_S if declared.min_history_s is None else declared.min_history_s,
        declared.mute or mute,
        declared.warn is None and declared.breach is None,
    )
