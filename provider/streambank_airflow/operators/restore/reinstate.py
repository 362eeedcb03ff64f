"""The operator that goes back to the generation before, if the job has not gone on in the later one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from streambank.core.errors import RefusedError
from streambank_airflow.arguments import Templated, argument
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import hint_of
from streambank_airflow.operators.base import StreambankOperator, asked_by

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.job.stop import StopResult


class ReinstateGenerationOperator(StreambankOperator):
    """Goes back to the generation before, where the one after it has not gone on.

    It is the way back of a compaction or a rescale that fails. A driver that lives in the later one is
    stopped first. Where that one has committed a batch, or may have given one to a sink that cannot be
    asked, the job stays in it: going back would lose or repeat rows. Then its driver is left alone, or
    another one is started there.

    Args:
        generation: The number of the generation that is to count; None where it was never left.
        savepoint: A savepoint that was taken in it at its last batch.
        start: The job is started after this, wherever it is; without it a driver that was stopped for this is
            started again here where the job stays.
        only_after_stop: Skip, with what follows, unless a task of this DAG run has stopped the job.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note`, and as for every operator.

    Returns:
        `job`, `state` (`reinstated`; `not-left` where that generation counts; `stays` where going back
            would lose or repeat rows), `generation` (that counts now), `location`, `batch`; where it stays
            only `code` and `why` besides.
    """

    generation: Templated[int | None]
    savepoint: Templated[str | None]
    start: Templated[bool] = argument(False)
    only_after_stop: Templated[bool] = argument(False)

    def execute(self, context: Context) -> dict[str, Any]:
        """Go back; see the class."""
        with airflow_failures():
            by = asked_by(context)
            if self.only_after_stop and not self.hook.jobs.has_stopped(self.job, by=by):
                raise AirflowSkipException(f"This run has not stopped job {self.job}.")
            if self.only_after_stop and self.hook.jobs.is_left_stopped(self.job, by=by):
                stopped_by = f"Job {self.job} was {self.hook.watchers.job(self.job).desired_words()}."
                why = f"{stopped_by} That was after this run had stopped it, so it stays as it is."
                self.log.warning("%s", why)
                raise AirflowSkipException(why)
            number = self.generation
            if number is None or not self.hook.recovery.has_moved(self.job, number):
                self.log.info("The job has not moved to another generation: there is nothing to do.")
                return {"job": self.job, "state": "not-left", "generation": number}
            options: dict[str, Any] = {"note": self.why, "by": by}
            stopped: StopResult | None = None
            try:
                # A driver that gets on after all is not stopped for this.
                self.hook.recovery.check_not_gone_on(self.job, str(self.savepoint))
                stopped = self.hook.jobs.stop(self.job, **options)
                done = self.hook.recovery.reinstate(self.job, str(self.savepoint), number, **options)
            except RefusedError as refusal:
                if stopped is not None and stopped.state == "stopped" and not self.start:
                    # It is not to stand still for this: what it has is whole, too.
                    self.hook.jobs.start(self.job, obey_desired=False, wait=False, **options)
                return self._stay(number, refusal)
        self.log.info(
            "Generation %d is the current one again, in %s, after batch %d.",
            number,
            done.location,
            done.batch,
        )
        return {
            "job": self.job,
            "state": "reinstated",
            **{
                name: value
                for name, value in done.to_dict().items()
                if name in ("generation", "location", "batch")
            },
        }

    def _stay(self, number: int, refusal: RefusedError) -> dict[str, Any]:
        self.log.error(
            "The job stays where it is, and does not go back to generation %d: %s What it has there is whole."
            " %s",
            number,
            refusal.message,
            hint_of(refusal, self.job.partition("/")[0]),
        )
        return {
            "job": self.job,
            "state": "stays",
            "code": refusal.code,
            "why": refusal.message,
        }
