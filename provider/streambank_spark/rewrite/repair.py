"""Repairing rows of state that break a rule: value columns get what an expression says, all else stays.

The state reader finds the rows, and they are changed by their bytes: a row is replaced where the
store has exactly the bytes that unsafe_row.py makes of the row as it was read. So state in another encoding
is never changed by guess; it is refused. Keys decide where a row lies, and other rows count on them: they
cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Annotated, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, StructField, StructType

from streambank.checkpoint.closure import OperatorState
from streambank.core.errors import InputError, RefusedError
from streambank.core.json_text import loads
from streambank.core.shape import HIDDEN, JsonName, JsonObject, encode
from streambank_spark.failures import condition_of, first_line
from streambank_spark.private.expressions import computed
from streambank_spark.rewrite.derive import Derived, SourceSavepoint, derive
from streambank_spark.rewrite.hdfs_rewriter import PACKAGES
from streambank_spark.rewrite.row_patch import ChangedRows, not_encoded
from streambank_spark.rewrite.unsafe_row import encoder, plain
from streambank_spark.rewrite.validate_request import VALUE, Assignment, changes_key
from streambank_spark.state.columns import as_json, storable
from streambank_spark.state.digest import digest_frame
from streambank_spark.state.read import KEY, RowChoice, apart, bad_expression, chosen_parts
from streambank_spark.state.rule import Rule
from streambank_spark.state.state import PARTITION, QueryState, StatePart
from streambank_spark.state.validate import RuleVerdict, validate_state
from streambank_spark.submit.executor_packages import ship

_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
_ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_SESSION_WINDOW = "session_window"
_CHANGES = StructType(
    [StructField("partition", IntegerType())]
    + [StructField(name, BinaryType()) for name in ("key_was", "value_was", "value_new")]
)


def repair_state(
    state: QueryState, rules: Sequence[Rule], assignments: Sequence[Assignment]
) -> list[ChangedRows]:
    """What becomes of the rows that break a rule, part by part; parts without such rows are left out.

    Raises:
        InputError: An expression cannot be used (code `bad-expression`), or rows break a rule all the same
            (`not-repaired`).
        RefusedError: State that cannot be repaired (codes `repair-part`, `repair-encoding`, `row-checksum`,
            `key-type`).
    """
    parts: dict[tuple[int, str], tuple[StatePart, list[Rule]]] = {}
    for rule in rules:
        for part in chosen_parts(state, RowChoice(rule.operator, rule.part)):
            parts.setdefault((part.operator, part.name), (part, []))[1].append(rule)
    found = (_repair_part(state, part, its, assignments) for part, its in parts.values())
    return [each for each in found if each is not None]


def _repair_part(
    state: QueryState, part: StatePart, rules: Sequence[Rule], assignments: Sequence[Assignment]
) -> ChangedRows | None:
    frame = apart(state.frame(part))
    holds = reduce(and_, (F.coalesce(computed(frame, rule.expression), F.lit(False)) for rule in rules))
    rows = frame.where(~holds).count()
    if not rows:
        return None
    mine = [
        one for one in assignments if one.operator in (None, part.operator) and one.part in (None, part.name)
    ]
    place = f"operator {part.operator}, {part.name}"
    if not mine:
        raise _not_repaired(f"{rows:,} rows of {place} break a rule, and no repair applies to them.")
    (operator,) = state.operators(part.operator)
    check_part(state, operator, part, frame)
    new = assigned(frame, mine, place)
    store = operator.stores[0]
    changed = ChangedRows(part, store.store, family_of(part), store.partitions, rows, frame, holds, new)
    still = evaluated(changed, "repair")
    if still:
        raise _not_repaired(
            f"{still:,} of {rows:,} rows of {place} would still break a rule after the repair."
        )
    return changed.with_changes(changes(state, frame.where(~holds), new))


def check_part(state: QueryState, operator: OperatorState, part: StatePart, frame: DataFrame) -> None:
    """Make sure that rows of a part are one plain UnsafeRow for each key, so that they can be written.

    Raises:
        RefusedError: They are not (codes `repair-part`, `repair-encoding`, `row-checksum`).
    """
    place = f"operator {operator.operator} ({operator.name}), {part.name}"
    conf = state.closure.offset_conf
    if VALUE not in frame.columns or len(operator.stores) != 1:
        raise RefusedError(
            f"Rows of {place} cannot be changed: a key has more than one value there, or Spark keeps "
            "more about the rows elsewhere.",
            code="repair-part",
            hint="Start the query with an empty checkpoint and the right input, or remove the keys: "
            "`streambank state compact --where`.",
        )
    encoding = conf.get(_ENCODING, "unsaferow")
    if encoding.lower() != "unsaferow":
        raise not_encoded(place, f"it is encoded as {encoding}")
    if conf.get(_ROW_CHECKSUM, "false").lower() == "true":
        raise RefusedError(
            f"Rows of {place} have checksums, and cannot be changed.",
            code="row-checksum",
            hint=f"Run the query without {_ROW_CHECKSUM} until it has written new snapshots.",
        )


def family_of(part: StatePart) -> str:
    """The column family of a part's rows in RocksDB."""
    return part.options.get("stateVarName", "default")


