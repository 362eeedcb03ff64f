"""A claim that failed, or seemed to: it blocks nobody for good, and is never taken for one that is held."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streambank.control import claims as module
from streambank.control.claims import Claim, Claims, ClaimView, Holder
from streambank.control.control import JobControl
from streambank.control.place import MOVED
from streambank.control.processes import this_host, this_process
from streambank.core.errors import ConflictError, StorageError
from streambank.storage import open_store
from streambank.storage.local.reserve import RESERVE
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from tests.support.jobs.declared import BY
from tests.support.waiting import poll

FIRST = "operation/0000000001.json"


class Failing(LocalStore):
    """The first write of a key fails: before it is made, after it, or long before it comes."""

    def __init__(self, root: Path, key: str = FIRST, *, written: bool = False) -> None:
        super().__init__(root)
        self._failing = key
        self._written = written
        self.code = "not-reachable"
        self.failed: bytes | None = None
        self.before: Callable[[], object] = lambda: None

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        if key != self._failing or self.failed is not None:
            super().write(key, data, exclusive=exclusive)
            return
        assert isinstance(data, bytes)
        self.failed = data
        self.before()
        if self._written:
            super().write(key, data, exclusive=exclusive)
        raise StorageError("The answer was lost.", code=self.code, hint="Try again.")


@pytest.fixture
def one_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """All claims are made in it."""
    moment = datetime(2026, 11, 29, 12, 0, 0, 1000, tzinfo=UTC)
    monkeypatch.setattr(module, "utc_now", lambda: moment)


def holder(**more: Any) -> Holder:
    return Holder(this_host(), (this_process("operation"),), {"operation": "start", "by": BY}, **more)


def claimed(store: LocalStore, **more: Any) -> Claim:
    claim = Claims(store, "operation").claim(holder(**more))
    assert isinstance(claim, Claim)
    return claim


def view_of(folder: Path) -> ClaimView:
    view = Claims(open_store(folder), "operation").view()
    assert view is not None
    return view


def as_another_process(look: Callable[[], bool]) -> bool:
    """Whether it is so for a process of this host that has let go of nothing."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if look() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def ending(folder: Path) -> list[str]:
    names = [one.name for one in threading.enumerate()]
    return [one for one in names if one.startswith("end-") and str(folder) in one]


@pytest.mark.usefixtures("one_millisecond")
def test_a_claim_lives_although_one_failed_in_the_same_millisecond(tmp_path: Path) -> None:
    store = Failing(tmp_path)
    with pytest.raises(StorageError, match="lost"):
        claimed(store)
    assert store.failed is not None and not store.exists(FIRST)
    claim = claimed(store)
    assert claim.epoch == 1 and view_of(tmp_path).state == "live"
    assert isinstance(Claims(open_store(tmp_path), "operation").claim(holder()), ClaimView)
    assert claim.release()
    assert view_of(tmp_path).state == "ended"


@pytest.mark.usefixtures("one_millisecond")
def test_of_two_threads_at_one_epoch_one_fails_and_the_other_holds(tmp_path: Path) -> None:
    got: list[Claim] = []

    def other() -> None:
        thread = threading.Thread(target=lambda: got.append(claimed(LocalStore(tmp_path))))
        thread.start()
        thread.join()

    store = Failing(tmp_path)
    store.before = other
    with pytest.raises(StorageError, match="lost"):
        claimed(store, beat_s=0.01, ttl_s=0.05)
    assert store.failed is not None
    assert [one.epoch for one in got] == [1] and got[0].held() and view_of(tmp_path).state == "live"
    poll(lambda: not ending(tmp_path))
    assert got[0].beat() and view_of(tmp_path).state == "live", "what the failed one ends is its own"


