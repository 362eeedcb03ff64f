"""The operator that lets an earlier generation of a job's query count again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from streambank.core.errors import RefusedError
from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import StreambankOperator, as_bool, as_integer, asked_by

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReinstateGenerationOperator(StreambankOperator):
    """Goes back to the generation before, where the one after it has not gone on.

    It is the way back of a compaction or a rescale that fails. A driver that lives in the later one is
    stopped first. Refused where that one has committed a batch, or may have given one to a sink that cannot
    be asked; then the driver is left alone, or another one is started there.

    Args:
        generation: The number of the generation that is to count; None where it was never left.
        savepoint: A savepoint that was taken in it at its last batch.
        start: Where that is refused, start the job in the generation that it has, though none of its drivers
            lived.
        only_after_stop: Skip, with what follows, unless a task of this DAG run has stopped the job.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note`, and as for every operator.

    Returns:
        `job`, `state` (`reinstated`; `not-left` where that generation counts), `generation` (that counts
            now), `location`, `batch`.
    """

    template_fields: Sequence[str] = (
        *StreambankOperator.template_fields,
        "generation",
        "savepoint",
        "start",
        "only_after_stop",
    )

    def __init__(
        self,
        *,
        generation: int | str | None,
        savepoint: str | None,
        start: bool | str = False,
        only_after_stop: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.generation = generation
        self.savepoint = savepoint
        self.start = start
        self.only_after_stop = only_after_stop

    def execute(self, context: Context) -> dict[str, Any]:
        """Go back; see the class."""
        with airflow_failures():
            own = str(context["dag_run"].run_id)
            if as_bool(self.only_after_stop, "only_after_stop") and not self.hook.has_stopped(self.job, own):
                raise AirflowSkipException(f"This run has not stopped job {self.job}.")
            number, by = as_integer(self.generation, "generation"), asked_by(context)
            if number is None or not self.hook.has_moved(self.job, number):
                self.log.info("No other generation counts: nothing is to be done.")
                return {"job": self.job, "state": "not-left", "generation": number}
            # A driver that gets on after all is not stopped for this.
            self.hook.check_not_gone_on(self.job, str(self.savepoint))
            options: dict[str, Any] = {"note": self.why, "by": by}
            stopped = self.hook.stop(self.job, savepoint=False, drain=False, force_after_s=None, **options)
            try:
                done = self.hook.reinstate(self.job, str(self.savepoint), number, **options)
            except RefusedError:
                if stopped.state == "stopped" or as_bool(self.start, "start"):
                    # It is not to stand still for this: what it has is whole, too.
                    self.hook.start(self.job, obey_desired=False, wait=False, **options)
                raise
        self.log.info("Generation %d counts again, in %s, after batch %d.", number, done.location, done.batch)
        return {
            "job": self.job,
            "state": "reinstated",
            **{
                name: value
                for name, value in done.to_dict().items()
                if name in ("generation", "location", "batch")
            },
        }
