"""Which keys of a query's state expire: those that an SQL expression holds for, or that nothing has changed.

A key goes with all that its operator keeps for it, and only where every row of it has expired. So nothing is
taken from the middle of what belongs together, and what an expired key means is simple: if it comes again, it
starts from zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streambank.checkpoint.closure import OperatorState
from streambank.core.errors import InputError, RefusedError
from streambank.core.python310 import UTC
from streambank.core.shape import JsonObject
from streambank_spark.failures import first_line, in_words
from streambank_spark.private.expressions import computed
from streambank_spark.state.key_unit import UNIT, require_hashable, unit_fields, unit_of
from streambank_spark.state.read import KEY, apart, is_key
from streambank_spark.state.row_hash import row_hash
from streambank_spark.state.state import TIMERS, QueryState, StatePart

_NOW, _WATERMARK = "{now}", "{watermark}"
_VALUES = " Its values may still hold data about this key."


@dataclass(frozen=True, slots=True)
class Where:
    """Keys expire by what is in their rows.

    Attributes:
        expression: SQL over `key` and what the state reader shows beside it (`value`, elements of lists and
            maps); `{now}` and `{watermark}` in it are timestamps. A row for which it is null stays.
        operator: Of this operator only; may be left out where there is one.
        part: Judged by these rows alone: a side of a join, a state variable.
        now: What `{now}` is.
        from_form: It was typed into a form: neither it nor what Spark says of it is repeated.
        watermark_ms: What `{watermark}` is at most; None for that of the state.
    """

    expression: str
    operator: int | None = None
    part: str | None = None
    now: datetime | None = None
    from_form: bool = False
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """Keys expire that have the same rows in an earlier state."""

    since: QueryState
    operator: int | None = None


@dataclass(frozen=True, slots=True)
class KeySelection:
    """Keys expire that are of somebody or something: in every operator whose keys have the fields.

    Attributes:
        text: The only field as text, or some of the fields as a JSON object.
    """

    text: str
    operator: int | None = None


Rule = Where | Idle | KeySelection


@dataclass(frozen=True, slots=True)
class ExpiredKeys:
    """What of one operator expires.

    Attributes:
        sized: A frame of `UNIT`, each once, and how many `rows` it was judged by.
    """

    operator: OperatorState
    sized: DataFrame

    @property
    def units(self) -> DataFrame:
        return self.sized.select(UNIT)

    def at_most(self, rows: int) -> ExpiredKeys:
        """Only so many units that they have at most this many rows together; always the same ones."""
        first = self.sized.orderBy(F.xxhash64(UNIT), UNIT).limit(rows)
        order = Window.orderBy(F.xxhash64(UNIT), UNIT).rowsBetween(
            Window.unboundedPreceding, Window.currentRow
        )
        summed = first.withColumn("so_far", F.sum("rows").over(order))
        return replace(self, sized=summed.where(F.col("so_far") <= rows).drop("so_far"))


@dataclass(frozen=True, slots=True)
class SkippedOperator(JsonObject):
    """An operator of which a key was asked that it has not."""

    operator: int
    name: str | None
    why: str


def expired(
    state: QueryState, rule: Rule, passed_over: list[SkippedOperator] | None = None
) -> list[ExpiredKeys]:
    """The keys that expire by a rule, by operator; those without a `KeySelection` go into `passed_over`.

    Raises:
        InputError: The expression cannot be used (code `bad-expression`), the operator or part does not
            exist, or has to be named (code `which-operator`).
        RefusedError: The operator keeps one state for all input, which no key can be taken from (code
            `no-key`).
    """
    if isinstance(rule, Idle):
        return [_idle(state, rule.since, operator) for operator in _keyed(state, rule.operator)]
    if isinstance(rule, KeySelection):
        return _named(state, rule, [] if passed_over is None else passed_over)
    found = list(state.operators(rule.operator))
    if len(found) != 1:
        known = ", ".join(f"{one.operator} ({one.name})" for one in found) or "none"
        raise InputError(
            "The expression applies to one operator, and the query has several.",
            code="which-operator",
            hint=f"Name one of its operators: {known}.",
        )
    return [_where(state, rule, found[0])]


def _keyed(state: QueryState, wanted: int | None) -> list[OperatorState]:
    return [
        one
        for one in state.operators(wanted)
        if unit_fields(one, "", state.frame(state.parts(one)[0]).schema[KEY].dataType)
    ]


def _named(state: QueryState, rule: KeySelection, passed_over: list[SkippedOperator]) -> list[ExpiredKeys]:
    found = []
    for operator, rows in rows_of_key(state, rule, passed_over):
        require_hashable(operator, rows[0].schema[UNIT].dataType)
        every: DataFrame = reduce(DataFrame.unionByName, rows)
        found.append(ExpiredKeys(operator, every.groupBy(UNIT).agg(F.count("*").alias("rows"))))
    if found:
        return found
    whys = " ".join(
        f"operator {one.operator} ({one.name}): {one.why.removesuffix(_VALUES)}" for one in passed_over
    )
    if any(_keyed(state, one.operator) for one in passed_over if rule.operator in (None, one.operator)):
        raise InputError(
            f"{rule.text} does not name a key of any operator: {whys}",
            code="bad-key-text",
            hint="`streambank state schema` shows the keys: give the fields of one as a JSON object.",
        )
    raise RefusedError(
        f"The query keeps no state by key: {whys or 'it has no state.'}",
        code="no-key",
        hint="Nothing can be erased by key. What was added to a sum cannot be taken out again.",
    )


def rows_of_key(
    state: QueryState, rule: KeySelection, passed_over: list[SkippedOperator]
) -> list[tuple[OperatorState, list[DataFrame]]]:
    """The units of a key's rows, of each part that keeps any by such a key; others go into `passed_over`."""
    found = []
    state.operators(rule.operator)  # there is such a one
    for operator in state.operators():
        if rule.operator not in (None, operator.operator):
            why = "it was not selected: another operator was named."
        elif not _keyed(state, operator.operator):
            why = "it keeps one state for all input, and its values may include this key's data."
        else:
            try:
                parts = state.parts(operator)
                rows = [_rows_of(apart(state.frame(part)), operator, part, rule.text) for part in parts]
            except InputError as error:
                why = error.message + _VALUES
            else:
                found.append((operator, rows))
                continue
        passed_over.append(SkippedOperator(operator.operator, operator.name, why))
    return found


