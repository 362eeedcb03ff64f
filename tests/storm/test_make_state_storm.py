"""Each cell of the table of docs/howto/make-state.md with real Spark: what can be done, and what is refused.

The model is an ordinary restart after the same batch. State that is made from a table of its own rows, or
that an expression changes and another one changes back, must go on in just that way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.rewritable import STRICT
from streambank.core.errors import IntegrityError, RefusedError, StreambankError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.change import supported
from streambank_spark.change.carry_out import carry_out
from streambank_spark.change.request import BootstrapRequest, TransformRequest
from streambank_spark.change.supported import (
    BOOTSTRAP,
    CHANGELOG,
    DELETE,
    HDFS,
    KINDS,
    ROCKSDB,
    SET,
    StateKind,
)
from streambank_spark.rewrite import rewrite, row_patch
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.state.read import apart
from streambank_spark.state.staging import Staging, materialized_savepoint
from streambank_spark.state.state import QueryState
from tests.support.spark.queries import EVENT_SCHEMA, QUERIES, Query, events, write_input
from tests.support.spark.sessions import prepare, read_batches, run_to_end, run_until, session_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.storm,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES, LAST = 7, 3
LAYOUT = {HDFS: "hdfs", ROCKSDB: "rocksdb", CHANGELOG: "rocksdb-changelog"}


def _global(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").groupBy().agg({"value": "sum", "id": "count"})


def _limit(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").limit(50)


def _with_ttl(session: SparkSession, folder: Path) -> DataFrame:
    from tests.support.spark.stateful_processors import Kept

    grouped = events(session, folder / "left").groupBy("key")
    return grouped.transformWithState(Kept(), "key string, rows long", "update", "ProcessingTime")


_MORE = {
    "global": Query("global", _global, "complete"),
    "limit": Query("limit", _limit),
    "with-ttl": Query("with-ttl", _with_ttl, "update"),
}
_IN_PROCESSING_TIME = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Otherwise each batch is followed by one without data, and `availableNow` never ends."""
OF_KIND: dict[str, tuple[str, str | None, str]] = {
    supported.AGGREGATION.name: ("aggregation", None, "sum"),
    supported.GLOBAL.name: ("global", None, "sum"),
    supported.SESSION.name: ("session-window", None, "sum"),
    supported.DEDUP.name: ("drop-duplicates", None, "__dummy__"),
    supported.WITHIN.name: ("drop-duplicates-within-watermark", None, "expiresAtMicros"),
    supported.JOIN.name: ("join", "left", "id"),
    supported.GROUP_STATE.name: ("apply-in-pandas-with-state", None, "groupState.total"),
    supported.VARIABLE.name: ("transform-with-state", "rows", "rows"),
    supported.WITH_TTL.name: ("with-ttl", "kept", "value.rows"),
    supported.COLLECTION.name: ("transform-with-state", "newest", "id"),
    supported.LIMIT.name: ("limit", None, "value"),
}
"""Of each kind a query, the part, and a column that holds a number."""


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


def given_after(output: Path) -> dict[int, list[Any]]:
    return {batch: rows for batch, rows in read_batches(output).items() if batch > LAST}


