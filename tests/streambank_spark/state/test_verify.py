"""Deep verification: what hashing cannot tell, and Spark can."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import Answer, streambank

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def saved(checkpoint: Path, folder: Path) -> Repository:
    repository = Repository.open(open_store(folder), create=True)
    take(TakeRequest(open_store(checkpoint), repository, "orders"))
    return repository


def verify(folder: Path, level: str) -> Answer:
    return streambank("verify", "b", "-r", folder, "--level", level, "--json")


@pytest.mark.spark
def test_rows_are_those_that_the_savepoint_counts(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint"
    repository = saved(checkpoint, tmp_path / "savepoints")
    answer = verify(tmp_path / "savepoints", "deep")
    assert answer.code == 0 and answer.document["ok"]
    assert (answer.document["level"], answer.document["findings"]) == ("deep", [])
    assert answer.document["bytes"] > 0, "every byte is hashed, too"
    (summary,) = repository.manifests()
    assert (summary.verified_level, summary.verified_ok) == ("deep", True)
    assert summary.to_dict()["hashed_since"] is not None


@pytest.mark.spark
def test_another_number_of_rows_is_found(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint"
    path = checkpoint / "state/0/1/8.zip"
    members = _unzip(path)
    assert b'"numKeys":8' in members["metadata"]
    members["metadata"] = members["metadata"].replace(b'"numKeys":8', b'"numKeys":9')
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    saved(checkpoint, tmp_path / "savepoints")
    assert verify(tmp_path / "savepoints", "full").document["ok"], "these are the bytes that were saved"
    answer = verify(tmp_path / "savepoints", "deep")
    assert answer.code == 1
    (finding,) = answer.document["findings"]
    assert (finding["code"], finding["file"]) == ("rows-differ", "state/0, default")
    assert finding["cause"] == "Spark reads 13 rows, but the savepoint says 14."
    assert not verify(tmp_path / "savepoints", "quick").document["findings"]
    (summary,) = Repository.open(open_store(tmp_path / "savepoints")).manifests()
    assert summary.verified_ok is False, "a quick look does not take it back"


def _unzip(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.spark
def test_state_that_spark_cannot_read_is_found_and_what_nobody_counted_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = unpack("4.3.0/hdfs-join", tmp_path) / "checkpoint"
    (newest, *_) = sorted((checkpoint / "state/0/0/left-keyToNumValues").glob("*.delta"), key=_version)[-1:]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    saved(checkpoint, tmp_path / "savepoints")
    assert verify(tmp_path / "savepoints", "full").document["ok"]
    answer = verify(tmp_path / "savepoints", "deep")
    assert answer.code == 1 and not answer.document["restorable"]
    found = {(each["code"], each["file"]) for each in answer.document["findings"]}
    assert found == {
        ("state-unreadable", "state/0, left-keyToNumValues"),
        ("rows-not-counted", "state/0, left-keyWithIndexToValue"),
        ("rows-not-counted", "state/0, right-keyToNumValues"),
        ("rows-not-counted", "state/0, right-keyWithIndexToValue"),
    }


@pytest.mark.spark
def test_state_that_only_sparks_reader_cannot_read_is_no_damage(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = unpack("3.5.9/hdfs-dedup", tmp_path) / "checkpoint"
    schema = checkpoint / "state/0/0/_metadata/schema"
    key, value = schema.read_bytes().split(b"\0\0\0\1")[1:]
    assert b"__dummy__" in value
    # Spark before 3.3.1 wrote the columns of the input in the place of the value.
    wrong = key[2:].replace(b"]}", b',{"name":"v","type":"long","nullable":true,"metadata":{}}]}')
    schema.write_bytes(b"\0\2v2\0\0\0\1" + key + b"\0\0\0\1" + len(wrong).to_bytes(2, "big") + wrong)
    saved(checkpoint, tmp_path / "savepoints")
    answer = verify(tmp_path / "savepoints", "deep")
    assert (answer.code, answer.document["restorable"]) == (1, True)
    assert [one["code"] for one in answer.document["findings"]] == ["wrong-state-schema"]
    read = streambank("state", "read", "latest", "-r", tmp_path / "savepoints", "--limit", 1, "--json")
    assert (read.code, read.document["error"]) == (4, "wrong-state-schema")


def _version(path: Path) -> int:
    return int(path.stem)


def test_what_is_damaged_already_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streambank.savepoint.verify import verify as engine

    checkpoint = unpack("4.3.0/hdfs-dedup", tmp_path) / "checkpoint"
    repository = saved(checkpoint, tmp_path / "savepoints")
    (summary,) = repository.manifests()
    for path in (tmp_path / "savepoints").glob("packs/**/*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"\0")

    def never(job: str, savepoint: str) -> list[object]:
        raise AssertionError("it must not be opened")

    report = engine(repository, summary.job, summary.savepoint, "full", deeper=never)  # type: ignore[arg-type]
    assert report.level == "full" and not report.ok
