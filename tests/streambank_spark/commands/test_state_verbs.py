"""`streambank state`: what it answers about savepoints and checkpoints, by one verb and by another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed
from tests.support.declared_commands import declared_commands, install_commands
from tests.support.spark.saved_state import name_of, save_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install_commands(monkeypatch)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with savepoints of several recorded checkpoints, each its own job."""
    return save_jobs(
        tmp_path_factory.mktemp("saved"),
        "hdfs-join",
        "ids-changelog-transform",
        "hdfs-dedup",
        "rocksdb-window",
    )


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Where state is laid out; nothing of it may be left."""
    yield tmp_path / "work"
    assert not list((tmp_path / "work").rglob("*"))


def of(saved: Path, job: str, batch: int | None = None) -> list[str | Path]:
    """Arguments that name a savepoint."""
    return [name_of(saved, job, batch), "-r", saved, "--job", job]


def test_the_entry_points_are_the_verbs() -> None:
    assert {entry.name for entry in declared_commands()} == {
        "job.compact",
        "job.rescale",
        "rescale",
        "state",
    }
    helped = succeed("state", "--help").out
    for verb in ("schema", "read", "query", "export", "digest", "validate", "diff"):
        assert verb in helped


def test_without_pyspark_there_is_one_clear_line(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.driver.installed._origins_here", dict)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for answer in (
        streambank("state", "read", *of(saved, "hdfs-join"), "--json"),
        streambank("verify", *of(saved, "hdfs-join"), "--level", "deep", "--json"),
    ):
        assert answer.code == 2 and answer.document["error"] == "no-pyspark"
        assert "this Python has no PySpark" in answer.document["message"]
        assert "Install pyspark" in answer.document["hint"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["read", "c", "--job", "j"], "--job needs a repository: give -r, or the jobs file."),
        (["digest", "b7", "-r", "r", "--batch", "3"], "--batch is for checkpoints"),
        (["read", "c", "--lines", "--json"], "--lines and --json"),
        (["validate", "c"], "rule"),
        (["diff", "a", "b"], "repository"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], says: str) -> None:
    answer = streambank("state", *arguments)
    assert answer.code == 2
    assert says in answer.err


@pytest.mark.spark
def test_schema_says_what_each_part_holds(spark: SparkSession, saved: Path, work: Path) -> None:
    place = of(saved, "ids-changelog-transform")
    found = succeed("state", "schema", *place, "--work", work, "--json").document
    assert (found["provider"], found["checkpoint_format"]) == ("rocksdb", 2)
    (operator,) = found["operators"]
    types = {
        part["part"]: {each["column"]: each["type"] for each in part["columns"]} for part in operator["parts"]
    }
    assert types == {
        "last": {
            "key": "struct<k:string>",
            "user_map_key": "struct<side:string>",
            "user_map_value": "struct<v:int>",
        },
        "seen": {"key": "struct<k:string>", "value": "struct<n:int>"},
    }


@pytest.mark.spark
def test_read_gives_rows_of_every_kind(spark: SparkSession, saved: Path, work: Path) -> None:
    join = of(saved, "hdfs-join")
    found = succeed("state", "read", *join, "--work", work, "--key", "k4", "--json").document
    assert not found["more"]
    assert {row["part"] for row in found["rows"]} == {"left", "right"}
    assert {row["key"]["field0"] for row in found["rows"]} == {"k4"}
    stored = succeed("state", "read", *join, "--store", "left-keyWithIndexToValue", "--limit", 1, "--lines")
    (line,) = stored.out.splitlines()
    assert json.loads(line)["value"]["matched"] is True, "what Spark keeps beside the rows is there by store"
    dedup = succeed("state", "read", *of(saved, "hdfs-dedup"), "--limit", 3, "--json").document
    assert dedup["more"] and len(dedup["rows"]) == 3
    assert dedup["rows"][0]["value"] == {"__dummy__": None}
    key = dedup["rows"][1]["key"]
    again = succeed("state", "read", *of(saved, "hdfs-dedup"), "--key", json.dumps(key), "--json").document
    assert [row["key"] for row in again["rows"]] == [key]
    part = ("--key", '{"k": "k1"}', "--limit", 0, "--json")
    of_k1 = succeed("state", "read", *of(saved, "rocksdb-window", 7), *part).document["rows"]
    assert of_k1 and {row["key"]["k"] for row in of_k1} == {"k1"}, "whatever their windows"
    where = ("--where", "value.n > 6", "--part", "seen", "--limit", 0, "--lines")
    lines = succeed("state", "read", *of(saved, "ids-changelog-transform"), *where).out.splitlines()
    assert lines and all(json.loads(line)["value"]["n"] > 6 for line in lines)


@pytest.mark.spark
def test_what_fits_no_row_is_said(spark: SparkSession, saved: Path) -> None:
    window = of(saved, "rocksdb-window", 7)
    for more, code in (
        (["--key", "k1"], "bad-key-text"),
        (["--key", '{"customer": "k1"}'], "bad-key-text"),
        (["--key", '{"window": {"start": "soon", "end": null}, "k": "k1"}'], "bad-key-text"),
        (["--where", "value.nonsense = 1"], "bad-expression"),
        (["--part", "left"], "bad-input"),
    ):
        answer = streambank("state", "read", *window, *more, "--json")
        assert (answer.code, answer.document["error"]) == (2, code), more
    assert "No rows." in succeed("state", "read", *window, "--where", "key.k = 'none'").out


@pytest.mark.spark
def test_query_answers_sql_and_only_reads(
    spark: SparkSession, saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    window = of(saved, "rocksdb-window", 7)
    sql = "SELECT key.k AS k, sum(value.sum) AS total FROM state GROUP BY 1 ORDER BY 1 -- all of them"
    found = succeed("state", "query", window[0], sql, *window[1:], "--json").document
    rows = succeed("state", "read", *window, "--limit", 0, "--json").document["rows"]
    assert found["columns"] == ["k", "total"]
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["key"]["k"]] = totals.get(row["key"]["k"], 0) + row["value"]["sum"]
    assert {row["k"]: row["total"] for row in found["rows"]} == totals
    assert [row["k"] for row in found["rows"]] == sorted(totals)
    for bad in (
        f"CREATE TABLE t USING parquet LOCATION '{tmp_path}/t' AS SELECT 1",
        "SELECT nonsense FROM state",
    ):
        answer = streambank("state", "query", window[0], bad, *window[1:], "--json")
        assert (answer.code, answer.document["error"]) == (2, "bad-query")
        assert "op0_default" in answer.document["hint"]
        # PySpark would log kilobytes of JSON there, with a stack of the JVM.
        assert "org.apache.spark" not in answer.err + capfd.readouterr().err
    assert not (tmp_path / "t").exists()


@pytest.mark.spark
def test_export_writes_parquet_that_others_read(spark: SparkSession, saved: Path, tmp_path: Path) -> None:
    import pandas as pd

    target = tmp_path / "export"
    found = succeed("state", "export", *_with_target(of(saved, "hdfs-dedup"), target), "--json").document
    (part,) = found["parts"]
    assert (part["part"], part["rows"]) == ("default", 11)
    frame = pd.read_parquet(target / "0-default")
    assert len(frame) == 11 and {row["k"] for row in frame["key"]} <= {f"k{number}" for number in range(7)}
    refused = streambank("state", "export", *_with_target(of(saved, "hdfs-dedup"), target), "--json")
    assert (refused.code, refused.document["error"]) == (8, "target-not-empty")


def _with_target(place: list[str | Path], target: Path) -> list[str | Path]:
    return [place[0], target, *place[1:]]


@pytest.mark.spark
def test_a_live_checkpoint_is_read_through_a_savepoint_of_its_own(
    spark: SparkSession, saved: Path, work: Path, tmp_path: Path
) -> None:
    folder = unpack("4.3.0/rocksdb-window", tmp_path / "live") / "checkpoint"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    live = succeed("state", "digest", folder, "--work", work, "--json").document
    kept = succeed("state", "digest", *of(saved, "rocksdb-window", 7), "--json").document
    assert live["operators"] == kept["operators"]
    assert live["of"] == folder.as_uri()
    assert kept["operators"][0].keys() == {"operator", "store", "rows", "digest"}
    earlier = succeed("state", "digest", folder, "--batch", 3, "--work", work, "--json").document
    assert (earlier["batch"], live["batch"]) == (3, 7)
    assert earlier["operators"] != live["operators"]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    (folder / "state/0/1").rename(tmp_path / "gone")
    missing = streambank("state", "digest", folder, "--json")
    assert (missing.code, missing.document["error"]) == (3, "missing-state-file")
    inside = streambank("state", "digest", folder, "--work", folder / "work", "--json")
    assert (inside.code, inside.document["error"]) == (2, "inside-checkpoint")


def _by_key(place: list[str | Path]) -> dict[str, Any]:
    rows = succeed("state", "read", *place, "--limit", 0, "--json").document["rows"]
    return {json.dumps(row["key"], sort_keys=True): row["value"] for row in rows}


@pytest.mark.storm
@pytest.mark.spark
def test_diff_tells_keys_apart_as_their_rows_do(spark: SparkSession, saved: Path, work: Path) -> None:
    earlier, later = of(saved, "rocksdb-window", 3), of(saved, "rocksdb-window", 7)
    found = succeed("state", "diff", earlier[0], *later, "--samples", 100, "--work", work, "--json").document
    then, now = _by_key(earlier), _by_key(later)
    (part,) = found["parts"]
    assert not found["equal"] and part["note"] == ""
    assert part["rows_before"] == len(then) and part["rows"] == len(now)
    added, removed = now.keys() - then.keys(), then.keys() - now.keys()
    changed = {key for key in now.keys() & then.keys() if now[key] != then[key]}
    assert (part["added"], part["removed"], part["changed"]) == (len(added), len(removed), len(changed))
    assert part["same"] == len(now.keys() & then.keys()) - len(changed)
    told = {json.dumps(each["key"], sort_keys=True): each for each in part["samples"]}
    assert told.keys() == added | removed | changed
    for key, sample in told.items():
        assert sample["before"] == ([{"value": then[key]}] if key in then else [])
        assert sample["after"] == ([{"value": now[key]}] if key in now else [])
    itself = succeed("state", "diff", later[0], *later).out
    assert "added" in itself and "before" in itself
    assert streambank("state", "diff", "b999", *later).code == 3


@pytest.mark.storm
@pytest.mark.spark
def test_diff_of_a_join_and_of_a_query_without_that_part(spark: SparkSession, saved: Path) -> None:
    join = of(saved, "hdfs-join")
    found = succeed("state", "diff", join[0], *join, "--json").document
    assert found["equal"]
    assert {(each["part"], each["same"], each["rows"]) for each in found["parts"]} == {
        ("left", 7, 18),
        ("right", 7, 18),
    }


@pytest.mark.storm
@pytest.mark.spark
def test_validate_lists_the_rows_that_break_a_rule(spark: SparkSession, saved: Path) -> None:
    place = of(saved, "rocksdb-window", 7)
    rows = _by_key(place)
    fine = streambank("state", "validate", *place, "--rule", "0: value.sum >= 0", "--json")
    assert fine.code == 0 and fine.document["ok"]
    (judged,) = fine.document["rules"]
    assert (judged["rows"], judged["broken"], judged["examples"]) == (len(rows), 0, [])
    limit = sorted(value["sum"] for value in rows.values())[len(rows) // 2]
    broken = streambank(
        "state", "validate", *place, "--rule", f"value.sum < {limit}", "--rule", "0/default: null",
        "--samples", 2, "--json",
    )  # fmt: skip
    assert broken.code == 1
    first, second = broken.document["rules"]
    assert first["broken"] == sum(value["sum"] >= limit for value in rows.values())
    assert len(first["examples"]) == 2
    assert all(rows[json.dumps(each["key"], sort_keys=True)]["sum"] >= limit for each in first["examples"])
    assert second["broken"] == len(rows), "null is not true"
    bad = streambank("state", "validate", *place, "--rule", "7: true", "--json")
    assert bad.code == 2 and "no stateful operator 7" in bad.document["message"]


def test_state_without_a_schema_is_refused_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = unpack("4.3.0/hdfs-dedup", tmp_path) / "checkpoint"
    (checkpoint / "state/0/0/_metadata/schema").unlink()

    def no_spark(*_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("streambank_spark.commands.subject.spark_of", no_spark)
    for verb in ("schema", "digest"):
        answer = streambank("state", verb, str(checkpoint), "--work", str(tmp_path / "work"))
        assert answer.code == 8
        assert "Operator 0 has no state schema" in answer.err and "memory" not in answer.err
    # The control: with a schema it goes on.
    whole = unpack("4.3.0/rocksdb-window", tmp_path / "whole") / "checkpoint"
    answer = streambank("state", "schema", str(whole))
    assert answer.code == 70 and "Spark was started" in answer.err
