"""Operators that make a savepoint of another one: without some keys, repaired, rescaled or migrated.

The one that erases a single key, and looks where else it is, is in `erase`.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from streambank.core.errors import NotFoundError
from streambank.core.units import (
    from_json_time,
    parse_duration_s,
    say_bytes,
    say_count,
    say_duration,
    utc_now,
)
from streambank.repository.catalog import LATEST
from streambank_airflow.choices import where_choice
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.failures import airflow_failures
from streambank_airflow.markdown import code, filled, table
from streambank_airflow.operators.approve import PLAN_KEY, SUBJECT_KEY
from streambank_airflow.operators.base import (
    StreambankOperator,
    as_bool,
    as_integer,
    as_text,
    as_texts,
    asked_by,
    by_schedule,
)
from streambank_airflow.watch.job import DRIVEN

if TYPE_CHECKING:
    from airflow.sdk import Context

NOTHING_KEY = "nothing_to_do"
"""XCom key under which a preview leaves why the job is not stopped: it is too early, or nothing goes."""
_NOT_YET = ("never-started", "no-committed-batch")
SUMS = ("keys", "rows", "rows_before")
"""What is told of all operators of a query together."""
ASKED = {
    "where": "Remove keys where",
    "idle_for_s": "Remove keys idle for",
    "idle_since": "Remove keys idle since",
    "operator": "Operator",
    "part": "Part",
    "max_rows": "Maximum rows",
    "provider": "State store",
    "partitions": "Partitions",
}
"""Fields of a request that say what is done, as the forms call them."""


class StateOperator(StreambankOperator):
    """An operator that has a savepoint's state written anew, by a Spark of its own.

    The query and the savepoint stay as they are; what comes of it is another savepoint of the same batch.
    Spark is the one of `spark_conn_id`, else that of the job's table `state`, else the job's own.

    Args:
        savepoint: Its id, the beginning of one, or `latest`.
        unmoved: Refuse where the query has gone on since the savepoint, or has begun a batch.
        plan_only: Write nothing; only say what would go.
        before_stop: The job will be stopped for this: refuse what could not be carried out then. What would
            go is counted in how things are now: `latest` stands for a savepoint that is taken for this. A
            scheduled run for which it is too early is skipped, and leaves why in the XCom `nothing_to_do`; so
            does a plan by which nothing goes. A plan leaves itself in XCom `plan_markdown`, and its question
            in `subject`, for `ApprovePlanOperator`.
        only_if: Skip unless this is true, when what is asked has been checked.
        spark_conn_id: A connection of the Spark provider.
        spark_conf: Spark properties, beside those that are declared.
        spark_properties: A file of Spark properties on the worker, for what is secret.
        kwargs: `job`, `jobs_file`, `streambank_conn_id`, `note`, and as for every operator.
    """

    template_fields: Sequence[str] = (
        *StreambankOperator.template_fields,
        "savepoint",
        "unmoved",
        "plan_only",
        "only_if",
        "spark_conn_id",
        "spark_conf",
        "spark_properties",
    )

    alert_kinds: ClassVar[tuple[str, ...]] = ("compaction-failed",)

    def __init__(
        self,
        *,
        savepoint: str = "latest",
        unmoved: bool | str = False,
        plan_only: bool | str = False,
        only_if: bool | str = True,
        before_stop: bool = False,
        spark_conn_id: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_properties: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint
        self.unmoved = unmoved
        self.plan_only = plan_only
        self.only_if = only_if
        self.before_stop = before_stop
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.spark_properties = spark_properties

    @abstractmethod
    def request(self) -> dict[str, Any]:
        """What is asked, as JSON, without what all requests have (streambank_spark/rewrite)."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Have it done; see the class."""
        with airflow_failures():
            request = {"dry_run": as_bool(self.plan_only, "plan_only"), "note": self.why, **self.request()}
            self.hook.state.check_request(request)
            if self.before_stop:
                self._foresee(context, request)
            if not as_bool(self.only_if, "only_if"):
                raise AirflowSkipException("This run does not include this step.")
            savepoint = str(self.savepoint)
            report = self.hook.state.rewrite(
                self.job,
                self._take(context) if self.before_stop and savepoint == LATEST else savepoint,
                request,
                spark=SparkChoice(self.spark_conn_id, self.spark_conf or {}, self.spark_properties),
                unmoved=as_bool(self.unmoved, "unmoved"),
                by=asked_by(context),
                search=self.where_else(),
            )
            if self.before_stop:
                self._show(context, request, report)
        self.tell(report)
        return self.result(report)

    def where_else(self) -> Sequence[str] | None:
        """Replicas in which a key is looked for besides, as well as in all savepoints; None for nowhere."""
        return None

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """What the task returns.

        Raises:
            AirflowFailException: The report is one that nobody may overlook.
        """
        return {
            **{
                name: report[name]
                for name in ("operation", "dry_run", "of", "batch", "savepoint", "generation")
            },
            "job": self.job,
            **{name: sum(one[name] for one in report["operators"]) for name in SUMS},
        }

    def _foresee(self, context: Context, request: Mapping[str, Any]) -> None:
        """Refuse before the stop what would be refused after it.

        Raises:
            AirflowSkipException: A schedule asks, and it is too early.
        """
        try:
            self.hook.state.foresee(self.job, request, elsewhere=bool(self.spark_conn_id))
        except NotFoundError as error:
            early = error.code in _NOT_YET or (
                error.code == "no-such-savepoint" and request.get("idle_for_s") is not None
            )
            if not (early and by_schedule(context)):
                raise
            task_instance: Any = context["ti"]
            task_instance.xcom_push(key=NOTHING_KEY, value=error.message)
            raise AirflowSkipException(f"The job is left alone: {error.message} {error.hint}") from error

    def _take(self, context: Context) -> str:
        """Take a savepoint: by an old one nobody can tell what would go now."""
        taken = self.hook.savepoints.take(
            self.job,
            checkpoint=None,
            file_sinks=(),
            batch=None,
            closure=None,
            pin=False,
            new_query=False,
            note=self.why or "taken to count what would go",
            by=asked_by(context),
        )
        return str(taken["savepoint"])

    def question(self, report: Mapping[str, Any]) -> str | None:
        """What a person is asked before the job is stopped; None where it is not stopped for anything."""
        return None

    def _show(self, context: Context, request: Mapping[str, Any], report: Mapping[str, Any]) -> None:
        """Leave the plan for people."""
        task_instance: Any = context["ti"]
        runs = self.hook.watchers.job(self.job).look().state in DRIVEN
        shown = preview_markdown(request, report, runs=runs)
        self.log.info("The plan:\n%s", shown)
        task_instance.xcom_push(key=PLAN_KEY, value=shown)
        question = self.question(report)
        if question is None:
            task_instance.xcom_push(key=NOTHING_KEY, value=f"Of savepoint {report['of']} nothing goes.")
        else:
            stopped = " It runs, and will be stopped." if runs else ""
            task_instance.xcom_push(key=SUBJECT_KEY, value=question + stopped)

    def tell(self, report: Mapping[str, Any]) -> None:
        """Log what was done."""
        for one in report["operators"]:
            self.log.info(
                "Operator %(operator)d, %(name)s: %(keys)d keys to remove, with %(rows)d of %(rows_before)d "
                "rows, about %(about_bytes)d bytes. %(meaning)s",
                one,
            )
        for one in report["stores"]:
            self.log.info(
                "Operator %(operator)d, store %(store)s: %(rows)d of %(rows_before)d rows, in %(partitions)d "
                "partitions instead of %(partitions_before)d, were read again and compared.",
                one,
            )
        if report["savepoint"] is not None:
            self.log.info(
                "Savepoint %s is of batch %d of %s.", report["savepoint"], report["batch"], report["of"]
            )
        else:
            self.log.info("Nothing was written." if report["dry_run"] else "There is nothing to remove.")


