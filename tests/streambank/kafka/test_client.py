"""What the client makes of a cluster's answers: a right that is missing, time that runs out, bad settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from streambank.core.errors import InputError, StorageError
from streambank.kafka.broker import Patience
from streambank.kafka.client import ClientBroker, _Heard, connect
from streambank.kafka.settings import Brokers
from tests.support.kafka.fake_broker import FakeBroker
from tests.support.refuses import refuses

NOBODY = "127.0.0.1:1"


class Admin:
    """confluent-kafka's AdminClient with answers of ours: an error code is raised, None never comes."""

    def __init__(self, answers: Mapping[str, Any], waits: Callable[[], object] = list) -> None:
        self.answers = answers
        self.waits = waits
        self.asked = 0

    def poll(self, timeout_s: float) -> int:
        return 0

    def describe_topics(self, wanted: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {name: self._future(name) for name in wanted.topic_names}

    def describe_configs(self, wanted: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        return {one: self._future(one.name) for one in wanted}

    def list_offsets(self, wanted: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        return {spot: self._future(spot.topic) for spot in wanted}

    def _future(self, name: str) -> Future[Any]:
        self.asked += 1
        self.waits()
        future: Future[Any] = Future()
        answer = self.answers[name]
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        elif answer is not None:
            future.set_result(answer)
        return future


def described(most: int = 1, least: int = 2) -> Any:
    return SimpleNamespace(topic_id=Uuid(most, least), partitions=[SimpleNamespace(id=0)])


def client(admin: Admin, seconds: float = 0.5, **properties: str) -> ClientBroker:
    return ClientBroker(admin, {"bootstrap.servers": "a:1", **properties}, Patience(seconds), _Heard())


def test_a_topic_that_is_not_allowed_is_no_cluster_that_is_away() -> None:
    admin = Admin({"out": KafkaError.TOPIC_AUTHORIZATION_FAILED, "in": described()})
    broker = client(admin)
    with refuses(StorageError, "kafka-not-allowed", match="it needs the right DESCRIBE") as raised:
        broker.topics(["out"])
    assert "Grant DESCRIBE on out" in raised.value.hint
    assert broker.topics(["in"])["in"] is not None, "another topic is asked about all the same"


def test_settings_that_may_not_be_asked_for_keep_nothing_else_from_being_asked() -> None:
    broker = client(Admin({"in": KafkaError.TOPIC_AUTHORIZATION_FAILED}))
    with pytest.raises(StorageError, match=r"about in: it needs the right DESCRIBE_CONFIGS"):
        broker.retention(["in"])
    with pytest.raises(StorageError) as raised:
        broker.offsets([("in", 0)], "latest")
    assert raised.value.code == "kafka-not-allowed", "it was asked"


def test_an_error_of_one_question_is_no_error_of_the_next() -> None:
    answers: dict[str, Any] = {"in": KafkaError.LEADER_NOT_AVAILABLE}
    broker = client(Admin(answers))
    with refuses(StorageError, "kafka-not-reachable"):
        broker.topics(["in"])
    answers["in"] = described()
    assert broker.topics(["in"])["in"] is not None


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._AUTHENTICATION])
def test_a_cluster_that_is_away_is_not_asked_again(code: int) -> None:
    admin = Admin({"in": code})
    broker = client(admin)
    for _ in range(3):
        with pytest.raises(StorageError):
            broker.topics(["in"])
    assert admin.asked == 1


def test_all_questions_together_wait_no_longer_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("streambank.kafka.broker.time", SimpleNamespace(monotonic=lambda: sum(now)))
    admin = Admin({"in": described()}, waits=lambda: now.append(2.0))
    patience = Patience(5.0)
    broker = ClientBroker(admin, {"bootstrap.servers": "a:1"}, patience, _Heard())
    for _ in range(3):
        broker.topics(["in"])
    now.append(3600.0)  # what is done between two questions is no waiting
    with pytest.raises(StorageError, match="took more than 5 s"):
        broker.topics(["in"])
    assert admin.asked == 3
    patience.renew()
    assert broker.topics(["in"])["in"] is not None, "it answers, if late: the next piece of work asks it"


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_that() -> None:
    broker = client(Admin({"in": None}), seconds=0.2)
    with pytest.raises(StorageError, match=r"no answer within 0\.2 s"):
        broker.topics(["in"])  # which would wait for ever


def test_who_failed_is_asked_again_only_afresh() -> None:
    tries: list[str] = []

    def reach(servers: str, properties: Any, timeout_s: float) -> FakeBroker:
        tries.append(servers)
        if len(tries) == 1:
            raise StorageError("no", code="kafka-not-reachable")
        return FakeBroker()

    brokers = Brokers(connect=reach)
    for _ in range(2):
        with pytest.raises(StorageError):
            brokers.at("a:1")
        brokers.begin()
    brokers.begin(afresh=True)
    assert brokers.at("a:1").names() == []
    assert len(tries) == 2


def test_each_cluster_has_a_whole_patience_for_each_piece_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Patience] = {}

    def reach(servers: str, properties: Any, timeout_s: float, patience: Patience) -> FakeBroker:
        given[servers] = patience
        return FakeBroker()

    monkeypatch.setattr("streambank.kafka.client.connect", reach)
    brokers = Brokers(timeout_s=3.0)
    for servers in ("a:1", "b:1"):
        brokers.at(servers)
    now = [0.0]
    monkeypatch.setattr("streambank.kafka.broker.time", SimpleNamespace(monotonic=lambda: sum(now)))

    def left_s(servers: str) -> float:
        with given[servers].waiting() as left:
            return left

    with given["a:1"].waiting():
        now.append(4.0)
    assert (left_s("a:1"), left_s("b:1")) == (0.0, 3.0)
    brokers.begin()
    assert (left_s("a:1"), left_s("b:1")) == (3.0, 3.0)