def _rows_of(frame: DataFrame, operator: OperatorState, part: StatePart, text: str) -> DataFrame:
    """The units of the rows whose key has the fields that the text names, with those values."""
    units = frame.select(_units(frame, operator, part, hashable=False).alias(UNIT), KEY)
    return units.where(is_key(units, text)).select(UNIT)


def _units(frame: DataFrame, operator: OperatorState, part: StatePart, *, hashable: bool = True) -> Column:
    unit = unit_of(frame, operator, part.name, hashable=hashable)
    if unit is None:
        raise RefusedError(
            f"Operator {operator.operator} ({operator.name}) keeps one state for all input: it has no keys.",
            code="no-key",
            hint="None of it can expire. To start from zero, start the job with an empty checkpoint.",
        )
    return unit


def _where(state: QueryState, rule: Where, operator: OperatorState) -> ExpiredKeys:
    parts = [part for part in state.parts(operator, rule.part) if part.name != TIMERS or rule.part == TIMERS]
    judged = []
    for part in parts:
        frame = apart(state.frame(part))
        unit = _units(frame, operator, part)
        judged.append(
            frame.select(unit.alias(UNIT), condition_of_rule(state, rule, frame, part).alias("expired"))
        )
    every = reduce(DataFrame.unionByName, judged)
    if len(parts) == 1 and _alone(operator, parts[0], state.frame(parts[0])):
        return ExpiredKeys(operator, every.where("expired").select(UNIT, F.lit(1).alias("rows")))
    grouped = every.groupBy(UNIT).agg(F.min("expired").alias("expired"), F.count("*").alias("rows"))
    return ExpiredKeys(operator, grouped.where("expired").select(UNIT, "rows"))


