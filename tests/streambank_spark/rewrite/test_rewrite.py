"""Savepoints whose state was rewritten: without keys, in other partitions, never wrong in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.rewritable import STRICT
from streambank.checkpoint.rewritten import DERIVED_FROM
from streambank.core.errors import InputError, IntegrityError, RefusedError
from streambank.recovery.choosing.resolve import choose
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank_spark.rewrite import rewrite
from streambank_spark.rewrite.derive import Derived
from streambank_spark.rewrite.expiry import Where, expired
from streambank_spark.rewrite.migrate import migrate
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.state import QueryState
from tests.support.checkpoint.recorded import unpack
from tests.support.refuses import refuses
from tests.support.spark.saved_state import SavedState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark


Fault = Callable[["DataFrame"], "DataFrame"]


def same(frame: DataFrame) -> DataFrame:
    return frame


def fewer(frame: DataFrame) -> DataFrame:
    return frame.where("hash(key_bytes) % 3 <> 0")


class Bench(SavedState):
    """What is asked of a savepoint's state."""

    def ask(self, savepoint: str | None = None, **order: Any) -> Derived:
        return carry_out(self.source(savepoint), RewriteRequest(**{"operation": "compact", **order}))

    def rows(self, savepoint: str | None, part: str | None = None) -> list[Any]:
        with self.state(savepoint) as state:
            (operator,) = state.operators()
            return [
                row.asDict(recursive=True)
                for each in state.parts(operator, part)
                for row in state.frame(each).drop("partition_id").collect()
            ]


def by_text(rows: Iterable[Any]) -> list[str]:
    return sorted(map(str, rows))


@pytest.mark.parametrize(
    "name", [pytest.param("hdfs-dedup", marks=pytest.mark.storm), "ids-changelog-window"]
)
def test_expired_keys_are_gone_and_all_others_as_they_were(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    bench = Bench(spark, name, tmp_path)
    before = bench.rows(bench.savepoint)
    names = sorted({row["key"]["k"] for row in before})[:2]
    goes = f"key.k IN ({', '.join(map(repr, names))})"
    dry = bench.ask(where=goes, dry_run=True)
    assert dry.savepoint is None and len(list(bench.repository.manifests("job"))) == 1
    found = bench.ask(where=goes, note="old ones")
    assert [each.to_dict() for each in found.going] == [each.to_dict() for each in dry.going]
    stay = [row for row in before if row["key"]["k"] not in names]
    assert 0 < len(stay) < len(before) and found.going[0].rows == len(before) - len(stay)
    assert by_text(bench.rows(found.savepoint)) == by_text(stay)
    old, new = bench.manifest(bench.savepoint), bench.manifest(found.savepoint)
    assert (new.derived_from, new.batch, new.checkpoint, new.query_id, new.note) == (
        old.savepoint, old.batch, old.checkpoint, old.query_id, "old ones",
    )  # fmt: skip
    assert new.offset_conf[DERIVED_FROM].startswith(f"{old.savepoint} compact ")
    assert verify(bench.repository, "job", new.savepoint, "full").restorable
    assert not list((tmp_path / "work").iterdir()), "what was laid out is gone"


def test_state_of_a_limit_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, "3.5.9/rocksdb-limit", tmp_path)
    with refuses(RefusedError, "limit-state") as refused:
        bench.ask(operation="rescale", partitions=3)
    assert "operator 0" in refused.value.message


