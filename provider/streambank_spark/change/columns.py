"""Expressions as values of columns of state, and which rows they do not fit.

Spark does not check what is in a row of state: it reads a null as 0 where its own code expects none. So each
value is checked before anything is written. The state schema calls every column nullable; which columns are
never null is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    NumericType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streambank.core.errors import InputError
from streambank_spark.failures import condition_of
from streambank_spark.private.expressions import computed
from streambank_spark.rewrite.validate_request import VALUE
from streambank_spark.state.columns import column
from streambank_spark.state.read import bad_expression

TIMEOUT = "timeoutTimestamp"
_NEVER_NULL = frozenset({"expiresatmicros", "timeouttimestamp"})
"""Columns that Spark's own code reads without a check for null: the end of `dropDuplicatesWithinWatermark`,
a timeout."""
_MAY_BE_NULL = frozenset(
    {"sum", "min", "max", "first", "last", "bit", "valuewithextremumordering", "extremumordering"}
)
"""Buffers of aggregate functions that are null before the first value; all others have a number from the
beginning (Spark: `DeclarativeAggregate.initialValues`)."""
_NESTED = (StructType, ArrayType, MapType)


@dataclass(frozen=True, slots=True)
class ValueFit:
    """One value that was checked, by the name of its column: `key.customer`, `value.total`."""

    name: str
    kind: str
    bad: Column
    expression: str


def never_null(value: StructType, *, aggregation: bool) -> frozenset[str]:
    """The columns of a value that must not be null, by their names in small letters.

    Args:
        aggregation: Whether they are buffers of aggregate functions. The `sum` of an average is never null,
            the `sum` of a sum may be: one before a `count` is taken for the former.
    """
    names = [name.casefold() for name in value.names]
    if not aggregation:
        return frozenset(name for name in names if name.partition("_")[0] in _NEVER_NULL)
    kinds = [name.partition("_")[0] for name in names]
    return frozenset(
        name
        for name, kind, after in zip(names, kinds, [*kinds[1:], ""], strict=True)
        if kind not in _MAY_BE_NULL or (kind == "sum" and after == "count")
    )


def has_floats_inside(kind: DataType, *, inside: bool = False) -> bool:
    """Whether a list or map in it has floating-point numbers, of which Spark makes -0.0 to 0.0 in keys."""
    if isinstance(kind, StructType):
        return any(has_floats_inside(one.dataType, inside=inside) for one in kind.fields)
    if isinstance(kind, ArrayType):
        return has_floats_inside(kind.elementType, inside=True)
    if isinstance(kind, MapType):
        return any(has_floats_inside(one, inside=True) for one in (kind.keyType, kind.valueType))
    return inside and isinstance(kind, (DoubleType, FloatType))


def fitted(new: Column, given: DataType, kind: DataType, *, nullable: bool) -> tuple[Column, Column]:
    """An expression as a value of a type, and whether it does not fit.

    A number that would be rounded does not fit, nor a time that would lose its hours; only a DOUBLE may
    become a FLOAT.
    """
    value = new.cast(kind) if isinstance(kind, _NESTED) else new.try_cast(kind)
    bad = value.isNull() & new.isNotNull() if nullable else value.isNull()
    rounds = (
        isinstance(given, NumericType) and isinstance(kind, NumericType) and not isinstance(kind, FloatType)
    )
    if rounds or (isinstance(given, (TimestampType, TimestampNTZType)) and isinstance(kind, DateType)):
        bad = bad | F.coalesce(value.try_cast(given) != new, F.lit(False))
    return value, bad


def check_fits(frame: DataFrame, fits: Sequence[ValueFit], place: str, *, of_table: bool) -> int:
    """Count rows, and refuse all of them where a value of one does not fit.

    Raises:
        InputError: A value does not fit (codes `bad-table`, `value-does-not-fit`), or cannot be computed
            (`bad-expression`).
    """
    try:
        counts = frame.agg(F.count(F.lit(1)), *(F.count_if(one.bad) for one in fits)).collect()[0]
    except (PySparkException, Py4JError) as error:
        # Spark's sentence may quote a value.
        raise InputError(
            f"A value of {place} cannot be computed: {condition_of(error)}.",
            code="bad-expression",
            hint="Nothing was written. Functions such as try_divide and try_multiply give null instead.",
        ) from error
    wrong = [(one, count) for one, count in zip(fits, counts[1:], strict=True) if count]
    if wrong:
        said = "; ".join(f"{one.name} ({one.kind}) of {count:,}" for one, count in wrong)
        first = wrong[0][0]
        code = "bad-table" if of_table else "value-does-not-fit"
        raise InputError(
            f"Of {counts[0]:,} rows of {place}, these have a value that is null or does not fit: {said}.",
            code=code,
            hint="Nothing was written. The rows of the first are those for which this is true: "
            f"try_cast(({first.expression}) AS {first.kind}) IS DISTINCT FROM ({first.expression})",
        )
    return int(counts[0])


def struct_of(
    table: DataFrame,
    kind: StructType,
    given: Mapping[str, str],
    root: str,
    fits: list[ValueFit],
    *,
    required: frozenset[str] = frozenset(),
    defaults: Mapping[str, str] | None = None,
    from_form: bool = False,
) -> Column:
    """The key or the value of each row of a table: what is given for its fields, else columns of that name.

    Args:
        required: Columns of the value that must not be null, as `never_null` gives them.
        defaults: Expressions for fields that are neither given nor columns.
        from_form: What is given was typed into a form: neither it nor what Spark says of it is repeated.

    Raises:
        InputError: A field has no expression and no column, or there is no such field (codes `bad-table`,
            `bad-expression`).
    """
    unused = set(given)
    missing: list[str] = []
    columns = {name.casefold(): name for name in table.columns}

    def field(path: str, of: DataType, source: Column | None, text: str) -> Column:
        if isinstance(of, NullType):
            return F.lit(None)
        if path in given:
            unused.discard(path)
            text = given[path]
            try:
                source = computed(table, text)
                table.select(source)
            except AnalysisException as error:
                called = f"{root}.{path}" if from_form else None
                raise bad_expression(table, f"{path} = {text}", error, of_form=called) from error
        elif source is None and "." not in path and path.casefold() in columns:
            text = path
            source = column(columns[path.casefold()])
        if isinstance(of, StructType):
            return F.struct(
                *(
                    field(
                        f"{path}.{one.name}",
                        one.dataType,
                        None if source is None else source.getField(one.name),
                        f"({text}).{one.name}",
                    ).alias(one.name)
                    for one in of.fields
                )
            )
        if source is None and path in (defaults or {}):
            text = (defaults or {})[path]
            source = F.expr(text)
        if source is None:
            missing.append(path)
            return F.lit(None)
        nullable = root == VALUE and path.casefold() not in required
        value, bad = fitted(source, table.select(source).schema.fields[0].dataType, of, nullable=nullable)
        fits.append(ValueFit(f"{root}.{path}", of.simpleString(), bad, text))
        # As Spark groups: there is one zero.
        return (
            value + F.lit(0.0).cast(of)
            if root != VALUE and isinstance(of, (DoubleType, FloatType))
            else value
        )

    parts = [field(one.name, one.dataType, None, one.name).alias(one.name) for one in kind.fields]
    if missing or unused:
        absent = f"The table has no column for {', '.join(f'{root}.{one}' for one in missing)}."
        other = f"State has no {', '.join(f'{root}.{one}' for one in sorted(unused))}."
        raise InputError(
            absent if missing else other,
            code="bad-table",
            hint=f"The {root} is {kind.simpleString()}, and the table has {table.schema.simpleString()}. "
            f"Give {'keys' if root != VALUE else 'values'}: FIELD = EXPRESSION.",
        )
    return F.struct(*parts).cast(kind) if parts else F.struct()
