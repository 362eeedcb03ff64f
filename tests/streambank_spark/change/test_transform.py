"""Rows get what the expressions say, or keys go; a value that does not fit refuses all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.errors import IntegrityError, StreambankError
from streambank.repository.manifest import Manifest
from streambank.repository.marks import REHEARSAL
from streambank.repository.repository import Repository
from streambank_spark.change.carry_out import carry_out
from streambank_spark.change.request import TransformRequest
from streambank_spark.rewrite import row_patch
from tests.streambank_spark.rewrite.test_repair import Bench, patch_another_row
from tests.support.cli import streambank
from tests.support.declared_commands import install_commands
from tests.support.refuses import refuses
from tests.support.spark.saved_state import JOB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def transform(bench: Bench, **asked: Any) -> dict[str, Any]:
    request = TransformRequest.from_dict(asked)
    return carry_out(bench.source(), request)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert not list((tmp_path / "work").rglob("*")), "what was staged is gone"


@pytest.mark.storm
@pytest.mark.parametrize("few", [row_patch.MOST_BROADCAST, 0])
@pytest.mark.parametrize("name", ["hdfs-window", "rocksdb-window", "ids-changelog-window"])
def test_keys_go_and_some_of_the_others_get_values(
    spark: SparkSession, name: str, few: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are too many rows for each task to have all of them."""
    monkeypatch.setattr(row_patch, "MOST_BROADCAST", few)
    bench = Bench(spark, name, folder)
    before = bench.rows(bench.savepoint)["default"]
    done = transform(
        bench,
        sets=["value.sum = value.sum * 2 + 1"],
        where="value.sum % 2 = 0",
        delete_where="key.k in ('k1', 'k2')",
        note="halved",
    )
    kept = [(key, value) for key, value in before if "'k1'" not in key and "'k2'" not in key]
    expected = [
        (key, {"sum": value["sum"] * 2 + 1} if value["sum"] % 2 == 0 else value) for key, value in kept
    ]
    assert bench.rows(done["savepoint"])["default"] == expected != kept != before
    assert bench.rows(bench.savepoint)["default"] == before
    new = bench.repository.load(JOB, done["savepoint"])
    assert (new.derived_from, new.taken_by["reason"], new.note) == (bench.savepoint, "transform", "halved")
    assert done["operators"][0]["keys"] == len(before) - len(kept)
    assert done["changes"][0]["rows"] == sum(value["sum"] % 2 == 0 for _, value in kept)


@pytest.mark.parametrize(
    ("name", "asked", "code"),
    [
        ("hdfs-global", {"sets": ["value.count = null"]}, "value-does-not-fit"),
        ("hdfs-global", {"sets": ["value.count = 'secret'"]}, "value-does-not-fit"),
        ("hdfs-global", {"sets": ["value.sum = 1e30"]}, "value-does-not-fit"),
        ("hdfs-global", {"sets": ["value.sum = value.sum * 9223372036854775807"]}, "bad-expression"),
        ("hdfs-global", {"sets": ["value.sum = cast('secret' as int)"]}, "bad-expression"),
        ("hdfs-global", {"sets": ["value.colour = 3"]}, "bad-expression"),
        ("hdfs-global", {"sets": ["value.sum = 1"], "where": "value.sum"}, "bad-expression"),
        ("hdfs-global", {"delete_where": "true"}, "no-key"),
        ("hdfs-dedup", {"sets": ["value.__dummy__ = null"]}, "cannot-make-state"),
        ("hdfs-session", {"sets": ["value.k = 'x'"]}, "repair-key"),
        ("hdfs-chain", {"sets": ["value.count = 1"]}, "which-operator"),
        ("hdfs-join", {"sets": ["0/left: value.v = 1"]}, "cannot-make-state"),
        ("hdfs-limit", {"sets": ["value.value = 1"]}, "cannot-make-state"),
    ],
)
@pytest.mark.storm
def test_what_cannot_be_done_is_refused_by_name_and_quotes_no_value(
    spark: SparkSession, name: str, asked: dict[str, Any], code: str, folder: Path
) -> None:
    bench = Bench(spark, name, folder)
    with refuses(StreambankError, code) as caught:
        transform(bench, **asked)
    assert caught.value.hint
    assert "secret" not in caught.value.message
    assert len(list(bench.repository.manifests(JOB))) == 1


@pytest.mark.storm
def test_what_will_be_rehearsed_is_rejected_before_it_is_listed(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, marks, commit = Bench(spark, "hdfs-global", folder), [], Repository.commit

    def watched(self: Repository, manifest: Manifest, *more: Any) -> bool:
        marks.append(self.newest_mark(JOB, manifest.savepoint, REHEARSAL))
        return commit(self, manifest, *more)

    monkeypatch.setattr(Repository, "commit", watched)
    first = transform(bench, sets=["value.count = 3"])["savepoint"]
    assert bench.repository.resolve("latest", JOB).savepoint == first
    transform(bench, sets=["value.count = 4"], rehearse=True)
    assert bench.repository.resolve("latest", JOB).savepoint == first
    plain, mark = marks
    assert plain is None and mark is not None and mark.fields == {"passed": False}


def test_a_count_that_would_be_null_refuses_all(spark: SparkSession, folder: Path) -> None:
    bench = Bench(spark, "hdfs-global", folder)
    with refuses(StreambankError, "value-does-not-fit") as caught:
        transform(bench, sets=["value.count = nullif(value.count, 24)"])
    assert "value.count (bigint) of 1" in caught.value.message


@pytest.mark.storm
def test_a_row_that_gets_another_value_makes_no_savepoint(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(spark, "rocksdb-window", folder)
    patch_another_row(monkeypatch)
    with refuses(IntegrityError, "rewrite-differs") as caught:
        transform(bench, sets=["value.sum = value.sum + 1"], where="value.sum < 95")
    assert "changed state" in str(caught.value)
    assert len(list(bench.repository.manifests(JOB))) == 1


@pytest.mark.storm
def test_the_command_shows_rows_before_and_after_and_a_dry_run_writes_nothing(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_commands(monkeypatch)
    bench = Bench(spark, "rocksdb-window", folder)
    asked = ("state", "transform", bench.savepoint, "-r", folder / "repository", "--work", folder / "work")
    dry = streambank(*asked, "--set", "value.sum = value.sum * 2", "--dry-run", "--samples", 2, "--json")
    (change,) = dry.document["changes"]
    assert dry.code == 0 and dry.document["savepoint"] is None and len(change["samples"]) == 2
    assert all(each["after"]["sum"] == 2 * each["before"]["sum"] for each in change["samples"])
    assert len(list(bench.repository.manifests(JOB))) == 1
    done = streambank(*asked, "--delete-where", "key.k = 'k1'")
    assert done.code == 0 and "Restore b" in done.out and "deleted" in done.out
    none = streambank(*asked, "--delete-where", "key.k = 'none'", "--json")
    assert none.code == 0 and none.document["savepoint"] is None
    for more in (("--rehearse",), ("--batches", 2)):
        wrong = streambank(*asked, "--set", "value.sum = 1", *more, "--json")
        assert (wrong.code, wrong.document["error"]) == (2, "usage")
