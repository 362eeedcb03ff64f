"""After a compaction or a rescale of its state a query goes on as a model says: every kind, every layout."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.choices import SinkChoice
from streambank.core.errors import RefusedError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.staging import Staging
from tests.storm.cells import cells_of
from tests.support.spark.queries import BATCH_STEP, FIRST_EVENT, QUERIES, TO_FILES, Query, write_input
from tests.support.spark.sessions import prepare, read_batches, run_to_end, session_for

# Queries that go on from state that was rewritten, and models that say what has to come of it.
#
# A model is another run of the same query, in whose input the past of some keys has another name: so these
# keys start from zero, all others have all of their past, and watermarks are the same. What the two give from
# there on must be equal, but for what the renamed past gives.

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = 4
"""The batch of the savepoint: in the middle of a window, whose keys come again with the next batch."""
BATCHES = 8
"""So many files: enough for what is open after `LAST` to be closed."""
COMPACTED = f"_spark_metadata/{LAST + 1}.compact"
"""Of a file sink's log: all entries up to the batch after `LAST`, and none may be missing."""
OLD = "old-"
OLD_IDS = 1_000_000

Row = dict[str, Any]
IsPast = Callable[[Row], bool]
"""Whether a row of the input is of a key that starts from zero after `LAST`."""
Given = Mapping[int, list[Row]]
"""What each batch gave."""

_LOG_INTERVAL = {"spark.sql.streaming.fileSink.log.compactInterval": "3"}


def run_first(session: SparkSession, query: Query, source: Path, checkpoint: Path, output: Path) -> None:
    """Run the batches up to `LAST`, and none after it, for Spark's file sink too."""
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    run_to_end(session, query, source, checkpoint, output)


def given(output: Path) -> Given:
    """What `foreachBatch` wrote of each batch."""
    return {batch: [json.loads(row) for row in rows] for batch, rows in read_batches(output).items()}


def after_last(batches: Given) -> Given:
    return {batch: rows for batch, rows in batches.items() if batch > LAST}


