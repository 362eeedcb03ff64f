"""Whether the input of a savepoint can be read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streambank.checkpoint import files
from streambank.checkpoint.files import CheckpointFiles
from streambank.core.finding import Finding
from streambank.doctor.checks.sources import check_application, check_kafka, check_replay
from streambank.inputs.files import MOST_FILES
from streambank.kafka.broker import TopicRetention
from streambank.repository.manifest import Manifest
from tests.support.checkpoint.doctor_inputs import found, planned, skipped
from tests.support.checkpoint.recorded import Checkpoint, checkpoint
from tests.support.kafka.fake_broker import FakeBroker
from tests.support.sla.progress_records import at

NAME = "4.3.0/hdfs-window"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('s.readStream.option("cleanSource", "delete").load("in")', "line 1: 'delete'"),
        ('\ns.options(cleanSource="archive", maxFilesPerTrigger=1)', "line 2: 'archive'"),
        ('o = {"CLEANSOURCE": how}', "line 1: 'how'"),
        ('s.option("cleanSource", "off")', None),
        ('s.option("maxFilesPerTrigger", "1")  # cleanSource', None),
    ],
)
def test_clean_source_in_an_application(tmp_path: Path, text: str, said: str | None) -> None:
    application = tmp_path / "app.py"
    application.write_text(text)
    finding = found(check_application(application)).get("clean-source")
    assert (finding is not None) == (said is not None)
    if finding is not None and said is not None:
        line, _, value = said.partition(": ")
        assert finding.file == f"{application}, {line}" and f"to {value}" in finding.cause


def test_an_application_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def (")
    for name in ("app.py", "nowhere.py"):
        (told,) = skipped(check_application(tmp_path / name))
        assert "cleanSource" in told.what and name in told.why


def saved(offset: str) -> Manifest:
    """A savepoint that had read so far."""
    return Manifest(
        savepoint="b000003-0123456789ab",
        job="orders",
        query_id="q",
        batch=3,
        taken_at=at(0),
        sources=({"source": "0", "kind": "file", "offset": offset, "files": []},),
    )


def test_files_that_were_read_after_the_oldest_savepoint_are_looked_for() -> None:
    closure, planner = planned(NAME)
    asked: list[str] = []

    def exists(uri: str) -> bool:
        asked.append(uri)
        return uri != asked[0]

    last = json.loads(closure.sources[0].offset or "")["logOffset"]
    finding = found(check_replay(closure, planner, saved(f'{{"logOffset":{last - 3}}}'), exists))[
        "source-files-gone"
    ]
    assert len(asked) == 3 and asked[0] in finding.cause
    assert (
        "Of 3 files (of 3) that were read after the oldest savepoint, b000003-0123456789ab, 1"
        in finding.cause
    )
    assert not [*check_replay(closure, planner, saved(f'{{"logOffset":{last}}}'), exists)]
    assert not [*check_replay(closure, planner, saved(str(last)), exists)], "as Spark 2.0 wrote it"
    assert not [*check_replay(closure, planner, None, lambda uri: True)]
    finding = found(check_replay(closure, planner, None, lambda uri: False))["source-files-gone"]
    assert "after batch 0, the oldest that is retained," in finding.cause


def test_of_many_files_some_are_looked_for() -> None:
    entries = [{"path": f"file:///in/{number}.json", "timestamp": 1, "batchId": 2} for number in range(500)]
    log = "\n".join(["v1", *map(json.dumps, entries)]).encode()
    closure, _ = planned(NAME)
    (path, *_) = closure.sources[0].files
    closure, planner = planned(checkpoint(NAME).having({path: log}))
    asked: list[str] = []

    def exists(uri: str) -> bool:
        asked.append(uri)
        return True

    found(check_replay(closure, planner, None, exists))
    assert len(asked) == MOST_FILES


def test_a_log_of_millions_of_files_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what must be small has a limit: such a log has several hundred MB."""
    monkeypatch.setattr(CheckpointFiles.read, "__defaults__", (1000,))
    monkeypatch.setattr(files, "_CHUNK_BYTES", 64)
    entries = [{"path": f"file:///in/{number}.json", "timestamp": 1, "batchId": 2} for number in range(500)]
    log = "\n".join(["v1", *map(json.dumps, entries)]).encode()
    (path, *_) = planned(NAME)[0].sources[0].files
    closure, planner = planned(checkpoint(NAME).having({path: log}))
    finding = found(check_replay(closure, planner, None, lambda uri: False))["source-files-gone"]
    assert f"(of {500 + len(closure.sources[0].files) - 1})" in finding.cause


