"""Holding while something is read: renewed, ended, and where no mark can be written said once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from streambank.core.choices import VerifyLevel
from streambank.core.errors import NotFoundError
from streambank.repository.holds import HOLD_S, MAX_HOLD_S, Holds, add_hold, held, hold_key, holds
from streambank.repository.repository import Repository
from streambank.repository.sealed import decode_record, encode_record
from streambank.savepoint.verify import verify
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.repository.repositories import manifest_of, save
from tests.support.storage.faulty_store import Fault, FaultyStore

WRITE = frozenset({"write"})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def saved(store: Store) -> tuple[str, str]:
    manifest = save(Repository.open(store, create=True))
    return manifest.job, manifest.savepoint


def marks(store: Store) -> int:
    return len(holds(store, time.time_ns()))


def test_a_mark_is_there_from_before_until_after(store: MemoryStore) -> None:
    which = saved(store)
    work = Holds(Repository.open(store), "restore", {"user": "ann"})
    with work.held(*which):
        assert [hold.to_dict() | {"left_s": 0} for hold in holds(store, time.time_ns())] == [
            {
                "job": which[0],
                "savepoint": which[1],
                "purpose": "restore",
                "by": {"user": "ann"},
                "left_s": 0,
            }
        ]
    assert marks(store) == 0 and work.warnings == []


def test_it_ends_whatever_happens(store: MemoryStore) -> None:
    which = saved(store)
    with pytest.raises(ZeroDivisionError), Holds(Repository.open(store), "restore").held(*which):
        raise ZeroDivisionError
    assert marks(store) == 0


def test_it_is_renewed_in_the_background(store: MemoryStore) -> None:
    which = saved(store)
    with Holds(Repository.open(store), "restore", renew_s=0.01).held(*which) as keeper:
        first, deadline = keeper.keys[0], time.monotonic() + 30
        while store.exists(first):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert 1 <= marks(store) <= 3
    assert marks(store) == 0


def test_two_holders_of_one_savepoint(store: MemoryStore) -> None:
    which = saved(store)
    with Holds(Repository.open(store), "restore").held(*which):
        with Holds(Repository.open(store), "verify").held(*which):
            assert marks(store) == 2
        assert marks(store) == 1


def test_what_is_not_listed_is_not_held(store: MemoryStore) -> None:
    job, _ = saved(store)
    with pytest.raises(NotFoundError) as gone, Holds(Repository.open(store), "restore").held(job, "b000009"):
        raise AssertionError("never got here")
    assert gone.value.code == "no-such-savepoint"
    assert marks(store) == 0


@pytest.mark.parametrize("kind", ["denied", "full", "error"])
def test_reading_goes_on_where_no_mark_can_be_written(store: MemoryStore, kind: str) -> None:
    which = saved(store)
    faulty = FaultyStore(store, *(Fault(kind, call=call, operations=WRITE) for call in (1, 2)))  # type: ignore[arg-type]  # a kind
    work = Holds(Repository.open(faulty), "restore")
    done = 0
    for _ in range(2):
        with work.held(*which):
            done += 1
    assert done == 2 and len(work.warnings) == 1
    assert "is read without a hold" in work.warnings[0]
    assert len(faulty.fired) == (1 if kind == "denied" else 2)  # what is not permitted is not tried again


def test_a_lost_reply_leaves_no_mark(store: MemoryStore) -> None:
    which = saved(store)
    faulty = FaultyStore(store, Fault("lost-reply", operations=WRITE))
    with Holds(Repository.open(faulty), "restore").held(*which):
        assert marks(store) == 1
    faulty.assert_fired()
    assert marks(store) == 0


def test_renewing_and_ending_that_fail_are_told(store: MemoryStore) -> None:
    which = saved(store)
    faulty = FaultyStore(
        store, Fault("error", call=2, operations=WRITE), Fault("error", operations=frozenset({"delete"}))
    )
    work = Holds(Repository.open(faulty), "restore", renew_s=0.01)
    with work.held(*which):
        deadline = time.monotonic() + 30
        while not work.warnings:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    faulty.assert_fired()
    assert any("could not be renewed" in each for each in work.warnings)


def test_a_full_verification_holds_and_a_quick_one_does_not(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = saved(store)
    for level, record, written in (("full", True, 1), ("full", False, 0), ("quick", True, 0)):
        counting = FaultyStore(store)
        assert verify(Repository.open(counting), *which, level, record=record).ok  # type: ignore[arg-type]  # a level
        keys = [call.key for call in counting.calls if call.operation == "write" and "/hold-" in call.key]
        assert len(keys) == written
        assert marks(store) == 0


def test_a_verification_that_could_not_hold_says_so_and_finds_nothing_wrong(store: MemoryStore) -> None:
    which = saved(store)
    faulty = FaultyStore(store, Fault("error", operations=WRITE, key="/hold-"))
    report = verify(Repository.open(faulty), *which, "full")
    faulty.assert_fired()
    assert report.ok and [(each.code, each.severity) for each in report.findings] == [("not-held", "info")]


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_record_that_cannot_be_left_is_a_finding_and_the_bytes_are_judged(
    store: MemoryStore, level: VerifyLevel
) -> None:
    which = saved(store)
    faulty = FaultyStore(store, Fault("denied", operations=WRITE, key="/verified-"))
    report = verify(Repository.open(faulty), *which, level)
    faulty.assert_fired()
    assert report.ok and report.restorable
    assert [(each.code, each.severity) for each in report.findings] == [("not-recorded", "info")]


def test_a_hold_that_goes_away_while_it_is_read_counts_until_the_next_look(store: MemoryStore) -> None:
    class Ending(MemoryStore):
        @contextmanager
        def open(self, key: str) -> Iterator[BinaryIO]:
            self.delete(key)
            with super().open(key) as reader:
                yield reader

    which, ending = ("flights", manifest_of().savepoint), Ending()
    add_hold(ending, "blake3", hold_key(*which), "restore", {"user": "ann"})
    (seen,) = holds(ending, time.time_ns())
    assert (seen.which, seen.left_s, seen.holder) == (which, HOLD_S, "somebody")
    assert holds(ending, time.time_ns()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"savepoint": "b000099-000000000000"},
        {"job": "trains"},
        {"kind": "pin"},
        {"id": "0" * 32},
        {"at": "yesterday"},
        {"hold_s": "long"},
        {"boot": 7},
        {"by": 7},
    ],
    ids=str,
)
def test_a_hold_that_cannot_be_understood_counts_as_long_as_any_may(
    store: MemoryStore, change: dict[str, object]
) -> None:
    which = saved(store)
    key = hold_key(*which)
    add_hold(store, "blake3", key, "restore", {"user": "ann"})
    fields = decode_record(store.read(key), "a hold")
    del fields["digest"]
    store.write(key, encode_record(fields | change, "blake3"))
    now_ns = store.stat(key).mtime_ns
    longest = held(store, *which, now_ns)
    assert longest is not None and (longest.which, longest.left_s) == (which, MAX_HOLD_S)
    assert longest.holder == "somebody"
    assert held(store, *which, now_ns + int(MAX_HOLD_S * 1e9)) is None
