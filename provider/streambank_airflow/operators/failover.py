"""The operator that lets a job go on at its other site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError
from streambank.core.names import other_of
from streambank.core.options import as_data, as_text, as_texts
from streambank.core.restore_choices import parse_new_sinks
from streambank.core.verb_options import FailoverOptions
from streambank_airflow.arguments import FailoverArguments, Templated, argument
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_data, in_words
from streambank_airflow.markdown import rows_table
from streambank_airflow.operators.approve import PLAN_KEY, SUBJECT_KEY
from streambank_airflow.operators.base import (
    StreambankOperator,
    asked_by,
    measured,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.failover.report import FailoverPlan

_NOTHING = ("none", "other")
"""Answers of the form that say nothing."""


class FailoverStreamingJobOperator(StreambankOperator, FailoverArguments):
    """Lets a job go on at its other site: fence, last savepoint, restore, start, and a batch as proof.

    A retry, or another run, finishes one that was interrupted.

    Args:
        new_sinks: `OLD=NEW` texts, or a mapping: new output directories, over those that are declared.
        file_sinks: Output directories of file sinks that a savepoint does not name: a list of `QUERY=DIR`, or
            `DIR` for a job with one query.
        plan_only: Change nothing: leave the plan for `ApprovePlanOperator`, or fail for what speaks against
            the fail-over.
        approved: `approval` of a plan that a person has approved: fail where more would be lost by now, or
            the sites have changed. None asks no person.

    Returns:
        `job`, `site` (the active one now), `was`, `number`, `fenced`, `fence`, `resumed`, `rto_s`, `rpo_s`,
            `batches_behind`, `steps` (seconds of each), `savepoints` (of each query), `batches`, `warnings`,
            `started_at`. Of a plan: `site`, `was`, `number`, `answers`, `driver`, `resumes`, `rpo_s`,
            `batches_behind`, `savepoints`, `approval`, ...
    """

    operation = "failover"

    new_sinks: Templated[Mapping[str, str] | Sequence[str] | str | None] = argument(None)
    file_sinks: Templated[Sequence[str] | str | None] = argument(None)
    plan_only: Templated[bool] = argument(False)
    approved: Templated[Mapping[str, Any] | str | None] = argument(None)

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Do it; see the class.

        Raises:
            AirflowFailException: It is refused: a person has to decide.
        """
        with airflow_failures():
            asked = {
                **self.values_of(FailoverOptions),
                "to": _site(self.to),
                "is_down": _site(self.is_down),
                "new_sinks": _new_sinks(self.new_sinks),
                "file_sinks": as_texts(self.file_sinks),
                "by": asked_by(context),
                "note": self.why,
            }
            if self.plan_only:
                return self._show(context, self.hook.recovery.plan_failover(self.job, **asked))
            report = self.hook.recovery.failover(
                self.job,
                approved=_approved(self.approved),
                say=lambda step: self.log.info("Fail-over of job %s: %s.", self.job, step),
                **asked,
            )
        self.leave_report(context, report.rows())
        for warning in report.warnings:
            self.log.warning("%s", in_words(warning))
        whole = in_data(report.to_dict())
        return {name: value for name, value in whole.items() if name not in ("by", "why")}

    def _show(self, context: Context, plan: FailoverPlan) -> dict[str, Any]:
        from streambank.failover.approval import Approved

        for refusal in plan.refusals:
            raise refusal
        shown = rows_table(plan.rows())
        self.log.info("The plan:\n%s", shown)
        self.leave(context, {PLAN_KEY: shown, SUBJECT_KEY: subject_of(plan)})
        whole = in_data(plan.to_dict())
        kept = {name: value for name, value in whole.items() if name not in ("restores", "refusals")}
        return {**kept, "approval": Approved.of(plan).to_dict()}


def _site(value: Any) -> str | None:
    text = as_text(value)
    return None if text is None or text in _NOTHING else text


def _approved(value: Any) -> Mapping[str, Any] | None:
    """What a person has approved. Text that is no mapping never means that no person was asked."""
    data = as_data(value)
    if data is None or isinstance(data, Mapping):
        return data
    raise InputError(
        f"approved must be the `approval` of a plan, not {value!r}.",
        code="bad-option",
        hint="Look at what the template renders to. Without `approved` no person is asked.",
    )


def _new_sinks(value: Any) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        return {str(old): str(new) for old, new in value.items()}
    return parse_new_sinks([one for one in as_texts(value) if one.strip()])


def subject_of(plan: FailoverPlan) -> str:
    """The question of an approval."""
    question = f"Fail over job {plan.job} to the {plan.site}"
    lost = plan.lost
    if not plan.answers:
        losing = f", and lose or repeat {lost}" if lost else ""
        return f"{question}{losing}? The {other_of(plan.site)} cannot be fenced."
    if plan.saves and plan.needs_final:
        return f"{question}? A last savepoint is taken first: RPO 0."
    if not lost:
        return f"{question}?"
    unless = " if no last savepoint can be taken" if plan.saves else ""
    return f"{question}, and lose or repeat {lost}{unless}?"
