"""What operators that make a savepoint of another one have in common."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException

from streambank.core.errors import NotFoundError
from streambank.core.options import as_data, as_text
from streambank.core.units import from_json_time, say_bytes, say_count, say_duration, to_json_time, utc_now
from streambank.repository.catalog import LATEST
from streambank_airflow.arguments import Templated, argument
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.failures import airflow_failures
from streambank_airflow.markdown import code, filled, table
from streambank_airflow.operators.approve import PLAN_KEY, SUBJECT_KEY
from streambank_airflow.operators.base import asked_by, by_schedule, measured
from streambank_airflow.operators.on_savepoint import OnSavepoint
from streambank_airflow.watch.job import DRIVEN

if TYPE_CHECKING:
    from airflow.sdk import Context

NOTHING_KEY = "nothing_to_do"
"""XCom key under which a preview leaves why the job is not stopped: it is too early, or nothing goes."""
REQUEST_KEY = "planned_request"
"""XCom key under which a plan leaves what it showed: the digest of the request, and what may go at most."""
_NOT_YET = ("never-started", "no-committed-batch")
SUMS = ("keys", "rows", "rows_before")
"""Fields of a report that are added up over all operators of a query."""
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


class StateOperator(OnSavepoint):
    """An operator that has Spark rewrite the state of a savepoint.

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
        planned: What a plan showed (its XCom `planned_request`): anything else, and more keys than that, are
            refused, and a condition over time counts as it was then. None where there was no plan.
        shown: The generations that the plan was of (its XCom `planned_generations`): others are refused.
        spark_conn_id: A connection of the Spark provider.
        spark_conf: Spark properties, beside those that are declared.
        spark_properties: A file of Spark properties on the worker, for what is secret.
    """

    alert_kinds: ClassVar[tuple[str, ...]] = ("compaction-failed",)
    limited: ClassVar[bool] = False
    """Whether keys go, so that a plan limits which."""
    titles: ClassVar[Mapping[str, str]] = ASKED
    """Fields of the request that a plan shows, and how it calls them."""

    savepoint: Templated[str] = argument("latest")
    unmoved: Templated[bool] = argument(False)
    plan_only: Templated[bool] = argument(False)
    only_if: Templated[bool] = argument(True)
    before_stop: bool = False
    planned: Templated[Mapping[str, Any] | str | None] = argument(None)
    shown: Templated[Mapping[str, int] | str | None] = argument(None)
    spark_conn_id: Templated[str | None] = argument(None)
    spark_conf: Templated[Mapping[str, str] | None] = argument(None)
    spark_properties: Templated[str | None] = argument(None)

    @abstractmethod
    def request(self) -> dict[str, Any]:
        """What is asked, as JSON, without what all requests have (streambank_spark/rewrite)."""

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Have it done; see the class."""
        return self.rewritten(context)

    def rewritten(self, context: Context) -> dict[str, Any]:
        """Have it done, and say what came of it."""
        with airflow_failures():
            asked = self.request()
            request = {"dry_run": self.plan_only, "note": self.why, **asked}
            request |= self._limits(asked) | self.expected()
            self.hook.state.check_request(request)
            self.check_shown(context, self.shown)
            if self.before_stop:
                self._foresee(context, request)
            if not self.only_if:
                raise AirflowSkipException("This run does not include this step.")
            if self.before_stop:
                self.leave_generations(context)  # before anything is counted
            savepoint = str(self.savepoint)
            report = self.hook.state.rewrite(
                self.job,
                self._take(context) if self.before_stop and savepoint == LATEST else savepoint,
                request,
                spark=SparkChoice(self.spark_conn_id, self.spark_conf or {}, self.spark_properties),
                unmoved=self.unmoved,
                by=asked_by(context),
                search=self.where_else(),
            )
            if self.before_stop:
                self._show(context, request, report)
        if report["savepoint"] is not None:
            self.did("made", report)
        self.tell(report)
        return self.result(report)

    def _limits(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Of a request what a plan has shown: what is done is what was shown, and no more.

        Raises:
            RefusedError: The declaration, or what a DAG gives, has changed since the plan.
        """
        planned = as_data(self.planned)
        if isinstance(planned, str):  # a plan of the version before has left the digest alone
            planned = {"digest": planned} if as_text(planned) is not None else None
        if planned is None:
            counts = self.limited and self.before_stop
            return {"planned": {"now": to_json_time(utc_now())}} if counts else {}
        if planned["digest"] != digest_of(asked):
            from streambank.core.approval import outdated

            raise outdated(
                f"What a plan showed for {self.job} is not what would be done now: the declaration of the "
                "job has changed since."
            )
        return {"planned": planned["limits"]} if self.limited and planned.get("limits") else {}

    def expected(self) -> dict[str, Any]:
        """Fields of the request that are not what was asked: what a plan found in what the request names."""
        return {}

    def where_else(self) -> Sequence[str] | None:
        """Replicas to search for a key, beside all savepoints of the repository; None for no search."""
        return None

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """What the task returns.

        Raises:
            AirflowFailException: The report must not pass as a success.
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
        """Take a savepoint: an old one does not show what would be removed now."""
        note = self.why or "taken to count what would go"
        return self.hook.savepoints.take(self.job, note=note, by=asked_by(context)).savepoint

    def question(self, report: Mapping[str, Any]) -> str | None:
        """What a person is asked before the job is stopped; None where it is not stopped for anything."""
        return None

    def nothing(self, report: Mapping[str, Any]) -> str:
        """What is said if nothing would change."""
        return f"Of savepoint {report['of']} nothing goes."

    def found(self, report: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What would become of the state: rows of the plan."""
        return [
            (
                f"Operator {one['operator']}, {one['name']}",
                f"{say_count(one['keys'], 'key')} with {one['rows']:,} of {one['rows_before']:,} rows, about "
                f"{say_bytes(one['about_bytes'])}. {one['meaning']}",
            )
            for one in report["operators"]
        ]

    def _show(self, context: Context, request: Mapping[str, Any], report: Mapping[str, Any]) -> None:
        """Leave the plan for people."""
        task_instance: Any = context["ti"]
        runs = self.hook.watchers.job(self.job).look().state in DRIVEN
        shown = self._plan_markdown(request, report, runs=runs)
        self.log.info("The plan:\n%s", shown)
        task_instance.xcom_push(key=PLAN_KEY, value=shown)
        left: dict[str, Any] = {"digest": digest_of(self.request())}
        if self.limited:
            keys = {str(one["operator"]): one["keys"] for one in report["operators"]}
            left["limits"] = {**request["planned"], "watermark_ms": report["watermark_ms"], "keys": keys}
        task_instance.xcom_push(key=REQUEST_KEY, value=left)
        question = self.question(report)
        if question is None:
            task_instance.xcom_push(key=NOTHING_KEY, value=self.nothing(report))
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
            self.log.info("Nothing was written." if report["dry_run"] else self.nothing(report))

    def _plan_markdown(self, request: Mapping[str, Any], report: Mapping[str, Any], *, runs: bool) -> str:
        """What would become of a job's state, as a person reads it before approving.

        Args:
            report: What `hook.state.rewrite` found for it.
            runs: Whether the job has to be stopped.
        """
        limit = ", so the numbers may differ"
        if self.limited:
            limit = ". Times in it stay those of this plan. If more keys would go, nothing is done"
        place, _, savepoint = str(report["of"]).rpartition("/")
        age = say_duration(round((utc_now() - from_json_time(report["taken_at"])).total_seconds()))
        counted = "{} of {}, " + f"batch {report['batch']:,}, {age} old"
        rows = [
            ("Counted in", filled(counted, code(savepoint), code(place))),
            *self._asked(request),
            *self.found(report),
            ("The job now", "It runs. It will be stopped first." if runs else "It does not run."),
        ]
        return (
            f"{table(rows)}\nThe same is then done with the state at which the job stops{limit}. The current "
            "checkpoint stays as it is.\n"
        )

    def _asked(self, request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, title in self.titles.items():
            value = request.get(name)
            if name == "idle_for_s" and value is not None:
                value = say_duration(value)
            for one in value if isinstance(value, list | tuple) else [value]:
                if one is not None:
                    yield title, str(one)


def digest_of(request: Mapping[str, Any]) -> str:
    """What a plan remembers of a request: another one has another digest."""
    text = json.dumps(request, sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
