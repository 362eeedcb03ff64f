"""The operator that lets another driver take a job over, at a batch boundary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowSkipException

from streambank.core.errors import InputError
from streambank.core.times import from_json_time, to_json_time, utc_now
from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import as_bool, as_number, asked_by, flat
from streambank_airflow.operators.job import StartStreamingJobOperator, asker
from streambank_airflow.operators.links import persist_driver_log_link

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.job.restart import RestartAsked, RestartResult


class RestartStreamingJobOperator(StartStreamingJobOperator):
    """Stops a job at a batch boundary and starts it again, in one operation.

    The job is meant to run all the while, so a task that ends in the middle leaves nothing stopped that runs
    under `<job>.run`. A job that somebody has stopped stays stopped: the task is skipped. The driver that
    ran when the task asked first is the one to be replaced; another try of the task never stops the one that
    has replaced it, and a task that a person clears restarts the job anew.

    Args:
        force_after_s: After how many seconds the running batch is abandoned; None for the declared time.
        kwargs: `only_if`, `deferrable`, `poll_interval_s` as for a start; `job`, `jobs_file`,
            `streambank_conn_id`, `note`, and as for every operator.

    Returns:
        As a start, with `state` (`restarted`; `started` where no driver lived; `finished`), `stopped_epoch`
        and `how` the old driver ended (`boundary`, `forced`, `killed`, `dead`, `none`).
    """

    template_fields: Sequence[str] = (*StartStreamingJobOperator.template_fields, "force_after_s")

    def __init__(self, *, force_after_s: float | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.force_after_s = force_after_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Restart it; see the class."""
        with airflow_failures():
            if not as_bool(self.only_if, "only_if"):
                raise AirflowSkipException(f"Job {self.job} is not to be restarted.")
            if as_bool(self.fresh_start, "fresh_start"):
                raise InputError(
                    "A restart goes on with the records that there are: it takes no fresh_start.",
                    code="bad-option",
                    hint="Start the job with it instead.",
                )
            persist_driver_log_link(context)
            asked = self.hook.ask_to_restart(self.job, **self._how(context)) if self.deferrable else None
        if asked is not None and asked.stop.epoch is not None:
            self._wait_for_end(asked, asked.stop.epoch)
        return self._go_on(context, asked)

    def _how(self, context: Context) -> dict[str, Any]:
        return {
            "force_after_s": as_number(self.force_after_s, "force_after_s"),
            "note": self.why,
            "by": asked_by(context),
            "asker": asker(context),
        }

    def _wait_for_end(self, asked: RestartAsked, epoch: int) -> NoReturn:
        from streambank_airflow.triggers.job import DriverGoneTrigger

        give_up_at = from_json_time(asked.stop.at) + timedelta(seconds=asked.stop.patience_s)
        self.defer(
            trigger=DriverGoneTrigger(
                job=self.job,
                jobs_file=self.jobs_file,
                streambank_conn_id=self.streambank_conn_id,
                poll_interval_s=self.poll_interval_s,
                epoch=epoch,
                give_up_at=to_json_time(give_up_at),
                remember=asked.to_dict(),
            ),
            method_name="start_again",
        )
        raise AssertionError("a task that defers does not return")

    def start_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the old driver is gone, or took too long; see the class."""
        from streambank.job.restart import RestartAsked

        self.raise_for_error(event)
        return self._go_on(context, RestartAsked.from_dict(event["remember"]))

    def _go_on(self, context: Context, asked: RestartAsked | None) -> dict[str, Any]:
        """See that the old driver is gone, and start the new one."""
        with airflow_failures():
            result = self._restart(context, asked)
            told = {"state": result.state, "stopped_epoch": result.stopped_epoch, "how": result.how}
            if not self.deferrable or result.state in ("finished", "not-desired"):
                return self._done(result.start) | told
            timeout_s = self.hook.declared(self.job)[0].start.timeout_s
        self._defer(result.start, utc_now() + timedelta(seconds=timeout_s), told=told)

    def _restart(self, context: Context, asked: RestartAsked | None) -> RestartResult:
        try:
            result = self.hook.restart(self.job, asked=asked, wait=not self.deferrable, **self._how(context))
        except Exception:
            self.show_driver_log()
            raise
        self.link_to(context, result.start)
        return result

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the new driver works, or is gone; see `StartStreamingJobOperator`."""
        return flat(super().execute_complete(context, event) | event["remember"]["told"])
