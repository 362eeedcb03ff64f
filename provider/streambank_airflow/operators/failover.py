"""The operator that lets a job go on at its other site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streambank.core.choices import SINK_CHOICES, SOURCE_CHOICES
from streambank.core.errors import InputError, check_choice
from streambank.core.names import other_of
from streambank.recovery.choices import parse_new_sinks
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import in_data, in_words
from streambank_airflow.markdown import rows_table
from streambank_airflow.operators.approve import PLAN_KEY, SUBJECT_KEY
from streambank_airflow.operators.base import (
    REPORT_KEY,
    StreambankOperator,
    as_bool,
    as_data,
    as_text,
    as_texts,
    asked_by,
    known_or_template,
    measured,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.failover.report import FailoverPlan

_NOTHING = ("none", "other")
"""Answers of the form that say nothing."""


class FailoverStreamingJobOperator(StreambankOperator):
    """Lets a job go on at its other site: fence, last savepoint, restore, start, and a batch as proof.

    A retry, or another run, finishes one that was interrupted.

    Args:
        to: `primary` or `standby`; None, or `other`, for the one that is not active.
        is_down: The site of which a person says that it is down; None, or `none`, for no such site.
        sink: What to do where going on would lose or repeat rows: `refuse`, `rollback`, `rollback-accept`
            or `accept`.
        source: What to do where input cannot be read again: `refuse` or `accept`.
        final_savepoint: Fail where the site that was active answers, and gives no last savepoint.
        new_sinks: `OLD=NEW` texts, or a mapping: new output directories, over those that are declared.
        file_sinks: Output directories of file sinks that a savepoint does not name: a list of `QUERY=DIR`, or
            `DIR` for a job with one query.
        plan_only: Change nothing: leave the plan for `ApprovePlanOperator`, or fail for what speaks against
            the fail-over.
        approved: `approval` of a plan that a person has approved: fail where more would be lost by now, or
            the sites have changed. None asks no person.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note` (why), and as for every operator.

    Returns:
        `job`, `site` (the active one now), `was`, `number`, `fenced`, `fence`, `resumed`, `rto_s`, `rpo_s`,
            `batches_behind`, `steps` (seconds of each), `savepoints` (of each query), `batches`, `warnings`,
            `started_at`. Of a plan: `site`, `was`, `number`, `answers`, `driver`, `resumes`, `rpo_s`,
            `batches_behind`, `savepoints`, `approval`, ...
    """

    operation = "failover"
    template_fields: Sequence[str] = (
        *StreambankOperator.template_fields,
        "to",
        "is_down",
        "sink",
        "source",
        "final_savepoint",
        "new_sinks",
        "file_sinks",
        "plan_only",
        "approved",
    )

    def __init__(
        self,
        *,
        to: str | None = None,
        is_down: str | None = None,
        sink: str = "refuse",
        source: str = "refuse",
        final_savepoint: bool | str = True,
        new_sinks: Mapping[str, str] | Sequence[str] | str | None = None,
        file_sinks: Sequence[str] | str | None = None,
        plan_only: bool | str = False,
        approved: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.is_down = is_down
        self.sink = known_or_template(sink, "sink", SINK_CHOICES)
        self.source = known_or_template(source, "source", SOURCE_CHOICES)
        self.final_savepoint = final_savepoint
        self.new_sinks = new_sinks
        self.file_sinks = file_sinks
        self.plan_only = plan_only
        self.approved = approved

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Do it; see the class.

        Raises:
            AirflowFailException: It is refused: a person has to decide.
        """
        with airflow_failures():
            asked: dict[str, Any] = {
                "to": _site(self.to),
                "is_down": _site(self.is_down),
                "final_savepoint": as_bool(self.final_savepoint, "final_savepoint"),
                "sink": check_choice(self.sink, "sink", SINK_CHOICES),
                "source": check_choice(self.source, "source", SOURCE_CHOICES),
                "new_sinks": _new_sinks(self.new_sinks),
                "file_sinks": as_texts(self.file_sinks),
                "by": asked_by(context),
            }
            if as_bool(self.plan_only, "plan_only"):
                return self._show(context, self.hook.recovery.plan_failover(self.job, **asked))
            report = self.hook.recovery.failover(
                self.job,
                **asked,
                note=self.why,
                approved=_approved(self.approved),
                say=lambda step: self.log.info("Fail-over of job %s: %s.", self.job, step),
            )
        shown = rows_table(report.rows())
        self.log.info("The report:\n%s", shown)
        for warning in report.warnings:
            self.log.warning("%s", in_words(warning))
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=REPORT_KEY, value=shown)
        whole = in_data(report.to_dict())
        return {name: value for name, value in whole.items() if name not in ("by", "why")}

    def _show(self, context: Context, plan: FailoverPlan) -> dict[str, Any]:
        from streambank.failover.approval import Approved

        for refusal in plan.refusals:
            raise refusal
        shown = rows_table(plan.rows())
        self.log.info("The plan:\n%s", shown)
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=PLAN_KEY, value=shown)
        task_instance.xcom_push(key=SUBJECT_KEY, value=subject_of(plan))
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
