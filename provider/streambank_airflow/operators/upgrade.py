"""The operator that upgrades a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streambank.core.errors import RefusedError
from streambank.core.verb_options import UpgradeOptions
from streambank_airflow.choices import check_form_upgrade
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import hint_for, in_data
from streambank_airflow.operators.base import (
    RESULT_KEY,
    EndsWhenKilled,
    asked_by,
    measured,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.upgrade.record import Upgrade

_SHOWN = 5
"""How many differences of a query are in the result; the job's records have all."""


class UpgradeStreamingJobOperator(EndsWhenKilled, UpgradeOptions):
    """Brings a running job to what its file declares now, or to what is said here instead.

    The new code is rehearsed on a copy while the old one runs on, takes its place with a savepoint in
    between, and is watched. If it does not get on, the savepoint is restored and the old code started. A task
    that was interrupted is finished by its retry. An upgrade that is refused or undone fails the task for
    good, since a retry would find the same.

    Args:
        from_form: What is said comes from a form: only an application that the job's table `upgrade` allows
            is taken, or one in the folder of the declared one, and only settings of speed and size.

    Returns:
        `job`, `name` (of the upgrade), `state`, `changes`, `no_way_back`, `code`, `error`, `savepoints`,
            `notes` (what could not be seen), `batches`, `launch_id`, `steps` (seconds of each),
            `without_processing_s`, `differences` (in what the new code computed something else, in the
            rehearsal), `warm` (whether the new driver was waiting when the old one was stopped), `resumed`,
            `started_at`, `seconds`.
    """

    operation = "upgrade"
    alert_kinds = ("upgrade-failed",)

    from_form: bool = False

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Upgrade it; see the class.

        Raises:
            AirflowFailException: The job does not run the new code, or the upgrade cannot be done as it is
                asked for.
        """
        from streambank.upgrade.plan import UpgradeRequest

        with airflow_failures():
            job = self.whole_job("An upgrade")
            if self.from_form:
                check_form_upgrade(job, self.application, self.conf)
            request = UpgradeRequest(
                job, by=asked_by(context), why=self.why, **self.values_of(UpgradeOptions)
            )
            with self.killable("upgrade", "a retry finishes it."):
                report = self.hook.recovery.upgrade(
                    request, say=lambda step: self.log.info("Upgrade of job %s: %s.", self.job, step)
                )
            result = result_of(report)
            # A task that fails returns nothing, and what it found is wanted most then.
            self.leave_report(context, [("upgrade", report.state), *report.rows()], {RESULT_KEY: result})
            if not report.succeeded:
                raise self._failure(report)
        return result

    def _failure(self, report: Upgrade) -> RefusedError:
        return RefusedError(
            f"The upgrade of job {report.job} ended as {report.state}: {report.error}",
            code=report.code,
            hint=hint_for(report.code or "", report.hint, report.job),
        )


def result_of(report: Upgrade) -> dict[str, Any]:
    """What the operator returns; see there.

    Args:
        report: The report, of which the rehearsal as a whole stays in the job's records.
    """
    left_out = ("before", "after", "how", "rehearsal", "by", "why")
    whole = {name: value for name, value in report.to_dict().items() if name not in left_out}
    return {**in_data(whole), "differences": report.differences[:_SHOWN]}