@pytest.mark.parametrize("answer", [None, KafkaError._TIMED_OUT])
def test_a_question_that_had_little_time_left_is_asked_another_time(answer: int | None) -> None:
    answers: dict[str, Any] = {"in": answer}
    admin, patience = Admin(answers), Patience(0.6)
    broker = ClientBroker(admin, {"bootstrap.servers": "a:1"}, patience, _Heard())
    patience._spent_s = 0.5
    with pytest.raises(StorageError):
        broker.topics(["in"])
    answers["in"] = described()
    patience.renew()
    assert broker.topics(["in"])["in"] is not None


@pytest.mark.parametrize(("most", "least", "known"), [(0, 0, False), (0, 1, True), (1, 0, True)])
def test_the_id_of_zeros_is_none(most: int, least: int, known: bool) -> None:
    topic = client(Admin({"in": described(most, least)})).topics(["in"])["in"]
    assert topic is not None
    assert (topic.topic_id is not None) is known


def test_a_compacted_topic_tells_how_long_it_keeps_deletions() -> None:
    told = {"cleanup.policy": "compact", "delete.retention.ms": "86400000", "retention.ms": "-1"}
    answers = {"in": {name: SimpleNamespace(value=value) for name, value in told.items()}}
    found = client(Admin(answers)).retention(["in"])["in"]
    assert (found.compacts, found.deletes, found.tombstones_ms, found.ms) == (True, False, 86_400_000, None)


@pytest.mark.parametrize("settings", [{"session.timeout.ms": "400000"}, {"fetch.max.bytes": "1000"}])
def test_properties_that_only_a_reader_refuses_are_told_the_same_way(settings: dict[str, str]) -> None:
    broker = connect(NOBODY, settings | {"sasl.password": "hush"}, 1)
    with refuses(InputError, "bad-kafka-config", match="client properties cannot be used") as raised:
        broker.times({("in", 0): 1})
    assert "hush" not in raised.value.message


def test_why_nobody_answers_is_told_without_secrets() -> None:
    broker = connect(NOBODY, {"sasl.password": "refused"}, 1)
    with pytest.raises(StorageError, match=r"Connect to ipv4#127\.0\.0\.1:1 failed") as raised:
        broker.topics(["in"])
    assert "Connection ***" in raised.value.message, "what is a secret is none of the reason"
    assert raised.value.__cause__ is None, "the client's own words may hold a secret"


class Message(SimpleNamespace):
    """One of a consumer's: an error, or a record of a time."""

    def topic(self) -> Any:
        return self.where[0]

    def partition(self) -> Any:
        return self.where[1]

    def error(self) -> Any:
        return None if self.code is None else KafkaError(self.code)

    def timestamp(self) -> tuple[int, int]:
        return (1, self.ms)


class Consumer:
    """confluent-kafka's, with messages of ours, and nothing after them."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.closed = False

    def assign(self, partitions: Any) -> None: ...

    def pause(self, partitions: Any) -> None: ...

    def poll(self, timeout_s: float) -> Message | None:
        if self.messages:
            return self.messages.pop(0)
        time.sleep(timeout_s)
        return None

    def close(self) -> None:
        self.closed = True


def reading(monkeypatch: pytest.MonkeyPatch, *messages: Message, seconds: float = 0.3) -> ClientBroker:
    monkeypatch.setattr("confluent_kafka.Consumer", lambda settings: Consumer(*messages))
    return client(Admin({}), seconds=seconds)


def test_a_topic_that_may_not_be_read_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = Message(where=("in", 0), code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    broker = reading(monkeypatch, denied, seconds=3600)  # longer than a test may take
    with refuses(StorageError, "kafka-not-allowed", match="about in: it needs the right READ"):
        broker.times({("in", 0): 1, ("in", 1): 1})


def test_records_tell_their_times_and_an_end_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = (
        Message(where=(None, None), code=KafkaError._ALL_BROKERS_DOWN),
        Message(where=("in", 0), code=KafkaError._TRANSPORT),
        Message(where=("in", 0), code=None, ms=17),
        Message(where=("in", 1), code=KafkaError._PARTITION_EOF),
        Message(where=("in", 2), code=KafkaError._AUTO_OFFSET_RESET),
    )
    broker = reading(monkeypatch, *messages, seconds=20)
    assert broker.times({("in", 0): 1, ("in", 1): 1, ("in", 2): 1}) == {("in", 0): 17, ("in", 2): None}


def test_what_did_not_come_once_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = reading(monkeypatch)
    assert broker.times({("in", 0): 1}) == {("in", 0): None}
    monkeypatch.setattr("confluent_kafka.Consumer", None)  # nobody asks for one
    assert broker.times({("in", 0): 2}) == {("in", 0): None}
