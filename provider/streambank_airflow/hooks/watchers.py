"""What looks at a job again and again, for sensors and triggers."""

from __future__ import annotations

from dataclasses import dataclass

from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.verbs import connected
from streambank_airflow.watch.event_time import EventTimeWatcher, WatermarkWatcher
from streambank_airflow.watch.job import JobWatcher


@dataclass(frozen=True, slots=True)
class Watchers:
    """Makes what looks at a job again and again: `hook.watchers`."""

    declared: DeclaredJobs

    @connected
    def job(self, ref: str, site: str | None = None) -> JobWatcher:
        """What looks at a job again and again, at its active site if no site is named."""
        return JobWatcher(*self.declared.find(ref, site), access=self.declared.settings.s3)

    @connected
    def event_time(self, ref: str, checkpoint: str | None = None) -> EventTimeWatcher:
        """What looks at how far a job is in event time; or a query that is not declared."""
        if checkpoint is not None:
            return EventTimeWatcher.of_checkpoint(checkpoint, self.declared.settings.s3)
        return EventTimeWatcher.of_job(self.job(ref))

    @connected
    def watermark(self, ref: str, checkpoint: str | None = None) -> WatermarkWatcher:
        """What looks at a job's state, too; see `event_time`."""
        if checkpoint is not None:
            return WatermarkWatcher(ref, self.event_time(ref, checkpoint))
        watcher = self.job(ref)
        return WatermarkWatcher(watcher.job.name, EventTimeWatcher.of_job(watcher), watcher)
