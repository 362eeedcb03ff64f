"""The operator that makes a savepoint without the keys that have expired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streambank.core.units import parse_duration_s, say_count
from streambank_airflow.choices import where_choice
from streambank_airflow.operators.base import as_integer, as_text
from streambank_airflow.operators.rewrite.base import SUMS, StateOperator


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

    operation = "compact"
    limited = True
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
        idle_for = as_text(self.idle_for)
        where, typed = as_text(self.where), False
        if self.from_form and where is not None:
            where, typed = where_choice(self.where, self.hook.declared.job(self.job))
        return {
            "operation": self.operation,
            "where": where,
            **({"from_form": True} if typed else {}),
            "idle_since": as_text(self.idle_since),
            "idle_for_s": None if idle_for is None else parse_duration_s(idle_for),
            "operator": as_integer(self.operator, "operator"),
            "part": as_text(self.part),
            "max_rows": as_integer(self.max_rows, "max_rows"),
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        keys, rows, before = (sum(one[name] for one in report["operators"]) for name in SUMS)
        if not rows:
            return None
        return f"Remove {say_count(keys, 'key')} ({rows:,} of {before:,} rows) from the state of {self.job}?"