def test_a_claim_whose_answer_was_lost_blocks_no_other_process(tmp_path: Path) -> None:
    store = Failing(tmp_path, written=True)
    with pytest.raises(StorageError, match="lost"), JobControl(store, "orders").operation("start", by=BY):
        pass
    assert store.failed is not None and store.exists(FIRST)
    assert as_another_process(lambda: view_of(tmp_path).free)
    with JobControl(LocalStore(tmp_path), "orders").operation("start", by=BY):
        assert as_another_process(lambda: view_of(tmp_path).state == "live"), "one that is held is in the way"
    assert not ending(tmp_path)


def test_it_is_ended_at_last_where_its_end_fails_too(tmp_path: Path) -> None:
    class Unreadable(Failing):
        reachable = False
        refused = 0

        def open(self, key: str, **more: Any) -> Any:
            if self.failed is not None and not self.reachable:
                self.refused += 1
                raise StorageError("It is not reachable.", code="not-reachable", hint="Try again.")
            return super().open(key, **more)

    store = Unreadable(tmp_path, written=True)
    with pytest.raises(StorageError, match="lost"):
        claimed(store, beat_s=0.01, ttl_s=0.02)
    poll(lambda: store.refused > 9)  # what is not known is asked for longer than the TTL
    assert as_another_process(lambda: view_of(tmp_path).state == "live")
    assert view_of(tmp_path).state == "dead", "this process knows that it does not hold it"
    store.reachable = True
    poll(lambda: view_of(tmp_path).state == "ended")
    poll(lambda: not ending(tmp_path))


def test_a_write_that_comes_late_is_ended_too(tmp_path: Path) -> None:
    store = Failing(tmp_path)
    with pytest.raises(StorageError, match="lost"):
        claimed(store, beat_s=0.01, ttl_s=600.0)
    assert not store.exists(FIRST) and not store.exists(FIRST.replace(".json", ".end.json"))
    assert store.failed is not None
    store.write(FIRST, store.failed, exclusive=True)
    poll(lambda: view_of(tmp_path).state == "ended")
    poll(lambda: not ending(tmp_path))


def test_what_never_comes_is_waited_for_no_longer_than_the_ttl(tmp_path: Path) -> None:
    store = Failing(tmp_path)
    with pytest.raises(StorageError, match="lost"):
        claimed(store, beat_s=0.01, ttl_s=0.05)
    poll(lambda: not ending(tmp_path))
    assert Claims(store, "operation").view() is None, "nothing was ended that is not there"


def test_a_write_that_is_repeated_meets_its_own_record(tmp_path: Path) -> None:
    """A disk that says "full" after it has written is asked once more, with a part of its reserve less."""
    store = Failing(tmp_path, written=True)
    store.code = "disk-full"
    (tmp_path / RESERVE).mkdir()
    (tmp_path / RESERVE / "01").write_bytes(b"0")
    claim = claimed(store)
    assert store.failed is not None and not (tmp_path / RESERVE / "01").exists()
    assert claim.epoch == 1 and claim.held()
    assert view_of(tmp_path).state == "live"
    assert claim.release()


def test_records_that_were_moved_say_so_also_where_the_end_fails(tmp_path: Path) -> None:
    class Full(Failing):
        refused = 0
        room = False

        def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
            if key.endswith(".end.json") and not self.room:
                self.refused += 1
                raise StorageError("No space left on device.", code="io-error", hint="Make room.")
            super().write(key, data, exclusive=exclusive)

    store = Full(tmp_path, "nothing")
    store.write(MOVED, b"{}")
    with pytest.raises(ConflictError) as caught:
        claimed(store, beat_s=0.01)
    assert caught.value.code == "records-moved" and store.refused
    store.room = True
    poll(lambda: view_of(tmp_path).state == "ended")


def test_a_record_that_names_no_token_is_that_of_nobody_here(tmp_path: Path) -> None:
    """As another program writes it; and one whose token is no text ends no look."""
    for token in ({}, {"token": ""}, {"token": ["a"]}, {"token": {"a": 1}}):
        store = MemoryStore()
        claims = Claims(store, "operation")
        claims.records.create(1, {"at": "2026-11-29T12:00:00.001Z", **token, **holder().to_dict()})
        view = claims.view()
        assert view is not None and view.state == "live" and view.holder == holder()
