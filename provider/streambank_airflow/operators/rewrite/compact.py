"""The operator that makes a savepoint without the keys that have expired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambank.core.options import as_text
from streambank.core.state_options import ExpireKeysOptions
from streambank.core.units import say_count
from streambank_airflow.arguments import ExpireKeysArguments, Templated, argument
from streambank_airflow.choices import where_choice
from streambank_airflow.operators.rewrite.base import SUMS, StateOperator


class CompactStateOperator(StateOperator, ExpireKeysArguments):
    """Makes a savepoint without the keys that have expired: TTL for state that has none.

    Args:
        from_form: `where` comes from a form: it is true for the condition that the job declares; another one
            is taken only if the job's table `compact` says `expressions = "any"`, and what Spark says of that
            one is not repeated.

    Returns:
        `job`, `operation`, `dry_run`, `of` (the first savepoint), `batch`, `savepoint` (the new one; None
            where nothing goes), `generation` (that counted), and over all operators `keys`, `rows` that go
            and `rows_before`.
    """

    operation = "compact"
    limited = True

    where: Templated[Any | None] = argument(None)  # true for the declared one
    from_form: bool = False

    def request(self) -> dict[str, Any]:
        where, typed = as_text(self.where), False
        if self.from_form and where is not None:
            where, typed = where_choice(self.where, self.hook.declared.job(self.job))
        asked = {"operation": self.operation, **self.values_of(ExpireKeysOptions), "where": where}
        return asked | ({"from_form": True} if typed else {})

    def question(self, report: Mapping[str, Any]) -> str | None:
        keys, rows, before = (sum(one[name] for one in report["operators"]) for name in SUMS)
        if not rows:
            return None
        return f"Remove {say_count(keys, 'key')} ({rows:,} of {before:,} rows) from the state of {self.job}?"
