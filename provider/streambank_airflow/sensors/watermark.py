"""The sensor on a stream's event time: a batch task that begins when the stream is far enough."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException

from streambank_airflow.arguments import Templated, argument
from streambank_airflow.sensors.job import JobSensor
from streambank_airflow.watch.event_time import as_moment

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank_airflow.triggers.base import JobTrigger


class WatermarkSensor(JobSensor):
    """Waits until the watermark of a query has passed a moment: all output before it is committed.

    It fails at once where the query has no watermark. Of a job with several queries all have to pass.

    Args:
        moment: A time with its zone, such as `{{ data_interval_end }}`.
        checkpoint: The directory of a query that no jobs file declares; `job` is just its name then.

    Returns:
        `job`, `state`, `why`, `desired`, `operation`, `epoch`, `batch`, `moment`, `watermark`.
    """

    says: ClassVar[tuple[str, ...]] = (*JobSensor.says, "moment", "watermark")

    moment: Templated[str | datetime]
    checkpoint: Templated[str | None] = argument(None)

    def after_init(self) -> None:
        self.check_undeclared(self.checkpoint)

    def make_trigger(self) -> JobTrigger:
        from streambank_airflow.triggers.watermark import WatermarkTrigger

        return WatermarkTrigger(
            moment=as_moment(self.moment, "moment").isoformat(),
            checkpoint=self.checkpoint,
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
