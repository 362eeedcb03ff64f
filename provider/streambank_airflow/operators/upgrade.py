"""The operator that upgrades a running job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import conf

from streambank.core.errors import RefusedError
from streambank.core.shape import decode
from streambank.core.verb_options import UpgradeOptions
from streambank_airflow.arguments import Seconds, UpgradeArguments, argument
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
    from streambank.upgrade.watch import Wait

_SHOWN = 5
"""How many differences of a query are in the result; the job's records have all."""


class UpgradeStreamingJobOperator(EndsWhenKilled, UpgradeArguments):
    """Brings a running job to what its file declares now, or to what is said here instead.

    The new code is rehearsed on a copy while the old one runs on, takes its place with a savepoint in
    between, and is watched. If it does not get on, the savepoint is restored and the old code started. A task
    that was interrupted is finished by its retry. An upgrade that is refused or undone fails the task for
    good, since a retry would find the same.

    Where it defers, the new code is watched in the triggerer, with no lock held. Up to its start the task
    needs its worker, and so does what goes back to the old code. A task that is cleared while it waits goes
    on with the same upgrade, and does not defer again; one that is marked as failed or successful leaves the
    new code running, as an upgrade that was interrupted.

    Args:
        deferrable: Where there are signing keys, wait for the first batch, and until the end of the watch,
            in the triggerer, with `poll_interval_s` between two looks.
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
    deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
    poll_interval_s: Seconds[float] = argument(2.0)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Upgrade it; see the class.

        Raises:
            AirflowFailException: The job does not run the new code, or the upgrade cannot be done as it is
                asked for.
        """
        return self._upgrade(context)

    @measured
    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on when a wait is over, or something has ended it: whatever that was is looked at again here."""
        from streambank.upgrade.watch import Wait

        return self._upgrade(context, decode(Wait, event["remember"], "wait of an upgrade"))

    def _upgrade(self, context: Context, wait: Wait | None = None) -> dict[str, Any]:
        with airflow_failures():
            self.check_deferrable()
            if self.from_form:
                check_form_upgrade(self.whole_job("An upgrade"), self.application, self.conf)
            with self.killable("upgrade", "a retry finishes it."):
                report = self.hook.recovery.upgrade(
                    self.job,
                    note=self.why,
                    by=asked_by(context),
                    say=lambda step: self.log.info("Upgrade of job %s: %s.", self.job, step),
                    leave=self._leave if self.deferrable else None,
                    wait=wait,
                    **self.values_of(UpgradeOptions),
                )
            result = result_of(report)
            # A task that fails returns nothing, and what it found is wanted most then.
            self.leave_report(context, [("upgrade", report.state), *report.rows()], {RESULT_KEY: result})
            if not report.succeeded:
                raise self._failure(report)
        return result

    def _leave(self, wait: Wait) -> NoReturn:
        """Leave a wait to the triggerer."""
        from streambank_airflow.triggers.job import DriverStaysTrigger, JobReadyTrigger

        remember: dict[str, Any] = wait.to_dict()
        arguments = {**self.trigger_arguments, "give_up_at": remember["until"], "remember": remember}
        self.defer(
            trigger=JobReadyTrigger(**arguments)
            if wait.step == "first-batch"
            else DriverStaysTrigger(**arguments, launch_id=wait.launch_id),
            method_name="execute_complete",
        )

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
