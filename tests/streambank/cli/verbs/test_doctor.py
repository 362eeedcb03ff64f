"""What doctor says about installations that this machine does not have, and about checkpoints in trouble."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
from datetime import timedelta
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from streambank.core.finding import Finding
from streambank.core.units import utc_now
from streambank.doctor.checks import installation, locations
from streambank.doctor.checks.checkpoint import check_beginning, check_sink
from streambank.savepoint.plan import Budget
from streambank.storage import open_store
from tests.support.checkpoint.doctor_inputs import check_checkpoint
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint, add_debris
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed


def codes(found: object) -> list[str]:
    assert hasattr(found, "__iter__")
    return [finding.code for finding in found if isinstance(finding, Finding)]


def package(folder: Path, name: str, version: str, files: dict[str, str]) -> Distribution:
    """An installed package with a record of its files."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    rows = []
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}\n")
    (info / "RECORD").write_text("".join(rows))
    return PathDistribution(info)


def test_a_clean_pyspark_is_nothing_to_report(tmp_path: Path) -> None:
    pyspark = package(tmp_path, "pyspark", "4.3.0", {"pyspark/version.py": "4.3.0", "pyspark/x.jar": ""})
    assert codes(installation.check_spark(pyspark, None)) == []


def test_a_pyspark_under_a_pyspark_client_is_named(tmp_path: Path) -> None:
    pyspark = package(tmp_path, "pyspark", "4.3.0", {"pyspark/version.py": "4.3.0", "pyspark/sql.py": "1"})
    client = package(tmp_path, "pyspark-client", "4.2.0", {"pyspark/version.py": "4.2.0"})
    (finding,) = installation.check_spark(pyspark, client)
    assert (finding.code, finding.severity) == ("mixed-pyspark", "warning")
    assert "pyspark/version.py" in finding.cause and "pyspark-client 4.2.0" in finding.cause
    assert "--force-reinstall --no-deps pyspark==4.3.0" in finding.hint


def test_a_pyspark_whose_files_went_with_the_client_is_named_too(tmp_path: Path) -> None:
    pyspark = package(tmp_path, "pyspark", "4.3.0", {"pyspark/version.py": "4.3.0"})
    (tmp_path / "pyspark/version.py").unlink()
    assert codes(installation.check_spark(pyspark, None)) == ["mixed-pyspark"]


def test_no_pyspark_and_another_pyspark_are_warnings(tmp_path: Path) -> None:
    client = package(tmp_path, "pyspark-client", "4.2.0", {"pyspark/version.py": "4.2.0"})
    (nothing,) = installation.check_spark(None, client)
    assert (nothing.code, nothing.severity) == ("no-pyspark", "warning")
    assert "pyspark-client" in nothing.cause
    older = package(tmp_path, "pyspark", "4.0.1", {"pyspark/older.py": ""})
    (state,) = installation.check_spark(older, None)
    assert state.code == "other-spark" and "work on their state" in state.effect
    (tmp_path / "oldest").mkdir()
    oldest = package(tmp_path / "oldest", "pyspark", "3.4.4", {"pyspark/oldest.py": ""})
    (jobs,) = installation.check_spark(oldest, None)
    assert jobs.code == "other-spark" and "cannot be started" in jobs.effect


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, ["no-java"]),
        ("1.8.0_392", ["old-java"]),
        ("11.0.22", ["old-java"]),
        ("17.0.15", []),
        ("21-ea", []),
    ],
)
def test_java_versions(version: str | None, expected: list[str]) -> None:
    assert codes(installation.check_java(version)) == expected


