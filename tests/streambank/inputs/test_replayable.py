"""How long the input after the newest savepoint can be read again, of every kind of source."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.units import utc_now
from streambank.inputs.replayable import Replayable, look_at_replayable, replayable_effect
from streambank.kafka.retention import KafkaReplay
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.kafka.fake_broker import SERVERS, FakeBroker
from tests.support.repository.repositories import manifest_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
KAFKA = {
    "source": "0",
    "kind": "initial",
    "offset": '{"flights":{"0":10}}',
    "kafka": {"bootstrap": SERVERS, "subscribe": "flights"},
}
FILES = {"source": "1", "kind": "file", "offset": '{"logOffset": 1}'}


def looked(tmp_path: Path, broker: FakeBroker, *sources: dict[str, Any], text: str = "") -> Replayable:
    application = tmp_path / "flights.py"
    application.write_text(text)
    repository = Repository.open(open_store(str(tmp_path / "repository")), create=True)
    live = open_store(f"memory://{uuid.uuid4().hex}")
    for batch in (0, 1):
        live.write(f"sources/1/{batch}", b"v1")
    live.write("sources/1/2", f'v1\n{{"path":"{tmp_path.as_uri()}/a","timestamp":1,"batchId":2}}'.encode())
    manifest = manifest_of(sources=sources)
    return look_at_replayable(repository, manifest, broker.brokers(), live.uri, str(application))


@pytest.fixture
def broker() -> FakeBroker:
    fake = FakeBroker()
    fake.put("flights", (0, 30))
    fake.times_ms = {("flights", 0): {10: 4_000_000_000_000}}
    return fake


def test_each_source_is_asked(tmp_path: Path, broker: FakeBroker) -> None:
    (tmp_path / "a").touch()
    found = looked(tmp_path, broker, FILES, KAFKA)
    assert [(one.source, one.state) for one in found.sources] == [("1", "for-ever"), ("0", "until")]
    assert found.savepoint
    (tmp_path / "a").unlink()
    assert looked(tmp_path, broker, FILES, KAFKA).sources[0].state == "gone"


def test_brokers_that_are_away_leave_it_unknown(tmp_path: Path, broker: FakeBroker) -> None:
    broker.down = True
    (kafka,) = looked(tmp_path, broker, KAFKA).sources
    assert (kafka.state, kafka.why) == ("not-known", "Kafka is down.")


def test_clean_source_takes_files_away_at_any_moment(tmp_path: Path, broker: FakeBroker) -> None:
    (tmp_path / "a").touch()
    (files,) = looked(tmp_path, broker, FILES, text="option('cleanSource', 'delete')").sources
    assert files.until is not None and files.until <= utc_now()


@pytest.mark.parametrize(
    ("source", "state"),
    [
        ({"kind": "none", "offset": "64", "format": "socket"}, "gone"),
        ({"kind": "initial", "offset": "15"}, "for-ever"),
        ({"kind": "initial", "offset": "15", "format": "rate"}, "for-ever"),
        ({"kind": "none", "offset": '{"offset":1,"timestamp":2}', "format": "rate-micro-batch"}, "for-ever"),
        ({"kind": "none", "offset": '{"reservoirVersion":3}', "format": "delta"}, "not-known"),
        ({"kind": "none", "offset": None}, "not-known"),
        ({"kind": "initial", "offset": None}, "not-known"),
    ],
)
def test_other_sources(tmp_path: Path, broker: FakeBroker, source: dict[str, Any], state: str) -> None:
    (found,) = looked(tmp_path, broker, {"source": "0", **source}).sources
    assert found.state == state and found.why
    assert broker.asked == 0


def test_what_a_plan_says() -> None:
    soon = KafkaReplay("0", ("flights",), "until", NOW + timedelta(hours=11), "retention.ms")
    ever, gone = KafkaReplay("1", (), "for-ever", None, ""), KafkaReplay("2", (), "gone", None, "It is gone.")
    away = KafkaReplay("3", (), "not-known", None, "Kafka is down.")
    assert replayable_effect((), NOW) == ""
    assert replayable_effect((ever,), NOW) == "Nothing limits how long the input can be read again."
    assert replayable_effect((ever, soon), NOW) == (
        "The input can be read again until 2026-11-22T11:00:00.000Z, for 11 h."
    )
    assert replayable_effect((soon, ever, away), NOW).endswith(
        "for 11 h. It is not known how long source 3 keeps its input: Kafka is down."
    )
    assert replayable_effect((soon,), NOW + timedelta(days=1)) == "The input may be deleted at any moment."
    assert replayable_effect((gone,), NOW, "It is gone. This is accepted.") == ""
    assert replayable_effect((away,), NOW, "Kafka is down.") == (
        "It is not known how long source 3 keeps its input."
    )
    assert replayable_effect((soon, gone), NOW) == (
        "Source 2 no longer has all of the input after the savepoint."
    )
