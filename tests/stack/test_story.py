"""The stack's story: what it lets come, whom it kills, when it believes that the job goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demo import processes
from demo.job import CommittedBatch, FlightsJob, WaitedTooLongError
from demo.places import ROOT
from demo.screen import Screen
from demo.stack import story
from demo.stack.addresses import WORKERS, choose
from demo.stack.places import FLIGHTS_TOPIC, StackPlaces
from demo.stack.story import A_CHAPTER, ALL, AT_FIRST, StackStory
from demo.story import Story
from streambank.core.errors import StorageError
from streambank.kafka.broker import TopicRetention
from streambank.kafka.settings import KafkaConnection
from tests.support.kafka.fake_broker import FakeBroker

LOOKS = 5


@dataclass
class FakeAirflow:
    """Remembers what was triggered; every run succeeds."""

    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        self.asked.append((dag_id, dict(conf or {})))
        return f"run {len(self.asked)}"

    def wait(self, dag_id: str, run_id: str, **how: Any) -> None:
        self.waited.append(run_id)


@dataclass
class Told:
    """A story with nothing behind it but a broker in memory, and the parts' processes as a test says.

    Attributes:
        story: The story.
        airflow: Its Airflow.
        broker: Its Kafka.
        commits: The newest committed batch; each look takes the next one, and the last one stays.
        read: How far the job has read, in the same way; an error is raised.
    """

    story: StackStory
    airflow: FakeAirflow
    broker: FakeBroker
    commits: list[int]
    read: list[dict[tuple[str, int], int] | Exception]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    airflow, broker, commits = FakeAirflow(), FakeBroker(), [3]
    read: list[dict[tuple[str, int], int] | Exception] = []
    stack: Any = SimpleNamespace(
        addresses=choose({}), part=lambda name: SimpleNamespace(ready=f"tcp://{name}:1")
    )
    monkeypatch.setattr(story, "connect", lambda *where: broker)
    monkeypatch.setattr(story, "Brokers", lambda connection: broker.brokers(connection))
    monkeypatch.setattr("demo.stack.story.time.sleep", lambda seconds: None)

    def next_of(values: list[Any]) -> Any:
        found = values.pop(0) if len(values) > 1 else values[0]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(
        FlightsJob, "last_commit", lambda self: CommittedBatch(next_of(commits), datetime.now(UTC))
    )
    monkeypatch.setattr(FlightsJob, "read_until", lambda self: next_of(read))
    client: Any = airflow
    made = StackStory(StackPlaces(tmp_path), client, Screen(), patience=story.PATIENCE, stack=stack)
    yield Told(made, airflow, broker, commits, read)


def impatient(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    """Time runs away from whoever waits in vain; who looks for the first few times is in time."""
    clock = iter(range(10_000))
    monkeypatch.setattr("demo.stack.story.time.monotonic", lambda: max(0, next(clock) - LOOKS) * 1e6)
    told.story.patience = 1.0


def test_flights_come_one_after_the_other_and_there_are_enough_for_every_chapter(told: Told) -> None:
    first = told.story.replay_conf(story.ROWS_AT_ONCE, story.GAP_MS)
    for _ in range(2 + len(story.KILLED)):
        told.story.let_flights_come()
    rest = told.story.fed
    told.story.let_flights_come(ALL, gap_ms=0)
    confs = [first, *(conf for _, conf in told.airflow.asked)]
    assert [conf["skip"] for conf in confs[1:]] == [conf["limit"] for conf in confs[:-1]]
    assert confs[0]["skip"] == 0 and confs[-1]["limit"] == ALL
    assert rest < ALL, "nothing is left to come after the restore"
    assert all(
        (conf["kafka"], conf["topic"]) == (told.story.stack.addresses.kafka, FLIGHTS_TOPIC) for conf in confs
    )
    # A batch takes so many at most, and a chapter waits for so many batches: it must never wait in vain.
    batches = -(-A_CHAPTER // story.RECORDS_PER_BATCH)
    assert batches > max(story.SECOND_SAVEPOINT_AFTER, story.DISASTER_AFTER)
    assert AT_FIRST // story.RECORDS_PER_BATCH > story.FIRST_SAVEPOINT_AT + 1


def test_the_worker_that_is_killed_is_not_the_one_with_the_driver(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = SimpleNamespace(pid=os.getpid())
    monkeypatch.setattr(FlightsJob, "driver", lambda self: (driver,))
    for mine in range(1, WORKERS + 1):
        services = {f"spark-worker-{number}": 10**9 + number for number in range(1, WORKERS + 1)}
        services[f"spark-worker-{mine}"] = os.getppid()
        monkeypatch.setattr(
            "demo.stack.story.keeper.read_state", lambda places, now=services: SimpleNamespace(services=now)
        )
        victim, holder = told.story._victim(story.A_WORKER)
        assert holder == f"spark-worker-{mine}" and victim in services and victim != holder
    assert told.story._victim("s3") == ("s3", "")


def test_a_driver_that_is_on_no_worker_ends_the_story(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlightsJob, "driver", lambda self: (SimpleNamespace(pid=os.getpid()),))
    monkeypatch.setattr("demo.stack.story.keeper.read_state", lambda places: SimpleNamespace(services={}))
    impatient(monkeypatch, told)
    with pytest.raises(WaitedTooLongError, match="no worker runs the driver: it is not on the cluster"):
        told.story._victim(story.A_WORKER)


def test_the_job_goes_on_when_it_has_read_all_that_came(told: Told) -> None:
    told.broker.put(FLIGHTS_TOPIC, (0, 50), (0, 70))
    told.story.run_of_replay = "run 7"
    half, whole = {(FLIGHTS_TOPIC, 0): 50}, {(FLIGHTS_TOPIC, 0): 50, (FLIGHTS_TOPIC, 1): 70}
    away = StorageError("Nobody answers.", code="unreachable", hint="Wait.")
    told.read[:] = [{}, away, half, {**whole, (FLIGHTS_TOPIC, 1): 69}, whole]
    assert told.story._until_all_is_read("after the test") == 3
    assert told.airflow.waited == ["run 7"] and told.read == [whole], "a fault did not fire"


def test_a_job_that_does_not_go_on_is_told_with_what_it_lacks(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.broker.put(FLIGHTS_TOPIC, (0, 50))
    told.read[:] = [{(FLIGHTS_TOPIC, 0): 49}]
    impatient(monkeypatch, told)
    with pytest.raises(WaitedTooLongError) as caught:
        told.story._until_all_is_read("after kafka was brought back")
    assert "the job does not go on after kafka was brought back" in str(caught.value)
    assert "read up to [(('flights', 0), 49)] of [(('flights', 0), 50)]" in str(caught.value)


def killed(told: Told, monkeypatch: pytest.MonkeyPatch, commits: list[int]) -> list[tuple[int, int]]:
    """Let Kafka be killed, with batches committed as told; who got which signal."""
    sent: list[tuple[int, int]] = []
    told.broker.put(FLIGHTS_TOPIC, (0, 50))
    told.read[:] = [{(FLIGHTS_TOPIC, 0): 50}]
    told.commits[:] = commits
    states = [
        SimpleNamespace(services={"kafka": 4711}, again={}),
        SimpleNamespace(services={}, again={}),
        SimpleNamespace(services={"kafka": 4712}, again={"kafka": 1}),
    ]
    monkeypatch.setattr(
        "demo.stack.story.keeper.read_state", lambda places: states.pop(0) if len(states) > 1 else states[0]
    )
    monkeypatch.setattr(story, "is_ready", lambda check: True)
    monkeypatch.setattr(processes, "look_at", lambda pid: SimpleNamespace(pid=pid))
    monkeypatch.setattr("demo.stack.story.os.kill", lambda pid, number: sent.append((pid, number)))
    told.story.kill_and_bring_back("kafka")
    return sent


def test_a_part_is_killed_in_the_middle_and_the_fault_is_in_the_report(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert killed(told, monkeypatch, [3, 3, 4, 6]) == [(4711, 9)]
    (fault,) = told.story.report.faults
    assert (fault.part, fault.batch) == ("kafka", 6)
    assert [dag for dag, _ in told.airflow.asked] == ["flights.replay"], "flights came meanwhile"


def test_a_fault_that_came_too_late_proves_nothing(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WaitedTooLongError, match="all flights were read before kafka was killed"):
        killed(told, monkeypatch, [3, 4])
    assert not told.story.report.faults


def manifest(told: Told, not_asked: str | None = None) -> Any:
    partitions = {"0": {"next": 30}, "1": {"next": 40}}
    kafka = {
        "bootstrap": told.story.stack.addresses.kafka,
        "not_asked": not_asked,
        "topics": {FLIGHTS_TOPIC: {"topic_id": "one", "partitions": partitions}},
    }
    offset = f'{{"{FLIGHTS_TOPIC}":{{"0":30,"1":40}}}}'
    return SimpleNamespace(
        savepoint="b000004-c28c", sources=({"source": "0", "offset": offset, "kafka": kafka},)
    )


def gone(told: Told) -> Any:
    told.broker.earliest[FLIGHTS_TOPIC, 0] = 31
    return manifest(told)


def not_asked(told: Told) -> Any:
    return manifest(told, "Kafka was away.")


def of_files(told: Told) -> Any:
    return SimpleNamespace(savepoint="b000004-c28c", sources=({"source": "0", "offset": '{"logOffset":3}'},))


def test_a_savepoint_says_how_far_it_has_read_and_how_long_it_can_be_replayed(told: Told) -> None:
    told.broker.put(FLIGHTS_TOPIC, (0, 50), (0, 70), topic_id="one")
    told.broker.kept[FLIGHTS_TOPIC] = TopicRetention("delete", None, None)
    assert told.story.source_of(manifest(told)) == (
        "it has read flights/0 up to 30, flights/1 up to 40; what follows can be replayed for ever"
    )


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (gone, "cannot be replayed from flights: Source 0 can no longer read"),
        (not_asked, "cannot be replayed from flights: Kafka was away"),
        (of_files, "has no offsets of a topic"),
    ],
)
def test_a_savepoint_that_cannot_be_replayed_ends_the_story(
    told: Told, spoiled: Callable[[Told], Any], said: str
) -> None:
    told.broker.put(FLIGHTS_TOPIC, (0, 50), (0, 70), topic_id="one")
    told.broker.kept[FLIGHTS_TOPIC] = TopicRetention("delete", None, None)
    with pytest.raises(WaitedTooLongError, match=said):
        told.story.source_of(spoiled(told))


def test_a_plan_that_says_nothing_of_the_topic_ends_the_story(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Story, "restore", lambda self: None)
    with pytest.raises(WaitedTooLongError, match="the restore's plan does not mention the topic"):
        told.story.restore()
    told.story.report.source_effect = "Kafka has everything after the savepoint: 7 records to read."
    told.story.restore()


def test_the_closing_record_comes_when_all_else_has_been_read_and_the_topic_is_what_is_compared(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def all_is_read(self: StackStory, when: str) -> int:
        order.append(self.run_of_replay)
        return 9

    monkeypatch.setattr(StackStory, "_until_all_is_read", all_is_read)
    monkeypatch.setattr(Story, "to_the_end", lambda self: order.append(self.run_of_replay))
    told.story.to_the_end()
    (_, rest), (_, closing) = told.airflow.asked
    assert order == ["run 1", "run 2"]
    assert rest["limit"] == ALL and "closing_only" not in rest
    assert closing["closing_only"] and closing["topic"] == FLIGHTS_TOPIC
    command = told.story.judging_command(5)
    assert command[1:3] == [str(ROOT / "spark_jobs/flights/expected.py"), "hourly_delays"]
    assert command[3:7] == ["--kafka", told.story.stack.addresses.kafka, "--topic", FLIGHTS_TOPIC]
    assert KafkaConnection(command[4]).bootstrap == told.story.stack.addresses.kafka
