"""Sources that give no row twice, such as a socket: named at a take, refused at a restore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.checkpoint.sources import cannot_repeat
from streambank.core.errors import RefusedError
from streambank.declaration.kafka import kafka_sources
from streambank.kafka.settings import Brokers
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.savepoint.take import TakeRequest, take
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import CONF, LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses


class SocketCheckpoint(LiveCheckpoint):
    """As Spark 4.3.0 writes it of a socket: the offset is a bare number, and the source keeps no log."""

    def __init__(self, store: Store, offsets: tuple[str, ...] = ("{batch}",)) -> None:
        super().__init__(store)
        self.offsets = offsets

    def plan(self) -> None:
        super().plan()
        batch = self.next_batch
        self.store.delete(f"sources/0/{batch}")
        head = {"batchWatermarkMs": 0, "batchTimestampMs": batch, "conf": CONF}
        lines = ["v1", json.dumps(head), *(one.replace("{batch}", str(batch)) for one in self.offsets)]
        self.store.write(f"offsets/{batch}", "\n".join(lines).encode())


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    shop = SimulatedJob(tmp_path, sink=False)
    shop.live = SocketCheckpoint(shop.checkpoint)
    return shop.run(3)


def test_it_is_named_once_by_the_form_of_its_offset(shop: SimulatedJob) -> None:
    (warning,) = shop.take().warnings
    assert "Source 0 (socket or memory) cannot be repeated" in warning and "--source accept" in warning
    assert shop.run(1).take().warnings == ()


def test_a_restore_is_refused_until_it_is_accepted(shop: SimulatedJob) -> None:
    taken = shop.take()
    with refuses(RefusedError, "source-cannot-repeat", hint="--source accept"):
        shop.restore(taken.savepoint)
    plan = plan_restore(RestoreRequest(shop.repository, taken.savepoint, into=shop.open("restored")))
    assert plan.possible_choices.source == ("accept",)
    assert plan.to_dict()["sources"][0]["repeatable"] is False
    report = shop.restore(taken.savepoint, source="accept")
    effect = report.plan.source_effect()
    assert "cannot be repeated" in effect and "This is accepted" in effect


def test_a_restore_where_the_query_stands_asks_nothing(shop: SimulatedJob) -> None:
    taken = shop.take()
    control = shop.control()
    assert plan_restore(
        RestoreRequest(shop.repository, taken.savepoint, generation=control, unmoved=True, opener=quick_store)
    ).possible


def test_sparks_word_counts_where_the_driver_recorded_it(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path, sink=False)
    shop.live = SocketCheckpoint(shop.checkpoint, ("{batch}", '{"offset":1,"timestamp":2}'))
    shop.run(2)
    facts = {"kafka": {"streams": ["socket", "rate-micro-batch"]}}
    taken = take(TakeRequest(shop.checkpoint, shop.repository, JOB, sources=kafka_sources(facts, Brokers())))
    found = shop.repository.load(JOB, taken.savepoint).sources
    assert [one["format"] for one in found] == ["socket", "rate-micro-batch"]
    assert [cannot_repeat(one) for one in found] == ["socket", None]
    assert any("Source 0 (socket)" in one for one in taken.warnings)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"kind": "none", "offset": "64", "format": "socket"}, "socket"),
        ({"kind": "none", "offset": "64", "format": "TextSocketV2"}, "socket"),
        ({"kind": "none", "offset": "64", "format": "MemoryStream"}, "memory"),
        ({"kind": "none", "offset": "-1"}, "socket or memory"),
        ({"kind": "none", "offset": "64", "format": "a-queue"}, None),
        # rate keeps when its clock began, and makes the same rows again (tried with Spark 4.3.0)
        ({"kind": "initial", "offset": "15", "format": "rate"}, None),
        ({"kind": "initial", "offset": "15"}, None),
        ({"kind": "none", "offset": "15", "format": "rate"}, "rate"),
        ({"kind": "none", "offset": '{"offset":24,"timestamp":9000}'}, None),
        ({"kind": "none", "offset": None}, None),
        ({"kind": "file", "offset": '{"logOffset":3}', "format": "FileSource"}, None),
        ({"kind": "none", "offset": '{"orders":{"0":3}}'}, None),
    ],
)
def test_which_sources_give_no_row_twice(source: dict[str, str | None], what: str | None) -> None:
    assert cannot_repeat(source) == what
