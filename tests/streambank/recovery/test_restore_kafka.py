"""A restore that would lose input from Kafka, or repeat output in it, is refused unless that is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.errors import RefusedError, StreambankError
from streambank.kafka.recording import KafkaSinkCapture, Reader, SourceRecorder
from streambank.recovery.restore import plan_restore, restore
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.storage import open_store
from tests.support.brokers import SERVERS, FakeBroker, write_checkpoint

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
        brokers = self.broker.brokers()
        sink = KafkaSinkCapture(
            brokers, SERVERS, "delays", committed_ms=lambda batch: 5000, begun=lambda batch: False
        )
        sources = SourceRecorder(brokers, [Reader(SERVERS, {"subscribe": "flights"})])
        taken = take(self.checkpoint, self.repository, "flights", sinks=[sink], sources=sources)
        return taken.savepoint

    def restore(self, savepoint: str, into: str = "restored", **more: Any) -> Any:
        place = open_store(str(self.folder / into))
        return restore(self.repository, savepoint, into=place, kafka=self.broker.brokers(), **more)

    def plan(self, savepoint: str, **more: Any) -> Any:
        place = open_store(str(self.folder / "restored"))
        return plan_restore(self.repository, savepoint, into=place, kafka=self.broker.brokers(), **more)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_restore_of_what_is_all_there_goes_on(world: World) -> None:
    savepoint = world.take()
    plan = world.plan(savepoint)
    assert plan.possible
    assert plan.source_effect() == "Kafka has all that comes after the savepoint: 60 records to read."
    report = world.restore(savepoint).to_dict()
    assert (report["source"], report["sources"][0]["safe"], report["warnings"][:-1]) == ("refuse", True, [])
    assert (world.folder / "restored" / "metadata").exists()


def test_input_that_is_gone_refuses_and_nothing_is_written(world: World) -> None:
    savepoint = world.take()
    world.broker.earliest["flights", 0] = 140
    with pytest.raises(RefusedError, match="flights/0 from 100 to 140, 40 records") as raised:
        world.restore(savepoint)
    assert raised.value.code == "source-would-lose-records"
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


def test_output_that_came_since_refuses_and_cannot_be_rolled_back(world: World) -> None:
    savepoint = world.take()
    world.broker.latest["delays", 0] = 47
    for choice, code in (("refuse", "sink-would-repeat-rows"), ("rollback", "sink-cannot-roll-back")):
        with pytest.raises(RefusedError, match="got 7 records after batch 1") as raised:
            world.restore(savepoint, sink=choice)
        assert raised.value.code == code
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


def test_a_savepoint_of_before_is_not_known_until_somebody_says_where_its_kafka_is(world: World) -> None:
    taken = take(world.checkpoint, world.repository, "flights")
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
        open_store(str(write_checkpoint(world.folder / "rewritten", OFFSETS))),
        world.repository,
        "flights-compacted",
        derived_from=manifest,
    )
    carried = world.repository.load("flights-compacted", derived.savepoint)
    assert carried.sources[0]["kafka"] == manifest.sources[0]["kafka"]
    assert carried.sinks == manifest.sinks


def test_choices_that_are_none_are_refused(world: World) -> None:
    savepoint = world.take()
    with pytest.raises(StreambankError, match="There is no source 'rollback'") as raised:
        world.restore(savepoint, source="rollback")
    assert raised.value.code == "bad-choice"
