"""The flights in a topic of a real broker: each once, in order, through its death; and read from there."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from demo.jars.kafka import spark_settings
from demo.stack import topics
from spark_jobs.flights import expected, replay
from tests.support.drivers.real_driver import CONF, Job
from tests.support.kafka.real_broker import Kafka, running
from tests.support.paths import ROOT
from tests.support.waiting import poll, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def year() -> list[dict[str, Any]]:
    """All departures, read and sorted once."""
    return replay.departures(replay.data_dir())


@pytest.fixture
def flights(year: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return year[:3000]


def made(kafka: Kafka, topic: str) -> str:
    """A topic as `make stack` makes it, where records of 2013 stay."""
    kafka.create(topic, topics.PARTITIONS)
    return topic


def as_text(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(
        json.dumps(one, sort_keys=True, default=lambda at: f"{at:%Y-%m-%dT%H:%M:%SZ}") for one in records
    )


def test_topics_are_made_once_and_found_the_second_time(
    kafka: Kafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert topics.main([kafka.bootstrap, "one", "two"]) == 0
        assert capsys.readouterr().out.splitlines() == ["Topic one is there", "Topic two is there"]
    assert set(kafka.ends("one")) == set(range(topics.PARTITIONS))
    monkeypatch.setattr(topics, "ASK_TIMEOUT_S", 1.0)
    assert topics.main(["127.0.0.1:9", "one", "--within", "0"]) == 1
    assert "Topic one could not be made at 127.0.0.1:9: " in capsys.readouterr().err


def test_each_departure_comes_once_and_no_partition_gets_ahead_by_more_than_a_portion(
    kafka: Kafka, flights: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(kafka, "portions")
    waits: list[float] = []
    monkeypatch.setattr(replay, "_sleep_until", waits.append)
    confirmed: list[int] = []
    real = confluent_kafka.Producer

    class Watched(real):  # type: ignore[misc, valid-type]  # it has no types
        def flush(self, *within: float) -> Any:
            left = super().flush(*within)
            confirmed.append(sum(kafka.ends(topic).values()))
            return left

    monkeypatch.setattr(confluent_kafka, "Producer", Watched)
    assert replay.feed(flights, kafka.bootstrap, topic, rows_at_once=800, gap_ms=1) == 3000
    assert confirmed == [800, 1600, 2400, 3000], "the next portion went before the topic had this one"
    assert len(waits) == 3, "there is nothing to wait for after the last portion"
    assert as_text(list(expected.topic_rows(kafka.bootstrap, topic))) == as_text(flights)
    for partition in range(topics.PARTITIONS):
        times = [value["event_time"] for _, value in kafka.consume(topic)][: kafka.ends(topic)[0]]
        assert partition or times == sorted(times)


def test_who_goes_on_says_how_far_the_topic_was_fed_and_the_closing_record_is_the_last(
    kafka: Kafka,
    year: list[dict[str, Any]],
    flights: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = replay.departures
    monkeypatch.setattr(replay, "departures", lambda at: year if at == replay.data_dir() else read(at))
    topic = made(kafka, "skipped")
    where = ["--kafka", kafka.bootstrap, "--topic", topic, "--gap-ms", "0"]
    for words, written in (
        (["--limit", "1000"], 1000),
        (["--skip", "1000", "--limit", "1500"], 500),
        (["--skip", "1500", "--limit", "1500"], 0),
        (["--limit", "1500", "--closing-only"], 1),
    ):
        assert replay.main([*where, *words]) == 0
        assert json.loads(capsys.readouterr().out) == {"written": written}
    closing = replay.closing_record(flights[1499]["event_time"])
    rows = list(expected.topic_rows(kafka.bootstrap, topic))
    assert as_text(rows) == as_text([*flights[:1500], closing])
    assert replay.main([*where, "--limit", "10", "--data", "nowhere"]) == 2


def test_a_broker_that_is_killed_while_it_is_fed_has_each_departure_once(
    kafka: Kafka, flights: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = confluent_kafka.Producer

    class ComesBackSoon(real):  # type: ignore[misc, valid-type]  # it has no types
        def __init__(self, settings: dict[str, str]) -> None:
            super().__init__({**settings, "reconnect.backoff.max.ms": "500"})

    monkeypatch.setattr(confluent_kafka, "Producer", ComesBackSoon)
    topic = made(kafka, "killed")
    feeding = threading.Thread(
        target=replay.feed,
        args=(flights, kafka.bootstrap, topic),
        kwargs={"rows_at_once": 100, "gap_ms": 100},
    )
    feeding.start()
    poll(lambda: sum(kafka.ends(topic).values()) >= 300, timeout_s=60)
    kafka.kill()
    alive = feeding.is_alive()
    kafka.start()
    assert alive and sum(kafka.ends(topic).values()) < 3000, "it was killed when all had come"
    feeding.join(300)
    assert not feeding.is_alive()
    assert as_text(list(expected.topic_rows(kafka.bootstrap, topic))) == as_text(flights)


def test_records_that_kafka_gives_up_are_an_error(
    flights: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class GivesUp:
        def __init__(self, settings: dict[str, str]) -> None:
            self.calls = 0

        def produce(self, topic: str, value: bytes, key: bytes | None, on_delivery: Any) -> None:
            self.calls += 1
            on_delivery("the message timed out" if self.calls == 3 else None, None)

        def poll(self, timeout: float) -> None: ...

        def flush(self, timeout: float) -> int:
            return 0  # what was given up does not wait any more

    monkeypatch.setattr(confluent_kafka, "Producer", GivesUp)
    with pytest.raises(OSError, match="1 of 10 records did not reach t at h:1: the message timed out"):
        replay.feed(flights[:10], "h:1", "t")


def test_what_is_due_is_computed_from_the_topic(
    kafka: Kafka, flights: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(kafka, "judged")
    closing = replay.closing_record(flights[499]["event_time"])
    replay.feed([*flights[:500], closing], kafka.bootstrap, topic)
    words = ["--kafka", kafka.bootstrap, "--topic", topic, "--output", str(tmp_path / "none")]
    assert expected.main(["hourly_delays", *words, "--watermark-hours", "144"]) == 1
    told = json.loads(capsys.readouterr().out)
    replay.replay(flights[:500], tmp_path / "in", gap_ms=0)
    from_files = expected.hourly_delays(expected.input_rows(tmp_path / "in"), timedelta(hours=144))
    assert told["expected"] == told["missing"] == len(from_files) > 20
    words[3] = "not-there"
    assert expected.main(["hourly_delays", *words]) == 2
    assert f"not-there at {kafka.bootstrap} cannot be read" in capsys.readouterr().err
    for application, more in (("flight_history", words), ("hourly_delays", words[:2] + words[4:])):
        with pytest.raises(SystemExit):
            expected.main([application, *more])


# In the storms: `make test-stack` runs this application whole on a topic, through a disaster.
def test_hourly_delays_reads_a_topic(kafka: Kafka, flights: list[dict[str, Any]], tmp_path: Path) -> None:
    topic, output = made(kafka, "streamed"), tmp_path / "out"
    replay.feed(flights, kafka.bootstrap, topic, rows_at_once=500)
    job = Job(tmp_path, name="hourly_delays", conf={**CONF, **spark_settings()})
    words = ["--kafka", kafka.bootstrap, "--topic", topic, "--records-per-trigger", "1000"]
    words += ["--output", str(output), "--watermark", "24 hours", "--trigger", "200 milliseconds"]
    with job.driver(ROOT / "spark_jobs/flights/hourly_delays.py", *words) as driver:
        driver.wait_committed(2)
        closing = replay.closing_record(flights[-1]["event_time"])
        replay.feed([closing], kafka.bootstrap, topic)

        def compared() -> expected.Comparison | None:
            rows = expected.topic_rows(kafka.bootstrap, topic)
            found = expected.check("hourly_delays", rows, output, watermark_delay=timedelta(hours=24))
            return found if found.equal or found.surplus_count else None

        assert wait_for("all rows", compared).equal
        driver.control.requests.post("stop", epoch=driver.epoch, by={"user": "me"})
        assert driver.wait() == 0, driver.tail()
        facts = driver.control.query_facts()
        assert facts is not None and facts["kafka"]["sources"][0]["subscribe"] == topic
