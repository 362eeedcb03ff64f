from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.claims import Claim, Claims, Clock, Holder
from streambank.control.keepalive import Keeper
from streambank.control.lease import IN_CLUSTER, Lease
from streambank.control.processes import HostId, ProcessId, process, this_process
from streambank.control.records import encode_json
from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.jobs.declared import BY, ELSEWHERE, here
from tests.support.processes import child, race, say
from tests.support.refuses import refuses
from tests.support.waiting import FakeClock, poll

HOLD = """
import sys
from streambank.control.lease import Lease
from streambank.control.processes import this_process
from streambank.storage import open_store
claim = Lease(open_store(sys.argv[1]), "j").acquire([this_process("python")])
print(claim.epoch, flush=True)
sys.stdin.readline()
"""
GRAB = """
import sys
from streambank.core.errors import RefusedError
from streambank.control.lease import Lease
from streambank.control.processes import this_process
from streambank.storage import open_store
lease = Lease(open_store(sys.argv[1]), "j")
print("ready", flush=True)
sys.stdin.readline()
try:
    epoch = lease.acquire([this_process("python")]).epoch
    print("won", epoch, flush=True)
    sys.stdin.readline()  # hold it until everybody has had a try
except RefusedError as error:
    print(error.code)
"""


def lease_of(folder: Path, *, at: HostId | None = None, clock: FakeClock | None = None) -> Lease:
    watch = Clock(clock.monotonic, clock.sleep) if clock else None
    return Lease(open_store(folder), "flights", here=at, clock=watch)


def foreign(folder: Path, clock: FakeClock, ttl_s: float = 30.0, *, in_cluster: bool = False) -> Claim:
    """The lease, held by a driver on another host."""
    lease = lease_of(folder, at=ELSEWHERE, clock=clock)
    details = {IN_CLUSTER: in_cluster}
    return lease.acquire([ProcessId("python", 1, 1)], ttl_s=ttl_s, details=details)


def state(lease: Lease) -> str:
    view = lease.view()
    assert view is not None
    return view.state


def test_epochs_count_up_and_the_end_is_recorded(tmp_path: Path) -> None:
    lease = lease_of(tmp_path)
    assert lease.view() is None
    first = lease.acquire([this_process("python")], details={"launch_id": "launch-1"})
    assert (first.epoch, state(lease), first.held()) == (1, "live", True)
    assert first.release("released", exit_code=0)
    assert not first.release(), "an end is written once"
    view = lease.view()
    assert view is not None and view.state == "ended" and view.end["exit_code"] == 0
    assert lease.acquire([this_process("python")]).epoch == 2
    assert lease.recent_launches() == {"launch-1"}


def test_a_held_lease_is_refused_with_who_since_when_and_what_to_do(tmp_path: Path) -> None:
    lease = lease_of(tmp_path)
    lease.acquire([this_process("python")])
    with pytest.raises(RefusedError) as caught:
        lease_of(tmp_path).acquire([this_process("python")])
    error = caught.value
    assert error.code == "lease-held"
    for part in (str(os.getpid()), here().host, "since 20", "epoch 1"):
        assert part in error.message
    assert "streambank job stop flights" in error.hint
    with pytest.raises(RefusedError):
        lease.require_free()


def test_of_many_processes_one_gets_the_lease(tmp_path: Path) -> None:
    said = race(GRAB, 6, tmp_path)
    assert sorted(said) == ["lease-held"] * 5 + ["won 1"]
    # They are all gone now, so of the next ones again exactly one wins, and at once.
    assert sorted(race(GRAB, 6, tmp_path)) == ["lease-held"] * 5 + ["won 2"]


def test_a_stopped_holder_is_not_replaced_and_a_killed_one_at_once(tmp_path: Path) -> None:
    with child(HOLD, tmp_path) as holder:
        assert say(holder) == "1"
        os.kill(holder.pid, signal.SIGSTOP)
        lease = lease_of(tmp_path)
        with pytest.raises(RefusedError):
            lease.acquire([this_process("python")])
        os.kill(holder.pid, signal.SIGKILL)
        poll(lambda: state(lease) == "dead")
        assert lease.acquire([this_process("python")]).epoch == 2


def test_a_holder_lives_while_any_of_its_processes_does(tmp_path: Path) -> None:
    with (
        child("print('up', flush=True); input()") as python,
        child("print('up', flush=True); input()") as jvm,
    ):
        known = [process(one.pid, role) for one, role in ((python, "python"), (jvm, "jvm")) if say(one)]
        lease = lease_of(tmp_path)
        lease.acquire([one for one in known if one is not None])
        python.kill()
        python.wait()
        view = lease.view()
        assert view is not None and view.state == "live" and view.fading and "jvm" in view.why
        clock = FakeClock()
        with pytest.raises(RefusedError):
            lease_of(tmp_path, clock=clock).require_free()
        assert 5 <= clock.now - 1000 < 7, "the other process gets a moment to follow, and no more"
        jvm.kill()
        jvm.wait()
        assert state(lease) == "dead"


