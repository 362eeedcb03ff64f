"""The operator that rehearses a restore, on a copy beside the running job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streambank.control.drills import NAMED, savepoints_of
from streambank.core.errors import RefusedError
from streambank.core.units import say_duration
from streambank.core.verb_options import DrillOptions
from streambank_airflow.arguments import DrillArguments
from streambank_airflow.choices import check_form_origin
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import hint_for
from streambank_airflow.operators.base import (
    RESULT_KEY,
    EndsWhenKilled,
    asked_by,
    measured,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.drills.each import RoundReport
    from streambank.drills.report import DrillReport, QueryDrill

_SHOWN = 5
"""How many differences of a query are in the result; the job's records have all."""


class RunDrillOperator(EndsWhenKilled, DrillArguments):
    """Rehearses a restore with the job's own application, on a copy that goes away, and leaves a report.

    The live job runs on, and only its records get something: the report. A drill that fails fails the task
    for good, since a retry would find the same. Its report is left all the same. A task that is killed ends
    the driver of the copy and removes the copy.

    Args:
        from_form: `repository` comes from a form: only the job's repository, its declared replicas and that
            of its table `drill` are taken.

    Returns:
        `job`, `passed`, `failed_step`, `code`, `error`, `failed_queries`, `still_rejected` (savepoints whose
            rejection it could not end: `query`, `savepoint`, `location`, `why`), `not_run`, `repository`,
            `rto_s`, `rpo_s`, `steps` (seconds of each), `queries` (of each `query`, `savepoint`, `batch`,
            `age_s`, `batches_behind`, `batches`, `state_equal`, `differences`, `not_compared`), `scratch`
            (None where it is removed), `started_at`, `seconds`. Of `each`: `job`, `passed`, `failed_step` and
            `code` (of the first that failed), `error` (names each that failed), `not_run` (of the first that
            did not run the application), `repository`, `rto_s` and `rpo_s` (of the first drill), `drills` (of
            each drill what is returned of one, and its `savepoints`), `skipped`, `ended` (why it ended before
            each savepoint was drilled), `left` (a list of those, by query), `resumed`, `started_at`,
            `seconds`.
    """

    operation = "drill"
    alert_kinds = ("drill-failed",)

    from_form: bool = False

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Rehearse it; see the class.

        Raises:
            AirflowFailException: The drill failed, or cannot be done as it is asked for.
            AirflowException: Its report could not be written down, and a retry may help.
        """
        with airflow_failures():
            if self.from_form:
                check_form_origin(self.whole_job("A drill"), self.repository, "drill")
            with self.killable("drill", "its driver and its copy go."):
                report = self.hook.recovery.drill(
                    self.job,
                    note=self.why,
                    by=asked_by(context),
                    say=lambda step: self.log.info("Drill of job %s: %s.", self.job, step),
                    **self.values_of(DrillOptions),
                )
            result = self._leave(context, report)
            if not report.passed:
                raise self._failure(report)
        self.log.info("The drill passed after %s.", say_duration(round(report.seconds)))
        if result.get("not_run"):
            self.log.warning("The application was not run on the copy: %s", result["not_run"])
        return result

    def _leave(self, context: Context, report: DrillReport | RoundReport) -> dict[str, Any]:
        """A task that fails returns nothing, and what it found is wanted most then."""
        from streambank.drills.each import RoundReport

        result = result_of_round(report) if isinstance(report, RoundReport) else result_of(report)
        self.leave_report(context, [("drill", report.verdict), *report.rows()], {RESULT_KEY: result})
        return result

    def _failure(self, report: DrillReport | RoundReport) -> RefusedError:
        from streambank.drills.each import RoundReport

        if isinstance(report, RoundReport):
            first = str(report.failed[0]["code"] or "")
            return RefusedError(
                f"Of the drills of job {report.job} {report.error_of(NAMED)}",
                code=first or None,
                hint=hint_for(first, report.hint, self.job),
            )
        return RefusedError(
            f"The drill of job {report.job} {report.verdict}",
            code=report.code,
            hint=hint_for(report.code or "", report.hint, self.job),
        )


def result_of(report: DrillReport) -> dict[str, Any]:
    """What the operator returns; see there.

    Args:
        report: The report, of which the rows and digests of each part of the state stay in the job's records.
    """
    whole = report.to_dict()
    names = ("job", "passed", "failed_step", "code", "error", "not_run", "repository", "rto_s", "rpo_s")
    return {
        **{name: whole[name] for name in (*names, "failed_queries", "still_rejected", "steps")},
        "queries": [_query(one) for one in report.queries],
        "scratch": report.scratch if report.kept else None,
        "started_at": whole["started_at"],
        "seconds": whole["seconds"],
    }


def result_of_round(report: RoundReport) -> dict[str, Any]:
    """What the operator returns of a drill of each savepoint; see there."""
    left_out = ("failed", "drills", "round", "by", "why")
    whole = {name: value for name, value in report.to_dict().items() if name not in left_out}
    of_each = ("passed", "failed_step", "code", "error", "not_run", "rto_s", "rpo_s", "steps", "seconds")
    return {
        **whole,
        "drills": [
            {"savepoints": savepoints_of(one), **{name: one[name] for name in of_each}}
            for one in report.drills
        ],
    }


def _query(drilled: QueryDrill) -> dict[str, Any]:
    whole: Mapping[str, Any] = drilled.to_dict()
    names = ("query", "savepoint", "batch", "age_s", "batches_behind", "state_equal", "not_compared")
    return {
        **{name: whole[name] for name in names},
        "batches": len(drilled.batches),
        "differences": drilled.differences()[:_SHOWN],
    }
