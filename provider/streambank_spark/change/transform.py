"""State with other values: columns get the value of an expression over their row, or whole keys are deleted.

It is written and proven as a repair is (rewrite/repair.py): a row is replaced where the store has exactly the
bytes that it was read as, and what was written must be, by a fingerprint, what Spark computes once more from
the first savepoint and the expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from streambank.core.errors import InputError, RefusedError
from streambank_spark.change.columns import ValueFit, check_fits, fitted, never_null
from streambank_spark.change.request import TRANSFORM, TransformRequest
from streambank_spark.change.supported import AGGREGATIONS, SET, TTL, VARIABLE, WITH_TTL, require
from streambank_spark.rewrite.derive import SourceSavepoint, derive
from streambank_spark.rewrite.expiry import ExpiredKeys, Where, condition_of_rule, expired
from streambank_spark.rewrite.repair import Repair, assigned, changes, evaluated, family_of
from streambank_spark.rewrite.rewrite_request import Planned
from streambank_spark.rewrite.row_patch import ChangedRows
from streambank_spark.rewrite.validate_request import VALUE, Assignment
from streambank_spark.state.key_unit import UNIT, unit_of
from streambank_spark.state.read import RowChoice, apart, chosen_parts
from streambank_spark.state.state import QueryState, StatePart

ANSI = "spark.sql.ansi.enabled"


def transform_savepoint(source: SourceSavepoint, request: TransformRequest) -> dict[str, Any]:
    """Make a savepoint in which rows have other values, or keys are gone.

    Returns:
        The new savepoint, if a row changes or a key is deleted, as JSON, with `changes`: of each part
        `operator`, `part`, how many `rows` get other values, and `samples` of them.

    Raises:
        InputError: An expression cannot be used, or a value does not fit (codes `bad-expression`,
            `value-does-not-fit`, `which-operator`); nothing was written.
        RefusedError: State that cannot be transformed (codes `cannot-make-state`, `no-key`, and those of
            `check_part`).
        StreambankError: As `derive`.
    """
    gone: list[ExpiredKeys] = []
    repairs: list[Repair] = []
    planned = Planned.of(request.planned)

    def decide(state: QueryState) -> list[ExpiredKeys]:
        state.session.conf.set(ANSI, "true")  # so that a sum that overflows is an error
        if request.delete_where is not None:
            of = (request.operator, request.part, planned.now, request.from_form, planned.watermark_ms)
            gone.extend(expired(state, Where(request.delete_where, *of)))
        return gone

    def patch(state: QueryState) -> list[ChangedRows]:
        changed = transformed(state, request, gone)
        repairs.extend(Repair.of(one, request.samples) for one in changed)
        return changed

    derived = derive(
        source,
        TRANSFORM,
        decide=decide,
        patch=patch,
        dry_run=request.dry_run,
        note=request.note,
        rehearse=request.rehearse,
        most_keys=planned.keys,
    )
    return derived.to_dict() | {"changes": [each.to_dict() for each in repairs]}


def transformed(
    state: QueryState, request: TransformRequest, gone: Sequence[ExpiredKeys] = ()
) -> list[ChangedRows]:
    """The rows that get other values, part by part; parts without such rows are left out."""
    parts: dict[tuple[int, str], tuple[StatePart, list[Assignment]]] = {}
    for one in request.assignments():
        part = one_part(state, one.operator, one.part)
        parts.setdefault((part.operator, part.name), (part, []))[1].append(one)
    found = [_change_part(state, part, its, request, gone) for part, its in parts.values()]
    return [each for each in found if each is not None]


def one_part(state: QueryState, operator: int | None, part: str | None) -> StatePart:
    """The one part that is meant.

    Raises:
        InputError: There is no such part, or there are several (code `which-operator`).
    """
    found = chosen_parts(state, RowChoice(operator, part))
    if len(found) == 1:
        return found[0]
    if not found:
        raise RefusedError(
            "The query keeps no state.", code="no-state", hint="`streambank inspect` shows what there is."
        )
    known = ", ".join(f"{one.operator}/{one.name}" for one in found)
    raise InputError(
        "Values are made for one part of the state, and the query has several.",
        code="which-operator",
        hint=f"Name an operator and a part: {known}.",
    )


def _change_part(
    state: QueryState,
    part: StatePart,
    assignments: Sequence[Assignment],
    request: TransformRequest,
    gone: Sequence[ExpiredKeys],
) -> ChangedRows | None:
    (operator,) = state.operators(part.operator)
    frame = apart(state.frame(part))
    kind = require(SET, state, operator, part, frame)
    if kind is WITH_TTL and any(one.column.split(".")[0] == TTL for one in assignments):
        raise RefusedError(
            f"The time of expiry of {part.name} cannot be set: Spark keeps an index of it.",
            code="cannot-make-state",
            hint="Set other columns. Spark gives the value a new time of expiry when the query updates it.",
        )
    of_value = frame.schema[VALUE].dataType
    assert isinstance(of_value, StructType)
    # What a function of the application keeps may be null, whatever its name.
    free = kind in (VARIABLE, WITH_TTL)
    required = frozenset() if free else never_null(of_value, aggregation=kind in AGGREGATIONS)
    place = f"operator {part.operator}, {part.name}"
    for each in gone:
        if each.operator.operator == part.operator:
            unit = unit_of(frame, operator, part.name)
            assert unit is not None
            named = F.broadcast(each.units.select(F.col(UNIT).alias("_gone")))
            frame = frame.join(named, unit.eqNullSafe(F.col("_gone")), "left_anti")
    holds = F.lit(False)
    if request.where is not None:
        planned = Planned.of(request.planned)
        rule = Where(
            request.where, None, None, planned.now, request.from_form, watermark_ms=planned.watermark_ms
        )
        holds = ~condition_of_rule(state, rule, frame, part)
    fits: list[ValueFit] = []

    def convert(new: Column, of: DataType, name: str) -> Column:
        texts = {one.column: one.expression for one in assignments}
        given = frame.select(new).schema.fields[0].dataType
        value, bad = fitted(new, given, of, nullable=name.casefold() not in required)
        fits.append(ValueFit(f"value.{name}", of.simpleString(), bad, texts[name]))
        return value

    new = assigned(frame, assignments, place, convert, from_form=request.from_form)
    rows = check_fits(frame.where(~holds), fits, place, of_table=False)
    if not rows:
        return None
    store = operator.stores[0]
    changed = ChangedRows(
        part, store.store, family_of(part), store.partitions, rows, frame, holds, new, must_hold=False
    )
    evaluated(changed, "transformation")
    return changed.with_changes(changes(state, frame.where(~holds), new))
