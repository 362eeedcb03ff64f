"""Rows of state for people and programs: all of them, those of one key, or those that an expression picks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streambank.checkpoint.schema.key import bad_key, named_fields, plain
from streambank.checkpoint.schema.store import names_apart
from streambank.core.errors import InputError, RefusedError
from streambank.core.json_text import loads
from streambank.core.shape import JsonObject
from streambank.storage import open_store
from streambank_spark.failures import first_line, in_words
from streambank_spark.state.columns import as_json, column, fields_of, storable
from streambank_spark.state.state import PARTITION, QueryState, StatePart

KEY, VALUE = "key", "value"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Which rows.

    Attributes:
        key: Only those of this key: the text of its one field, or a JSON object of some of its fields. Parts
            whose key has no such field are left out, as long as one has.
    """

    operator: int | None = None
    part: str | None = None
    key: str | None = None
    where: str | None = None


def chosen_parts(state: QueryState, choice: RowChoice) -> list[StatePart]:
    """The parts to look at.

    Raises:
        InputError: There are none of that operator or name.
    """
    operators = state.operators(choice.operator)
    if choice.part is None or choice.operator is not None:
        return [part for operator in operators for part in state.parts(operator, choice.part)]
    return _of_those_that_fit(operators, lambda operator: state.parts(operator, choice.part))


def _of_those_that_fit(items: Iterable[T], look: Callable[[T], list[StatePart]]) -> list[StatePart]:
    """The parts that a look finds; where it finds none at all, what it refused is raised."""
    found: list[StatePart] = []
    misfit: InputError | None = None
    for item in items:
        try:
            found += look(item)
        except InputError as error:
            misfit = error
    if misfit is not None and not found:
        raise misfit
    return found


def chosen(state: QueryState, part: StatePart, choice: RowChoice) -> DataFrame:
    """The rows of a part that a choice picks, of types that can be written.

    Raises:
        InputError: The key or the expression does not fit the columns (codes `bad-key-text`,
            `bad-expression`).
    """
    frame = apart(state.frame(part))
    if choice.key is not None:
        frame = frame.where(is_key(frame, choice.key))
    if choice.where is not None:
        frame = filtered(frame, choice.where)
    return storable(frame)


def filtered(frame: DataFrame, where: str) -> DataFrame:
    """The rows for which an SQL expression is true.

    Raises:
        InputError: It cannot be used (code `bad-expression`).
    """
    try:
        return frame.where(where)
    except AnalysisException as error:
        raise bad_expression(frame, where, error) from error


def apart(frame: DataFrame) -> DataFrame:
    """Rows of state with a name for each column of key and value: the second `sum` is `sum_2`."""
    for root in (KEY, VALUE):
        kind = frame.schema[root].dataType if root in frame.columns else None
        if isinstance(kind, StructType):
            renamed = StructType()
            for field, name in zip(kind.fields, names_apart(kind.names), strict=True):
                renamed.add(name, field.dataType, field.nullable)
            if renamed.names != kind.names:
                frame = frame.withColumn(root, F.col(root).cast(renamed))
    return frame


def bad_expression(
    frame: DataFrame, text: str, error: AnalysisException, *, of_form: str | None = None
) -> InputError:
    """What an expression that Spark cannot use comes to.

    Args:
        of_form: What it is for, if it was typed into a form: neither it nor Spark's sentence is repeated.
    """
    what = f"The expression {text!r}" if of_form is None else f"The form's expression for {of_form}"
    said = first_line(error) if of_form is None else f"{in_words(error)}."
    return InputError(
        f"{what} cannot be used: {said}",
        code="bad-expression",
        hint=f"Give an SQL expression over these columns: {frame.schema.simpleString()}",
    )


