"""What a real broker says of topics that age out, grow, and are made again; one broker for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.core.units import from_json_time, utc_now
from streambank.declaration.kafka import kafka_sink, kafka_sources
from streambank.kafka.retention import replay_of
from streambank.kafka.settings import Brokers
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla.assess import assess_job
from streambank.sla.verdict import Verdict
from streambank.storage import open_store
from tests.support.jobs.declared import declare
from tests.support.kafka.fake_broker import write_checkpoint
from tests.support.kafka.real_broker import Kafka, running
from tests.support.waiting import poll

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1200)]


RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running(tmp_path_factory.mktemp("kafka"), RIGHTS) as broker:
        yield broker


class Saved:
    """A savepoint whose query has read half of a topic with 100 records in each of two partitions."""

    def __init__(
        self, kafka: Kafka, folder: Path, topic: str, config: dict[str, str], at: int, how: dict[str, str]
    ) -> None:
        self.kafka, self.folder, self.topic = kafka, folder, topic
        kafka.create(topic, 2, config)
        kafka.create(f"{topic}-out", 2)
        for partition in (0, 1):
            self.produce(100, partition)
        kafka.produce(f"{topic}-out", ((None, one) for one in range(10)), 0)
        facts = {
            "kafka": {
                "sources": [{"bootstrap": kafka.bootstrap, **(how or {"subscribe": topic})}],
                "sink": {"bootstrap": kafka.bootstrap, "topic": f"{topic}-out"},
            }
        }
        offsets = f'{{"{topic}":{{"0":{at},"1":{at}}}}}'
        checkpoint = open_store(str(write_checkpoint(folder / "checkpoint", offsets)))
        self.repository = Repository.open(open_store(str(folder / "repository")), create=True)
        brokers = Brokers()
        sink = kafka_sink(facts, checkpoint, brokers)
        assert sink is not None
        sources = kafka_sources(facts, brokers)
        self.id = take(
            TakeRequest(checkpoint, self.repository, "job", sinks=[sink], sources=sources)
        ).savepoint

    @property
    def manifest(self) -> Manifest:
        return self.repository.load("job", self.id)

    def produce(self, count: int, partition: int) -> None:
        self.kafka.produce(self.topic, ((str(one), {"n": one}) for one in range(count)), partition)

    def plan(self, **choices: Any) -> RestorePlan:
        return plan_restore(
            RestoreRequest(self.repository, self.id, into=open_store(str(self.folder / "into")), **choices)
        )


def saved(
    kafka: Kafka,
    folder: Path,
    topic: str,
    config: dict[str, str] | None = None,
    *,
    at: int = 50,
    how: dict[str, str] | None = None,
) -> Saved:
    return Saved(kafka, folder, topic, {"retention.ms": "-1", **(config or {})}, at, how or {})


def test_ranges_that_are_gone_are_told(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "aged")
    assert one.plan().possible
    assert one.plan().sources[0]["records_to_read_again"] == 100
    kafka.delete_before("aged", {0: 50})
    assert one.plan().possible, "what was read already is not missed"
    kafka.delete_before("aged", {0: 80})
    plan = one.plan()
    assert [refusal.code for refusal in plan.refusals] == ["source-would-lose-records"]
    assert "aged/0 from 50 to 80, 30 records: deleted" in plan.refusals[0].message
    assert one.plan(source="accept").possible
    (replay,) = replay_of(one.manifest.sources, Brokers(), utc_now())
    assert replay.state == "gone"


def test_a_topic_made_anew_and_grown_past_the_offsets_is_another_one(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "remade")
    kafka.delete("remade")
    assert "the topic is gone" in one.plan().refusals[0].message
    kafka.create("remade", 2)
    for partition in (0, 1):
        one.produce(200, partition)
    plan = one.plan()
    assert [refusal.code for refusal in plan.refusals] == ["source-would-lose-records"]
    assert "deleted and created again" in plan.refusals[0].message


def test_partitions_and_output_that_came_since_are_told(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "grown")
    kafka.add_partitions("grown", 3)
    kafka.produce("grown-out", ((None, number) for number in range(7)), 0)
    kafka.produce("grown-out", ((None, number) for number in range(2)), 1)
    plan = one.plan()
    assert plan.sources[0]["added"] == ["grown/2"]
    assert [refusal.code for refusal in plan.refusals] == ["sink-would-repeat-rows"]
    assert plan.sinks[0]["repeated_records"] == 9
    assert [each["records"] for each in plan.sinks[0]["repeated"]] == [7, 2]


def test_until_when_is_told_by_the_topics_retention(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "kept", {"retention.ms": "86400000"})
    (replay,) = replay_of(one.manifest.sources, Brokers(), utc_now())
    assert (replay.state, replay.until is not None) == ("until", True)
    assert replay.until is not None
    assert timedelta(hours=23) < replay.until - utc_now() <= timedelta(hours=24)


def test_an_objective_holds_the_topics_retention_to_its_limit(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "promised", {"retention.ms": "86400000"})

    def found(limit: str, bootstrap: str = kafka.bootstrap) -> Verdict:
        more = f"""
