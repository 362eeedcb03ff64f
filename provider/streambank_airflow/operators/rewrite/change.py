"""Operators that make a savepoint with other values, or with state from a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from streambank.core.errors import InputError, RefusedError
from streambank.core.names import QueryRef
from streambank.core.options import as_texts
from streambank.core.state_options import (
    PartOptions,
    TransformOptions,
)
from streambank.core.units import say_count
from streambank_airflow.arguments import (
    BootstrapArguments,
    PartArguments,
    RehearseArguments,
    SampleArguments,
    Templated,
    TransformArguments,
    argument,
)
from streambank_airflow.choices import bootstrap_choice, check_sql, transform_choice
from streambank_airflow.failures import airflow_failures
from streambank_airflow.hints import hint_for
from streambank_airflow.markdown import rows_table
from streambank_airflow.operators.base import REPORT_KEY, EndsWhenKilled, asked_by, measured
from streambank_airflow.operators.rewrite.base import SUMS, StateOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

REFUSE = "refuse"
"""In a form: make no state where there are rows."""


class ChangeStateOperator(EndsWhenKilled, StateOperator, PartArguments, SampleArguments, RehearseArguments):
    """An operator that gives state other values, or makes it.

    Args:
        rehearse: If the rehearsal fails, the task fails for good; one that could not run the application is
            refused first. A plan makes no savepoint, so it rehearses nothing.
        from_form: What is said comes from a form: only expressions that the job's table `transform` or
            `bootstrap` declares are taken, unless it says `expressions = "any"`; and what Spark says of
            other ones is not repeated.
    """

    from_form: bool = False

    @measured
    def execute(self, context: Context) -> dict[str, Any]:
        """Have it done, and rehearse it; see the class.

        Raises:
            AirflowFailException: It cannot be done as it is asked for, or the rehearsal failed.
        """
        with airflow_failures():
            self._check_rehearsal()
        result = self.rewritten(context)
        if result["savepoint"] is None or not self.rehearse:
            return {**result, "rehearsed": False, "rehearsal": None}
        with airflow_failures():
            return {**result, "rehearsed": True, "rehearsal": self._rehearsed(context, result)}

    def expected(self) -> dict[str, Any]:
        made = self.rehearse and not self.plan_only
        return {"rehearse": True} if made else {}

    def _check_rehearsal(self) -> None:
        rehearses = self.rehearse
        if self.batches is not None and not rehearses:
            raise InputError(
                "batches says how much a rehearsal executes, and none is asked for.",
                code="bad-option",
                hint="Set rehearse, or leave batches out.",
            )
        if rehearses:
            self.hook.state.foresee_rehearsal(self.job)

    def _rehearsed(self, context: Context, result: Mapping[str, Any]) -> str:
        """How the rehearsal went.

        Raises:
            RefusedError: It failed.
        """
        from streambank.drills.of_savepoint import do_not_restore, verdict

        made, of = result["savepoint"], result["of"]
        with self.killable("rehearsal", f"its driver and its copy go. Savepoint {made} is there."):
            report = self.hook.state.rehearse(
                self.job,
                made,
                batches=self.batches,
                by=asked_by(context),
                say=lambda step: self.log.info("Rehearsal of savepoint %s: %s.", made, step),
            )
        shown = rows_table([("drill", report.verdict), *report.rows()])
        self.log.info("The report:\n%s", shown)
        task_instance: Any = context["ti"]
        task_instance.xcom_push(key=REPORT_KEY, value=shown)
        words = verdict(report)
        if report.passed and report.not_run:
            raise RefusedError(
                f"{words} {do_not_restore(made, of)}",
                code="rehearsal-not-run",
                hint="Leave out the rehearsal, and look at the job closely after the restore.",
            )
        if report.passed:
            self.log.info("%s", words)
            return words
        raise RefusedError(
            f"{words} {do_not_restore(made, of)}",
            code=report.code,
            hint=hint_for(report.code or "", report.hint, self.job.partition("/")[0]),
        )

    @property
    def _query(self) -> str | None:
        return QueryRef.parse(self.job).query

    def found(self, report: Mapping[str, Any]) -> list[tuple[str, str]]:
        rehearsal = "The job's own application runs on a copy of the new savepoint, while the job is stopped."
        rehearses = self.rehearse
        return [*self.changed(report), *([("Rehearsal", rehearsal)] if rehearses else [])]

    def changed(self, report: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What would become of the state: rows of the plan."""
        return super().found(report)

    def say_how_to_use(self, report: Mapping[str, Any]) -> None:
        """Log what is done with the new savepoint next, where no task of the same DAG does it."""
        if report["savepoint"] is not None and not self.unmoved:
            self.log.info(
                "Restore %s to use it, by RestoreSavepointOperator or %s.restore. %s is unchanged.",
                report["savepoint"],
                self.job.partition("/")[0],
                report["of"],
            )


