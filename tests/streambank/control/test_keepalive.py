"""A claim whose beats do not arrive: its holder is gone before others may take over, however they fail."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.control.claims import Claim, Claims, Clock, Holder
from streambank.control.keepalive import Keeper
from streambank.control.processes import ProcessId
from streambank.core.errors import StorageError
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.jobs.declared import ELSEWHERE
from tests.support.storage.small_disk import FullStore, small_disk
from tests.support.waiting import FakeClock, poll


class Hanging:
    """A store whose writes hang while that is wanted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.answers = threading.Event()
        self.answers.set()
        self.hung = 0

    def write(self, *args: object, **kwargs: object) -> None:
        if not self.answers.is_set():
            self.hung += 1
            self.answers.wait()
        self._store.write(*args, **kwargs)  # type: ignore[arg-type]  # as it was called

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Hanging]:
    found = Hanging(open_store(tmp_path))
    yield found
    found.answers.set()


def claimed(store: Any, *, beat_s: float, ttl_s: float, clock: Clock | None = None) -> Claim:
    holder = Holder(ELSEWHERE, (ProcessId("python", 1, 1),), {}, beat_s, ttl_s)
    claim = Claims(store, "lease", clock=clock).claim(holder)
    assert isinstance(claim, Claim)
    return claim


def test_who_holds_a_claim_is_gone_in_time_although_a_beat_hangs(store: Hanging) -> None:
    claim = claimed(store, beat_s=0.1, ttl_s=2.0)
    overdue: list[float] = []
    keeper = Keeper(claim, on_lost=lambda why: overdue.append(claim.overdue_s())).start()
    store.answers.clear()
    poll(lambda: overdue)
    assert store.hung == 1 and overdue[0] < 0.0, "others may have taken over before"
    assert keeper.lost == "no heartbeat could be confirmed for 2 s: it hangs"
    store.answers.set()
    keeper.stop()
    assert len(overdue) == 1


def test_a_log_that_hangs_does_not_keep_a_driver_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the log may be that of the records: the claim must be given up without waiting for it."""
    claim = claimed(open_store(tmp_path), beat_s=0.1, ttl_s=2.0)
    written, hung = threading.Event(), threading.Event()

    class Hangs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            hung.set()
            written.wait()

    failing = threading.Event()

    def status() -> dict[str, object]:
        if failing.is_set():
            raise StorageError("The disk is gone.")
        return {}

    log = logging.getLogger("streambank.control.keepalive")
    handler = Hangs()
    log.addHandler(handler)
    overdue: list[float] = []
    keeper = Keeper(claim, on_lost=lambda why: overdue.append(claim.overdue_s()), status=status).start()
    try:
        failing.set()
        poll(lambda: overdue)
        assert hung.is_set(), "a line was written, and hung"
        assert overdue[0] < 0.0, "others may have taken over before"
    finally:
        written.set()
        log.removeHandler(handler)
        keeper.stop()


def test_a_heartbeat_that_fails_is_logged_once_and_its_end_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claim = claimed(open_store(tmp_path), beat_s=0.02, ttl_s=30.0)
    failing = threading.Event()

    def status() -> dict[str, object]:
        if failing.is_set():
            raise StorageError("The disk is gone.")
        return {}

    caplog.set_level(logging.INFO, "streambank.control.keepalive")
    keeper = Keeper(claim, status=status).start()
    failing.set()
    poll(lambda: caplog.messages)
    time.sleep(0.2)
    failing.clear()
    poll(lambda: len(caplog.messages) > 1)
    keeper.stop()
    where = f"lease of {open_store(tmp_path).uri}"
    assert caplog.messages == [
        f"A heartbeat of {where} was not written: The disk is gone.",
        f"Heartbeats of {where} are written again.",
    ]


def test_beats_that_hang_for_a_while_lose_nothing(store: Hanging) -> None:
    claim = claimed(store, beat_s=0.1, ttl_s=4.0)
    keeper = Keeper(claim, on_lost=lambda why: None).start()
    store.answers.clear()
    poll(lambda: store.hung)
    time.sleep(1.0)
    store.answers.set()
    beats = claim._beats
    poll(lambda: claim._beats > beats + 3)
    assert keeper.lost is None
    keeper.stop()


def test_an_operation_rides_out_a_beat_that_hangs_for_longer_than_the_ttl(store: Hanging) -> None:
    claim = claimed(store, beat_s=0.05, ttl_s=0.3)
    keeper = Keeper(claim).start()
    store.answers.clear()
    poll(lambda: claim.overdue_s() > 0)
    store.answers.set()
    poll(lambda: claim.overdue_s() < 0)
    assert keeper.lost is None and claim.held()
    keeper.stop()


def test_any_failure_of_a_beat_is_one_of_silence(tmp_path: Path) -> None:
    claim = claimed(open_store(tmp_path), beat_s=0.05, ttl_s=1.0)
    failing = threading.Event()

    def status() -> dict[str, object]:
        if failing.is_set():
            raise KeyError("secret")
        return {}

    lost: list[str] = []
    keeper = Keeper(claim, on_lost=lost.append, status=status).start()
    failing.set()
    poll(lambda: claim.overdue_s() > -0.8)
    failing.clear()
    poll(lambda: claim.overdue_s() < -0.9)
    assert keeper.lost is None, "it beats again after an error of any kind"
    failing.set()
    poll(lambda: lost)
    assert lost == ["no heartbeat could be confirmed for 1 s: KeyError"] and claim.overdue_s() < 0.2
    keeper.stop()


def test_who_was_frozen_and_was_not_replaced_goes_on(tmp_path: Path) -> None:
    clock = FakeClock()
    started = time.monotonic()
    ticking = Clock(lambda: clock.now + time.monotonic() - started)
    claim = claimed(open_store(tmp_path), beat_s=0.5, ttl_s=5.0, clock=ticking)
    lost: list[str] = []
    keeper = Keeper(claim, on_lost=lost.append).start()
    clock.now += 60.0
    assert claim.overdue_s() > 0
    poll(lambda: claim.overdue_s() < 0)
    time.sleep(0.5)
    assert lost == []
    keeper.stop()


def kept(store: FullStore, lost: list[str], *, ttl_s: float) -> tuple[Claim, Keeper]:
    claim = claimed(store, beat_s=0.02, ttl_s=ttl_s)
    keeper = Keeper(claim, on_lost=lost.append, status=lambda: {"state": "running"}).start()
    poll(lambda: claim._beats > 2)
    return claim, keeper


def test_a_full_disk_takes_no_claim_and_others_see_that_its_holder_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its beats are written into the place of the last one, so nobody else has a reason to take over."""
    caplog.set_level(logging.INFO, "streambank.control.keepalive")
    store, lost = FullStore(tmp_path), list[str]()
    claim, keeper = kept(store, lost, ttl_s=0.5)
    store.full = True
    observer = Claims(open_store(tmp_path), "lease")  # on another host than the holder
    began = time.monotonic()
    while time.monotonic() - began < 1.2:
        view = observer.view()
        assert view is not None and view.state in ("unknown", "live")
        time.sleep(0.05)
    view = observer.view()
    assert view is not None and view.state == "live" and view.status in ({"state": "running"}, {})
    assert keeper.lost is None and not lost and claim.cramped is not None
    store.full = False
    poll(lambda: claim.cramped is None)
    poll(lambda: len(caplog.messages) == 2)
    keeper.stop()
    went, back = caplog.messages
    assert "No space left on device" in went and back.endswith("have room again.")