kafka = {{bootstrap = "{bootstrap}"}}

[jobs.job.sla]
replayable_for = {{breach = "{limit}"}}
"""
        job = declare(tmp_path, name="job", more=more)
        verdicts = assess_job(job, skew=False).verdicts
        return next(each for each in verdicts if each.objective == "replayable_for")

    well, short = found("12h"), found("36h")
    assert (well.level, short.level, short.subject) == ("ok", "breach", "source 0")
    assert well.value is not None and 23 * 3600 < well.value <= 24 * 3600
    assert "below the limit of 1 d 12 h: retention.ms" in short.why
    assert one.plan().to_dict()["replayable_until"] == one.plan().sources[0]["replay"]["until"]
    kafka.delete_before("promised", {0: 80})
    gone = found("12h")
    assert (gone.level, gone.value) == ("breach", 0.0) and "30 records: deleted" in gone.why
    away = found("12h", "127.0.0.1:1")
    assert away.level == "unknown" and "It is not known how long" in away.why


def test_a_topic_made_anew_before_the_savepoint_is_another_one(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "outgrown", at=150)  # offsets of an old topic that was longer
    for partition in (0, 1):
        one.produce(100, partition)
    plan = one.plan()
    assert [refusal.code for refusal in plan.refusals] == ["source-would-lose-records"]
    assert "deleted and created again" in plan.refusals[0].message


def test_topics_that_a_pattern_finds_since_are_looked_at(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "found", how={"subscribepattern": "found(\\.[a-z]+)?"})
    assert one.plan().sources[0]["added"] == []
    kafka.create("found.too", 1)
    plan = one.plan()
    assert (plan.possible, plan.sources[0]["added"]) == (True, ["found.too/0"])
    kafka.produce("found.too", ((str(number), number) for number in range(9)), 0)
    kafka.delete_before("found.too", {0: 4})
    assert "found.too/0 from 0 to 4, 4 records" in one.plan().refusals[0].message


def test_a_compacted_topic_is_said_to_keep_deletions_for_a_while(kafka: Kafka, tmp_path: Path) -> None:
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "3600000"}
    plan = saved(kafka, tmp_path, "compacted", settings).plan()
    assert (plan.possible, plan.sources[0]["compacted"]) == (True, ["compacted"])
    assert any("Deletions of keys are removed 1 h after" in warning for warning in plan.warnings)
    until = from_json_time(plan.sources[0]["replay"]["until"])
    assert timedelta(minutes=50) < until - utc_now() <= timedelta(hours=1)


def test_marks_of_transactions_are_no_records_to_wait_for(kafka: Kafka) -> None:
    from confluent_kafka import Producer

    kafka.create("marks", 1, {"retention.ms": "86400000"})
    producer: Any = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": "t", "log_level": "0"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("marks", b"1")
    producer.commit_transaction(60)
    # The mark of a transaction comes after its record, a moment after the commit was answered.
    poll(lambda: kafka.ends("marks") == {0: 2}, timeout_s=60)
    source = {"source": "0", "offset": '{"marks":{"0":1}}', "kafka": {"bootstrap": kafka.bootstrap}}
    (replay,) = replay_of([source], Brokers(), utc_now())
    assert (replay.state, "no record has come since" in replay.why) == ("until", True)


def test_what_may_not_be_asked_of_one_topic_is_asked_of_the_others(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "closed", {"retention.ms": "86400000"})
    kafka.allow("closed-out")
    plan = one.plan()
    assert [refusal.code for refusal in plan.refusals] == ["sink-not-known"]
    assert "the right DESCRIBE" in plan.refusals[0].message
    assert (plan.refusals[0].retryable, plan.sources[0]["safe"]) == (False, True)
    assert plan.sources[0]["replay"]["state"] == "until"

    kafka.allow("closed", "DESCRIBE")
    plan = one.plan(sink="accept")
    assert (plan.possible, plan.sources[0]["replay"]["state"]) == (True, "not-known")
    assert "the right DESCRIBE_CONFIGS" in plan.sources[0]["replay"]["why"]
    kafka.allow("closed", "DESCRIBE", "DESCRIBE_CONFIGS")
    began = time.monotonic()
    assert "the right READ" in one.plan(sink="accept").sources[0]["replay"]["why"]
    assert time.monotonic() - began < 4, "it is told, not waited for"


def test_records_that_the_broker_itself_lets_go_are_missed(kafka: Kafka, tmp_path: Path) -> None:
    one = saved(kafka, tmp_path, "short")
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    asked = [
        ConfigEntry(name, "1000", incremental_operation=AlterConfigOpType.SET)
        for name in ("retention.ms", "segment.ms")
    ]
    resource = ConfigResource(ResourceType.TOPIC, "short", incremental_configs=asked)
    for future in kafka.admin.incremental_alter_configs([resource]).values():
        future.result(60)

    def gone() -> bool:
        one.produce(1, 0)  # a segment is closed by the next record
        time.sleep(0.5)
        return not one.plan().possible

    poll(gone, timeout_s=300)
    assert one.plan().refusals[0].code == "source-would-lose-records"