def test_the_java_that_is_asked_is_the_one_that_spark_would_start(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho "openjdk version \\"11.0.1\\" 2018" >&2\n')
    java.chmod(0o755)
    assert installation.java_version({"JAVA_HOME": str(tmp_path)}) == "11.0.1"
    assert installation.java_version({"PATH": str(java.parent)}) == "11.0.1"
    assert installation.java_version({"JAVA_HOME": str(tmp_path / "nothing")}) is None
    assert installation.java_version({"PATH": str(tmp_path)}) is None


def test_old_python_and_few_descriptors() -> None:
    assert codes(installation.check_python((3, 10))) == ["old-python"]
    assert codes(installation.check_python((3, 11))) == []
    assert codes(installation.check_descriptors(1024)) == ["few-descriptors"]
    assert codes(installation.check_descriptors(-1)) == []


def test_a_host_that_does_not_know_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_known(name: str, port: None) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    assert codes(installation.check_host_name("localhost")) == []
    assert codes(installation.check_host_name("::1")) == [], "an address of IPv6 alone will do"
    monkeypatch.setattr(socket, "getaddrinfo", not_known)
    (found,) = installation.check_host_name("no-such-host.invalid")
    assert (found.code, found.severity) == ("host-name-unknown", "error")
    assert "/etc/hosts" in found.hint and "Spark does not start" in found.effect
    followed = {"SPARK_LOCAL_IP": "127.0.0.1"}
    assert codes(installation.check_host_name("no-such-host.invalid", followed)) == []


def test_a_container_is_known_by_its_signs(tmp_path: Path) -> None:
    assert codes(installation.check_container({}, tmp_path)) == []
    assert codes(installation.check_container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)) == [
        "in-a-container"
    ]
    (tmp_path / ".dockerenv").touch()
    (finding,) = installation.check_container({}, tmp_path)
    assert finding.severity == "info" and "ends with the container" in finding.effect


def test_the_command_says_versions_and_ends_with_1_only_where_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "check_installation", lambda: [])
    monkeypatch.setattr(locations, "check_unnamed", lambda temporary: [])
    fine = succeed("doctor")
    assert "No problems found." in fine.out and "pyspark-client  not installed" in fine.out
    wrong = list(installation.check_java(None))
    monkeypatch.setattr(installation, "check_installation", lambda: wrong)
    answer = streambank("doctor")
    assert answer.code == 1
    assert "warning: no-java java: No Java answers here." in answer.out
    assert "  hint: Install Java 17 or newer" in answer.out


