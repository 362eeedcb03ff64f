"""The wait for a moment of event time: until all output before it is written and committed."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from streambank_airflow.triggers.base import Event, SensorTrigger
from streambank_airflow.watch.event_time import as_moment, to_epoch_ms

if TYPE_CHECKING:
    from streambank_airflow.hooks.streambank import StreambankHook
    from streambank_airflow.triggers.base import LooksAtJob
    from streambank_airflow.watch.job import JobView


class WatermarkTrigger(SensorTrigger):
    """Waits until the watermark of a query has passed a moment; of a job with several queries those of all.

    Ends with `done`; with `never` where the query has no watermark; with `failed` where the job is in a state
    in which it will not get there.

    Args:
        moment: ISO-8601 time with a zone.
        checkpoint: The directory of a query that is not declared.
    """

    moment: str
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._moment_ms = to_epoch_ms(as_moment(self.moment, "moment"))

    def open_watcher(self, hook: StreambankHook) -> LooksAtJob:
        return hook.watchers.watermark(self.job, self.checkpoint)

    @property
    def awaits(self) -> str:
        return f"the watermark of job {self.job} to pass {self.moment}"

    def progress(self, view: JobView) -> Hashable:
        return view.watermark_ms

    def words(self, view: JobView) -> str:
        return f"{view.words} Its watermark is {view.watermark or 'not there yet'}."

    def outcome(self, view: JobView) -> str | None:
        if view.watermark_ms is not None and view.watermark_ms >= self._moment_ms:
            return "done"
        return "never" if view.without_watermark is not None else self.failed(view)

    def said(self, view: JobView) -> Event:
        return {"moment": self.moment, **view.to_dict()}