class TransformStateOperator(ChangeStateOperator, TransformArguments):
    """Makes a savepoint in which columns of state have other values, or keys are deleted.

    Returns:
        As `CompactStateOperator`: `keys` and `rows` are those that are deleted. And `changed` (rows that get
            other values), `rehearsed`, `rehearsal` (how it went, in words; None without one). `savepoint` is
            None where nothing changes.
    """

    operation = "transform"
    limited = True
    titles: ClassVar[Mapping[str, str]] = {
        "sets": "Set",
        "where": "Only rows where",
        "delete_where": "Delete keys where",
        "operator": "Operator",
        "part": "Part",
    }

    def request(self) -> dict[str, Any]:
        given = self.values_of(TransformOptions) | {"sets": _lines(self.sets)} | self.values_of(PartOptions)
        typed = False
        if self.from_form:
            given, typed = transform_choice(self.hook.declared.job(self.job), given, self._query)
        return {
            "operation": self.operation,
            **given,
            "samples": self.samples,
            **({"from_form": True} if typed else {}),
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        changed, keys = _changed(report), sum(one["keys"] for one in report["operators"])
        does = [
            *([f"set {say_count(changed, 'row')}"] if changed else []),
            *([f"delete {say_count(keys, 'key')}"] if keys else []),
        ]
        if not does:
            return None
        text = " and ".join(does)
        return f"{text[0].upper()}{text[1:]} in the state of {self.job}?"

    def nothing(self, report: Mapping[str, Any]) -> str:
        return f"Of savepoint {report['of']} no row changes."

    def changed(self, report: Mapping[str, Any]) -> list[tuple[str, str]]:
        rows = super().changed(report)
        for one in report["changes"]:
            part = f"Operator {one['operator']}, {one['part']}"
            rows.append((part, f"{say_count(one['rows'], 'row')} set"))
            for each in one["samples"]:
                key, before, after = (_json(each.get(name, {})) for name in ("key", "before", "after"))
                rows.append((f"{part}, such as", f"{key}: {before} becomes {after}"))
        return rows

    def tell(self, report: Mapping[str, Any]) -> None:
        """Log what was done, and rows before and after."""
        super().tell(report)
        for one in report["changes"]:
            done = "would be set" if report["dry_run"] else "set"
            self.log.info("Operator %d, %s: %d rows %s", one["operator"], one["part"], one["rows"], done)
            for sample in one["samples"]:
                self.log.info("%s", _json(sample))
        self.say_how_to_use(report)

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().result(report), "changed": _changed(report)}


