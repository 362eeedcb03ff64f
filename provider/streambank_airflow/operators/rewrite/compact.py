"""The operator that makes a savepoint without the keys that have expired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambank.core.options import Template, as_text
from streambank.core.units import parse_duration_s, say_count
from streambank_airflow.choices import where_choice
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

    where: str | bool | Template | None = None
    from_form: bool = False
    idle_since: str | Template | None = None
    idle_for: str | Template | None = None
    operator: int | Template | None = None
    part: str | Template | None = None
    max_rows: int | Template | None = None

    def request(self) -> dict[str, Any]:
        idle_for = self.idle_for
        where, typed = as_text(self.where), False
        if self.from_form and where is not None:
            where, typed = where_choice(self.where, self.hook.declared.job(self.job))
        return {
            "operation": self.operation,
            "where": where,
            **({"from_form": True} if typed else {}),
            "idle_since": self.idle_since,
            "idle_for_s": None if idle_for is None else parse_duration_s(idle_for),
            "operator": self.operator,
            "part": self.part,
            "max_rows": self.max_rows,
        }

    def question(self, report: Mapping[str, Any]) -> str | None:
        keys, rows, before = (sum(one[name] for one in report["operators"]) for name in SUMS)
        if not rows:
            return None
        return f"Remove {say_count(keys, 'key')} ({rows:,} of {before:,} rows) from the state of {self.job}?"