def test_a_claim_that_is_taken_while_the_disk_is_full_is_lost_at_once(tmp_path: Path) -> None:
    store, lost = FullStore(tmp_path), list[str]()
    claim, keeper = kept(store, lost, ttl_s=600.0)
    store.full = True
    poll(lambda: claim.cramped)
    claimed_by_another(tmp_path, claim)
    assert poll(lambda: lost) == ["another holder took over"]
    keeper.stop()


def test_a_claim_that_is_taken_while_no_beat_can_be_written_is_lost_at_once(tmp_path: Path) -> None:
    """Not only at the end of the TTL: whether another holder is there can be read all the same."""
    store, lost = FullStore(tmp_path), list[str]()
    claim, keeper = kept(store, lost, ttl_s=600.0)
    store.full = store.stuck = True
    beats = claim._beats
    poll(lambda: claim._beats > beats + 3)
    assert not lost
    claimed_by_another(tmp_path, claim)
    assert poll(lambda: lost) == ["another holder took over"]
    keeper.stop()


def test_a_holder_that_can_write_no_beat_at_all_is_gone_before_others_may_take_over(tmp_path: Path) -> None:
    store, overdue = FullStore(tmp_path), list[float]()
    claim = claimed(store, beat_s=0.05, ttl_s=2.0)
    keeper = Keeper(claim, on_lost=lambda why: overdue.append(claim.overdue_s())).start()
    store.full = store.stuck = True
    assert poll(lambda: overdue)[0] < 0.0
    assert keeper.lost is not None and "No space left on device" in keeper.lost
    keeper.stop()


def test_a_claim_whose_first_beat_cannot_be_written_is_given_back(tmp_path: Path) -> None:
    """Its process may live on: it would be in the way of all others for good."""
    store = FullStore(tmp_path)
    claim = claimed(store, beat_s=1.0, ttl_s=30.0)
    store.full = True
    with pytest.raises(StorageError):
        Keeper(claim).start()
    view = Claims(open_store(tmp_path), "lease").view()
    assert view is not None and view.state == "ended"
    assert view.why == "its holder gave it back, on a disk without room for a word"


def test_how_a_holder_ended_is_known_from_a_full_disk_too(tmp_path: Path) -> None:
    """A driver that failed must not look like one that was stopped."""
    store = FullStore(tmp_path)
    claim, keeper = kept(store, [], ttl_s=600.0)
    keeper.stop()
    store.full = True
    assert claim.release(exit_code=1)
    view = Claims(open_store(tmp_path), "lease").view()
    assert view is not None and (view.state, view.end["exit_code"]) == ("ended", 1)
    assert view.why == "its holder ended with exit code 1 and gave it back"
    assert not claim.release(exit_code=0), "it has ended already"


def claimed_by_another(folder: Path, claim: Claim) -> None:
    """What a person does who breaks the lease, and the next driver."""
    others = Claims(open_store(folder), "lease", here=ELSEWHERE)
    others.end(claim.epoch, "broken")
    assert isinstance(others.claim(claim.holder), Claim)


@pytest.mark.storm
@pytest.mark.parametrize("files", [None, 64])
def test_a_disk_that_is_really_full_takes_no_claim(tmp_path: Path, files: int | None) -> None:
    with small_disk(tmp_path / "disk", 8 << 20, files=files) as disk:
        claim = claimed(open_store(disk.folder), beat_s=0.02, ttl_s=1.0)
        keeper = Keeper(claim, on_lost=lambda why: None).start()
        # Again and again: a beat that is being written gives its room back.
        use_up = disk.fill if files is None else disk.use_up_files
        poll(lambda: use_up() or claim.cramped)
        time.sleep(3.0)
        assert keeper.lost is None
        disk.free()
        poll(lambda: claim.cramped is None)
        keeper.stop()
        assert claim.release()