def read_rows(state: QueryState, choice: RowChoice, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Rows as JSON, at most `limit` (0 for all), and whether there are more of them."""
    found: list[dict[str, Any]] = []
    for row in iterate_rows(state, choice, limit + 1 if limit else 0):
        if limit and len(found) == limit:
            return found, True
        found.append(row)
    return found, False


def iterate_rows(state: QueryState, choice: RowChoice, limit: int = 0) -> Iterator[dict[str, Any]]:
    """Rows as JSON; all of them (0), one partition in memory at a time, or so many at most, all in memory."""
    given = 0
    for part in _with_key(state, choice):
        frame = chosen(state, part, choice)
        names = [name for name in frame.columns if name != PARTITION]
        told = frame.select(PARTITION, as_json(frame, names).alias("row"))
        if limit:
            told = told.limit(limit - given)
        for row in told.collect() if limit else told.toLocalIterator():
            given += 1
            head = {"operator": part.operator, "part": part.name, "partition": row[PARTITION]}
            yield head | loads(row["row"])
        if limit and given >= limit:
            return


def _with_key(state: QueryState, choice: RowChoice) -> list[StatePart]:
    """The parts to read: those whose key has the fields that are asked for.

    Raises:
        InputError: None has (code `bad-key-text`).
    """
    parts = chosen_parts(state, choice)
    if choice.key is None:
        return parts
    key = choice.key

    def having(part: StatePart) -> list[StatePart]:
        kind = apart(state.frame(part)).schema[KEY].dataType
        named_fields(key, kind.jsonValue() if isinstance(kind, StructType) else {})
        return [part]

    return _of_those_that_fit(parts, having)


def is_key(frame: DataFrame, text: str) -> Column:
    """Whether a row is of a key that a text names, by all or some of the key's fields.

    Raises:
        InputError: The text does not fit the key (code `bad-key-text`).
    """
    kind = frame.schema[KEY].dataType
    struct = kind if isinstance(kind, StructType) else StructType()
    wanted = named_fields(text, struct.jsonValue())
    return _matches(frame, column(KEY), struct, wanted, text)


def _matches(frame: DataFrame, value: Column, kind: StructType, wanted: dict[str, Any], text: str) -> Column:
    conditions = []
    for field, inner in zip(kind.fields, fields_of(value, kind), strict=True):
        if field.name not in wanted:
            continue
        given = wanted[field.name]
        if isinstance(field.dataType, StructType) and given is not None:
            conditions.append(_matches(frame, inner, field.dataType, given, text))
        elif given is None:
            conditions.append(inner.isNull())
        else:
            typed = F.lit(plain(given)).try_cast(field.dataType)
            if frame.sparkSession.range(1).select(typed.isNull()).collect()[0][0]:
                why = f"{plain(given)} is not a valid {field.dataType.simpleString()}"
                raise bad_key(text, kind.jsonValue(), why)
            conditions.append(inner == typed)
    return reduce(and_, conditions)


@dataclass(frozen=True, slots=True)
class Exported(JsonObject):
    """One part as a folder of Parquet files: where, as a URI, and their columns in Spark's words."""

    operator: int
    part: str
    path: str
    rows: int
    columns: str


def export_state(spark: SparkSession, state: QueryState, target: str, choice: RowChoice) -> list[Exported]:
    """Write rows of state as Parquet into an empty place, a folder for each part: `<operator>-<part>`.

    Raises:
        RefusedError: There are files already (code `target-not-empty`).
        InputError: As `chosen_parts` and `chosen`.
    """
    place = open_store(target)
    if next(iter(place.list()), None) is not None:
        raise RefusedError(
            f"{place.uri} is not empty.",
            code="target-not-empty",
            hint="Export into an empty directory: files that are already there might be overwritten.",
        )
    location = (target if "://" in target else place.uri).rstrip("/")
    written = []
    for part in chosen_parts(state, choice):
        path = f"{location}/{part.operator}-{part.name}"
        chosen(state, part, choice).write.parquet(path)
        back = spark.read.parquet(path)
        written.append(Exported(part.operator, part.name, path, back.count(), back.schema.simpleString()))
    return written