def test_rows_whose_key_does_not_say_where_they_are_get_no_other_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Refused before anything is written, where HDFS-backed state becomes RocksDB, too."""
    for name in ("rocksdb-window", "hdfs-dedup"):
        checkpoint = unpack(f"4.3.0/{name}", tmp_path / name) / "checkpoint"
        state = QueryState(spark, str(checkpoint))
        for entry in (checkpoint / "offsets").glob("[0-9]*"):
            entry.write_text(entry.read_text().replace(f'"{STRICT}":"true"', f'"{STRICT}":"false"'))
        loose = QueryState(spark, str(checkpoint))
        target = open_store(str(tmp_path / name / "target"))
        with refuses(RefusedError, "loose-distribution"):
            if name == "hdfs-dedup":
                migrate(spark, loose, target, derived_from="a test", partitions=5)
            else:
                rewrite.check_rewritable(state, 5)
                rewrite.rewrite(spark, loose, target, derived_from="a test", partitions=5)
        assert not (tmp_path / name / "target").exists()


@pytest.mark.storm
@pytest.mark.parametrize("name", ["rocksdb-session", "rocksdb-changelog-join", "rocksdb-window"])
def test_state_of_spark_3_5_is_written_anew_and_has_no_metadata_again(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    bench = Bench(spark, f"3.5.9/{name}", tmp_path)
    before = by_text(bench.rows(bench.savepoint))
    found = bench.ask(operation="rescale", partitions=3)
    assert by_text(bench.rows(found.savepoint)) == before and before
    new = bench.manifest(found.savepoint)
    assert {store["partitions"] for one in new.operators for store in one["stores"]} == {3}
    assert not [file.path for file in new.files if file.path.endswith("_metadata/metadata")]
    assert verify(bench.repository, "job", new.savepoint, "full").restorable


@pytest.mark.storm
def test_latest_good_is_the_savepoint_and_not_what_was_made_from_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(spark, "hdfs-dedup", tmp_path)
    made = bench.ask(where="true").savepoint
    assert made is not None and made != bench.savepoint
    assert choose(bench.repository, "latest-good", "job", record=False).manifest.savepoint == bench.savepoint
    again = take(TakeRequest(bench.checkpoint, bench.repository, "job"))
    assert again.already_there and again.savepoint == bench.savepoint


@pytest.mark.storm
def test_state_of_variables_goes_with_its_timers_and_can_be_spread_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(spark, "ids-changelog-transform", tmp_path)
    one = bench.rows(bench.savepoint, "seen")[0]["key"]["k"]
    erased = bench.ask(operation="erase", key=one)
    assert all(row["key"]["k"] != one for row in bench.rows(erased.savepoint))
    wide = bench.ask(erased.savepoint, operation="rescale", partitions=5)
    assert by_text(bench.rows(wide.savepoint)) == by_text(bench.rows(erased.savepoint))
    assert {store.partitions for store in wide.rewritten.stores} == {5} if wide.rewritten else False
    (operator,) = bench.manifest(wide.savepoint).operators
    assert {store["partitions"] for store in operator["stores"]} == {5}


@pytest.mark.storm
def test_what_was_idle_is_told_by_two_savepoints(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, "hdfs-session", tmp_path)
    batches = CheckpointReader(bench.checkpoint).closure().batch
    earlier = take(TakeRequest(bench.checkpoint, bench.repository, "job", batch=batches - 1)).savepoint
    then, now = bench.rows(earlier), bench.rows(bench.savepoint)
    same = {row["key"]["k"] for row in now} & {row["key"]["k"] for row in then}
    idle = {
        k
        for k in same
        if by_text(r for r in now if r["key"]["k"] == k) == by_text(r for r in then if r["key"]["k"] == k)
    }
    found = bench.ask(idle_since=earlier, dry_run=True)
    assert found.going[0].keys == len(idle)
    with pytest.raises(InputError, match="not earlier"):
        bench.ask(earlier, idle_since=bench.savepoint)


@pytest.mark.storm
def test_a_pass_takes_so_many_rows_at_most(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, "hdfs-dedup", tmp_path)
    assert bench.ask(where="true", max_rows=3, dry_run=True).going[0].rows == 3
    nothing = bench.ask(where="false")
    assert nothing.savepoint is None and nothing.going[0].keys == 0
    assert bench.ask(where="key.t < {now} AND key.t < {watermark} - interval 1000 days").savepoint is None
    old = {"now": "1999-01-01T00:00:00Z", "watermark_ms": 0}
    for where in ("key.t < {now}", "key.t < {watermark}"):
        assert bench.ask(where=where, dry_run=True).going[0].keys >= 0
        assert bench.ask(where=where, dry_run=True, planned=old).going[0].keys == 0, "as in the plan"
    keys = bench.ask(where="true", dry_run=True).going[0].keys
    shown = {"keys": {"0": keys - 1}}
    with refuses(RefusedError, "approval-outdated"):
        bench.ask(where="true", planned=shown)
    assert bench.ask(where="true", dry_run=True, planned={"keys": {"0": keys}}).going[0].keys == keys


@pytest.mark.parametrize(
    ("name", "order", "kind", "code"),
    [
        ("hdfs-global", {"where": "true"}, RefusedError, "no-key"),
        ("hdfs-dedup", {"operation": "rescale", "partitions": 3}, RefusedError, "hdfs-backed"),
        (
            "hdfs-dedup",
            {"operation": "rescale", "partitions": 3, "dry_run": True},
            RefusedError,
            "hdfs-backed",
        ),
        ("hdfs-dedup", {"where": "value.colour = 3"}, InputError, "bad-expression"),
        ("hdfs-dedup", {"where": "key.k"}, InputError, "bad-expression"),
        ("hdfs-chain", {"where": "true"}, InputError, "which-operator"),
        ("stateless", {"where": "true"}, RefusedError, "no-state"),
        ("stateless", {"operation": "rescale", "partitions": 3}, RefusedError, "no-state"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    spark: SparkSession, name: str, order: dict[str, Any], kind: type[Exception], code: str, tmp_path: Path
) -> None:
    bench = Bench(spark, name, tmp_path)
    with pytest.raises(kind) as caught:
        bench.ask(**order)
    assert getattr(caught.value, "code", None) == code and getattr(caught.value, "hint", "")
    assert len(list(bench.repository.manifests("job"))) == 1


@pytest.mark.storm
def test_a_rewrite_that_loses_misplaces_or_changes_a_row_makes_no_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack("4.3.0/ids-changelog-window", tmp_path)
    state = QueryState(spark, str(tmp_path / "checkpoint"))
    gone = expired(state, Where("key.k = 'k0'", now=datetime(2026, 1, 1, tzinfo=UTC)))
    honest = rewrite._change
    faults: list[tuple[Fault, Fault]] = [  # of what is read to be written, and of what is written
        (fewer, same),
        (same, fewer),
        (same, lambda frame: frame.repartition(2, "value_bytes")),
        (
            same,
            lambda frame: frame.withColumn(
                "value_bytes", F.expr("if(hash(key_bytes) % 3 = 0, key_bytes, value_bytes)")
            ),
        ),
    ]
    for number, (read, written) in enumerate(faults):
        fired: list[bool] = []

        def faulty(*asked: Any, read: Any = read, written: Any = written, fired: Any = fired) -> Any:
            change = honest(*asked)

            def spoilt(operator: int, store: str, frame: DataFrame) -> DataFrame:
                fired.append(True)
                changed: DataFrame = written(change(operator, store, read(frame)))
                return changed

            return spoilt

        monkeypatch.setattr(rewrite, "_change", faulty)
        target = open_store(str(tmp_path / f"target{number}"))
        with refuses(IntegrityError, "rewrite-differs"):
            rewrite.rewrite(spark, state, target, derived_from="x", gone=gone)
        assert fired
        assert not target.exists("metadata"), "no query starts from it"
    monkeypatch.undo()
    target = open_store(str(tmp_path / "control"))
    rewrite.rewrite(spark, state, target, derived_from="x", gone=gone)
    assert target.exists("metadata")


def test_hdfs_backed_state_that_loses_more_than_it_should_makes_no_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack("4.3.0/hdfs-dedup", tmp_path)
    state = QueryState(spark, str(tmp_path / "checkpoint"))
    gone = expired(state, Where("key.k = 'k0'"))
    honest = rewrite._going
    fired: list[bool] = []

    def faulty(stores: Any, units: Any) -> Any:
        going, (store,) = honest(stores, units), stores

        def more(*named: Any) -> DataFrame:
            fired.append(True)
            frame = going(*named)
            assert frame is not None
            return frame.union(store.frame.where("key.k = 'k1'"))

        return more

    monkeypatch.setattr(rewrite, "_going", faulty)
    target = open_store(str(tmp_path / "target"))
    with refuses(IntegrityError, "rewrite-differs"):
        rewrite.rewrite(spark, state, target, derived_from="x", gone=gone)
    assert fired
    assert not target.exists("metadata"), "no query starts from it"