class CompactStateOperator(StateOperator):
    """Makes a savepoint without the keys that have expired: TTL for state that has none.

    Args:
        where: Keys go for all of whose rows this SQL expression over key and value columns holds; it may say
            `{now}` and `{watermark}`.
        from_form: `where` comes from a form: it is true for the condition that the job declares; another one
            is taken only if the job's table `compact` says `expressions = "any"`, and what Spark says of that
            one is not repeated.
        idle_since: Keys go that have the same rows in this earlier savepoint.
        idle_for: The same, of the newest savepoint that is so much older: `30d`.
        operator: Of this stateful operator only.
        part: Judged by these rows alone: a side of a join, a state variable.
        max_rows: So many rows go at most, of each operator.
        kwargs: Those of `StateOperator`, and as for every operator.

    Returns:
        `job`, `operation`, `dry_run`, `of` (the first savepoint), `batch`, `savepoint` (the new one; None
            where nothing goes), `generation` (that counted), and over all operators `keys`, `rows` that go
            and `rows_before`.
    """

    template_fields: Sequence[str] = (
        *StateOperator.template_fields,
        "where",
        "idle_since",
        "idle_for",
        "operator",
        "part",
        "max_rows",
    )

    def __init__(
        self,
        *,
        where: str | bool | None = None,
        from_form: bool = False,
        idle_since: str | None = None,
        idle_for: str | None = None,
        operator: int | str | None = None,
        part: str | None = None,
        max_rows: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.from_form = from_form
        self.idle_since = idle_since
        self.idle_for = idle_for
        self.operator = operator
        self.part = part
        self.max_rows = max_rows

    def request(self) -> dict[str, Any]:
        """See the class."""
        idle_for = as_text(self.idle_for)
        where, typed = as_text(self.where), False
        if self.from_form and where is not None:
            where, typed = where_choice(self.where, self.hook.declared.job(self.job))
        return {
            "operation": "compact",
            "where": where,
            **({"from_form": True} if typed else {}),
            "idle_since": as_text(self.idle_since),
            "idle_for_s": None if idle_for is None else parse_duration_s(idle_for),
            "operator": as_integer(self.operator, "operator"),
            "part": as_text(self.part),
            "max_rows": as_integer(self.max_rows, "max_rows"),
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        """See the class."""
        keys, rows, before = (sum(one[name] for one in report["operators"]) for name in SUMS)
        if not rows:
            return None
        return f"Remove {say_count(keys, 'key')} ({rows:,} of {before:,} rows) from the state of {self.job}?"


class RescaleStateOperator(StateOperator):
    """Makes a savepoint with the same state in another number of partitions.

    Args:
        partitions: How many state partitions there are to be.
        kwargs: Those of `StateOperator`, and as for every operator.

    Returns:
        As `CompactStateOperator`; no key and no row goes.
    """

    template_fields: Sequence[str] = (*StateOperator.template_fields, "partitions")

    def __init__(self, *, partitions: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partitions = partitions

    def request(self) -> dict[str, Any]:
        """See the class."""
        return {"operation": "rescale", "partitions": as_integer(self.partitions, "partitions")}

    def question(self, report: Mapping[str, Any]) -> str | None:
        """See the class."""
        return f"Spread the state of {self.job} over {self.partitions} partitions?"


class MigrateStateOperator(StateOperator):
    """Makes a savepoint with HDFS-backed state as RocksDB, in another number of partitions if wanted.

    Args:
        provider: What is to keep the state: `rocksdb`.
        partitions: How many state partitions there are to be; None for as many as there are.
        kwargs: Those of `StateOperator`, and as for every operator.

    Returns:
        As `CompactStateOperator`; no key and no row goes.
    """

    template_fields: Sequence[str] = (*StateOperator.template_fields, "provider", "partitions")

    def __init__(
        self, *, provider: str = "rocksdb", partitions: int | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.provider = provider
        self.partitions = partitions

    def request(self) -> dict[str, Any]:
        """See the class."""
        return {
            "operation": "migrate",
            "provider": self.provider,
            "partitions": as_integer(self.partitions, "partitions"),
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        """See the class."""
        return f"Write the state of {self.job} as {self.provider}?"


def preview_markdown(request: Mapping[str, Any], report: Mapping[str, Any], *, runs: bool) -> str:
    """What would become of a job's state, as a person reads it before approving.

    Args:
        request: What was asked.
        report: What `hook.state.rewrite` found for it.
        runs: Whether the job has to be stopped.
    """
    place, _, savepoint = str(report["of"]).rpartition("/")
    age = say_duration(round((utc_now() - from_json_time(report["taken_at"])).total_seconds()))
    asked = {name: request[name] for name in ASKED if request.get(name) is not None}
    if "idle_for_s" in asked:
        asked["idle_for_s"] = say_duration(asked["idle_for_s"])
    counted = "{} of {}, " + f"batch {report['batch']:,}, {age} old"
    rows = [
        ("Counted in", filled(counted, code(savepoint), code(place))),
        *((ASKED[name], str(value)) for name, value in asked.items()),
        *(
            (
                f"Operator {one['operator']}, {one['name']}",
                f"{say_count(one['keys'], 'key')} with {one['rows']:,} of {one['rows_before']:,} rows, about "
                f"{say_bytes(one['about_bytes'])}. {one['meaning']}",
            )
            for one in report["operators"]
        ),
        ("The job now", "It runs. It will be stopped first." if runs else "It does not run."),
    ]
    return (
        f"{table(rows)}\nThe same is then done with the state at which the job stops, so the numbers may "
        "differ. The current checkpoint stays as it is.\n"
    )


class ValidateStateOperator(StateOperator):
    """Judges every row of a savepoint's state by rules; with repairs, makes one whose broken rows are mended.

    The task fails where rows stay broken.

    Args:
        rules: SQL expressions that must be true of every row; `0: value.count >= 0` is for operator 0,
            `0/left: ...` for a part of it.
        repairs: What broken rows are set to: `value.count = greatest(value.count, 0)`, limited as rules are.
            None to judge alone.
        operator: Of this stateful operator, where a rule or a repair does not say.
        part: Of this part, where it does not say.
        samples: How many broken rows the log shows for each rule and part.
        fail_on_broken: Fail the task where rows break a rule and are not repaired; without it the result says
            so.
        kwargs: Those of `StateOperator`, and as for every operator.

    Returns:
        `job`, `of` (the savepoint), `batch`, `ok` (no row of it breaks a rule), `dry_run`, `rules` (how many
            were judged, over all parts), `rows`, `broken` (the most rows that one of them found), `repaired`
            (rows), `savepoint` (the new one; None without a repair), `generation` (that counts).
    """

    template_fields: Sequence[str] = (
        *StateOperator.template_fields,
        "rules",
        "repairs",
        "operator",
        "part",
        "samples",
        "fail_on_broken",
    )

    alert_kinds = ()

    def __init__(
        self,
        *,
        rules: Sequence[str] | str,
        repairs: Sequence[str] | str = (),
        operator: int | str | None = None,
        part: str | None = None,
        samples: int | str = 10,
        fail_on_broken: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rules = rules
        self.repairs = repairs
        self.operator = operator
        self.part = part
        self.samples = samples
        self.fail_on_broken = fail_on_broken

    def request(self) -> dict[str, Any]:
        """See the class."""
        return {
            "operation": "validate",
            "rules": as_texts(self.rules),
            "repairs": as_texts(self.repairs),
            "operator": as_integer(self.operator, "operator"),
            "part": as_text(self.part),
            "samples": as_integer(self.samples, "samples") or 0,
        }

    def tell(self, report: Mapping[str, Any]) -> None:
        """Log how rules are kept, and what was repaired."""
        for one in report["rules"]:
            self.log.log(
                logging.ERROR if one["broken"] else logging.INFO,
                "Operator %(operator)d, %(part)s: %(broken)d of %(rows)d rows break %(rule)s",
                one,
            )
            for example in one["examples"]:
                self.log.info("Broken: %s", json.dumps(example, ensure_ascii=False))
        for one in report["repairs"]:
            done = "would be repaired" if report["dry_run"] else "repaired"
            self.log.info("Operator %d, %s: %d rows %s", one["operator"], one["part"], one["rows"], done)
            for sample in one["samples"]:
                self.log.info("%s", json.dumps(sample, ensure_ascii=False))
        if report["savepoint"] is not None:
            self.log.info(
                "Savepoint %s is of batch %d of %s.", report["savepoint"], report["batch"], report["of"]
            )

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """See the class."""
        worst = max(report["rules"], key=lambda one: one["broken"], default=None)
        left, job = not report["ok"] and not report["repairs"], self.job.partition("/")[0]
        if left and worst is not None and as_bool(self.fail_on_broken, "fail_on_broken"):
            raise AirflowFailException(
                f"State of {report['of']} breaks a rule: {worst['broken']:,} of {worst['rows']:,} rows of "
                f"operator {worst['operator']}, {worst['part']}, break {worst['rule']}. Hint: give repairs, "
                "which make a savepoint in which these rows are mended, or remove the keys by "
                f"{job}.compact."
            )
        return {
            "job": self.job,
            **{name: report[name] for name in ("of", "batch", "ok", "dry_run", "savepoint", "generation")},
            "rules": len(report["rules"]),
            "rows": max((one["rows"] for one in report["rules"]), default=0),
            "broken": worst["broken"] if worst is not None else 0,
            "repaired": 0 if report["dry_run"] else sum(one["rows"] for one in report["repairs"]),
        }
