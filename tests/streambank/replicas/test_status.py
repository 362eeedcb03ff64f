"""What status says, against cases counted by hand and against the plainest way to count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streambank.core.errors import InputError
from streambank.replicas.prices import Prices
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.replicas.sharing import Shares
from streambank.replicas.status import Status, status
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.repositories import TAKEN_AT, flip, manifest_of, save
from tests.support.storage.contents import keys

A, B, C, D = b"a" * 100, b"b" * 20, b"c" * 3, b"d" * 7
NOW = TAKEN_AT + timedelta(hours=5)


@pytest.fixture
def places() -> dict[str, Store]:
    """flights: batch 3 has A and B, batch 4 (an hour later) A and C; orders/late: batch 9 has A and D.

    The replica lacks batch 4.
    """
    stores: dict[str, Store] = {"one": MemoryStore(), "two": MemoryStore()}
    repository = Repository.open(stores["one"], create=True)
    save(repository, {"a": A, "b": B})
    save(repository, {"a": A, "c": C}, batch=4, taken_at=TAKEN_AT + timedelta(hours=1))
    save(repository, {"a": A, "d": D}, job="orders/late", batch=9)
    repository.record_verification("flights", manifest_of().savepoint, level="full", ok=True)
    newest = manifest_of(batch=4).savepoint
    repository.record_verification("flights", newest, level="full", ok=True)
    repository.record_verification("flights", newest, level="quick", ok=False)
    replica = open_replica(repository, stores["two"])
    list(replicate(repository, replica, [each for each in newest_first(repository) if each[1] != newest]))
    return stores


def look(places: dict[str, Store], *replicas: str) -> Status:
    return status(lambda location: places[str(location)], "one", replicas, NOW)


def test_the_figures_are_those_counted_by_hand(places: dict[str, Store]) -> None:
    found = look(places, "two")
    one, two = found.places
    assert [(job.job, len(job.savepoints), job.shares) for job in one.jobs] == [
        ("flights", 2, Shares(23, 100)),
        ("orders/late", 1, Shares(7, 100)),
    ]
    assert one.jobs[0].shares_by_savepoint == (Shares(20, 100), Shares(3, 100))
    assert (one.named_bytes, two.named_bytes) == (130, 127)
    assert [(job.shares, job.lacking) for job in two.jobs] == [(Shares(20, 100), 1), (Shares(7, 100), 0)]
    assert found.ok
    flights = one.jobs[0]
    assert flights.newest is not None and flights.newest.batch == 4
    assert flights.newest_verified is not None and flights.newest_verified.batch == 3
    assert two.jobs[0].newest_verified is None  # it proves itself, and nobody has asked it to
    stored = sum(info.size_bytes for info in places["one"].list()) - len(
        places["one"].read("repository.json")
    )
    assert one.stored_bytes == stored > one.named_bytes

    document = found.to_dict(Prices({"memory": 2_000_000.0}))
    said = document["places"][0]["jobs"][0]
    assert (said["newest"]["age_s"], said["newest_verified"]["age_s"]) == (4 * 3600, 5 * 3600)
    assert said["alone_cost_month"] == 0.046
    assert document["places"][0]["cost_month"] == round(stored * 0.002, 6)


def test_a_job_that_a_replica_lacks_is_a_row(places: dict[str, Store]) -> None:
    places["empty"] = MemoryStore()
    Repository.open(places["empty"], create=True)
    _, empty = look(places, "empty").places
    assert [(job.job, job.lacking, job.newest) for job in empty.jobs] == [
        ("flights", 2, None),
        ("orders/late", 1, None),
    ]


def test_what_cannot_be_read_is_a_row_with_the_reason(places: dict[str, Store]) -> None:
    places["gone"] = MemoryStore()
    flip(places["two"], keys(places["two"], "savepoints/flights")[0], 80)
    found = look(places, "gone", "two")
    assert not found.ok
    _, gone, two = found.places
    assert gone.error is not None and gone.error.code == "no-repository"
    assert [each.savepoint for each in two.jobs[0].damaged] == [manifest_of().savepoint]
    assert two.jobs[0].savepoints == () and two.jobs[0].lacking == 1
    assert found.to_dict()["places"][1]["error"]["error"] == "no-repository"
    one_gone = status(lambda location: places[str(location)], "gone", ["one"], NOW)
    assert one_gone.places[0].error is not None and len(one_gone.places[1].jobs) == 2


def test_a_location_that_is_none_is_a_mistake_of_the_call() -> None:
    with pytest.raises(InputError):
        status(open_store, "s3://", [], NOW)


def test_times_are_this_machines(places: dict[str, Store]) -> None:
    """A clock that is behind gives an age below zero rather than a lie."""
    early = status(lambda location: places["one"], "one", [], datetime(2012, 1, 1, tzinfo=UTC))
    assert early.to_dict()["places"][0]["jobs"][0]["newest"]["age_s"] < 0
