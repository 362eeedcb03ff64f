"""A restore holds its savepoint: beside expires and sweeps, killed anywhere, and where it may only read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streambank.core.errors import NotFoundError, StreambankError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository import holds as hold_marks
from streambank.repository.holds import holds
from streambank.repository.repository import Repository
from streambank.retention import expire as expiring
from streambank.retention.expire import expire
from streambank.retention.policy import Policy
from streambank.retention.sweep import sweep
from streambank.storage.store import Store
from streambank.work.executor import Pace
from tests.support.jobs.simulated_job import SimulatedJob, quick_store
from tests.support.permissions import as_ordinary_user, open_folder
from tests.support.repository.retention import HOUR_S
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import Clock, time_travel

KEEP = Policy(keep_last=1, min_verified=0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    with time_travel() as clock:
        monkeypatch.setattr(expiring, "_own_ns", clock.time_ns)
        yield clock


def two_savepoints(name: str) -> tuple[SimulatedJob, str]:
    shop = SimulatedJob(f"memory://{name}", sink=False)
    old = shop.run(3).take().savepoint
    shop.run(8).take()
    return shop, old


def state_of(store: Store) -> dict[str, bytes]:
    """All files but the one with the query's id, of which each job has its own."""
    return {path: data for path, data in contents(store).items() if path != "metadata"}


def test_a_restore_that_takes_days(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_marks, "HOLD_S", 80 * HOUR_S)  # renewed all the time
    monkeypatch.setattr(hold_marks, "MAX_HOLD_S", 80 * HOUR_S)

    def disaster(store: Store) -> None:
        expire(Repository.open(store), KEEP)
        for _ in range(3):
            clock.advance(2 * HOUR_S)
            sweep(Repository.open(store), grace_s=HOUR_S)

    shop, old = two_savepoints(f"days-{tmp_path.name}")
    shop.restore(old, "expected")
    expected = state_of(shop.open("expected"))
    outcomes: list[bool] = []
    while True:
        number = len(outcomes) + 1
        shop, old = two_savepoints(f"days-{tmp_path.name}-{number}")
        inner = shop.repository_store
        store, interrupted = interrupting(inner, {number: partial(disaster, inner)})
        target = shop.open("restored")
        try:
            report = restore(
                RestoreRequest(Repository.open(store), old, into=target, opener=quick_store),
                pace=Pace(parallel=1),
            )
        except StreambankError:
            assert not target.exists("metadata") or b'"id"' not in target.read("metadata")
            outcomes.append(False)
        else:
            assert state_of(target) == expected
            assert not any("hold" in text for text in report.warnings)
            outcomes.append(True)
        if not interrupted.happened:
            break
    held_from = outcomes.index(True)
    assert all(outcomes[held_from:]) and len(outcomes) - held_from > 6


def test_killed_at_any_call_it_leaves_a_hold_at_most(tmp_path: Path, clock: Clock) -> None:
    shop, old = two_savepoints(f"killed-{tmp_path.name}")
    counting = FaultyStore(shop.repository_store)
    restore(
        RestoreRequest(Repository.open(counting), old, into=shop.open("whole"), opener=quick_store),
        pace=Pace(parallel=1),
    )
    expected = contents(shop.open("whole"))
    left = 0
    for number in range(1, len(counting.calls) + 1):
        faulty = FaultyStore(shop.repository_store, Fault("crash-before", call=number))
        target = shop.open(f"target-{number}")
        with pytest.raises(SimulatedCrash):
            restore(
                RestoreRequest(Repository.open(faulty), old, into=target, opener=quick_store),
                pace=Pace(parallel=1),
            )
        faulty.assert_fired()
        if b'"id"' not in (target.read("metadata") if target.exists("metadata") else b""):
            restore(
                RestoreRequest(shop.repository, old, into=target, opener=quick_store), pace=Pace(parallel=1)
            )
        assert contents(target) == expected
        left = max(left, len(holds(shop.repository_store, clock.time_ns())))
    assert left > 3
    clock.advance(2 * HOUR_S)
    sweep(Repository.open(shop.repository_store), grace_s=HOUR_S)
    assert holds(shop.repository_store, clock.time_ns()) == []


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    shop, _ = two_savepoints(f"plan-{tmp_path.name}")
    counting = FaultyStore(shop.repository_store)
    for reference in ("latest-good", "b000002"):
        plan_restore(
            RestoreRequest(
                Repository.open(counting), reference, into=shop.open("planned"), opener=quick_store
            )
        )
    assert {call.operation for call in counting.calls}.isdisjoint({"write", "write_named", "delete"})


def test_one_that_is_expired_before_it_is_held_is_not_restored(tmp_path: Path) -> None:
    shop, old = two_savepoints(f"expired-{tmp_path.name}")
    faulty = FaultyStore(shop.repository_store)
    restore(RestoreRequest(Repository.open(faulty), old, into=shop.open("once"), opener=quick_store))
    (held_at,) = (
        number
        for number, call in enumerate(faulty.calls, 1)
        if call.operation == "write" and "/hold-" in call.key
    )
    shop, old = two_savepoints(f"expired2-{tmp_path.name}")
    inner = shop.repository_store
    store, interrupted = interrupting(inner, {held_at: lambda: expire(Repository.open(inner), KEEP)})
    with pytest.raises(NotFoundError) as gone:
        restore(RestoreRequest(Repository.open(store), old, into=shop.open("restored"), opener=quick_store))
    assert interrupted.happened and gone.value.code == "no-such-savepoint"
    assert contents(shop.open("restored")) == {}
    assert holds(inner, time.time_ns()) == []


@pytest.mark.parametrize("reference", ["b000002", "latest-good"])
def test_a_repository_that_can_only_be_read(reference: str) -> None:
    with open_folder() as folder:
        shop = SimulatedJob(folder, sink=False)
        shop.run(3).take()
        (folder / "there").mkdir()
        (folder / "there").chmod(0o777)
        before = contents(shop.repository_store)
        with as_ordinary_user():
            report = shop.restore(reference, "there/restored")
        assert contents(shop.repository_store) == before
    unheld = [text for text in report.warnings if "is read without a hold" in text]
    assert len(unheld) == 1 and "Permission denied" in unheld[0]
    unrecorded = [text for text in report.warnings if "could not be recorded beside the savepoint" in text]
    assert len(unrecorded) == (reference == "latest-good")