def test_a_holder_whose_other_process_follows_in_a_moment_is_replaced(tmp_path: Path) -> None:
    with (
        child("print('up', flush=True); input()") as python,
        child("print('up', flush=True); input()") as jvm,
    ):
        known = [process(one.pid, role) for one, role in ((python, "python"), (jvm, "jvm")) if say(one)]
        lease = lease_of(tmp_path)
        lease.acquire([one for one in known if one is not None])
        jvm.kill()
        jvm.wait()
        following = threading.Timer(0.4, python.kill)
        following.start()
        assert lease_of(tmp_path).acquire([this_process("python")]).epoch == 2
        following.join()


def test_a_later_process_with_the_holders_pid_does_not_keep_it_alive(tmp_path: Path) -> None:
    ours = this_process("python")
    lease = lease_of(tmp_path)
    lease.acquire([replace(ours, start_ticks=ours.start_ticks - 100)])
    assert state(lease) == "dead"


def test_a_holder_elsewhere_is_judged_by_its_beat_on_the_observers_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = foreign(tmp_path, clock)
    lease = lease_of(tmp_path, clock=clock)
    assert state(lease) == "unknown"
    clock.now += 29
    assert state(lease) == "unknown"
    assert claim.beat({"state": "running"})
    assert state(lease) == "live", "it moved under our eyes"
    clock.now += 29
    assert state(lease) == "live"
    clock.now += 1
    assert state(lease) == "dead"
    claim.beat()
    assert state(lease) == "live", "not replaced yet, so its next beat brings it back"


def test_taking_over_from_elsewhere_waits_for_the_holders_own_ttl(tmp_path: Path) -> None:
    clock = FakeClock()
    foreign(tmp_path, clock, ttl_s=120.0)
    lease = lease_of(tmp_path, clock=clock)
    began = clock.now
    assert lease.acquire([this_process("python")], ttl_s=5.0).epoch == 2
    assert clock.now - began >= 120
    view = lease.view()
    assert view is not None and view.holder is not None
    assert view.holder.details["replaces"]["epoch"] == 1


def test_a_beating_holder_elsewhere_is_refused_soon(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = foreign(tmp_path, clock)
    original = clock.sleep

    def sleep(seconds: float) -> None:
        original(seconds)
        claim.beat()

    lease = Lease(open_store(tmp_path), "flights", clock=Clock(clock.monotonic, sleep))
    began = clock.now
    with pytest.raises(RefusedError, match="elsewhere"):
        lease.acquire([this_process("python")])
    assert clock.now - began < 5


def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    claim = foreign(tmp_path, clock)
    lease = lease_of(tmp_path, clock=clock)
    state(lease)
    from datetime import UTC, datetime

    monkeypatch.setattr("streambank.control.claims.utc_now", lambda: datetime(1999, 1, 1, tzinfo=UTC))
    claim.beat()
    assert state(lease) == "live"


def test_a_container_on_the_same_machine_is_elsewhere(tmp_path: Path) -> None:
    clock = FakeClock()
    container = replace(here(), pid_namespace="pid:[42]")
    lease_of(tmp_path, at=container, clock=clock).acquire([ProcessId("python", 2**22 - 7, 1)])
    assert state(lease_of(tmp_path, clock=clock)) == "unknown", (
        "its pids mean nothing here, so it is not dead"
    )


def test_a_replaced_holder_finds_out_with_its_next_beat(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = foreign(tmp_path, clock)
    assert claim.beat()
    lease_of(tmp_path, clock=clock).acquire([this_process("python")])
    assert not claim.beat()
    assert not claim.held()
    with refuses(ConflictError, "claim-lost"):
        claim.check()


def test_a_living_lease_is_broken_only_when_that_is_meant(tmp_path: Path) -> None:
    lease = lease_of(tmp_path)
    assert lease.break_off(by=BY, why="nothing to break") is None
    claim = lease.acquire([this_process("python")])
    with pytest.raises(RefusedError):
        lease.break_off(by=BY, why="impatience")
    broken = lease.break_off(by=BY, why="it hangs", even_live=True)
    assert broken is not None and broken.epoch == 1
    assert not claim.beat(), "its holder must see it"
    view = lease.view()
    assert view is not None and view.state == "ended" and view.end["why"] == "it hangs"


def test_a_lease_elsewhere_can_be_broken_without_waiting(tmp_path: Path) -> None:
    clock = FakeClock()
    foreign(tmp_path, clock)
    lease = lease_of(tmp_path, clock=clock)
    began = clock.now
    assert lease.break_off(by=BY, why="that machine burnt down") is not None
    lease.require_free()
    assert clock.now == began


def _held_by(pid: int, without: str = "") -> bytes:
    holder = Holder(ELSEWHERE, (ProcessId("python", pid, 1),)).to_dict()
    holder.pop(without, None)
    return encode_json({"at": "2026-01-01T00:00:00Z", **holder})


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"at": "2026',
        b"{}",
        b'{"at": "2026-01-01T00:00:00Z", "host": 1}',
        pytest.param(_held_by(2**63), id="no pid is as large"),
        pytest.param(_held_by(-1), id="a pid that means all processes"),
        pytest.param(_held_by(1, "ttl_s"), id="nobody knows how long it lasts"),
    ],
)
def test_a_lease_that_cannot_be_read_is_never_taken_over(tmp_path: Path, damage: bytes) -> None:
    clock = FakeClock()
    lease_of(tmp_path).acquire([this_process("python")])
    (tmp_path / "lease" / "0000000001.json").write_bytes(damage)
    lease = lease_of(tmp_path, clock=clock)
    assert state(lease) == "unknown"
    clock.now += 10_000
    with pytest.raises(RefusedError) as caught:
        lease.acquire([this_process("python")])
    assert "break" in caught.value.hint
    lease.break_off(by=BY, why="looked at it")
    assert lease.acquire([this_process("python")]).epoch == 2