def rename_the_past(folder: Path, is_past: IsPast) -> None:
    """Give the keys of the input that is there another name."""
    for path in sorted(folder.glob("*/*.json")):
        stat = path.stat()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in filter(is_past, rows):
            row["id"] += OLD_IDS
            row["key"] = OLD + row["key"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def is_old(row: Row) -> bool:
    """Whether a row that was given is of the renamed past."""
    return any(
        (isinstance(value, str) and value.startswith(OLD))
        or (isinstance(value, int) and OLD_IDS <= value < 2 * OLD_IDS)
        for value in row.values()
    )


def unheard_of_in_last(folder: Path) -> IsPast:
    """Whether a row is of a key of which `LAST` brought nothing but rows that come too late."""
    in_time = (FIRST_EVENT + BATCH_STEP * (LAST - 2)).isoformat()
    (file,) = (folder / "left").glob(f"{LAST:05d}.json")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    heard = {row["key"] for row in rows if row["at"] >= in_time}
    assert heard, "some keys are not idle"
    return lambda row: row["key"] not in heard


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """What has to come of queries, each computed once.

    Layouts and partitions are no part of a model: in all of them a query has to give the same.
    """

    spark: SparkSession
    folder: Path
    _known: dict[tuple[str, str], Given] = field(default_factory=dict)

    def of(self, query: Query, past: str = "", is_past: IsPast | None = None) -> Given:
        """What each batch gives when keys start from zero after `LAST`; of an ordinary restart without.

        Args:
            query: The query; what it gives is collected, whatever its sink.
        """
        name = (query.name, past)
        if name not in self._known:
            folder = self.folder / "-".join(name)
            layout = query.layouts[0]
            place = (folder / "in", folder / "checkpoint", folder / "out")
            collected = replace(query, file_sink=False)
            write_input(folder / "in", LAST + 1)
            if is_past is not None:
                rename_the_past(folder / "in", is_past)
            run_first(session_for(self.spark, layout), collected, *place)
            write_input(folder / "in", BATCHES, first=LAST + 1)
            run_to_end(session_for(self.spark, layout), collected, *place)
            found = given(folder / "out")
            self._known[name] = {
                batch: [row for row in rows if not is_old(row)] for batch, rows in found.items()
            }
        return self._known[name]


@dataclass(frozen=True, slots=True)
class RewrittenQuery:
    """One query in one layout, of which a savepoint was taken after `LAST`."""

    spark: SparkSession
    query: Query
    layout: str
    folder: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    job = "job"

    @property
    def source(self) -> Path:
        return self.folder / "in"

    @property
    def sink(self) -> Path:
        """Where Spark's file sink writes, in every run; a folder of each run's own without one."""
        return self.folder / "out"

    @property
    def repository(self) -> Repository:
        return Repository.open(open_store(str(self.folder / "repository")), create=True)

    @property
    def staging(self) -> Staging:
        return Staging("local[2]", str(self.folder / "work"), print)

    def session(self) -> SparkSession:
        return session_for(self.spark, self.layout, {**_LOG_INTERVAL, **self.conf})

    def saved(self, *, also: int | None = None) -> tuple[str, str | None]:
        """Run up to `LAST` and take a savepoint there, and of one batch before it if asked for."""
        checkpoint = self.folder / "checkpoint"
        write_input(self.source, LAST + 1)
        run_first(self.session(), self.query, self.source, checkpoint, self.sink)
        write_input(self.source, BATCHES, first=LAST + 1)
        sinks = [FileSinkCapture(str(self.sink))] if self.query.file_sink else []
        store = open_store(str(checkpoint))
        before = None
        if also is not None:
            before = take(TakeRequest(store, self.repository, self.job, batch=also, sinks=sinks)).savepoint
        taken = take(TakeRequest(store, self.repository, self.job, sinks=sinks))
        assert taken.batch == LAST
        return taken.savepoint, before

    def made(self, savepoint: str, order: RewriteRequest) -> str:
        source = SourceSavepoint(self.spark, self.repository, self.job, savepoint, self.staging)
        found = carry_out(source, order)
        assert found.savepoint is not None
        assert self.repository.load(self.job, found.savepoint).derived_from == savepoint
        assert not list((self.folder / "work").glob("*")), "what was laid out is gone"
        return found.savepoint

    def go_on(self, savepoint: str, *, sink: SinkChoice = "refuse") -> Path:
        """Restore a savepoint and let the query read the rest of its input; gives where it wrote."""
        place = self.folder / savepoint
        into = open_store(str(place / "checkpoint"))
        restore(RestoreRequest(self.repository, savepoint, job=self.job, into=into, sink=sink))
        output = self.sink if self.query.file_sink else place / "out"
        run_to_end(self.session(), self.query, self.source, place / "checkpoint", output)
        return output

    def table(self) -> list[str]:
        """The rows of the file sink, as Spark reads it back."""
        return sorted(
            json.dumps(row.asDict(recursive=True), sort_keys=True)
            for row in self.spark.read.json(str(self.sink)).collect()
        )


def as_table(before: Given, after: Given) -> list[str]:
    """What a file sink has to hold: what one gave up to `LAST`, and another one after it."""
    rows = [row for batch, found in before.items() if batch <= LAST for row in found]
    rows += [row for batch, found in after.items() if batch > LAST for row in found]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

NAMES = ("k0", "k3", "k7", "k11")
BY_KEY = "key.key IN ('k0', 'k3', 'k7', 'k11')"
WHERE = {
    "drop-duplicates": "key.id % 5 = 0",
    "drop-duplicates-within-watermark": "key.id % 5 = 0",
    "join": "key.field0 IN ('k0', 'k3', 'k7', 'k11')",
}
JOIN_3 = {"spark.sql.streaming.join.stateFormatVersion": "3"}
WIDE = RewriteRequest(operation="rescale", partitions=5)


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


@pytest.fixture(scope="module")
def models(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ExpectedOutputs:
    prepare(spark)
    return ExpectedOutputs(spark, tmp_path_factory.mktemp("models"))


def is_past(query: Query) -> IsPast:
    """What `WHERE` says, of a row of the input."""
    if query.name.startswith("drop-duplicates"):
        return lambda row: bool(row["id"] % 5 == 0)
    return lambda row: row["key"] in NAMES


def compaction(query: Query) -> RewriteRequest:
    return RewriteRequest(operation="compact", where=WHERE.get(query.name, BY_KEY))


def _cells(verb: str) -> Iterator[Any]:
    for query, layout in cells_of(verb):
        yield pytest.param(QUERIES[query], layout, {}, id=f"{query}-{layout}")


@pytest.mark.parametrize(
    ("query", "layout", "conf"),
    [*_cells("compact"), pytest.param(QUERIES["join"], "rocksdb-changelog", JOIN_3, id="join-v3")],
)
def test_a_query_goes_on_from_compacted_state_as_the_models_say(
    spark: SparkSession,
    models: ExpectedOutputs,
    query: Query,
    layout: str,
    conf: dict[str, str],
    tmp_path: Path,
) -> None:
    expected = after_last(models.of(query, "expired", is_past(query)))
    assert expected != after_last(models.of(query)), "control: what expires shows"
    course = RewrittenQuery(spark, query, layout, tmp_path, conf)
    savepoint, _ = course.saved()

    compacted = course.made(savepoint, compaction(query))

    assert after_last(given(course.go_on(compacted))) == expected


@pytest.mark.parametrize(
    ("query", "layout", "conf"),
    [*_cells("rescale"), pytest.param(QUERIES["join"], "format-v2", JOIN_3, id="join-v3")],
)
def test_a_query_goes_on_from_rescaled_state_as_the_models_say(
    spark: SparkSession,
    models: ExpectedOutputs,
    query: Query,
    layout: str,
    conf: dict[str, str],
    tmp_path: Path,
) -> None:
    course = RewrittenQuery(spark, query, layout, tmp_path, conf)
    savepoint, _ = course.saved()

    rescaled = course.made(savepoint, WIDE)

    assert after_last(given(course.go_on(rescaled))) == after_last(models.of(query))


def test_hdfs_backed_state_keeps_its_partitions(spark: SparkSession, tmp_path: Path) -> None:
    course = RewrittenQuery(spark, QUERIES["aggregation"], "hdfs", tmp_path)
    savepoint, _ = course.saved()
    with pytest.raises(RefusedError) as caught:
        course.made(savepoint, WIDE)
    assert caught.value.code == "hdfs-backed" and caught.value.hint


# What a file sink holds does not depend on how state is kept; HDFS-backed state is not rescaled.
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("closed-windows", "hdfs"),
        ("closed-windows", "rocksdb-changelog"),
        ("transform-with-state-to-files", "format-v2"),
    ],
)
def test_a_file_sink_holds_every_row_once_after_its_query_was_compacted_or_rescaled(
    spark: SparkSession, models: ExpectedOutputs, name: str, layout: str, tmp_path: Path
) -> None:
    query = TO_FILES[name]
    ordinary, expired = models.of(query), models.of(query, "expired", is_past(query))
    expected = as_table(ordinary, expired)
    assert expected != as_table(ordinary, ordinary), "control: what expires shows"
    course = RewrittenQuery(spark, query, layout, tmp_path)
    savepoint, _ = course.saved()

    compacted = course.made(savepoint, compaction(query))
    course.go_on(compacted)
    assert (course.sink / COMPACTED).exists(), "no batch was missing when it was compacted"
    assert course.table() == expected

    untouched = savepoint if layout == "hdfs" else course.made(savepoint, WIDE)
    with pytest.raises(RefusedError):
        course.go_on(untouched)
    course.go_on(untouched, sink="rollback")
    assert course.table() == as_table(ordinary, ordinary)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("apply-in-pandas-with-state", "hdfs"),
        ("apply-in-pandas-with-state", "format-v2"),
        ("transform-with-state", "rocksdb-changelog"),
    ],
)
def test_keys_that_were_idle_since_another_savepoint_start_from_zero(
    spark: SparkSession, models: ExpectedOutputs, name: str, layout: str, tmp_path: Path
) -> None:
    query = QUERIES[name]
    course = RewrittenQuery(spark, query, layout, tmp_path)
    savepoint, before = course.saved(also=LAST - 1)
    expected = after_last(models.of(query, "idle", unheard_of_in_last(course.source)))
    assert expected != after_last(models.of(query)), "control: what was idle shows"
    compacted = course.made(savepoint, RewriteRequest(operation="compact", idle_since=before))
    assert after_last(given(course.go_on(compacted))) == expected