def test_temporary_files_are_garbage_when_they_are_old(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    add_debris(live.store, 2)
    assert "old-temporary-files" not in codes(check_checkpoint(live.store))
    later = utc_now() + timedelta(hours=2)
    found = {finding.code: finding for finding in check_checkpoint(live.store, now=later)}
    assert found["old-temporary-files"].cause.startswith("2 temporary files (8 bytes)")
    assert "temporary-files" not in found


def test_too_few_retained_batches_are_named_with_the_setting_that_helps(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint"), retain=2).run(6)
    for number, path in enumerate(sorted((tmp_path / "checkpoint/commits").iterdir())):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    assert Budget.of({info.path: info for info in live.store.list()}).batch_period_s == 1.0
    found = {finding.code: finding for finding in check_checkpoint(live.store)}
    assert "minBatchesToRetain to 11" in found["short-retention"].hint
    for number, path in enumerate(sorted((tmp_path / "checkpoint/commits").iterdir())):
        os.utime(path, (1_700_000_000 + 60 * number, 1_700_000_000 + 60 * number))
    assert "short-retention" not in codes(check_checkpoint(live.store))


def test_a_sink_that_is_ahead_of_its_checkpoint_is_an_error(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    log = tmp_path / "out/_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_text("v1")
    sinks = {"out": open_store(tmp_path / "out")}
    assert "sink-ahead" not in codes(check_checkpoint(live.store, sinks))
    (log / "3").write_text("v1")
    found = {finding.code: finding for finding in check_checkpoint(live.store, sinks)}
    assert found["sink-ahead"].severity == "error" and "batch 3" in found["sink-ahead"].cause
    nothing = check_checkpoint(live.store, {"else": open_store(tmp_path / "else")})
    assert "no-sink-log" in codes(nothing)


@pytest.mark.parametrize(
    ("names", "gap"),
    [
        (("2", "3"), "_spark_metadata/1 is missing"),
        (("9.compact", "10", "12"), "_spark_metadata/11 is missing"),
        (("0", "1", "2"), None),
        (("8", "9.compact", "10"), None),
    ],
)
def test_a_sink_whose_log_has_a_gap_is_an_error(tmp_path: Path, names: tuple[str, ...], gap: str) -> None:
    log = tmp_path / "out/_spark_metadata"
    log.mkdir(parents=True)
    for name in names:
        (log / name).write_text("v1")
    planned = LiveCheckpoint(open_store(tmp_path / "checkpoint"))
    planned.next_batch = 12
    planned.plan()
    found = check_sink("out", open_store(tmp_path / "out"), planned.store)
    assert codes(found) == ([] if gap is None else ["sink-log-gap"])
    assert all(gap in finding.cause and "--new-sink" in finding.hint for finding in found)


LEFT = (
    "state/0/_metadata/metadata",
    "state/0/0/1.delta",
    "state/0/0/.1.delta.crc",
    "sources/0/0",
    "metadata",
)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (LEFT, ["unplanned-first-batch"]),
        (("state/0/0/1_aab1c2d3-0000-4000-8000-00000000000a.zip",), ["unplanned-first-batch"]),
        (("offsets/.0.aab1c2d3-0000-4000-8000-00000000000a.tmp",), ["unplanned-first-batch"]),
        ((*LEFT, "offsets/0"), []),
        (("metadata", "sources/0/0"), []),
        ((*LEFT, "commits/0"), ["offsets-lost"]),
        ((*LEFT, "state/0/1/2.delta"), ["offsets-lost"]),
        ((*LEFT, "sources/0/1"), ["offsets-lost"]),
        ((*LEFT, "sources/0/9.compact"), ["offsets-lost"]),
    ],
)
def test_files_of_a_batch_that_no_log_tells_of(paths: tuple[str, ...], expected: list[str]) -> None:
    found = list(check_beginning(paths))
    assert codes(found) == expected
    for finding in found:
        assert finding.severity == "error"
        assert ("Restore a savepoint" in finding.hint) == (finding.code == "offsets-lost")


def test_an_unplanned_first_batch_is_found_in_a_checkpoint(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(1)
    assert "unplanned-first-batch" not in codes(check_checkpoint(live.store))
    live.store.delete("commits/0")
    assert "unplanned-first-batch" not in codes(check_checkpoint(live.store))
    live.store.delete("offsets/0")
    found = {finding.code: finding for finding in check_checkpoint(live.store)}
    assert "move state out of the checkpoint" in found["unplanned-first-batch"].hint


def test_a_damaged_checkpoint_is_findings_and_not_a_crash(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    (tmp_path / "checkpoint/commits/2").write_text("v1\n{")
    (tmp_path / "checkpoint/metadata").write_text("")
    answer = streambank("doctor", tmp_path / "checkpoint", "--json")
    assert answer.code == 1
    assert {"error", "warning"} <= {finding["severity"] for finding in answer.document["findings"]}
    assert json.loads(answer.out)["ok"] is False
    assert streambank("doctor", tmp_path / "nowhere").code == 3


@pytest.mark.parametrize(
    ("name", "spark", "code"),
    [
        ("4.3.0/rocksdb-changelog-join3", "4.0", "checkpoint-of-another-spark"),
        ("4.3.0/rocksdb-changelog-join3", "4.1.4", "release-fits"),
        ("3.5.9/rocksdb-window", "4.3", "release-fits"),
    ],
)
def test_whether_a_query_could_change_to_another_spark(
    tmp_path: Path, name: str, spark: str, code: str
) -> None:
    checkpoint = unpack(name, tmp_path) / "checkpoint"
    found = streambank("doctor", checkpoint, "--spark", spark, "--json").document["findings"]
    (one,) = [each for each in found if each["code"] in ("checkpoint-of-another-spark", "release-fits")]
    assert one["code"] == code and f"Spark {spark[:3]}" in one["cause"]


def test_a_spark_that_nobody_knows_cannot_be_asked_about(tmp_path: Path) -> None:
    answer = streambank("doctor", tmp_path, "--spark", "9.9")
    assert answer.code == 2 and "9.9" in answer.err and "4.3" in answer.err
    assert "--spark needs a CHECKPOINT or --job" in streambank("doctor", "--spark", "4.3").err
