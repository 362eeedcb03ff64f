"""A rule that state has to keep, as it is written; it loads without pyspark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streambank.core.errors import InputError

_RULE = re.compile(r"\s*(?P<operator>\d+)(?:/(?P<part>[^\s:]+))?\s*:(?P<expression>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """What must be true.

    Attributes:
        expression: SQL over the columns of a part.
        operator: Of which operator; of all for None.
        part: Of which part; of all for None.
    """

    expression: str
    operator: int | None = None
    part: str | None = None

    @classmethod
    def parse(cls, text: str, operator: int | None = None, part: str | None = None) -> Rule:
        """A rule from `EXPRESSION`, `OPERATOR: EXPRESSION` or `OPERATOR/PART: EXPRESSION`.

        Raises:
            InputError: There is no expression in it (code `bad-expression`).
        """
        match = _RULE.fullmatch(text)
        expression = (match["expression"] if match else text).strip()
        if not expression:
            raise InputError(
                f"The rule {text!r} has no expression.",
                code="bad-expression",
                hint="Example: 0: value.count >= 0",
            )
        if match is None:
            return cls(expression, operator, part)
        return cls(expression, int(match["operator"]), match["part"] or part)
