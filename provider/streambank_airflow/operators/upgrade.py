"""The operator that upgrades a running job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from streambank.core.errors import InputError, RefusedError
from streambank_airflow.choices import check_form_upgrade
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import hint_of_code, in_data
from streambank_airflow.markdown import rows_table
from streambank_airflow.operators.base import (
    REPORT_KEY,
    RESULT_KEY,
    EndsWhenKilled,
    StreambankOperator,
    as_bool,
    as_data,
    as_duration_s,
    as_integer,
    as_text,
    as_texts,
    asked_by,
    measured,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.upgrade.record import Upgrade

_SHOWN = 5
"""How many differences of a query are in the result; the job's records have all."""


class UpgradeStreamingJobOperator(EndsWhenKilled):
    """Brings a running job to what its file declares now, or to what is said here instead.

    The new code is rehearsed on a copy while the old one runs on, takes its place with a savepoint in
    between, and is watched. If it does not get on, the savepoint is restored and the old code started. A task
    that was interrupted is finished by its retry. An upgrade that is refused or undone fails the task for
    good, since a retry would find the same.

    Args:
        application: Another application than the declared one.
        args: Its arguments, all of them: a list, or one as text.
        conf: Settings of Spark over the declared ones.
        spark_home: Another distribution of Spark.
        compare: What has to be as in the live query: `none`, `counts` or `values`.
        batches: How many batches of the live query the rehearsal executes again; None for the number that
            the job declares for drills.
        timeout: How long the application may take in the rehearsal: a duration such as `30m`, or seconds;
            None for the time that the job declares for drills.
        watch: For how long the new code is watched: likewise.
        no_way_back: Go on although the upgrade could not be undone by itself.
        unrehearsed: Go on although the rehearsal could not run the new code.
        cold: Launch the new driver only when the old one has stopped: where there is no room for both.
        plan_only: See what would change, and do nothing.
        from_form: What is said comes from a form: only an application that the job's table `upgrade` allows
            is taken, or one in the folder of the declared one, and only settings of speed and size.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note` (why), and as for every operator.

    Returns:
        `job`, `name` (of the upgrade), `state`, `changes`, `no_way_back`, `code`, `error`, `savepoints`,
            `notes` (what could not be seen), `batches`, `launch_id`, `steps` (seconds of each),
            `without_processing_s`, `differences` (in what the new code computed something else, in the
            rehearsal), `warm` (whether the new driver was waiting when the old one was stopped), `resumed`,
            `started_at`, `seconds`.
    """

    operation = "upgrade"
    form_fields: ClassVar[tuple[str, ...]] = (
        "plan_only",
        "compare",
        "watch",
        "batches",
        "application",
        "args",
        "conf",
        "unrehearsed",
        "no_way_back",
        "cold",
    )
    template_fields: Sequence[str] = (
        *StreambankOperator.template_fields,
        *form_fields,
        "python",
        "spark_home",
        "timeout",
    )
    alert_kinds = ("upgrade-failed",)

    def __init__(
        self,
        *,
        application: str | None = None,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        python: str | None = None,
        spark_home: str | None = None,
        compare: str = "none",
        batches: int | str | None = None,
        timeout: str | float | None = None,
        watch: str | float = "2m",
        no_way_back: bool | str = False,
        unrehearsed: bool | str = False,
        cold: bool | str = False,
        plan_only: bool | str = False,
        from_form: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = application
        self.args = args
        self.conf = conf
        self.python = python
        self.spark_home = spark_home
        self.compare = compare
        self.batches = batches
        self.timeout = timeout
        self.watch = watch
        self.no_way_back = no_way_back
        self.unrehearsed = unrehearsed
        self.cold = cold
        self.plan_only = plan_only
        self.from_form = from_form

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Upgrade it; see the class.

        Raises:
            AirflowFailException: The job does not run the new code, or the upgrade cannot be done as it is
                asked for.
        """
        with airflow_failures():
            conf = _settings(self.conf)
            application = as_text(self.application)
            if self.from_form:
                check_form_upgrade(self.hook.declared.job(self.job), application, conf)
            batches = as_integer(self.batches, "batches")
            with self.killable("upgrade", "a retry finishes it."):
                report = self.hook.recovery.upgrade(
                    self.job,
                    application=application,
                    args=None if as_text(self.args) is None else as_texts(self.args),
                    conf=conf,
                    python=as_text(self.python),
                    spark_home=as_text(self.spark_home),
                    batches=batches,
                    compare=as_text(self.compare) or "none",
                    timeout_s=as_duration_s(self.timeout),
                    watch_s=as_duration_s(self.watch) or 0.0,
                    no_way_back=as_bool(self.no_way_back, "no_way_back"),
                    unrehearsed=as_bool(self.unrehearsed, "unrehearsed"),
                    warm=not as_bool(self.cold, "cold"),
                    plan_only=as_bool(self.plan_only, "plan_only"),
                    note=self.why,
                    by=asked_by(context),
                    say=lambda step: self.log.info("Upgrade of job %s: %s.", self.job, step),
                )
            result = self._leave(context, report)
            if not report.succeeded:
                raise self._failure(report)
        return result

    def _leave(self, context: Context, report: Upgrade) -> dict[str, Any]:
        """A task that fails returns nothing, and what it found is wanted most then."""
        result, shown = result_of(report), rows_table([("upgrade", report.state), *report.rows()])
        self.log.info("The report:\n%s", shown)
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=REPORT_KEY, value=shown)
        task_instance.xcom_push(key=RESULT_KEY, value=result)
        return result

    def _failure(self, report: Upgrade) -> RefusedError:
        return RefusedError(
            f"The upgrade of job {report.job} ended as {report.state}: {report.error}",
            code=report.code,
            hint=hint_of_code(report.code or "", report.job),
        )


def _settings(value: Any) -> dict[str, str]:
    found = as_data(value)
    if found is None or found == "" or found == "None":
        return {}
    if not isinstance(found, Mapping):
        raise InputError(
            "conf must name settings of Spark with their values.",
            code="bad-option",
            hint='Such as {"spark.executor.memory": "8g"}.',
        )
    words = {True: "true", False: "false"}
    return {
        str(name): words.get(one, str(one)) if isinstance(one, bool) else str(one)
        for name, one in found.items()
    }


def result_of(report: Upgrade) -> dict[str, Any]:
    """What the operator returns; see there.

    Args:
        report: The report, of which the rehearsal as a whole stays in the job's records.
    """
    left_out = ("before", "after", "how", "rehearsal", "by", "why")
    whole = {name: value for name, value in report.to_dict().items() if name not in left_out}
    return {**in_data(whole), "differences": report.differences[:_SHOWN]}
