"""What is found of SLAs as Airflow's own metrics, for whatever `[metrics]` of its settings send to.

Where tags arrive (OpenTelemetry, Datadog, statsd with Influx tags) there are few names with tags. Plain
statsd drops tags, and all jobs would share one gauge, so there the tags are parts of the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow.providers.common.compat.sdk import Stats, conf

from streambank.job.alive import Life
from streambank.sla.assess import Assessment
from streambank.sla.verdict import LEVELS, Level

VALUE, LEVEL, JOB_LEVEL = "streambank.sla.value", "streambank.sla.level", "streambank.sla.job_level"
WANTED, UP, WATCHED = "streambank.job.wanted", "streambank.job.up", "streambank.job.watched"


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
        """As Airflow is set."""
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

    def send(self, ref: str, found: Assessment) -> None:
        """The level of what was judged, and level and value of each objective."""
        self.send_level(ref, found.level)
        if not self.on:
            return
        if found.life is not None:
            self._send_life(found.job, found.life)
        for one in found.verdicts:
            tags = {"job": one.job, "query": one.query, "objective": one.objective}
            self._gauge(LEVEL, LEVELS.index(one.level), tags)
            if one.value is not None:
                self._gauge(VALUE, one.value, tags)

    def send_level(self, ref: str, level: Level) -> None:
        """The level of what was judged (`job`, or `job/query`): what muted objectives say does not count."""
        if self.on:
            self._gauge(JOB_LEVEL, LEVELS.index(level), {"job": ref})

    def _send_life(self, job: str, life: Life) -> None:
        """Whether a job is meant to run, does run, and is watched: 1 or 0 each."""
        facts = {WANTED: life.desired, UP: life.up, WATCHED: life.watched}
        for name, value in facts.items():
            if value is not None:
                self._gauge(name, int(value), {"job": job})

    def _gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        if self.tagged:
            Stats.gauge(name, value, tags=dict(tags))
            return
        # As Airflow does in its own names, whose parts are divided by dots.
        parts = (part.replace(".", "__").replace("/", "__") for part in tags.values())
        Stats.gauge(".".join((name, *parts)), value)
