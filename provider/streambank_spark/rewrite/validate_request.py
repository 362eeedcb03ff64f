"""Rules for state and repairs of rows that break one, as they are asked for; it loads without pyspark.

A task of Airflow reads them before the job is stopped, where there may be no pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import InputError, RefusedError
from streambank_spark.state.rule import Rule

VALIDATE = "validate"
_KEY = "key"
VALUE = "value"
_ASSIGNMENT = re.compile(
    r"\s*(?:(?P<operator>\d+)(?:/(?P<part>[^\s:]+))?\s*:)?\s*"
    r"(?P<path>\w+(?:\.\w+)*)\s*=(?!=)(?P<expression>.+)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a column of a row becomes.

    Attributes:
        column: The field of the value, with dots between nested ones: `count`, `groupState.n`.
        expression: SQL over the columns of the row as it was.
        operator: Of which operator; of all that have broken rows for None.
    """

    column: str
    expression: str
    operator: int | None = None
    part: str | None = None

    @classmethod
    def parse(cls, text: str, operator: int | None = None, part: str | None = None) -> Assignment:
        """An assignment from `value.COLUMN = EXPRESSION`, with `OPERATOR:` or `OPERATOR/PART:` before it.

        Raises:
            InputError: It is none (code `bad-expression`).
            RefusedError: It would change a key (code `repair-key`).
        """
        match = _ASSIGNMENT.fullmatch(text)
        root, _, column = match["path"].partition(".") if match else ("", "", "")
        if root == _KEY:
            raise changes_key(text)
        if match is None or root != VALUE or not column:
            raise InputError(
                f"{text!r} does not assign a column of the value.",
                code="bad-expression",
                hint="Example: 0: value.count = greatest(value.count, 0)",
            )
        given = match["operator"]
        return cls(
            column,
            match["expression"].strip(),
            operator if given is None else int(given),
            match["part"] or part,
        )


def changes_key(text: str) -> RefusedError:
    """That an assignment would change a key (code `repair-key`)."""
    return RefusedError(
        f"{text!r} would change a key. Spark finds the row by its key.",
        code="repair-key",
        hint="Change other columns of the value, or remove the key: `streambank state erase`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateRequest:
    """Rules for state, and what becomes of rows that break one; JSON by `to_dict`.

    Attributes:
        rules: Expressions that must be true of every row, as `Rule.parse` reads them.
        repairs: What broken rows are set to, as `Assignment.parse` reads it; none to judge alone.
        operator: Of which operator where a rule or a repair does not say.
    """

    operation: str = VALIDATE
    rules: tuple[str, ...]
    repairs: tuple[str, ...] = ()
    operator: int | None = None
    part: str | None = None
    samples: int = 10
    dry_run: bool = False
    note: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ValidateRequest:
        """From JSON.

        Raises:
            InputError: No rule is given (code `usage`), or one cannot be one (as `parsed`).
        """
        order = cls(
            **{**data, "rules": tuple(data.get("rules") or ()), "repairs": tuple(data.get("repairs") or ())}
        )
        if not order.rules:
            raise InputError(
                "validate needs a rule.",
                code="usage",
                hint="Give an expression that must be true of every row, such as value.count >= 0.",
            )
        order.parsed()
        return order

    def parsed(self) -> tuple[list[Rule], list[Assignment]]:
        """The rules and repairs.

        Raises:
            InputError: One is none (code `bad-expression`).
            RefusedError: A repair would change a key (code `repair-key`).
        """
        return (
            [Rule.parse(text, self.operator, self.part) for text in self.rules],
            [Assignment.parse(text, self.operator, self.part) for text in self.repairs],
        )
