"""Each batch once in a database, by a ledger: what `foreachBatch` gets from it, in Spark."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from streambank.core.errors import InputError, RefusedError, StorageError
from streambank_spark import ledger as module
from streambank_spark.ledger import Batch, Ledger
from tests.support.refuses import refuses
from tests.support.spark.foreach_batch import Duplicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Engine

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A database with a table `orders`."""
    made = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'orders.db'}", poolclass=NullPool)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (k TEXT, query_id TEXT, batch_id BIGINT)"))
    yield made
    made.dispose()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Duplicates:
    """A query with state."""
    return Duplicates(spark, tmp_path)


def insert(batch: Batch) -> int:
    return batch.insert("orders")


def rows(engine: Engine) -> Counter[str]:
    with engine.connect() as connection:
        return Counter(str(key) for (key,) in connection.execute(sqlalchemy.text("SELECT k FROM orders")))


def lines(engine: Engine) -> list[tuple[int, int]]:
    """Batch and rows of each line."""
    asked = "SELECT batch_id, rows FROM streambank_batches ORDER BY batch_id"
    with engine.connect() as connection:
        return [(int(batch), int(count)) for batch, count in connection.execute(sqlalchemy.text(asked))]


def once(engine: Engine) -> Callable[[DataFrame, int], None]:
    return Ledger(engine).once(insert)


def test_rows_and_a_line_of_each_batch(query: Duplicates, engine: Engine) -> None:
    query.add(2)
    query.run(once(engine))
    assert rows(engine) == query.expected() and lines(engine) == [(0, 2), (1, 1)]
    with engine.connect() as connection:
        asked = sqlalchemy.text("SELECT query_id, batch_id, run_id, committed_at FROM streambank_batches")
        first = connection.execute(asked).first()
        carried = connection.execute(sqlalchemy.text("SELECT DISTINCT query_id FROM orders")).scalars().all()
    assert first is not None and list(carried) == [query.query_id] and first[0] == query.query_id
    assert first[2] == query.run_id and str(first[3]).startswith("20")


def test_a_batch_that_comes_again_is_computed_and_not_written(
    query: Duplicates, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver ends between the commit of the database and that of Spark: the batch comes again."""
    write = once(engine)

    def write_and_end(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        raise OSError("injected: the driver ends")

    query.add(1)
    query.run(write_and_end, fails="injected")
    assert lines(engine) == [(0, 2)]
    query.add(1)
    with caplog.at_level(logging.INFO, module.__name__):
        query.run(write)
    assert "Batch 0 has a line" in caplog.text
    assert rows(engine) == query.expected() and lines(engine) == [(0, 2), (1, 1)]


def test_what_fails_in_the_function_leaves_neither_rows_nor_a_line(query: Duplicates, engine: Engine) -> None:
    def insert_and_fail(batch: Batch) -> int:
        assert batch.insert("orders") == 2
        raise OSError("injected after the rows")

    query.add(1)
    query.run(Ledger(engine).once(insert_and_fail), fails="injected after the rows")
    assert not rows(engine) and not lines(engine)
    query.run(once(engine))
    assert rows(engine) == query.expected()


def test_another_driver_that_writes_the_same_batch(query: Duplicates, engine: Engine) -> None:
    """It commits its line after this one has looked: neither rows nor state of this one stay."""

    def insert_late(batch: Batch) -> int:
        with engine.begin() as other:
            line = "INSERT INTO streambank_batches VALUES (:q, :b, 'other run', 0, '2026-01-01')"
            other.execute(sqlalchemy.text(line), {"q": batch.query_id, "b": batch.batch_id})
        return batch.insert("orders")

    query.add(1)
    query.run(Ledger(engine).once(insert_late), fails="Another driver has written batch 0")
    assert not rows(engine) and lines(engine) == [(0, 0)]


@pytest.mark.storm
def test_a_batch_that_is_skipped_has_to_be_computed(
    query: Duplicates, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back to an older checkpoint over a ledger that is ahead, as after `--sink accept`."""
    query.add(2)
    query.run(once(engine))
    for copy in ("computed", "not-computed"):
        shutil.copytree(query.checkpoint, tmp_path / copy)
    query.add(1)
    query.run(once(engine))
    query.add(1)
    query.checkpoint = tmp_path / "computed"
    query.run(once(engine))
    assert rows(engine) == query.expected(), "the batch boundaries were the same, so no row is lost"

    monkeypatch.setattr(module, "compute", lambda frame: None)
    query.checkpoint = tmp_path / "not-computed"
    query.add(1)
    query.run(once(engine), fails="STATE_STORE_COMMIT_VALIDATION_FAILED")


def test_outside_of_a_query(spark: SparkSession, engine: Engine) -> None:
    with refuses(InputError, "no-streaming-query", hint="foreachBatch"):
        once(engine)(spark.range(1), 0)


def test_a_database_that_cannot_be_used(query: Duplicates, tmp_path: Path) -> None:
    query.add(1)
    away = "postgresql+psycopg2://me:hush-hush-7@127.0.0.1:9/orders"
    said = query.run(Ledger(away).once(insert), fails="cannot be reached")
    assert "hush-hush-7" not in said and "refused" in said
    with refuses(RefusedError, "sink-not-known") as caught:
        Ledger("nosuchsql://me:hush-hush-7@host/orders")
    assert "hush-hush-7" not in str(caught.value)


def test_a_ledger_with_other_columns(query: Duplicates, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("CREATE TABLE streambank_batches (query_id TEXT, batch_id BIGINT)")
        )
    query.add(1)
    assert "cannot be written" in query.run(once(engine), fails=StorageError.__name__)
    assert not rows(engine)
