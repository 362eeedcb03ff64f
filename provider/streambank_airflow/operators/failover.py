"""The operator that lets a job go on at its other site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streambank.core.choices import SINK_CHOICES, SOURCE_CHOICES
from streambank.core.errors import check_choice
from streambank.core.units import say_duration
from streambank.recovery.choices import parse_new_sinks
from streambank_airflow.failures import airflow_failures
from streambank_airflow.markdown import code, filled, table
from streambank_airflow.operators.base import (
    StreambankOperator,
    as_bool,
    as_text,
    as_texts,
    asked_by,
    known_or_template,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.failover.report import FailoverReport

REPORT_KEY = "report_markdown"
"""XCom key under which the report is left for people."""
_NOTHING = ("none", "other")
"""Answers of the form that say nothing."""


class FailoverStreamingJobOperator(StreambankOperator):
    """Lets a job go on at its other site: fence, last savepoint, restore, start, and a batch as proof.

    A retry, or another run, finishes one that was interrupted.

    Args:
        to: `primary` or `standby`; None, or `other`, for the one that is not active.
        is_down: The site of which a person says that it is down; None, or `none`, for no such site.
        sink: What to do where going on would lose or repeat rows: `refuse`, `rollback` or `accept`.
        source: What to do where input cannot be read again: `refuse` or `accept`.
        final_savepoint: Fail where the site that was active answers, and gives no last savepoint.
        new_sinks: `OLD=NEW` texts, or a mapping: new output directories, over those that are declared.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note` (why), and as for every operator.

    Returns:
        `job`, `site` (the active one now), `was`, `number`, `fenced`, `fence`, `resumed`, `rto_s`, `rpo_s`,
            `batches_behind`, `steps` (seconds of each), `savepoints` (of each query), `batches`, `warnings`,
            `started_at`.
    """

    template_fields: Sequence[str] = (
        *StreambankOperator.template_fields,
        "to",
        "is_down",
        "sink",
        "source",
        "final_savepoint",
        "new_sinks",
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.is_down = is_down
        self.sink = known_or_template(sink, "sink", SINK_CHOICES)
        self.source = known_or_template(source, "source", SOURCE_CHOICES)
        self.final_savepoint = final_savepoint
        self.new_sinks = new_sinks

    def execute(self, context: Context) -> dict[str, Any]:
        """Do it; see the class.

        Raises:
            AirflowFailException: It is refused: a person has to decide.
            AirflowException: The environment failed, and a retry may finish it.
        """
        with airflow_failures():
            report = self.hook.recovery.failover(
                self.job,
                to=_site(self.to),
                is_down=_site(self.is_down),
                final_savepoint=as_bool(self.final_savepoint, "final_savepoint"),
                sink=check_choice(self.sink, "sink", SINK_CHOICES),
                source=check_choice(self.source, "source", SOURCE_CHOICES),
                new_sinks=_new_sinks(self.new_sinks),
                note=self.why,
                by=asked_by(context),
                say=lambda step: self.log.info("Fail-over of job %s: %s.", self.job, step),
            )
        shown = report_markdown(report)
        self.log.info("The report:\n%s", shown)
        for warning in report.warnings:
            self.log.warning("%s", warning)
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=REPORT_KEY, value=shown)
        whole = report.to_dict()
        return {name: value for name, value in whole.items() if name not in ("by", "why")}


def _site(value: Any) -> str | None:
    text = as_text(value)
    return None if text is None or text in _NOTHING else text


def _new_sinks(value: Any) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        return {str(old): str(new) for old, new in value.items()}
    return parse_new_sinks([one for one in as_texts(value) if one.strip()])


def report_markdown(report: FailoverReport) -> str:
    """A report as a person reads it.

    Args:
        report: The report.
    """
    rto = "not known" if report.rto_s is None else say_duration(round(report.rto_s, 1))
    rpo = "nothing was restored" if report.rpo_s is None else say_duration(round(report.rpo_s))
    rows: list[tuple[str, str]] = [
        ("Active site", report.site),
        ("Fenced", "yes" if report.fenced else "NO"),
        ("RTO", rto),
        ("RPO", rpo),
    ]
    for name, one in report.savepoints.items():
        rows.append((f"Query {name}", filled("{} of batch {}", code(one.savepoint), f"{one.batch:,}")))
    rows += [(f"Step {name}", say_duration(round(seconds, 1))) for name, seconds in report.steps.items()]
    rows += [("Warning", filled("{}", warning)) for warning in report.warnings]
    return table(rows)
