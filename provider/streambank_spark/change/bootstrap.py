"""State from a table: the rows of one part of a savepoint's state, instead of those that it has, or besides.

The savepoint gives everything else: schemas, operator metadata, offsets and settings. The real application
has written them, for example in one batch over empty input. So only the state is new, and the query goes on
after that batch. Each row is written into the partition where Spark looks for its key, as the bytes that
Spark would write (rewrite/unsafe_row.py). Then Spark's state reader reads what was written, and it must have
the fingerprint of what Spark computes once more from the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, NullType, StructType

from streambank.checkpoint.closure import OperatorState
from streambank.core.approval import outdated
from streambank.core.errors import InputError, RefusedError, StreambankError
from streambank.core.json_text import loads
from streambank.core.shape import JsonObject
from streambank.storage import open_store
from streambank_spark.change.columns import TIMEOUT, ValueFit, check_fits, never_null, struct_of
from streambank_spark.change.request import BOOTSTRAP, BootstrapRequest, mapped
from streambank_spark.change.supported import AGGREGATIONS, GLOBAL, GROUP_STATE, VARIABLE, require
from streambank_spark.change.supported import BOOTSTRAP as MAKE
from streambank_spark.change.transform import ANSI, one_part
from streambank_spark.failures import first_line, in_words
from streambank_spark.rewrite.derive import SourceSavepoint, derive
from streambank_spark.rewrite.hdfs_rewriter import PACKAGES
from streambank_spark.rewrite.repair import family_of
from streambank_spark.rewrite.rewrite_request import KEEP, REPLACE
from streambank_spark.rewrite.row_patch import NewRows, without_keys
from streambank_spark.rewrite.unsafe_row import encoder, plain
from streambank_spark.rewrite.validate_request import VALUE
from streambank_spark.state.columns import as_json, storable
from streambank_spark.state.digest import digest_frame
from streambank_spark.state.key_unit import UNIT, partition_of, unit_from
from streambank_spark.state.read import KEY, apart
from streambank_spark.state.staging import for_spark
from streambank_spark.state.state import PARTITION, QueryState
from streambank_spark.submit.executor_packages import ship, use_packages

SOURCE = "source"
"""What SQL calls the table."""
_EXPECTED = "_expected"
LITERAL_KEY = "struct<0:int>"
"""The key of an aggregation that groups by literals alone: the number 0 (Spark:
`RemoveLiteralFromGroupExpressions`). A grouping column of that name and type looks the same in the schema,
which calls every column nullable."""


@dataclass(frozen=True, slots=True)
class Bootstrapped(JsonObject):
    """What a table gave.

    Attributes:
        table_digest: How many rows of state the table gives, and their fingerprint: `5:0b7a2cf3...`.
        existing_rows: How many rows there were before.
        rows: Rows of the table that are written: with `keep`, those whose keys are new.
        samples: Some rows of state that the table gives: `key`, `value`.
    """

    operator: int
    part: str
    table_rows: int
    table_digest: str
    existing_rows: int
    rows: int
    samples: list[dict[str, Any]]


_FIXED = (
    "Of a table that is written to, name a snapshot, or only rows up to a moment by a WHERE in the SQL; or "
    "write what the SQL gives to a table first."
)
"""What makes a table give the same rows again."""


def bootstrap_savepoint(source: SourceSavepoint, request: BootstrapRequest) -> dict[str, Any]:
    """Make a savepoint whose state has the rows of a table.

    Returns:
        The new savepoint, if one was made, and what the table gave, as JSON.

    Raises:
        InputError: The table cannot be state (codes `bad-table`, `bad-expression`, `which-operator`);
            nothing was written.
        RefusedError: State that cannot be made from a table (codes `cannot-make-state`, `state-not-empty`,
            and those of `check_part`); or the table gives other rows than a plan showed
            (`approval-outdated`).
        StreambankError: As `derive`.
    """
    found: list[Bootstrapped] = []

    def patch(state: QueryState) -> list[NewRows]:
        source.say("Checking the table")
        new, given = rows_of_table(state, request)
        found.append(given)
        return [new]

    derived = derive(
        source,
        BOOTSTRAP,
        patch=patch,
        dry_run=request.dry_run,
        note=request.note,
        rehearse=request.rehearse,
    )
    return derived.brief() | found[0].to_dict()


def rows_of_table(state: QueryState, request: BootstrapRequest) -> tuple[NewRows, Bootstrapped]:
    """The rows that a table gives, after all checks."""
    state.session.conf.set(ANSI, "true")
    part = one_part(state, request.operator, request.part)
    (operator,) = state.operators(part.operator)
    existing = apart(state.frame(part))
    kind = require(MAKE, state, operator, part, existing)
    place = f"operator {part.operator}, {part.name}"
    existing_rows = _count_existing(existing, operator, place)
    if existing_rows and request.existing is None:
        raise RefusedError(
            f"The state of {place} already has {existing_rows:,} rows.",
            code="state-not-empty",
            hint="Say what becomes of them: replace (all go), keep (they win over the table), or overwrite "
            "(the table wins).",
        )
    table = read_table(state.session, request)
    fits: list[ValueFit] = []
    of_key, of_value = (existing.schema[name].dataType for name in (KEY, VALUE))
    assert isinstance(of_key, StructType) and isinstance(of_value, StructType)
    may_be_literal = of_key.simpleString() == LITERAL_KEY and not _other_than_0(existing)
    if may_be_literal and "0" not in {*mapped(request.keys), *table.columns}:
        raise InputError(
            f"The table has no column for key.0 of {place}.",
            code="bad-table",
            hint='If the query groups by literals alone, its key is always 0: give the key "0 = 0".',
        )
    key = struct_of(table, of_key, mapped(request.keys), KEY, fits, from_form=request.from_form)
    value = struct_of(
        table,
        of_value,
        mapped(request.values),
        VALUE,
        fits,
        required=frozenset() if kind is VARIABLE else never_null(of_value, aggregation=kind in AGGREGATIONS),
        defaults={TIMEOUT: "-1L"} if kind is GROUP_STATE else {},
        from_form=request.from_form,
    )
    try:
        rows = table.select(key.alias(KEY), value.alias(VALUE))
        table_rows = check_fits(table, fits, "the table", of_table=True)
    except AnalysisException as error:
        said = f"{in_words(error)}." if request.from_form else first_line(error)
        raise InputError(
            f"The table does not fit the state: {said}",
            code="bad-table",
            hint=f"The key is {of_key.simpleString()}, the value {of_value.simpleString()}.",
        ) from error
    if may_be_literal and _other_than_0(rows):
        raise RefusedError(
            f"State of {place} cannot be made from this table: its key is an integer called 0. So Spark "
            "calls the key of a query that groups by literals alone, where it is always 0, and a grouping "
            "column of that name looks the same. The table has other keys.",
            code="cannot-make-state",
            hint="If the query groups by such a column, use a savepoint in which it has rows of other keys. "
            'If it groups by literals, give the key "0 = 0" and one row.',
        )
    _check_keys(rows, table_rows, alone=kind is GLOBAL)
    # Planned twice, as the verification does: now() has another moment then, and a table may be appended to.
    digest = _digest(rows)
    if digest != _digest(rows):
        raise InputError(
            "The table gave other rows when it was read again.",
            code="bad-table",
            hint="Use constants instead of now() and rand(), and round sums of floating-point numbers. "
            + _FIXED,
        )
    planned = request.table_digest
    if planned is not None and planned != digest:
        raise outdated(
            f"The table gives {table_rows:,} rows now, and they are not the {planned.partition(':')[0]} "
            "that the plan showed.",
            f"Plan it again: the new plan shows what the table gives now. {_FIXED}",
        )
    samples = _samples(rows, request.samples)
    store, choice = operator.stores[0], request.existing or REPLACE
    rows = _placed(rows, of_key, store.partitions)
    new = without_keys(rows, existing) if choice == KEEP else rows
    encoded, written = _encoded(state, new, of_key, of_value), new.count()
    made = NewRows(
        part, store.store, family_of(part), store.partitions, written, existing, rows, choice, encoded
    )
    return made, Bootstrapped(part.operator, part.name, table_rows, digest, existing_rows, written, samples)


def _other_than_0(rows: DataFrame) -> bool:
    """Whether a key of the shape `LITERAL_KEY` is another one than that of literals."""
    return bool(rows.where(~F.col(KEY).getField("0").eqNullSafe(F.lit(0))).limit(1).count())


def _digest(rows: DataFrame) -> str:
    count, digest = digest_frame(rows)
    return f"{count}:{digest}"


def _count_existing(existing: DataFrame, operator: OperatorState, place: str) -> int:
    """How many rows there are, once each is in the partition that its key says."""
    of_key = existing.schema[KEY].dataType
    assert isinstance(of_key, StructType)
    placed = _placed(existing, of_key, operator.stores[0].partitions, _EXPECTED)
    count, odd = placed.agg(F.count(F.lit(1)), F.count_if(F.col(_EXPECTED) != F.col(PARTITION))).collect()[0]
    if odd:
        raise RefusedError(
            f"State of {place} cannot be made from a table: {odd:,} of its {count:,} rows are in another "
            "partition than their keys say.",
            code="cannot-make-state",
            hint="Report this, with the Spark version and the query.",
        )
    return int(count)


def read_table(session: SparkSession, request: BootstrapRequest) -> DataFrame:
    """The table, or what SQL over it gives.

    Raises:
        InputError: It cannot be read (code `bad-table`), or the SQL cannot be run (`bad-query`).
    """
    location = request.table if "://" in request.table else open_store(request.table).uri
    name = location.rstrip("/").rpartition("/")[2]
    ending = name.rpartition(".")[2].casefold()
    kind = request.format or (ending if ending in ("json", "csv", "orc", "avro") else "parquet")
    if request.format is None and kind == "parquet" and _is_delta(location):
        kind = "delta"
    # Every column of CSV is a text: Spark would guess that the key 007 is the number 7.
    options = {"header": "true"} if kind == "csv" else {}
    try:
        table = session.read.format(kind).options(**options).load(for_spark(location))
    except (PySparkException, Py4JError) as error:
        raise InputError(
            f"{request.table} cannot be read as {kind}: {first_line(error)}",
            code="bad-table",
            hint="Give the directory or file of a table, and its format.",
        ) from error
    if request.query is None:
        return table
    table.createOrReplaceTempView(SOURCE)
    try:
        # In brackets only a query can stand: neither what creates, inserts or drops, nor several of them.
        return session.sql(f"SELECT * FROM (\n{request.query.strip().rstrip(';')}\n)")
    except AnalysisException as error:
        raise InputError(
            f"The query cannot be run: {first_line(error)}",
            code="bad-query",
            hint=f"Use one SELECT over {SOURCE}: {table.schema.simpleString()}",
        ) from error


def _is_delta(location: str) -> bool:
    """Whether it is a Delta table; False where only Spark can read."""
    try:
        return next(iter(open_store(location).child("_delta_log").names()), None) is not None
    except StreambankError:
        return False


def _check_keys(rows: DataFrame, count: int, *, alone: bool) -> None:
    if not count:
        raise InputError("The table has no rows.", code="bad-table", hint="Check its location and format.")
    if alone:
        if count > 1:
            raise InputError(
                f"The table has {count:,} rows, and the state has one row, for all input.",
                code="bad-table",
                hint="Aggregate the table first (SQL over it).",
            )
        return
    keys = rows.groupBy(KEY).count().where("count > 1")
    found = keys.agg(F.count(F.lit(1)), F.coalesce(F.sum("count"), F.lit(0))).collect()[0]
    if found[0]:
        raise InputError(
            f"{found[0]:,} keys are in the table more than once: {found[1]:,} of {count:,} rows.",
            code="bad-table",
            hint="State has one row for each key: aggregate the table first (SQL over it).",
        )


def _samples(rows: DataFrame, limit: int) -> list[dict[str, Any]]:
    shown = storable(rows)
    texts = shown.select(as_json(shown, shown.columns).alias("row")).limit(limit).collect()
    return [loads(row["row"]) for row in texts]


def _placed(rows: DataFrame, of_key: StructType, partitions: int, name: str = PARTITION) -> DataFrame:
    """Rows with the partition in which Spark looks for the key, as a column of this name."""
    if all(isinstance(one.dataType, NullType) for one in of_key.fields):
        return rows.withColumn(name, F.lit(0))
    united = rows.withColumn(UNIT, unit_from(F.col(KEY), of_key, len(of_key)))
    return united.withColumn(name, partition_of(united, partitions)).drop(UNIT)


class _Encode:
    """A struct in the shape of `plain` -> the bytes of its UnsafeRow; it goes to Spark's Python workers."""

    def __init__(self, kind: StructType) -> None:
        self.kind = kind
        self._encode: Callable[[Any], bytes] | None = None

    def __call__(self, values: Any) -> bytes:
        if not self.kind.fields:
            return b""
        if self._encode is None:
            use_packages()
            self._encode = encoder(self.kind)
        return self._encode(values)

    def of(self, column: Column) -> Column:
        encode = F.udf(self, BinaryType(), useArrow=False)
        return encode(plain(column, self.kind))


def _encoded(state: QueryState, rows: DataFrame, of_key: StructType, of_value: StructType) -> DataFrame:
    ship(state.session.sparkContext, PACKAGES)
    return rows.select(
        F.col(PARTITION).alias("partition"),
        KEY,
        _Encode(of_key).of(F.col(KEY)).alias("key_bytes"),
        _Encode(of_value).of(F.col(VALUE)).alias("value_bytes"),
    )
