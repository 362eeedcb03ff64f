"""Deep verification: what hashing cannot tell, and Spark can."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from streambank.core.finding import Finding, Severity
from streambank.repository.catalog import newest_good
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.state.state import QueryState
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
    (summary,) = Repository.open(open_store(tmp_path / "savepoints")).manifests()
    assert (summary.verified_level, summary.verified_ok) == ("full", True)
    read = streambank("state", "read", "latest", "-r", tmp_path / "savepoints", "--limit", 1, "--json")
    assert (read.code, read.document["error"]) == (4, "wrong-state-schema")


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [
        "4.3.0/hdfs-window",
        pytest.param("3.5.9/hdfs-join", marks=pytest.mark.storm),
        pytest.param("4.3.0/rocksdb-window", marks=pytest.mark.storm),
    ],
)
def test_state_without_a_schema_file_is_not_checked_and_no_damage(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """As Spark before 3.1 left all state: its own tests start queries from such checkpoints."""
    checkpoint = unpack(name, tmp_path) / "checkpoint"
    for schema in checkpoint.glob("state/**/_metadata/schema"):
        schema.unlink()
    saved(checkpoint, tmp_path / "savepoints")
    answer = verify(tmp_path / "savepoints", "deep")
    assert (answer.code, answer.document["level"]) == (0, "full"), answer.document
    assert {one["code"] for one in answer.document["findings"]} == {"state-not-checked"}
    for finding in answer.document["findings"]:
        assert finding["severity"] == "info" and finding["cause"].startswith(
            "Not checked: no schema file of "
        )
        assert "every byte is verified (full)" in finding["cause"] and "streambank-inspect" not in str(
            finding
        )
    (summary,) = Repository.open(open_store(tmp_path / "savepoints")).manifests()
    assert (summary.verified_level, summary.verified_ok) == ("full", True)
    listed = streambank("list", "-r", tmp_path / "savepoints")
    assert "DAMAGED" not in listed.out


class Failing:
    """State that cannot be read, for what Spark says here."""

    def __init__(self, state: QueryState, message: str) -> None:
        self._state, self._message = state, message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def frame(self, part: object) -> object:
        raise PySparkException(self._message)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("says", "code", "severity"),
    [
        ("java.io.IOException: No space left on device", "state-not-checked", "warning"),
        ("java.lang.OutOfMemoryError: Java heap space", "state-not-checked", "warning"),
        (
            "[STDS_FAILED_TO_READ_STATE_SCHEMA] options: StateSourceOptions({folder}, batchId=7)",
            "state-not-checked",
            "info",
        ),
        (
            "[STDS_NO_PARTITION_DISCOVERED_IN_STATE_STORE] options: StateSourceOptions({folder}, batchId=7)",
            "state-unreadable",
            "error",
        ),
        ("[STDS_FAILED_TO_READ_OPERATOR_METADATA] for {folder}", "state-unreadable", "error"),
        ("Error reading delta file file:{folder}/state/0/0/8.delta", "state-unreadable", "error"),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred", "state-unreadable", "error"),
    ],
)
def test_only_what_a_query_would_stumble_over_is_damage(
    says: str, code: str, severity: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streambank_spark.state import verify as deep
    from streambank_spark.state.staging import Staging

    checkpoint = unpack("4.3.0/hdfs-window", tmp_path) / "checkpoint"
    repository = saved(checkpoint, tmp_path / "savepoints")
    (summary,) = repository.manifests()

    def failing(session: SparkSession, location: str) -> Any:
        state = QueryState(session, location)
        return Failing(state, says.format(folder=state.location.removeprefix("file://")))

    monkeypatch.setattr(deep, "QueryState", failing)
    staging = Staging("local[2]", None, lambda _: None)
    (finding,) = deep.look_deep(spark, repository, summary.job, summary.savepoint, staging)
    assert (finding.code, finding.severity) == (code, severity)
    assert ("Nothing speaks against the state" in finding.effect) == (severity == "info")
    assert "streambank-inspect" not in finding.cause and "Options" not in finding.cause


def _version(path: Path) -> int:
    return int(path.stem)


@pytest.mark.parametrize(
    ("severity", "ok", "restorable"),
    [("info", True, True), ("warning", False, True), ("error", False, False)],
)
def test_only_damage_takes_a_savepoint_its_place(
    severity: Severity, ok: bool, restorable: bool, tmp_path: Path
) -> None:
    from streambank.savepoint.verify import verify as engine

    checkpoint = unpack("4.3.0/hdfs-dedup", tmp_path) / "checkpoint"
    repository = saved(checkpoint, tmp_path / "savepoints")
    (summary,) = repository.manifests()

    def deeper(job: str, savepoint: str) -> list[Finding]:
        return [Finding("state-not-checked", severity, "state/0", "It was not checked.", "None.", "None.")]

    report = engine(repository, summary.job, summary.savepoint, "full", deeper=deeper)
    assert (report.level, report.ok, report.restorable) == ("full", ok, restorable)
    (summary,) = repository.manifests()
    assert (summary.verified_level, summary.verified_ok) == ("full", restorable)
    assert len(newest_good(repository.store, summary.job, 1)) == int(restorable)


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
