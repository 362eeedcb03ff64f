"""The operator that restores a savepoint, or shows what that would do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk.exceptions import AirflowSkipException

from streambank.recovery.choices import Mode, SinkChoice, SourceChoice
from streambank.times import to_json_time
from streambank_airflow.choices import IF_RUNNING, new_sink_choices, one_of
from streambank_airflow.failures import airflow_failures
from streambank_airflow.operators.base import SparkWork, as_bool, asked_by, flat, known_or_template

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.recovery.plan import RestorePlan

PLAN_KEY = "plan_markdown"
"""XCom key under which a plan leaves its plan as Markdown, for the body of an approval."""


class RestoreSavepointOperator(SparkWork):
    """Restores a savepoint into the next generation of its job, or into an empty directory.

    Args:
        savepoint: Its id, the beginning of one, or `latest-good`: the newest that verifies.
        into: An empty directory; None makes the job's next generation and switches to it.
        sink: `refuse` where rows would be lost or repeated, also in a sink that is not guarded; `rollback` to
            set later output aside, `accept` to leave it.
        source: `refuse` where Kafka no longer has what the query would read next, or cannot be asked, or a
            source cannot be repeated; `accept` to go on without it.
        kafka: Kafka's servers (`host:port,...`), where they are not those that the savepoint or the job's
            declaration names.
        mode: `no-claim`, `claim` or `fork`.
        new_sinks: New output directories in which the restored query goes on instead of file sinks of the
            savepoint: a mapping from old to new, or a list of `OLD=NEW`. The application has to write there
            from its next start on.
        link: Share bytes with the repository instead of copying them.
        plan_only: Change nothing; the result says what would be done, and XCom `plan_markdown` shows it to
            people.
        unmoved: Refuse where the query has gone on since the savepoint, or has begun a batch.
        only_if: Skip unless this is true; for a form's answer.
        if_running: What a plan says about a job that is alive: `refuse`, or `stop` where the caller will stop
            it.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note`, those of `SparkWork`, and as for every
            operator.

    Returns:
        Flat: `savepoint`, `job`, `batch`, `taken_at`, `age_s`, `files`, `bytes`, `rows`, `location`,
            `generation`, `sink_effect` (what became of output that is newer than the savepoint), ...
    """

    template_fields: Sequence[str] = (
        *SparkWork.template_fields,
        "savepoint",
        "into",
        "sink",
        "source",
        "kafka",
        "mode",
        "new_sinks",
        "link",
        "plan_only",
        "unmoved",
        "only_if",
        "if_running",
    )

    def __init__(
        self,
        *,
        savepoint: str = "latest-good",
        into: str | None = None,
        sink: str = "refuse",
        source: str = "refuse",
        kafka: str | None = None,
        mode: str = "no-claim",
        new_sinks: Mapping[str, str] | Sequence[str] | str | None = None,
        link: bool | str = False,
        plan_only: bool | str = False,
        unmoved: bool | str = False,
        only_if: bool | str = True,
        if_running: str = "refuse",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint
        self.into = into
        self.sink = known_or_template(sink, "sink", get_args(SinkChoice))
        self.source = known_or_template(source, "source", get_args(SourceChoice))
        self.kafka = kafka
        self.mode = known_or_template(mode, "mode", get_args(Mode))
        self.new_sinks = new_sinks
        self.link = link
        self.plan_only = plan_only
        self.unmoved = unmoved
        self.only_if = only_if
        self.if_running = known_or_template(if_running, "if_running", IF_RUNNING)

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan it, and unless only a plan is wanted do it; see the class."""
        with airflow_failures():
            if not as_bool(self.only_if, "only_if"):
                raise AirflowSkipException("Nothing is to be restored.")
            choices: dict[str, Any] = {
                "into": self.into,
                "sink": self.sink,
                "source": self.source,
                "kafka": self.kafka or None,
                "mode": self.mode,
                "new_sinks": new_sink_choices(self.new_sinks),
            }
            if as_bool(self.plan_only, "plan_only"):
                plan = self.hook.plan_restore(
                    self.job,
                    str(self.savepoint),
                    may_stop=one_of(self.if_running, "if_running", IF_RUNNING) == "stop",
                    executor=self.machines,
                    **choices,
                )
                return self._show(context, plan)
            report = self.hook.restore(
                self.job,
                str(self.savepoint),
                link=as_bool(self.link, "link"),
                note=self.why,
                by=asked_by(context),
                unmoved=as_bool(self.unmoved, "unmoved"),
                executor=self.machines,
                **choices,
            )
        self.log.info("Batch %(batch)s of savepoint %(savepoint)s is now in %(location)s.", report)
        for said in (report["sink_effect"], report["source_effect"]):
            if said:
                self.log.info("%s", said)
        for warning in report["warnings"]:
            self.log.warning("%s", warning)
        return flat(report)

    def _show(self, context: Context, plan: RestorePlan) -> dict[str, Any]:
        shown = plan_markdown(plan)
        self.log.info("The plan:\n%s", shown)
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=PLAN_KEY, value=shown)
        return flat(plan.to_dict())


def plan_markdown(plan: RestorePlan) -> str:
    """A restore's plan as a person reads it before approving."""
    rows = [
        ("Savepoint", f"`{plan.savepoint}` of `{plan.job}`" + (f": {cell(plan.note)}" if plan.note else "")),
        ("Batch", f"{plan.batch:,}"),
        ("Taken", f"{to_json_time(plan.taken_at)}, {ago(plan.age_s)} ago"),
        ("State rows", "unknown" if plan.rows is None else f"{plan.rows:,}"),
        ("Size", f"{size(plan.bytes)} in {plan.files:,} files"),
        ("Goes to", f"`{plan.location}`"),
        ("Output written later", cell(plan.sink_effect())),
    ]
    if plan.sources:
        only_kafka = all(one.get("repeatable") is not False for one in plan.sources)
        rows.append(("Input in Kafka" if only_kafka else "Input", cell(plan.source_effect())))
    rows += [
        ("Writes to", f"`{sink['new_path']}` instead of `{sink['path']}`")
        for sink in plan.sinks
        if sink.get("new_path")
    ]
    rows += [("Passed over", f"`{one.savepoint}`: {cell(one.why)}") for one in plan.skipped]
    rows += [("Warning", cell(warning)) for warning in plan.warnings]
    rows += [
        ("The job now", f"{cell(refusal.message)} It will be stopped first.") for refusal in plan.refusals
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"| | |\n|---|---|\n{table}\n"


def cell(text: str) -> str:
    """Text that cannot break out of its cell of a Markdown table, or bring markup of its own."""
    plain = escape(" ".join(text.split()), quote=False)
    return re.sub(r"([|\[\]`*_\\])", r"\\\1", plain)


def ago(seconds: float) -> str:
    """How long ago, in the largest two units: `3 h 12 min`."""
    whole = max(0, int(seconds))
    parts = [
        (whole // 86400, "d"),
        (whole // 3600 % 24, "h"),
        (whole // 60 % 60, "min"),
        (whole % 60, "s"),
    ]
    first = next((i for i, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number) or "0 s"


def size(number: float) -> str:
    """Bytes as people read them: `1.2 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"
