"""HDFS-backed state becomes RocksDB: the same rows in the same places, or no savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.rewritten import DERIVED_FROM
from streambank.checkpoint.shape import PROVIDER
from streambank.core.errors import IntegrityError, StreambankError
from streambank.savepoint.verify import verify
from streambank_spark.rewrite import migrate as migrating
from streambank_spark.rewrite.derive import Derived
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.digest import digest_of
from streambank_spark.state.state import QueryState
from tests.support.checkpoint.recorded import unpack
from tests.support.refuses import refuses
from tests.support.spark.saved_state import SavedState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Bench(SavedState):
    """What is asked of a savepoint's state."""

    def migrate(self, partitions: int | None = None) -> Derived:
        order = RewriteRequest(operation="migrate", provider="rocksdb", partitions=partitions)
        return carry_out(self.source(), order)

    def digests(self, savepoint: str | None) -> list[Mapping[str, Any]]:
        with self.state(savepoint) as state:
            return [each.to_dict() for each in digest_of(state)]


def test_the_same_rows_are_in_rocksdb(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, "4.3.0/hdfs-session", tmp_path)
    found = bench.migrate()
    assert bench.digests(found.savepoint) == bench.digests(bench.savepoint)
    assert found.savepoint is not None
    old, new = (bench.repository.load("job", each) for each in (bench.savepoint, found.savepoint))
    assert (new.derived_from, new.batch, new.query_id) == (old.savepoint, old.batch, old.query_id)
    changed = {name: value for name, value in new.offset_conf.items() if old.offset_conf.get(name) != value}
    assert changed.keys() == {PROVIDER, DERIVED_FROM}
    assert changed[PROVIDER] == migrating.ROCKSDB
    assert {Path(entry.path).suffix for entry in new.files} & {".delta", ".snapshot", ".zip"} == {".zip"}
    assert verify(bench.repository, "job", new.savepoint, "full").restorable
    assert not list((tmp_path / "work").iterdir()), "what was laid out is gone"


@pytest.mark.storm
@pytest.mark.parametrize(
    "name", ["hdfs-window", "hdfs-dedup", "hdfs-join", "hdfs-pandas-state", "hdfs-global", "hdfs-chain"]
)
@pytest.mark.parametrize("partitions", [None, 5])
def test_every_kind_of_state_that_hdfs_keeps(
    spark: SparkSession, name: str, partitions: int | None, tmp_path: Path
) -> None:
    bench = Bench(spark, f"4.3.0/{name}", tmp_path)
    found = bench.migrate(partitions)
    assert bench.digests(found.savepoint) == bench.digests(bench.savepoint)
    assert found.rewritten is not None
    alone = name == "hdfs-global"
    if partitions is not None and not alone:
        assert {store.partitions for store in found.rewritten.stores} <= {1, partitions}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("4.3.0/rocksdb-window", "not-hdfs-backed"),
        ("4.3.0/stateless", "not-hdfs-backed"),
        ("4.3.0/hdfs-limit", "limit-state"),
    ],
)
def test_what_cannot_be_migrated_is_refused_by_name(
    spark: SparkSession, name: str, code: str, tmp_path: Path
) -> None:
    bench = Bench(spark, name, tmp_path)
    with refuses(StreambankError, code) as caught:
        bench.migrate()
    assert caught.value.hint
    assert len(list(bench.repository.manifests("job"))) == 1


def test_without_a_schema_nothing_is_tried(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = unpack("4.3.0/hdfs-dedup", tmp_path) / "checkpoint"
    (checkpoint / "state/0/0/_metadata/schema").unlink()
    with refuses(StreambankError, "no-state-schema"):
        migrating.check_migratable(QueryState(spark, str(checkpoint)))


@pytest.mark.storm
def test_a_migration_that_loses_or_misplaces_a_row_saves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(spark, "4.3.0/hdfs-dedup", tmp_path)
    honest = migrating._Rows.of

    def losing(self: Any, partition: int) -> Iterator[Any]:
        rows = list(honest(self, partition))
        return iter(rows[1:])

    def misplacing(self: Any, partition: int) -> Iterator[Any]:
        return honest(self, (partition + 1) % len(self.chains))

    for fault in (losing, misplacing):
        monkeypatch.setattr(migrating._Rows, "of", fault)
        with refuses(IntegrityError, "rewrite-differs"):
            bench.migrate()
    assert len(list(bench.repository.manifests("job"))) == 1
    monkeypatch.undo()
    assert bench.migrate().savepoint, "control"


def test_a_package_that_is_missing_is_named_with_what_to_install(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(spark, "4.3.0/hdfs-dedup", tmp_path)
    monkeypatch.setattr("streambank.checkpoint.rewritable.find_spec", lambda name: None)
    with refuses(StreambankError, "missing-package") as caught:
        bench.migrate()
    assert caught.value.message == "Rewriting HDFS-backed state takes lz4 and xxhash; not installed here."
    assert "Install lz4 and xxhash" in caught.value.hint and "memory" not in caught.value.hint