class BootstrapStateOperator(ChangeStateOperator, BootstrapArguments):
    """Makes a savepoint whose state has the rows of a table.

    Args:
        table: Where the table is, as Spark reads it; in a form None for the first one that is declared.
        table_format: None for the one that is declared, or by the table's name.
        sql: True for the one that the job's table `bootstrap` declares. Another one is taken only if that
            table says `expressions = "any"`, and never from a form.
        existing: `refuse`, too, or None: then no state is made.
        planned_table: `table_digest` of what a plan returned: if the table gives other rows now, that is
            refused. None where there was no plan.

    Returns:
        `job`, `operation`, `dry_run`, `of` (the first savepoint), `batch`, `savepoint` (the new one; None of
            a plan), `generation` (that counts), `rows` (written), `table_rows`, `table_digest` (how
            many rows of state the table gives, and their fingerprint), `existing_rows` (that there were),
            `rehearsed`, `rehearsal` (how it went, in words; None without one).
    """

    operation = "bootstrap"
    titles: ClassVar[Mapping[str, str]] = {
        "table": "Table",
        "format": "Format",
        "query": "SQL over the table",
        "keys": "Key",
        "values": "Value",
        "operator": "Operator",
        "part": "Part",
    }

    table: Templated[str | None] = argument(None)
    sql: Templated[Any | None] = argument(None)
    planned_table: Templated[str | None] = argument(None)

    def expected(self) -> dict[str, Any]:
        planned = self.planned_table
        return super().expected() | ({} if planned is None else {"table_digest": planned})

    def request(self) -> dict[str, Any]:
        job = self.hook.declared.job(self.job)
        existing = self.existing
        given = {
            "table": self.table,
            "keys": _lines(self.keys),
            "values": _lines(self.values),
            **self.values_of(PartOptions),
        }
        typed = False
        if self.from_form:
            given, typed = bootstrap_choice(job, given, self._query)
        elif given["table"] is None:
            raise InputError(
                "No table is named from which state is made.",
                code="bad-option",
                hint="Set table to the location of one, as Spark reads it.",
            )
        declared = job.changes.bootstrap
        return {
            "operation": self.operation,
            **given,
            "format": self.table_format or (declared.format if declared is not None else None),
            "query": check_sql(job, self.sql, from_form=self.from_form),
            "existing": None if existing == REFUSE else existing,
            "samples": self.samples,
            **({"from_form": True} if typed else {}),
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        made, there = say_count(report["rows"], "row"), say_count(report["existing_rows"], "row")
        return f"Give the state of {self.job} {made} from a table? It has {there} now."

    def changed(self, report: Mapping[str, Any]) -> list[tuple[str, str]]:
        made, given = (say_count(report[name], "row") for name in ("rows", "table_rows"))
        becomes = {
            "keep": "They stay, also where the table has another row of their key.",
            "overwrite": "They stay, except where the table has another row of their key.",
        }.get(str(self.existing), "All go." if report["existing_rows"] else "")
        there = f"{say_count(report['existing_rows'], 'row')}. {becomes}".strip()
        part = f"Operator {report['operator']}, {report['part']}"
        return [
            (
                part,
                f"{made} made from {given} of the table, which must give the same when the job is stopped",
            ),
            ("Rows that are there", there),
            *(
                ("Such as", f"{_json(one.get('key', {}))}: {_json(one.get('value', {}))}")
                for one in report["samples"]
            ),
        ]

    def tell(self, report: Mapping[str, Any]) -> None:
        """Log what was done, and rows of state."""
        done = "would be made" if report["dry_run"] else "made"
        self.log.info(
            "Operator %d, %s: %d rows %s from %d of the table; there were %d before",
            report["operator"],
            report["part"],
            report["rows"],
            done,
            report["table_rows"],
            report["existing_rows"],
        )
        for sample in report["samples"]:
            self.log.info("%s", _json(sample))
        super().tell({**report, "operators": ()})
        self.say_how_to_use(report)

    def result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        whole = super().result({**report, "operators": ()})
        counts = {name: report[name] for name in ("rows", "table_rows", "table_digest", "existing_rows")}
        return {**{name: one for name, one in whole.items() if name not in SUMS}, **counts}


def _changed(report: Mapping[str, Any]) -> int:
    return sum(one["rows"] for one in report["changes"])


def _lines(value: Any) -> list[str]:
    return [one for one in as_texts(value) if one.strip()]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
