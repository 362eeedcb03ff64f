"""The wait for a moment of event time: until all output before it is written and committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from streambank_airflow.triggers.base import Event, JobTrigger
from streambank_airflow.watch.event_time import as_moment, to_epoch_ms

if TYPE_CHECKING:
    from streambank_airflow.hooks.streambank import StreambankHook
    from streambank_airflow.triggers.base import Watcher
    from streambank_airflow.watch.job import JobView


class WatermarkTrigger(JobTrigger):
    """Waits until the watermark of a query has passed a moment.

    Ends with `done`; with `never` where the query has no watermark; with `failed` where the job is in a state
    in which it will not get there.

    Args:
        moment: ISO-8601 time with a zone.
        checkpoint: The directory of a query that is not declared.
        failed_states: What ends the wait as a failure, unless an operation works on the job.
        kwargs: As for every `JobTrigger`; of a job with several queries all have to pass.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("moment", "checkpoint", "failed_states")

    def __init__(
        self,
        *,
        moment: str,
        checkpoint: str | None = None,
        failed_states: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.moment = moment
        self.checkpoint = checkpoint
        self.failed_states = list(failed_states)
        self._moment_ms = to_epoch_ms(as_moment(moment, "moment"))

    def open_watcher(self, hook: StreambankHook) -> Watcher:
        return hook.watchers.watermark(self.job, self.checkpoint)

    def judge(self, view: JobView) -> Event | None:
        said = {"moment": self.moment, **view.to_dict()}
        if view.watermark_ms is not None and view.watermark_ms >= self._moment_ms:
            return {"status": "done", **said}
        if view.without_watermark is not None:
            return {"status": "never", **said}
        if view.state in self.failed_states and view.operation is None:
            return {"status": "failed", **said}
        return None
