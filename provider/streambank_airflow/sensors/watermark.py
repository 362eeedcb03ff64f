"""The sensor on a stream's event time: a batch task that begins when the stream is far enough."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException

from streambank_airflow.sensors.job import JobSensor
from streambank_airflow.watch.event_time import as_moment

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank_airflow.triggers.base import JobTrigger


class WatermarkSensor(JobSensor):
    """Waits until the watermark of a query has passed a moment: all output before it is committed.

    It fails at once where the query has no watermark.

    Args:
        moment: A time with its zone, such as `{{ data_interval_end }}`.
        checkpoint: The directory of a query that no jobs file declares; `job` is just its name then.
        kwargs: As for every `JobSensor`; of a job with several queries all have to pass.

    Returns:
        `job`, `state`, `why`, `desired`, `operation`, `epoch`, `batch`, `moment`, `watermark`.
    """

    template_fields: Sequence[str] = (*JobSensor.template_fields, "moment", "checkpoint")
    says: ClassVar[tuple[str, ...]] = (*JobSensor.says, "moment", "watermark")

    def __init__(self, *, moment: str | datetime, checkpoint: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.moment = moment
        self.checkpoint = checkpoint
        self.check_undeclared(checkpoint)

    def make_trigger(self) -> JobTrigger:
        from streambank_airflow.triggers.watermark import WatermarkTrigger

        return WatermarkTrigger(
            moment=as_moment(self.moment, "moment").isoformat(),
            checkpoint=self.checkpoint,
            failed_states=self.failed_states,
            **self.trigger_arguments,
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the wait is over; see `JobSensor.execute_complete`.

        Raises:
            AirflowFailException: The query has no watermark, so this would never come.
        """
        if event["status"] == "never":
            query = event["without_watermark"]
            raise AirflowFailException(
                f"Query {query} of job {self.job} has no watermark, so it never passes {event['moment']}. "
                "Hint: call withWatermark(...) in the application, or wait for a batch instead."
            )
        return super().execute_complete(context, event)
