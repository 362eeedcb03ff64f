"""Rules that state has to keep: an SQL expression that must be true for every row.

Null is not true: a rule that cannot be judged for a row is broken by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from streambank.core.json_text import loads
from streambank.core.shape import JsonObject
from streambank_spark.private.expressions import computed
from streambank_spark.state.columns import as_json, storable
from streambank_spark.state.read import RowChoice, apart, bad_expression, chosen_parts
from streambank_spark.state.rule import Rule
from streambank_spark.state.state import PARTITION, QueryState, StatePart


@dataclass(frozen=True, slots=True)
class RuleVerdict(JsonObject):
    """How a part keeps a rule, which `broken` of its rows break."""

    rule: str
    operator: int
    part: str
    rows: int
    broken: int
    examples: list[dict[str, Any]]


def validate_state(state: QueryState, rules: Sequence[Rule], limit: int) -> list[RuleVerdict]:
    """Judge every row of state by the rules, and list so many broken rows for each rule and part.

    Raises:
        InputError: There is no such operator or part, or a rule does not fit the columns of a part that it
            is for (code `bad-expression`).
    """
    return [
        _judge(state, part, rule, limit)
        for rule in rules
        for part in chosen_parts(state, RowChoice(rule.operator, rule.part))
    ]


def _judge(state: QueryState, part: StatePart, rule: Rule, limit: int) -> RuleVerdict:
    frame = apart(state.frame(part))
    try:
        holds = F.coalesce(computed(frame, rule.expression), F.lit(False))
        counted = frame.select(holds.alias("holds")).agg(
            F.count(F.lit(1)), F.count(F.when(~F.col("holds"), F.lit(1)))
        )
    except AnalysisException as error:
        raise bad_expression(frame, rule.expression, error) from error
    rows, broken = counted.collect()[0]
    examples = []
    if broken and limit:
        bad = storable(frame.where(~holds))
        names = [name for name in bad.columns if name != PARTITION]
        told = bad.select(PARTITION, as_json(bad, names).alias("row")).limit(limit)
        examples = [{"partition": row[PARTITION]} | loads(row["row"]) for row in told.collect()]
    return RuleVerdict(rule.expression, part.operator, part.name, rows, broken, examples)