def test_real_files_are_found_by_the_paths_that_spark_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "a.json").touch()
    there = f"{tmp_path.as_uri()}/with%20space/a.json"

    def log(*paths: str) -> Checkpoint:
        lines = [json.dumps({"path": path, "timestamp": 1, "batchId": 5}) for path in paths]
        (path, *_) = closure.sources[0].files
        return checkpoint(NAME).having(
            {one: b"v1" for one in closure.sources[0].files} | {path: "\n".join(["v1", *lines]).encode()}
        )

    closure, _ = planned(NAME)
    assert not [*check_replay(*planned(log(there)), None)]
    (told,) = skipped(check_replay(*planned(log(f"{tmp_path.as_uri()}/{'9' * 5000}")), None))
    assert "File name too long" in told.why and len(told.why) < 200
    gone = there.replace("a.json", "b.json")
    assert gone in found(check_replay(*planned(log(there, gone)), None))["source-files-gone"].cause


@pytest.mark.parametrize("changed", [False, True])
def test_a_file_that_was_changed_since_it_was_read_is_named(tmp_path: Path, changed: bool) -> None:
    (tmp_path / "a.json").write_text("{}")
    written = int((tmp_path / "a.json").stat().st_mtime * 1000)
    entry = {"path": f"{tmp_path.as_uri()}/a.json", "timestamp": written - 1000 * changed, "batchId": 5}
    closure, _ = planned(NAME)
    (path, *_) = closure.sources[0].files
    log = {one: b"v1" for one in closure.sources[0].files} | {path: f"v1\n{json.dumps(entry)}".encode()}
    results = [*check_replay(*planned(checkpoint(NAME).having(log)), None)]
    if changed:
        (finding,) = results
        assert isinstance(finding, Finding) and finding.code == "source-files-changed"
        assert f"1 was changed since, such as {tmp_path.as_uri()}/a.json" in finding.cause
    else:
        assert results == []


NOW = datetime(2026, 11, 22, tzinfo=UTC)


def reading(offset: str) -> Manifest:
    source = {"source": "0", "offset": offset, "kafka": {"bootstrap": "a:1"}}
    return Manifest(savepoint="b1", job="orders", query_id="q", batch=1, taken_at=NOW, sources=(source,))


def test_kafka_is_asked_whether_it_keeps_records_as_long_as_savepoints() -> None:
    oldest, hour_ms = reading('{"orders":{"0":17}}'), 3_600_000
    broker = FakeBroker()
    broker.put("orders", (0, 40))
    broker.kept["orders"] = TopicRetention("delete", hour_ms, None)
    broker.times_ms["orders", 0] = {17: int(NOW.timestamp() * 1000) - hour_ms // 2}
    assert not [*check_kafka(oldest, broker.brokers(), NOW)]
    assert not [*check_kafka(None, broker.brokers(), NOW)]
    later = NOW + timedelta(hours=1)
    assert "source-retention-short" in found(check_kafka(oldest, broker.brokers(), later))
    broker.earliest["orders", 0] = 20
    told = found(check_kafka(oldest, broker.brokers(), NOW))["source-records-gone"]
    assert "orders/0 from 17 to 20, 3 records" in told.cause
    broker.down = True
    (one,) = skipped(check_kafka(oldest, broker.brokers(), NOW))
    assert one.why == "Kafka is down."


def test_other_sources_are_not_asked_of_kafka() -> None:
    assert not [*check_replay(*planned("4.3.0/stateless-rate"), None)], "a rate source has nothing to keep"
    assert not [*check_kafka(reading('{"logOffset":4}'), FakeBroker(down=True).brokers(), NOW)]