def test_half_a_beat_is_still_a_beat(tmp_path: Path) -> None:
    clock = FakeClock()
    claim = foreign(tmp_path, clock)
    claim.beat({"state": "running"})
    lease = lease_of(tmp_path, clock=clock)
    state(lease)
    (tmp_path / "lease" / "0000000001.beat.json").write_bytes(b'{"beat": 2, "a')
    view = lease.view()
    assert view is not None
    assert (view.state, view.status, view.beat_at) == ("live", {}, None)


def test_an_end_that_is_half_written_is_an_end(tmp_path: Path) -> None:
    lease = lease_of(tmp_path)
    lease.acquire([this_process("python")]).release()
    (tmp_path / "lease" / "0000000001.end.json").write_bytes(b"{")
    assert state(lease) == "ended"


def test_an_operation_under_the_lease_keeps_drivers_out(tmp_path: Path) -> None:
    lease = lease_of(tmp_path)
    with lease.held("restore", by=BY) as claim:
        with pytest.raises(RefusedError):
            lease_of(tmp_path).acquire([this_process("python")])
        view = lease.view()
        assert view is not None and view.holder is not None
        assert view.holder.details["purpose"] == "restore"
        claim.check()
    assert state(lease) == "ended"


def test_an_operation_does_not_believe_that_a_silent_driver_in_a_cluster_is_gone(tmp_path: Path) -> None:
    clock = FakeClock()
    foreign(tmp_path, clock, in_cluster=True)
    lease = lease_of(tmp_path, clock=clock)
    with (
        pytest.raises(RefusedError, match="its cluster may still run it") as raised,
        lease.held("restore", by=BY),
    ):
        pass
    assert raised.value.code == "lease-held"
    assert "job stop flights" in raised.value.hint and "job break flights" in raised.value.hint
    assert state(lease) == "dead", "and nobody took it"
    lease.claims.end(1, "died", by=BY)  # as a stop does that has asked the cluster
    with lease.held("restore", by=BY) as claim:
        assert claim.epoch == 2


def test_an_operation_takes_over_from_a_silent_driver_outside_a_cluster(tmp_path: Path) -> None:
    clock = FakeClock()
    foreign(tmp_path, clock)
    with lease_of(tmp_path, clock=clock).held("restore", by=BY) as claim:
        assert claim.epoch == 2


class Broken:
    """A store whose writes fail while `failing` says so."""

    def __init__(self, inner: Store, failing: Callable[[], bool]) -> None:
        self.inner = inner
        self.failing = failing

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def write(self, key: str, data: bytes, *, exclusive: bool = False) -> None:
        if self.failing():
            raise StorageError("the network is away")
        self.inner.write(key, data, exclusive=exclusive)


def holder(ttl_s: float) -> Holder:
    return Holder(ELSEWHERE, (ProcessId("python", 1, 1),), {}, beat_s=0.01, ttl_s=ttl_s)


def test_a_keeper_tells_once_that_the_lease_was_lost(tmp_path: Path) -> None:
    claims = Claims(open_store(tmp_path), "lease")
    claim = claims.claim(holder(30.0))
    assert isinstance(claim, Claim)
    told: list[str] = []
    lost = threading.Event()

    def tell(why: str) -> None:
        told.append(why)
        lost.set()

    keeper = Keeper(claim, on_lost=tell).start()
    claims.end(claim.epoch, "broken")
    assert lost.wait(10)
    keeper.stop()
    assert told == ["another holder took over"] == [keeper.lost]


def test_a_keeper_rides_out_a_short_failure_but_not_one_as_long_as_the_ttl(tmp_path: Path) -> None:
    failing = threading.Event()
    store = Broken(open_store(tmp_path), failing.is_set)
    claim = Claims(store, "lease").claim(holder(1.0))  # type: ignore[arg-type]  # it passes everything else on
    assert isinstance(claim, Claim)
    lost = threading.Event()
    keeper = Keeper(claim, on_lost=lambda why: lost.set()).start()
    failing.set()
    assert not lost.wait(0.3)
    failing.clear()
    beats = claim._beats
    poll(lambda: claim._beats > beats + 3)
    failing.set()
    assert lost.wait(10)
    assert "no heartbeat could be confirmed" in str(keeper.lost)
    assert claim.overdue_s() < 0.5, "it must be gone about when others may take over"
    keeper.stop()
