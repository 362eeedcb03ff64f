"""What is known of jobs as Airflow's own metrics, for whatever `[metrics]` of its settings send to.

Where tags arrive (OpenTelemetry, Datadog, statsd with Influx tags) there are few names with tags. Plain
statsd drops tags, and all jobs would share one gauge, so there the tags are parts of the name.

All are gauges, as Prometheus advises for batch work: a task's process ends with its counters. The tag of the
job is `job_name`, since Prometheus's own label `job` replaces any other one. Names end with
the unit of their values, and durations are in seconds, whatever the declaration says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from airflow.providers.common.compat.sdk import Stats, conf

from streambank.declaration.objectives import Unit
from streambank.job.alive import Life
from streambank.sla.ages import Ages
from streambank.sla.assess import Assessment
from streambank.sla.verdict import LEVELS, Level, Verdict

OF_JOB = ("job_name",)
OF_QUERY = ("job_name", "query")
OF_OBJECTIVE = ("job_name", "query", "objective")
OF_LIMIT = (*OF_OBJECTIVE, "limit")
OF_OPERATION = ("job_name", "query", "operation", "outcome")

METRICS: Mapping[str, tuple[str, ...]] = {
    "streambank.job.wanted": OF_JOB,
    "streambank.job.up": OF_JOB,
    "streambank.job.watched": OF_JOB,
    "streambank.sla.job_level": OF_JOB,
    "streambank.sla.checked_timestamp_seconds": OF_JOB,
    "streambank.sla.level": OF_OBJECTIVE,
    "streambank.sla.muted": OF_OBJECTIVE,
    "streambank.sla.value_UNIT": OF_OBJECTIVE,
    "streambank.sla.limit_UNIT": OF_LIMIT,
    "streambank.savepoint.age_seconds": OF_QUERY,
    "streambank.replica.age_seconds": OF_QUERY,
    "streambank.drill.age_seconds": OF_JOB,
    "streambank.drill.passed": OF_JOB,
    "streambank.operation.seconds": OF_OPERATION,
    "streambank.operation.ended_timestamp_seconds": OF_OPERATION,
}
"""Each gauge, with its tags in the order in which plain statsd has them in the name. UNIT is one of `UNITS`.

docs/reference/metrics.md says what they mean; a test holds it to this table.
"""
UNITS: Mapping[Unit, tuple[str, float]] = {
    "bytes": ("bytes", 1.0),
    "bytes/h": ("bytes_per_hour", 1.0),
    "rows": ("rows", 1.0),
    "rows/h": ("rows_per_hour", 1.0),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "batches": ("batches", 1.0),
    "count": ("number", 1.0),
    "ratio": ("ratio", 1.0),
}
"""By the unit of an objective: the end of the names of its gauges, and what its figures are multiplied by."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """Sends gauges, or nothing where metrics are off.

    Attributes:
        on: Whether Airflow sends metrics at all.
        tagged: Whether tags arrive.
    """

    on: bool
    tagged: bool

    @classmethod
    def of_settings(cls) -> Gauges:
        datadog, statsd, otel = (
            conf.getboolean("metrics", name, fallback=False)
            for name in ("statsd_datadog_enabled", "statsd_on", "otel_on")
        )
        if datadog:
            # The order is Airflow's: of several that are on, the first counts.
            return cls(True, conf.getboolean("metrics", "statsd_datadog_metrics_tags", fallback=True))
        if statsd:
            return cls(True, conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
        return cls(otel, True)

    def send(self, ref: str, found: Assessment, ages: Ages | None = None) -> None:
        """The level of what was judged, each objective, whether the job runs, and how old its savepoints are.

        Args:
            ref: What was judged: `job`, or `job/query`.
            ages: Ages of savepoints and drills; None where they were not read.
        """
        if not self.on:
            return
        self.send_level(ref, found.level)
        self._gauge("streambank.sla.checked_timestamp_seconds", found.at.timestamp(), ref)
        if found.life is not None:
            self._send_life(found.job, found.life)
        for verdict in found.verdicts:
            self._send_verdict(verdict)
        if ages is not None:
            self._send_ages(found.job, ages)

    def send_level(self, ref: str, level: Level) -> None:
        """The level of what was judged (`job`, or `job/query`): what muted objectives say does not count."""
        self._gauge("streambank.sla.job_level", LEVELS.index(level), ref)

    def send_operation(
        self, job: str, query: str, operation: str, *, outcome: str, seconds: float, ended_s: float
    ) -> None:
        """How long an operation took, and when it ended.

        Args:
            query: Its query, `main` for the only one, `all` where all of several were meant.
            outcome: `success` or `failed`.
            ended_s: When it ended, in seconds since 1970-01-01 in UTC.
        """
        values = (job, query, operation, outcome)
        self._gauge("streambank.operation.seconds", seconds, *values)
        self._gauge("streambank.operation.ended_timestamp_seconds", ended_s, *values)

    def _send_life(self, job: str, life: Life) -> None:
        """Whether a job is meant to run, does run, and is watched: 1 or 0 each."""
        for name, value in (("wanted", life.desired), ("up", life.up), ("watched", life.watched)):
            self._gauge(f"streambank.job.{name}", value, job)

    def _send_verdict(self, one: Verdict) -> None:
        subject = (one.job, one.query, one.objective)
        self._gauge("streambank.sla.level", LEVELS.index(one.level), *subject)
        self._gauge("streambank.sla.muted", one.mute is not None, *subject)
        if one.unit is None:
            return
        self._gauge("streambank.sla.value_UNIT", one.value, *subject, unit=one.unit)
        for limit, value in (("warn", one.warn), ("breach", one.breach)):
            self._gauge("streambank.sla.limit_UNIT", value, *subject, limit, unit=one.unit)

    def _send_ages(self, job: str, ages: Ages) -> None:
        for query, age_s in ages.savepoint_s.items():
            self._gauge("streambank.savepoint.age_seconds", age_s, job, query)
        for query, age_s in ages.replica_s.items():
            self._gauge("streambank.replica.age_seconds", age_s, job, query)
        self._gauge("streambank.drill.age_seconds", ages.drill_s, job)
        self._gauge("streambank.drill.passed", ages.drill_passed, job)

    def _gauge(self, name: str, value: float | None, *values: str, unit: Unit | None = None) -> None:
        """Send one, unless its value is not known.

        Args:
            name: One of `METRICS`.
            unit: The unit of the objective, where the name ends with it.
        """
        if not self.on or value is None or not math.isfinite(value):
            return
        tags = dict(zip(METRICS[name], values, strict=True))
        end, factor = ("", 1) if unit is None else UNITS[unit]
        name, value = name.replace("UNIT", end), value * factor
        if self.tagged:
            Stats.gauge(name, value, tags=tags)
            return
        # As Airflow does in its own names, whose parts are divided by dots.
        parts = (part.replace(".", "__").replace("/", "__") for part in values)
        Stats.gauge(".".join((name, *parts)), value)