Convert = Callable[[Column, DataType, str], Column]
"""An expression, the type and the name of a column -> the expression as a value of that column."""


def assigned(
    frame: DataFrame,
    assignments: Sequence[Assignment],
    place: str,
    convert: Convert = lambda column, kind, name: column.cast(kind),
    *,
    from_form: bool = False,
) -> Column:
    """The value of a row with what is assigned to its columns; of a form nothing is repeated (`from_form`).

    Raises:
        InputError: An expression cannot be used (code `bad-expression`).
        RefusedError: A key would change (code `repair-key`).
    """
    value = F.col(VALUE)
    columns = [one.column for one in assignments]
    if len(set(columns)) < len(columns):
        raise InputError(
            f"A column of {place} is assigned twice.", code="bad-expression", hint="Assign each column once."
        )
    # Some operators keep the key in the value once more; the two must stay the same.
    key = {*_struct(frame, KEY).names, _SESSION_WINDOW}
    for one in assignments:
        if one.column.split(".")[0] in key:
            raise changes_key(f"value.{one.column} = {one.expression}")
        kind = _kind(frame.schema[VALUE].dataType, one.column.split("."))
        if kind is None:
            raise InputError(
                f"State of {place} has no column named value.{one.column}.",
                code="bad-expression",
                hint=f"It has {frame.schema.simpleString()}.",
            )
        try:
            value = value.withField(one.column, convert(computed(frame, one.expression), kind, one.column))
            frame.select(value)
        except AnalysisException as error:
            called = f"value.{one.column}"
            text = f"{called} = {one.expression}"
            raise bad_expression(frame, text, error, of_form=called if from_form else None) from error
    return value