class Line:
    """A query that was saved after a batch and then went on: `expected` is what it gave from there on."""

    def __init__(
        self,
        base: SparkSession,
        query: Query,
        layout: str,
        folder: Path,
        last: int = LAST,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.base, self.query, self.layout, self.folder, self.conf = base, query, layout, folder, conf
        if not (folder / "in").exists():
            write_input(folder / "in", BATCHES)
        place = (query, folder / "in", folder / "checkpoint", folder / "out")
        run_until(session_for(base, layout, conf), *place, last)
        self.repository = Repository.open(open_store(str(folder / "repository")), create=True)
        checkpoint = open_store(str(folder / "checkpoint"))
        self.savepoint = take(TakeRequest(checkpoint, self.repository, "job")).savepoint
        self.staging = Staging("local[2]", str(folder / "work"), print)

    def expected(self) -> dict[int, list[Any]]:
        place = (self.query, self.folder / "in", self.folder / "checkpoint", self.folder / "out")
        run_to_end(session_for(self.base, self.layout, self.conf), *place)
        return given_after(self.folder / "out")

    def read(self, savepoint: str, part: str | None, use: Callable[[DataFrame], Any]) -> Any:
        with materialized_savepoint(self.repository, "job", savepoint, self.staging) as laid:
            state = QueryState(self.base, laid.location)
            operator = state.operators()[0]
            return use(apart(state.frame(state.parts(operator, part)[0])))

    def ask(self, savepoint: str, request: TransformRequest | BootstrapRequest) -> dict[str, Any]:
        return carry_out(SourceSavepoint(self.base, self.repository, "job", savepoint, self.staging), request)

    def bootstrap(self, savepoint: str, part: str | None, table: Path, **more: Any) -> str:
        asked = {"table": str(table), "part": part, "existing": "replace", **more}
        return str(self.ask(savepoint, BootstrapRequest.from_dict(asked))["savepoint"])

    def transform(self, savepoint: str, part: str | None, **asked: Any) -> str:
        request = TransformRequest.from_dict({"part": part, **asked})
        return str(self.ask(savepoint, request)["savepoint"])

    def go_on(self, savepoint: str, name: str) -> dict[int, list[Any]]:
        place = self.folder / name
        into = open_store(str(place / "checkpoint"))
        restore(RestoreRequest(self.repository, savepoint, job="job", into=into, sink="accept"))
        session = session_for(self.base, self.layout, self.conf)
        run_to_end(session, self.query, self.folder / "in", place / "checkpoint", place / "out")
        return given_after(place / "out")


def flat(frame: DataFrame, path: Path, where: str = "true") -> int:
    """Write state as a table with a column for each field; how many rows it has."""
    names = [
        f"{root}.{name}"
        for root in ("key", "value")
        for name in frame.schema[root].dataType.names  # type: ignore[attr-defined]  # both are structs
        if name != "__dummy__"
    ]
    frame.where(where).select(*names).write.mode("overwrite").parquet(str(path))
    return frame.sparkSession.read.parquet(str(path)).count()


def cells() -> Iterator[tuple[str, str]]:
    return ((kind.name, store) for kind in KINDS for store in kind.stores)


@pytest.mark.parametrize(("name", "store"), list(cells()))
def test_each_cell_does_what_the_table_says_and_the_rest_is_refused(
    spark: SparkSession, name: str, store: str, tmp_path: Path
) -> None:
    kind: StateKind = next(one for one in KINDS if one.name == name)
    of_query, part, column = OF_KIND[name]
    conf = _IN_PROCESSING_TIME if of_query == "with-ttl" else None
    line = Line(spark, (QUERIES | _MORE)[of_query], LAYOUT[store], tmp_path, conf=conf)
    same: dict[str, str] = {}
    refused: dict[str, str] = {}

    def attempt(what: str, do: Callable[[], str]) -> None:
        try:
            same[what] = do()
        except RefusedError as error:
            refused[what] = error.code

    def made() -> str:
        table = tmp_path / "table"
        if BOOTSTRAP in kind.can:
            assert line.read(line.savepoint, part, lambda frame: flat(frame, table))
        return line.bootstrap(line.savepoint, part, table)

    def changed() -> str:
        there = line.transform(line.savepoint, part, sets=[f"value.{column} = value.{column} + 7"])
        numbers = line.read(there, part, lambda frame: frame.agg({f"value.{column}": "max"}).collect()[0][0])
        before = line.read(
            line.savepoint, part, lambda frame: frame.agg({f"value.{column}": "max"}).collect()[0][0]
        )
        assert numbers == before + 7
        return line.transform(there, part, sets=[f"value.{column} = value.{column} - 7"])

    def deleted() -> str:
        there = line.transform(line.savepoint, part, delete_where="true")
        assert line.read(there, part, lambda frame: frame.count()) == 0
        return there

    attempt(BOOTSTRAP, made)
    attempt(SET, changed)
    attempt(DELETE, deleted)
    assert tuple(same) == kind.can, refused
    codes = {"cannot-make-state", "no-key", "limit-state"}
    assert set(refused.values()) <= codes, refused
    expected = line.expected() if same else {}
    gone = same.pop(DELETE, None)
    for what, savepoint in same.items():
        assert line.go_on(savepoint, what) == expected, what
    if gone is not None:
        line.go_on(gone, DELETE)


def test_two_variables_of_one_operator_change_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Their rows lie in one store, so the change of one must not take the place of the other's."""
    line = Line(spark, _MORE["with-ttl"], "rocksdb", tmp_path)
    columns = {"kept": "value.value.rows", "ever": "value.rows"}
    sets = ["0/kept: value.value.rows = value.value.rows + 5", "0/ever: value.rows = value.rows + 6"]
    there = line.transform(line.savepoint, None, sets=sets)

    def total(savepoint: str, part: str) -> tuple[int, int]:
        summed = [f"sum({columns[part]})", "count(*)"]
        found = line.read(savepoint, part, lambda frame: frame.selectExpr(*summed).collect()[0])
        return found[0], found[1]

    for part, more in (("kept", 5), ("ever", 6)):
        before, rows = total(line.savepoint, part)
        assert rows and total(there, part) == (before + more * rows, rows)
    with pytest.raises(RefusedError) as caught:
        line.transform(line.savepoint, "kept", sets=["value.ttlExpirationMs = 1"])
    assert caught.value.code == "cannot-make-state"


def test_a_row_that_is_missing_from_the_table_shows(spark: SparkSession, tmp_path: Path) -> None:
    """Control of the model: it would notice state that was made from less than there was."""
    line = Line(spark, QUERIES["aggregation"], "rocksdb", tmp_path)
    table = tmp_path / "table"
    rows = line.read(line.savepoint, None, lambda frame: flat(frame, table, "value.count < 2"))
    assert rows > 0
    savepoint = line.bootstrap(line.savepoint, None, table)
    assert line.go_on(savepoint, "less") != line.expected()


FORMAT_1 = {"spark.sql.streaming.aggregation.stateFormatVersion": "1"}
LOOSE = {STRICT: "false"}
FIVE = {"spark.sql.shuffle.partitions": "5"}


def _grouped(*by: str) -> Callable[[SparkSession, Path], DataFrame]:
    """A count and a sum of the events by SQL expressions."""

    def build(session: SparkSession, folder: Path) -> DataFrame:
        from pyspark.sql import functions as f

        grouped = events(session, folder / "left").groupBy(*map(f.expr, by))
        return grouped.agg(f.count("*").alias("rows"), f.sum("value").alias("total"))

    return build


def _limited(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").limit(60).groupBy("key").count()


def _of_one_name(session: SparkSession, folder: Path) -> DataFrame:
    named = events(session, folder / "left").selectExpr("key", "value % 10 AS KEY")
    return named.dropDuplicates()


def _by_0(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    named = events(session, folder / "left").selectExpr("int(value % 20) AS `0`", "value")
    return named.groupBy("0").agg(f.count("*").alias("rows"), f.sum("value").alias("total"))


def _repartitioned(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").repartition("key").dropDuplicates(["key", "value"])


def _within(session: SparkSession, folder: Path) -> DataFrame:
    stream = events(session, folder / "left").repartition("key")
    return stream.dropDuplicatesWithinWatermark(["key", "value"])


ODD_KEYS: dict[str, tuple[Query, tuple[str, ...]]] = {
    "only literals": (Query("l", _grouped("'x' AS one", "2 AS two"), "complete"), ("0",)),
    "a column called 0": (Query("z", _by_0, "complete"), ("0",)),
    "a literal": (Query("k", _grouped("'x' AS one", "key"), "complete"), ("key",)),
    "a column twice": (
        Query("t", _grouped("key", "key", "key AS again"), "complete"),
        ("key",),
    ),
    "columns of one name": (Query("n", _of_one_name), ("key", "KEY_2")),
    "under a limit": (Query("u", _limited, "complete"), ("key",)),
}
"""Queries whose grouping is not what the key of the state is, and the fields of that key."""


@pytest.mark.parametrize("layout", ["hdfs", "rocksdb"])
@pytest.mark.parametrize("name", ODD_KEYS)
def test_each_row_is_made_where_spark_looks_for_it_whatever_it_is_grouped_by(
    spark: SparkSession, name: str, layout: str, tmp_path: Path
) -> None:
    """The second grouping column is a literal, or the first one again: Spark leaves it out of the key."""
    query, fields = ODD_KEYS[name]
    line = Line(spark, query, layout, tmp_path, conf={"spark.sql.shuffle.partitions": "5"})
    assert line.read(line.savepoint, None, lambda frame: tuple(frame.select("key.*").columns)) == fields
    table = tmp_path / "table"
    rows = line.read(line.savepoint, None, lambda frame: flat(frame, table))
    assert rows == 1 if name == "only literals" else rows > 10
    asked: dict[str, Any] = {"operator": 0}
    if name == "only literals":
        asked["query"] = "SELECT * EXCEPT (`0`) FROM source"
        with pytest.raises(StreambankError) as refused:
            line.bootstrap(line.savepoint, None, table, **asked)
        assert refused.value.code == "bad-table" and "key.0" in refused.value.message
        with pytest.raises(StreambankError) as refused:
            line.bootstrap(line.savepoint, None, table, **asked, keys=["0 = 7"])
        assert refused.value.code == "cannot-make-state" and "literals" in refused.value.message
        asked["keys"] = ["0 = 0"]
    if (name, layout) == ("under a limit", "rocksdb"):
        with pytest.raises(RefusedError) as caught:
            line.bootstrap(line.savepoint, None, table, **asked)
        assert caught.value.code == "limit-state"
        return
    savepoint = line.bootstrap(line.savepoint, None, table, **asked)
    assert line.go_on(savepoint, "made") == line.expected()


REFUSED: dict[str, tuple[Query, dict[str, str], str, str]] = {
    "format 1": (QUERIES["aggregation"], FORMAT_1, "cannot-make-state", "repeats its key"),
    "floats in a list": (
        Query("f", _grouped("array(double(value)) AS list", "key"), "complete"),
        {},
        "cannot-make-state",
        "floating-point numbers in a list",
    ),
    "a map": (
        Query("m", _grouped("map(key, value) AS pairs"), "complete"),
        {},
        "key-type",
        "has a map in its key",
    ),
    "rows by a part of the key": (
        Query("r", _repartitioned),
        LOOSE,
        "cannot-make-state",
        "in which partition Spark looks",
    ),
}
"""Of each what is refused a query, its settings, the code, and what the message says."""


@pytest.mark.parametrize("layout", ["hdfs", "rocksdb"])
@pytest.mark.parametrize("name", REFUSED)
def test_state_whose_rows_cannot_be_made_or_placed_is_refused_by_name(
    spark: SparkSession, name: str, layout: str, tmp_path: Path
) -> None:
    query, conf, code, says = REFUSED[name]
    line = Line(spark, query, layout, tmp_path, conf={"spark.sql.shuffle.partitions": "5", **conf})
    assert line.read(line.savepoint, None, lambda frame: frame.count()) > 1
    with pytest.raises(RefusedError) as caught:
        line.bootstrap(line.savepoint, None, tmp_path / "in" / "left")
    assert caught.value.code == code and says in caught.value.message
    assert len(list(line.repository.manifests("job"))) == 1


@pytest.mark.parametrize("few", [row_patch.MOST_BROADCAST, 0])
@pytest.mark.parametrize("layout", ["hdfs", "rocksdb"])
def test_rows_that_get_values_stay_in_their_partition_whatever_spark_places_them_by(
    spark: SparkSession, layout: str, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of a loose distribution does not say where its row lies; a value set and set back shows it."""
    monkeypatch.setattr(row_patch, "MOST_BROADCAST", few)
    line = Line(spark, Query("w", _within), layout, tmp_path, conf={**FIVE, **LOOSE})
    column = "value.expiresAtMicros"
    there = line.transform(line.savepoint, None, sets=[f"{column} = {column} + 7"])
    back = line.transform(there, None, sets=[f"{column} = {column} - 7"])

    def places(frame: DataFrame) -> list[Any]:
        return sorted((row["partition_id"], str(row["key"]), str(row["value"])) for row in frame.collect())

    before = line.read(line.savepoint, None, places)
    assert len(before) > 10 and line.read(back, None, places) == before
    assert line.go_on(back, "back") == line.expected()


@pytest.mark.parametrize("operation", ["set", "delete"])
def test_rows_of_a_loose_distribution_that_leave_their_partition_make_no_savepoint(
    spark: SparkSession, operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: as many rows lie elsewhere than their key says, but in other partitions; and none does."""
    from pyspark.sql import functions as f

    line = Line(spark, Query("w", _within), "rocksdb", tmp_path, conf={**FIVE, **LOOSE})
    column = "value.expiresAtMicros"
    asked: dict[str, Any] = {"delete_where": "key.value % 7 = 0"}
    if operation == "set":
        asked = {"sets": [f"{column} = {column} + 7"]}
    honest, fired = rewrite._change, []

    def elsewhere(home: bool) -> Callable[..., Any]:
        def faulty(*given: Any) -> Any:
            change = honest(*given)

            def spoilt(operator: int, store: str, frame: DataFrame) -> DataFrame:
                fired.append(home)
                own, after = f.pmod(f.hash("partition_key.*"), f.lit(5)), f.pmod(f.col("was") + 1, f.lit(5))
                other = f.when(after != own, after).otherwise(f.pmod(f.col("was") + 2, f.lit(5)))
                place = own if home else f.when(own == f.col("was"), own).otherwise(other)
                rows = change(operator, store, frame).withColumn("was", f.spark_partition_id())
                moved: DataFrame = rows.withColumn("to", place).repartitionById(5, "to").drop("was", "to")
                return moved

            return spoilt

        return faulty

    for home in (False, True):
        monkeypatch.setattr(rewrite, "_change", elsewhere(home))
        with pytest.raises(IntegrityError) as caught:
            line.transform(line.savepoint, None, **asked)
        assert caught.value.code == "rewrite-differs" and "wrong partition" in caught.value.message
    assert fired == [False, True] and len(list(line.repository.manifests("job"))) == 1
    monkeypatch.undo()
    there = line.transform(line.savepoint, None, **asked)

    def places(frame: DataFrame) -> set[Any]:
        return {(row["partition_id"], str(row["key"])) for row in frame.collect()}

    before, after = (line.read(each, None, places) for each in (line.savepoint, there))
    assert before >= after and (before == after) == (operation == "set") and len(after) > 10


def test_other_columns_of_an_aggregation_of_format_1_can_be_set(spark: SparkSession, tmp_path: Path) -> None:
    line = Line(spark, QUERIES["aggregation"], "rocksdb", tmp_path, conf=FORMAT_1)
    there = line.transform(line.savepoint, None, sets=["value.sum = value.sum + 7"])
    back = line.transform(there, None, sets=["value.sum = value.sum - 7"])
    assert line.go_on(back, "back") == line.expected()


def _totals(session: SparkSession, folder: Path) -> DataFrame:
    stream = (
        session.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder / "left"))
    )
    return _aggregated(stream)


def _aggregated(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.groupBy("key").agg(
        f.count("*").alias("rows"),
        f.sum("value").alias("total"),
        f.avg("value").alias("mean"),
        f.min("value").alias("least"),
        f.max("value").alias("most"),
    )


@pytest.mark.parametrize("layout", ["hdfs", "rocksdb-changelog", "format-v2"])
def test_a_query_that_begins_with_a_table_gives_what_a_batch_over_both_gives(
    spark: SparkSession, layout: str, tmp_path: Path
) -> None:
    """The skeleton is a run over one empty file; the history is a table, the rest comes as a stream."""
    write_input(tmp_path / "in", BATCHES, first=1)
    nothing = tmp_path / "in" / "left" / "00000.json"
    nothing.touch()
    os.utime(nothing, (1_700_000_000, 1_700_000_000))
    query = Query("totals", _totals, "update")
    line = Line(spark, query, layout, tmp_path, last=0)
    history = tmp_path / "history"
    write_input(history, 20, seed=9)
    past = spark.read.schema(EVENT_SCHEMA).json(str(history / "left"))
    past.write.parquet(str(tmp_path / "past.parquet"))
    sql = (
        "SELECT upper(key) AS name, count(*) AS n, sum(value) AS s, double(sum(value)) AS d, "
        "min(value) AS lo, max(value) AS hi FROM source GROUP BY key"
    )
    savepoint = line.bootstrap(
        line.savepoint,
        None,
        tmp_path / "past.parquet",
        existing=None,
        query=sql,
        keys=["key = lower(name)"],
        values=["count = n", "sum = s", "sum_2 = d", "count_2 = n", "min = lo", "max = hi"],
    )
    found: dict[str, Any] = {}
    place = tmp_path / "on"
    restore(
        RestoreRequest(
            line.repository, savepoint, job="job", into=open_store(str(place / "checkpoint")), sink="accept"
        )
    )
    run_to_end(session_for(spark, layout), query, tmp_path / "in", place / "checkpoint", place / "out")
    for _, rows in sorted(read_batches(place / "out").items()):
        found |= {each["key"]: each for each in map(json.loads, rows)}
    both = past.unionAll(spark.read.schema(EVENT_SCHEMA).json(str(tmp_path / "in" / "left")))
    expected = {row["key"]: row.asDict() for row in _aggregated(both).collect()}
    assert found == {key: expected[key] for key in found} and len(found) > 10