def _alone(operator: OperatorState, part: StatePart, frame: DataFrame) -> bool:
    """Whether each unit has one row at most, so that nothing has to be grouped."""
    if "stateVarName" in part.options or "joinSide" in part.options or part.name == TIMERS:
        return False
    kind = frame.schema["key"].dataType
    return isinstance(kind, StructType) and unit_fields(operator, part.name, kind) == kind.names


def condition_of_rule(state: QueryState, rule: Where, frame: DataFrame, part: StatePart) -> Column:
    """Whether a row is one that an expression picks; never null.

    Raises:
        InputError: The expression cannot be used (code `bad-expression`).
    """
    now = rule.now or datetime.now(UTC)
    called = "The form's condition" if rule.from_form else repr(rule.expression)
    text = rule.expression.replace(_NOW, _timestamp(now))
    if _WATERMARK in text:
        watermark_ms = state.closure.watermark_ms
        if watermark_ms is None:
            raise InputError(
                "The expression uses {watermark}, but the query has no watermark.",
                code="bad-expression",
                hint="Use {now}, or a timestamp.",
            )
        watermark_ms = min(watermark_ms, watermark_ms if rule.watermark_ms is None else rule.watermark_ms)
        text = text.replace(_WATERMARK, _timestamp(datetime.fromtimestamp(watermark_ms / 1000, UTC)))
    try:
        condition = computed(frame, text)
        kind = frame.select(condition.alias("flag")).schema["flag"].dataType.simpleString()
    except (AnalysisException, ParseException) as error:
        said = f"{in_words(error)}." if rule.from_form else first_line(error)
        raise InputError(
            f"{called} cannot be used on {part.name}: {said}",
            code="bad-expression",
            hint=f"It has {_columns(frame)}. Name a side or a state variable as its part.",
        ) from error
    if kind != "boolean":
        raise InputError(
            f"{called} gives a {kind} instead of true or false.",
            code="bad-expression",
            hint="Write a comparison, such as value.count > 0.",
        )
    return F.coalesce(condition, F.lit(False))


def _timestamp(moment: datetime) -> str:
    return f"timestamp '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


def _columns(frame: DataFrame) -> str:
    return ", ".join(
        f"{one.name}: {one.dataType.simpleString()}" for one in frame.schema if one.name != "partition_id"
    )


def _idle(state: QueryState, since: QueryState, operator: OperatorState) -> ExpiredKeys:
    (before,) = since.operators(operator.operator)
    now, then = _contents(state, operator), _contents(since, before)
    if now.schema[UNIT].dataType != then.schema[UNIT].dataType:
        raise InputError(
            f"The keys of operator {operator.operator} have another type in the earlier savepoint.",
            code="not-earlier",
            hint="Compare with a savepoint that was taken since the application changed.",
        )
    same = now.join(then, [*now.columns], "left_semi")
    return ExpiredKeys(operator, same.select(UNIT, "rows"))


def _contents(state: QueryState, operator: OperatorState) -> DataFrame:
    """All rows of each unit as a few numbers, the same for the same rows."""
    frames = []
    for number, part in enumerate(state.parts(operator)):
        frame = state.whole(part)
        first, second = row_hash(frame)
        frames.append(
            frame.select(
                _units(frame, operator, part).alias(UNIT),
                first.alias("a"),
                second.alias("b"),
                F.lit(number).alias("part"),
            )
        )
    every: DataFrame = reduce(DataFrame.unionByName, frames)
    # A sum of hashes is the same in any order of rows; as decimals, since they may overflow.
    sums = [F.sum(F.xxhash64("part", name).cast("decimal(38,0)")).alias(name) for name in ("a", "b")]
    return every.groupBy(UNIT).agg(F.count("*").alias("rows"), *sums)