def _kind(kind: DataType, path: Sequence[str]) -> DataType | None:
    for name in path:
        if not isinstance(kind, StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind


def evaluated(rows: ChangedRows, what: str) -> int:
    """How many changed rows still break a rule (0 if none must hold); they have to be always the same.

    Raises:
        InputError: They cannot be computed, or differ from time to time (code `bad-expression`).
    """
    try:
        # Planned twice: Spark gives rand() its seed, and now() its moment, when it plans.
        first, again = digest_frame(rows.changed), digest_frame(rows.changed)
        still = rows.changed.where(~rows.holds).count() if rows.must_hold else 0
    except (PySparkException, Py4JError) as error:
        said = first_line(error) if rows.must_hold else condition_of(error)
        raise InputError(
            f"The {what} of {rows.place} cannot be computed: {said}",
            code="bad-expression",
            hint="Look at the rows: a validation lists those that break a rule.",
        ) from error
    if first != again:
        raise InputError(
            f"The {what} of {rows.place} gives a different value each time.",
            code="bad-expression",
            hint="Use constants instead of rand(), uuid() or current_timestamp().",
        )
    return still


def _not_repaired(what: str) -> InputError:
    return InputError(
        what, code="not-repaired", hint="Nothing was written. Give a repair after which every rule holds."
    )


def changes(state: QueryState, broken: DataFrame, new: Column) -> DataFrame:
    """Of each broken row the partition, and the bytes of its key, its value, and its new value."""
    ship(state.session.sparkContext, PACKAGES)
    key, value = (_struct(broken, name) for name in (KEY, VALUE))
    columns = [(F.col(KEY), key), (F.col(VALUE), value), (new, value)]
    rows = broken.select(F.col(PARTITION), *(plain(one, kind).alias(f"_{n}") for n, (one, kind) in
                                             enumerate(columns))).rdd  # fmt: skip
    return state.session.createDataFrame(rows.mapPartitions(partial(_encoded, key, value)), _CHANGES)


def _struct(frame: DataFrame, name: str) -> StructType:
    kind = frame.schema[name].dataType
    assert isinstance(kind, StructType)
    return kind


def _encoded(
    key: StructType, value: StructType, rows: Iterator[Any]
) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    key_of, value_of = encoder(key), encoder(value)
    for partition, of_key, was, new in rows:
        # Of a struct without fields, `plain` makes one with a field, as Spark has no other.
        yield partition, key_of(of_key) if key.fields else b"", value_of(was), value_of(new)


def samples(rows: ChangedRows, limit: int) -> list[dict[str, Any]]:
    """Some of the rows that change, before and after, as JSON: `partition`, `key`, `before`, `after`."""
    before = rows.frame.where(~rows.holds)
    shown = storable(before.select(PARTITION, KEY, F.col(VALUE).alias("before"), rows.new.alias("after")))
    names = [name for name in shown.columns if name != PARTITION]
    texts = shown.select(PARTITION, as_json(shown, names).alias("row")).limit(limit)
    return [{"partition": row[PARTITION]} | loads(row["row"]) for row in texts.collect()]


OPERATION = "repair"


@dataclass(frozen=True, slots=True)
class Repair(JsonObject):
    """How many rows of one part get other values, with some of them."""

    operator: int
    part: str
    rows: int
    samples: list[dict[str, Any]]

    @classmethod
    def of(cls, changed: ChangedRows, limit: int) -> Repair:
        return cls(changed.part.operator, changed.part.name, changed.rows, samples(changed, limit))


@dataclass(frozen=True, slots=True)
class StateRepair:
    """How a savepoint kept the rules, and the one that was made where a row was broken."""

    judged: Annotated[tuple[RuleVerdict, ...], JsonName("rules")]
    repairs: tuple[Repair, ...]
    derived: Annotated[Derived, HIDDEN]

    def to_dict(self) -> dict[str, Any]:
        ok = not any(each.broken for each in self.judged)
        return self.derived.brief() | {"ok": ok} | encode(self)


def repair_savepoint(
    source: SourceSavepoint,
    rules: Sequence[Rule],
    assignments: Sequence[Assignment],
    *,
    limit: int,
    dry_run: bool = False,
    note: str = "",
) -> StateRepair:
    """Judge a savepoint's state by rules, and make a savepoint in which the broken rows are repaired.

    Raises:
        InputError, RefusedError: As `repair_state`; nothing was written.
        StreambankError: As `derive`.
    """
    judged: list[RuleVerdict] = []
    repairs: list[Repair] = []

    def patch(state: QueryState) -> list[ChangedRows]:
        judged.extend(validate_state(state, rules, limit))
        changed = repair_state(state, rules, assignments)
        repairs.extend(Repair.of(one, limit) for one in changed)
        return changed

    derived = derive(source, OPERATION, patch=patch, dry_run=dry_run, note=note)
    return StateRepair(tuple(judged), tuple(repairs), derived)
