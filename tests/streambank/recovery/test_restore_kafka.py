"""A restore that would lose input from Kafka, or repeat output in it, is refused unless that is accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.doctor.checks.sources import check_asked
from streambank.inputs.sources import check_still_there, look_at_sources
from streambank.kafka.broker import TopicRetention
from streambank.kafka.recording import KafkaReader, KafkaSinkCapture, SourceRecorder
from streambank.kafka.settings import Brokers
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.savepoint.warnings import not_asked
from streambank.storage import open_store
from tests.support.kafka.fake_broker import SERVERS, FakeBroker, write_checkpoint
from tests.support.refuses import refuses

OFFSETS = '{"flights":{"0":100,"1":120}}'


class World:
    """A savepoint of a query from Kafka to Kafka, and its cluster as it is now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = FakeBroker()
        self.broker.put("flights", (0, 150), (0, 130))
        self.broker.put("delays", (0, 40))
        self.repository = Repository.open(open_store(str(folder / "repository")), create=True)
        self.checkpoint = open_store(str(write_checkpoint(folder / "checkpoint", OFFSETS)))

    def take(self) -> str:
        return self.taken().savepoint

    def taken(self) -> TakeResult:
        brokers = self.broker.brokers()
        sink = KafkaSinkCapture(
            brokers, SERVERS, "delays", committed_ms=lambda batch: 5000, begun=lambda batch: False
        )
        sources = SourceRecorder(brokers, [KafkaReader(SERVERS, {"subscribe": "flights"})])
        return take(TakeRequest(self.checkpoint, self.repository, "flights", sinks=[sink], sources=sources))

    def restore(self, savepoint: str, into: str = "restored", **more: Any) -> Any:
        place = open_store(str(self.folder / into))
        return restore(
            RestoreRequest(self.repository, savepoint, into=place, kafka=self.broker.brokers(), **more)
        )

    def plan(self, savepoint: str, **more: Any) -> Any:
        place = open_store(str(self.folder / "restored"))
        return plan_restore(
            RestoreRequest(self.repository, savepoint, into=place, kafka=self.broker.brokers(), **more)
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_restore_of_what_is_all_there_goes_on(world: World) -> None:
    savepoint = world.take()
    plan = world.plan(savepoint)
    assert plan.possible
    assert plan.source_effect() == "Kafka has everything after the savepoint: 60 records to read."
    report = world.restore(savepoint).to_dict()
    assert (report["source"], report["sources"][0]["safe"], report["warnings"][:-1]) == ("refuse", True, [])
    assert (world.folder / "restored" / "metadata").exists()


def test_input_that_is_gone_refuses_and_nothing_is_written(world: World) -> None:
    savepoint = world.take()
    world.broker.earliest["flights", 0] = 140
    with refuses(
        RefusedError, "source-would-lose-records", match="flights/0 from 100 to 140, 40 records"
    ) as raised:
        world.restore(savepoint)
    assert "--source accept" in raised.value.hint
    assert not (world.folder / "restored").exists()
    report = world.restore(savepoint, source="accept").to_dict()
    assert report["sources"][0]["lost_records"] == 40
    assert any("failOnDataLoss" in warning for warning in report["warnings"])


def test_a_topic_made_anew_refuses_though_its_offsets_fit(world: World) -> None:
    savepoint = world.take()
    world.broker.remake("flights")
    assert [one.code for one in world.plan(savepoint).refusals] == ["source-would-lose-records"]


def test_a_cluster_that_does_not_answer_refuses_with_a_hint_unless_accepted(world: World) -> None:
    savepoint = world.take()
    world.broker.down = True
    plan = world.plan(savepoint)
    assert {one.code for one in plan.refusals} == {"source-not-known", "sink-not-known"}
    assert all("Start it." in one.hint for one in plan.refusals)
    world.restore(savepoint, source="accept", sink="accept")


def test_a_cluster_that_is_away_for_a_moment_is_worth_another_try(world: World) -> None:
    savepoint = world.take()
    world.broker.down = True
    for choices, code in (({"sink": "accept"}, "source-not-known"), ({}, "sink-not-known")):
        with pytest.raises(StorageError) as raised:
            world.restore(savepoint, **choices)
        assert (raised.value.code, raised.value.retryable) == (code, True)
    world.broker.down, world.broker.denied = False, {"offsets"}
    for choices, code in (({"sink": "accept"}, "source-not-known"), ({}, "sink-not-known")):
        with pytest.raises(RefusedError, match="Not allowed") as refused:
            world.restore(savepoint, **choices)
        assert (refused.value.code, refused.value.retryable) == (code, False)


class LateLook(FakeBroker):
    """A cluster to which something happens between the first look of a restore and its last."""

    looks = 0

    def topics(self, names: Any) -> Any:
        if names == ["flights"]:
            self.looks += 1
            if self.looks == 2:
                self.happens()
        return super().topics(names)

    def happens(self) -> None:
        self.earliest["flights", 1] = 125


def test_input_that_goes_while_files_are_laid_out_is_told_before_anything_can_start(world: World) -> None:
    savepoint = world.take()
    kept = {name: getattr(world.broker, name) for name in ("known", "earliest", "latest", "kept")}
    world.broker = LateLook(**kept)
    with refuses(
        RefusedError, "source-would-lose-records", match="flights/1 from 120 to 125, 5 records: deleted"
    ):
        world.restore(savepoint)
    assert world.broker.looks == 2
    assert not (world.folder / "restored" / "metadata").exists()
    assert list((world.folder / "restored").rglob("*")) == [], "what was laid out is taken away"


def test_a_cluster_that_goes_away_meanwhile_is_worth_another_try(world: World) -> None:
    savepoint = world.take()

    class Away(LateLook):
        def happens(self) -> None:
            self.down = True

    kept = {name: getattr(world.broker, name) for name in ("known", "earliest", "latest", "kept")}
    world.broker = Away(**kept)
    with pytest.raises(StorageError) as raised:
        world.restore(savepoint)
    assert (raised.value.code, raised.value.retryable) == ("source-not-known", True)
    world.broker.down = False
    world.restore(savepoint)


def test_who_did_not_answer_before_is_asked_again_at_the_end(world: World) -> None:
    manifest = world.repository.load("flights", world.take())
    tries: list[str] = []

    def reach(servers: str, properties: Any, timeout_s: float) -> FakeBroker:
        tries.append(servers)
        if len(tries) == 1:
            raise StorageError("no", code="kafka-not-reachable")
        return world.broker

    brokers = Brokers(connect=reach)
    assert look_at_sources(world.repository, manifest, brokers).kafka[0].safe is None
    check_still_there(world.repository, manifest, brokers, "refuse")
    assert len(tries) == 2


def test_what_was_decided_is_not_asked_again(world: World) -> None:
    savepoint = world.take()
    kept = {name: getattr(world.broker, name) for name in ("known", "earliest", "latest", "kept")}
    world.broker = LateLook(**kept)
    world.restore(savepoint, source="accept")
    assert world.broker.looks == 1


def test_plan_and_report_say_until_when_and_what_is_compacted(world: World) -> None:
    savepoint = world.take()
    (told,) = world.plan(savepoint).sources
    assert told["replay"]["state"] == "not-known", "no record tells its time"
    world.broker.times_ms = {
        ("flights", 0): {100: 4_000_000_000_000},
        ("flights", 1): {120: 4_100_000_000_000},
    }
    plan = world.plan(savepoint)
    assert plan.sources[0]["replay"]["until"] == "2096-10-09T07:06:40.000Z"
    assert plan.source_effect().endswith("60 records to read.")
    assert plan.replayable_effect().startswith(
        "The input can be read again until 2096-10-09T07:06:40.000Z, for "
    )
    assert plan.to_dict()["replayable_until"] == "2096-10-09T07:06:40.000Z"
    world.broker.kept["flights"] = TopicRetention("compact", None, None, 3_600_000)
    plan = world.plan(savepoint)
    assert plan.source_effect().startswith("Kafka has the newest record of each key after")
    report = world.restore(savepoint).to_dict()
    assert any("flights is compacted" in warning for warning in report["warnings"])
    assert report["sources"][0]["replay"]["state"] == "until"


def test_a_topic_made_anew_between_two_savepoints_is_told_by_the_first(world: World) -> None:
    world.take()
    world.broker.remake("flights")
    world.checkpoint = open_store(str(write_checkpoint(world.folder / "checkpoint", OFFSETS, batches=3)))
    second = world.take()
    plan = world.plan(second)
    assert [one.code for one in plan.refusals] == ["source-would-lose-records"]
    assert "created again" in plan.refusals[0].message
    world.checkpoint = open_store(str(write_checkpoint(world.folder / "checkpoint", OFFSETS, batches=4)))
    assert world.plan(world.take()).possible, "the third has gone on in the topic that the second asked"


def test_output_that_came_since_refuses_and_cannot_be_rolled_back(world: World) -> None:
    savepoint = world.take()
    world.broker.latest["delays", 0] = 47
    for choice, code in (("refuse", "sink-would-repeat-rows"), ("rollback", "sink-cannot-roll-back")):
        with refuses(RefusedError, code, match="got 7 records after batch 1"):
            world.restore(savepoint, sink=choice)
    report = world.restore(savepoint, sink="accept").to_dict()
    assert report["sinks"][0]["repeated_records"] == 7
    assert any("7 records" in warning for warning in report["warnings"])


def test_a_fork_repeats_nothing_of_its_own_and_is_told_of_the_topic(world: World) -> None:
    savepoint = world.take()
    world.broker.latest["delays", 0] = 47
    report = world.restore(savepoint, mode="fork").to_dict()
    assert any("The fork writes into the topic" in warning for warning in report["warnings"])


def test_a_take_asks_a_cluster_that_is_down_once_and_is_whole(world: World) -> None:
    world.broker.down = True
    manifest = world.repository.load("flights", world.take())
    (source,), (sink,) = manifest.sources, manifest.sinks
    assert source["kafka"]["not_asked"] == sink["not_asked"] == "Kafka is down."
    assert world.broker.asked == 2, "once for the sink, once for the source"
    assert source["offset"] == OFFSETS


def test_who_takes_is_told_what_could_not_be_asked_and_doctor_tells_it_later(world: World) -> None:
    world.broker.down = True
    first = world.taken()
    assert [one.partition(":")[0] for one in first.warnings] == [
        "Kafka could not be asked about source 0 (flights)",
        "The sink kafka",
    ]
    assert all("Kafka is down." in one for one in first.warnings)
    assert first.to_dict()["warnings"] == list(first.warnings)
    world.broker.down = False
    again = world.taken()
    assert (again.already_there, again.warnings) == (True, first.warnings), "a savepoint never changes"
    manifest = world.repository.load("flights", first.savepoint)
    assert {one.code for one in check_asked(manifest)} == {"taken-without-asking"}


def test_what_was_asked_or_never_can_be_is_no_warning(world: World) -> None:
    taken = world.taken()
    assert taken.warnings == ()
    assert not [*check_asked(world.repository.load("flights", taken.savepoint)), *check_asked(None)]
    manifest = replace(
        world.repository.load("flights", taken.savepoint),
        sinks=({"path": "kafka://kafka:9092", "topics": {}, "not_asked": "Each row names its own topic."},),
    )
    assert not_asked(manifest) == ()


def test_a_savepoint_of_before_is_not_known_until_somebody_says_where_its_kafka_is(world: World) -> None:
    taken = take(TakeRequest(world.checkpoint, world.repository, "flights"))
    (source,) = world.repository.load("flights", taken.savepoint).sources
    assert "kafka" not in source
    plan = world.plan(taken.savepoint)
    assert [one.code for one in plan.refusals] == ["source-not-known"]
    assert "--kafka" in plan.refusals[0].hint


def test_a_query_that_has_not_gone_on_is_not_asked_about(world: World) -> None:
    """A compaction brings another savepoint of the very batch at which the job stands."""
    savepoint = world.take()
    manifest = world.repository.load("flights", savepoint)
    derived = take(
        TakeRequest(
            open_store(str(write_checkpoint(world.folder / "rewritten", OFFSETS))),
            world.repository,
            "flights-compacted",
            derived_from=manifest,
        )
    )
    carried = world.repository.load("flights-compacted", derived.savepoint)
    assert carried.sources[0]["kafka"] == manifest.sources[0]["kafka"]
    assert carried.sinks == manifest.sinks


def test_a_file_sink_that_was_written_as_kafkas_refuses(world: World) -> None:
    """Its path held the word, and a restore would lose the rows that its log skips."""
    sink = KafkaSinkCapture(
        world.broker.brokers(), None, None, committed_ms=lambda batch: 5, begun=lambda batch: False
    )
    taken = take(TakeRequest(world.checkpoint, world.repository, "flights", sinks=[sink]))
    found = [one for one in world.plan(taken.savepoint, source="accept").refusals]
    assert [one.code for one in found] == ["sink-not-known"]
    assert "names neither servers nor topic" in str(found[0])


def test_choices_that_are_none_are_refused(world: World) -> None:
    savepoint = world.take()
    with refuses(StreambankError, "bad-choice", match=r"source must be one of .*, not 'rollback'"):
        world.restore(savepoint, source="rollback")
