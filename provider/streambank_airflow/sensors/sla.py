"""The sensor on a job's SLA: work that begins when it is kept, or when it is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.providers.common.compat.sdk import AirflowFailException

from streambank.core.choices import Severity
from streambank_airflow.arguments import OneOf, Templated, argument
from streambank_airflow.choices import check_objectives
from streambank_airflow.operators.base import known_texts
from streambank_airflow.sensors.job import JobSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank_airflow.triggers.base import JobTrigger


Until = Literal["kept", "broken"]


class SlaSensor(JobSensor):
    """Waits until the SLA of a job is kept, or until it is broken.

    Muted objectives do not count. It is kept where none is broken and the history is known; where objectives
    are named, all of them have to be known. `poke_interval` is 60 seconds by default.

    Args:
        until: `kept` or `broken`.
        least: From which level on an objective is broken: `warn` or `breach`.
        objectives: Those that count, such as `["watermark_lag"]`; empty for all.
        checkpoint: The directory of a query that no jobs file declares; `job` is just its name then.

    Returns:
        `job`, `state`, `why`, `desired`, `operation`, `epoch`, `batch`, `sla` (`kept`, `broken`), `level`,
            `broken` (names of the broken objectives, with commas), `sla_why` (why the first of them is).
    """

    says: ClassVar[tuple[str, ...]] = (*JobSensor.says, "sla", "level", "broken", "sla_why")
    usual: ClassVar[Mapping[str, Any]] = {**JobSensor.usual, "poke_interval": 60.0}

    until: OneOf[Until] = argument("kept")
    least: OneOf[Severity] = argument("breach")
    objectives: Templated[Sequence[str]] = argument(())
    checkpoint: Templated[str | None] = argument(None)

    def after_init(self) -> None:
        names = known_texts(self.objectives)
        if names is not None:
            self.objectives = check_objectives(names)
        self.check_undeclared(self.checkpoint)

    @property
    def fails_in(self) -> Sequence[str]:
        """None where it waits for the SLA to be broken, as that of a job that has failed will be."""
        return () if self.until == "broken" else super().fails_in

    def make_trigger(self) -> JobTrigger:
        from streambank_airflow.triggers.sla import SlaTrigger

        return SlaTrigger(
            until=self.until,
            least=self.least,
            objectives=self.objectives,
            checkpoint=self.checkpoint,
            **self.trigger_arguments,
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the wait is over; see `JobSensor.execute_complete`.

        Raises:
            AirflowFailException: An objective is named that is not judged, so this would never come.
        """
        if event["status"] == "never":
            raise AirflowFailException(
                f"The objective {event['objective']} of job {self.job} is not judged. Hint: declare a limit "
                "for it, or leave it out of objectives."
            )
        return super().execute_complete(context, event)
