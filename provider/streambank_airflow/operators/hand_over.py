"""The operators that see to it that a job is handed over to `<job>.run`, and that it is watched then."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, conf

from streambank.core.units import to_json_time, utc_now
from streambank_airflow.arguments import Seconds, Templated, argument
from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import StreambankOperator, asked_by, by_schedule

if TYPE_CHECKING:
    from airflow.sdk import Context

PAUSED = "{dag} is paused: its runs wait in the queue, and nothing would keep job {job} running."
_TRIGGERER_S = 120.0
"""How much later than its trigger the scheduler ends a wait."""


class CheckRunDagOperator(StreambankOperator):
    """Makes sure, before anything is done to a job, that it can be handed over: its DAG is not paused.

    A scheduled run asks nothing of a job that is left stopped: it is not started in the end.

    Args:
        run_dag_id: The DAG that will keep the job running.
        only_if: Check nothing unless this is true; for a form's answer. The task succeeds all the same.

    Returns:
        `job`, `paused` (None where that was not asked, or Airflow does not say).
    """

    run_dag_id: Templated[str]
    only_if: Templated[bool] = argument(True)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check; see the class.

        Raises:
            AirflowFailException: The DAG is paused.
        """
        from streambank_airflow.watch.paused import is_paused

        with airflow_failures():
            asked = self.only_if
            if asked and by_schedule(context):
                asked = not self.hook.jobs.is_left_stopped(self.job, by=asked_by(context))
        paused = is_paused(context, self.run_dag_id) if asked else None
        if paused:
            raise AirflowFailException(
                f"{PAUSED.format(dag=self.run_dag_id, job=self.job)} Nothing was done. Hint: unpause "
                f"{self.run_dag_id}, and clear this task; or turn off *Start afterwards* in the form."
            )
        return {"job": self.job, "paused": paused}


class JobWatchedOperator(StreambankOperator):
    """Waits until a job that was started is watched, by the run that was handed it or by a later one.

    A run that is triggered may wait in the queue for ever, as where its DAG is paused: only a sign proves
    that the job is watched, and only one of a watcher that has seen the start. It succeeds, too, where the
    job runs to its end; where somebody stops it meanwhile it fails, and says who.

    Returns:
        `job`, `status` (`watched` or `finished`), `watcher` (which run watches, in words).
    """

    run_dag_id: Templated[str]
    timeout_s: Seconds[float] = argument(600.0)
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
    poll_interval_s: Seconds[float] = argument(2.0)

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait; see the class."""
        from streambank_airflow.triggers.job import JobWatchedTrigger
        from streambank_airflow.watch.paused import is_paused

        if is_paused(context, self.run_dag_id):
            self._fail(PAUSED.format(dag=self.run_dag_id, job=self.job))
        with airflow_failures():
            self.check_deferrable()
            trigger = JobWatchedTrigger(
                **self.trigger_arguments,
                give_up_at=to_json_time(utc_now() + timedelta(seconds=self.timeout_s)),
            )
            if self.deferrable:
                # A triggerer that is gone cannot say that it took too long: the scheduler does then.
                longest = timedelta(seconds=self.timeout_s + _TRIGGERER_S)
                self.defer(trigger=trigger, method_name="execute_complete", timeout=longest)
            event = trigger.wait_here(self.hook)
        return self.execute_complete(context, event)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the wait is over.

        Raises:
            AirflowFailException: Nothing watches the job, or somebody has stopped it.
        """
        self.raise_for_error(event)
        if event["status"] == "late":
            self._fail(f"No run of {self.run_dag_id} has begun to watch job {self.job} in time.")
        if event["status"] == "ended":
            self._fail(f"The run that should keep job {self.job} running gave up: {event['gave_up']}")
        if event["status"] == "stopped":
            stopped = f"Job {self.job} was {self.hook.watchers.job(self.job).desired_words()}."
            raise AirflowFailException(
                f"{stopped} That was before it was watched, so this run does not hand it over, and it stays "
                f"stopped. Hint: see what that was for, and trigger {self.run_dag_id} if the job should run."
            )
        return {"job": self.job, "status": event["status"], "watcher": event["watcher"]}

    def _fail(self, what: str) -> None:
        raise AirflowFailException(
            f"{what} The job itself is left as it is: it may run, but nothing would restart it. Hint: "
            f"unpause {self.run_dag_id}, make sure that a run of it reaches keep_running, and clear this "
            "task."
        )
