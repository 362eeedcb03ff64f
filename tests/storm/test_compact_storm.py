"""After a compaction or a rescale of its state a query goes on as a model says: for every kind and layout.

The model is another run of the same query, in whose input the past of the expired keys has another name: so
they start from zero, all others have all of their past, and watermarks are the same. What the two give from
there on must be equal, but for what the renamed past gives.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.recovery.restore import restore
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.storage import open_store
from streambank_spark.digest import digest_of
from streambank_spark.laid_out import Workshop, savepoint_laid_out
from streambank_spark.order import Order, carry_out
from streambank_spark.state import QueryState
from tests.support.queries import QUERIES, Query, write_input
from tests.support.spark import prepare, read_batches, run_to_end, run_until, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES = 14
LAST = 7
OLD = "old-"
OLD_IDS = 1_000_000
EXPIRED = ("k0", "k3", "k7", "k11")
WHERE = {
    "drop-duplicates": "key.id % 5 = 0",
    "drop-duplicates-within-watermark": "key.id % 5 = 0",
    "join": "key.field0 IN ('k0', 'k3', 'k7', 'k11')",
}
BY_KEY = "key.key IN ('k0', 'k3', 'k7', 'k11')"
STATEFUL = [query for query in QUERIES.values() if not query.file_sink]


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


def cells() -> list[Any]:
    return [
        pytest.param(query, layout, id=f"{query.name}-{layout}")
        for query in STATEFUL
        for layout in query.layouts
    ]


def rename_the_past(query: Query, folder: Path) -> None:
    """Give the expired keys of all batches up to `LAST` another name."""
    for path in sorted(folder.glob("*/*.json")):
        if int(path.stem) > LAST:
            continue
        stat = path.stat()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            if query.name.startswith("drop-duplicates"):
                row["id"] += OLD_IDS if row["id"] % 5 == 0 else 0
            elif row["key"] in EXPIRED:
                row["key"] = OLD + row["key"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def is_old(row: dict[str, Any]) -> bool:
    return any(
        (isinstance(value, str) and value.startswith(OLD))
        or (isinstance(value, int) and OLD_IDS <= value < 2 * OLD_IDS)
        for value in row.values()
    )


def given_after(output: Path, *, without_old: bool) -> dict[int, list[Any]]:
    """What each batch after `LAST` gave."""
    return {
        batch: [row for row in map(json.loads, rows) if not (without_old and is_old(row))]
        for batch, rows in read_batches(output).items()
        if batch > LAST
    }


def model(base: SparkSession, query: Query, layout: str, folder: Path) -> dict[int, list[Any]]:
    write_input(folder / "in", BATCHES)
    rename_the_past(query, folder / "in")
    place = (folder / "in", folder / "checkpoint", folder / "out")
    run_until(session_for(base, layout), query, *place, LAST)
    run_to_end(session_for(base, layout), query, *place)
    return given_after(folder / "out", without_old=True)


def saved(base: SparkSession, query: Query, layout: str, folder: Path) -> tuple[Repository, str]:
    write_input(folder / "in", BATCHES)
    place = (folder / "in", folder / "checkpoint", folder / "out")
    run_until(session_for(base, layout), query, *place, LAST)
    repository = Repository.open(open_store(str(folder / "repository")), create=True)
    return repository, take(open_store(str(folder / "checkpoint")), repository, "job").savepoint


def go_on(
    base: SparkSession, query: Query, layout: str, folder: Path, repository: Repository, savepoint: str
) -> dict[int, list[Any]]:
    """Restore a savepoint, let the query read the rest of its input, and give what came of that."""
    place = folder / savepoint
    restore(repository, savepoint, job="job", into=open_store(str(place / "checkpoint")), sink="accept")
    run_to_end(session_for(base, layout), query, folder / "in", place / "checkpoint", place / "out")
    return given_after(place / "out", without_old=False)


def order(base: SparkSession, repository: Repository, savepoint: str, asked: Order, folder: Path) -> str:
    found = carry_out(
        base, repository, "job", savepoint, asked, Workshop("local[2]", str(folder / "work"), print)
    )
    assert found.savepoint is not None
    assert not list((folder / "work").glob("*")), "what was laid out is gone"
    return found.savepoint


@pytest.mark.parametrize(("query", "layout"), cells())
def test_a_query_goes_on_from_compacted_state_as_the_model_says(
    spark: SparkSession, query: Query, layout: str, tmp_path: Path
) -> None:
    expected = model(spark, query, layout, tmp_path / "model")
    folder = tmp_path / "real"
    repository, savepoint = saved(spark, query, layout, folder)
    asked = Order(operation="compact", where=WHERE.get(query.name, BY_KEY))
    compacted = order(spark, repository, savepoint, asked, folder)
    assert repository.load("job", compacted).derived_from == savepoint
    assert go_on(spark, query, layout, folder, repository, compacted) == expected
    untouched = go_on(spark, query, layout, folder, repository, savepoint)
    assert untouched != expected, "control: what expired would have shown"


@pytest.mark.parametrize(
    ("query", "layout"), [cell for cell in cells() if not str(cell.id).endswith("-hdfs")]
)
def test_a_query_goes_on_from_rescaled_state_as_if_nothing_had_been(
    spark: SparkSession, query: Query, layout: str, tmp_path: Path
) -> None:
    repository, savepoint = saved(spark, query, layout, tmp_path)
    rescaled = order(spark, repository, savepoint, Order(operation="rescale", partitions=5), tmp_path)
    assert digests(spark, repository, savepoint, tmp_path) == digests(spark, repository, rescaled, tmp_path)
    found = go_on(spark, query, layout, tmp_path, repository, rescaled)
    run_to_end(session_for(spark, layout), query, tmp_path / "in", tmp_path / "checkpoint", tmp_path / "out")
    assert given_after(tmp_path / "out", without_old=False) == found, "an ordinary restart"


def digests(base: SparkSession, repository: Repository, savepoint: str, folder: Path) -> list[dict[str, Any]]:
    workshop = Workshop("local[2]", str(folder / "work"), print)
    with savepoint_laid_out(repository, "job", savepoint, workshop) as laid:
        return [each.to_dict() for each in digest_of(QueryState(base, laid.location))]
