from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest

from streambank.control.claims import Clock
from streambank.control.operation import OperationLock, WaitLog
from streambank.core.errors import ConflictError, RefusedError
from streambank.storage import open_store
from tests.support.jobs.declared import BY, ELSEWHERE
from tests.support.processes import child, race, say
from tests.support.refuses import refuses
from tests.support.waiting import FakeClock, poll

HOLD = """
import sys
from streambank.control.control import JobControl
with JobControl.open(sys.argv[1], "flights").operation(sys.argv[2], by={"user": "other"}):
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
sys.stdin.readline()
"""
TAKE_TURNS = """
import sys, pathlib
from streambank.control.control import JobControl
control = JobControl.open(sys.argv[1], "flights")
inside = pathlib.Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(4):
    with control.operation("start", by={}, wait_s=60) as operation:
        inside.mkdir()  # fails where somebody else is inside
        operation.check()
        inside.rmdir()
print("fine")
"""


def lock_of(folder: Path) -> OperationLock:
    return OperationLock(open_store(folder).child("flights"), "flights")


def test_one_operation_at_a_time_and_the_other_is_told_who(tmp_path: Path) -> None:
    with child(HOLD, tmp_path, "restore") as other:
        assert say(other) == "held"
        with pytest.raises(ConflictError) as caught, lock_of(tmp_path).hold("start", by=BY):
            pass
        assert caught.value.code == "operation-in-progress"
        assert "restore" in caught.value.message and str(other.pid) in caught.value.message
        assert caught.value.retryable


def test_waiting_ends_when_the_other_one_does(tmp_path: Path) -> None:
    with child(HOLD, tmp_path, "stop") as other:
        say(other)
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()
        with lock_of(tmp_path).hold("start", by=BY, wait_s=20) as operation:
            operation.check()


def test_many_processes_take_turns(tmp_path: Path) -> None:
    assert race(TAKE_TURNS, 4, tmp_path, tmp_path / "inside") == ["fine"] * 4


def test_the_lock_of_a_killed_process_is_seen_and_free_at_once(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    with child(HOLD, tmp_path, "restore") as other:
        say(other)
        os.kill(other.pid, signal.SIGKILL)
        poll(lambda: (view := lock.view()) is not None and view.state == "dead")
        with lock.hold("start", by=BY):
            view = lock.view()
            assert view is not None and view.holder is not None
            assert view.holder.details["replaces"]["epoch"] == 1


def test_a_dead_lock_can_be_broken_and_a_living_one_only_when_meant(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    assert lock.break_off(by=BY, why="nothing there") is None
    with pytest.raises(ConflictError) as caught, lock.hold("restore", by=BY) as operation:
        with refuses(RefusedError, "operation-live"):
            lock_of(tmp_path).break_off(by=BY, why="impatience")
        assert lock_of(tmp_path).break_off(by=BY, why="it hangs", even_live=True) is not None
        operation.check()
    assert caught.value.code == "claim-lost"
    with lock.hold("start", by=BY):
        pass


def test_a_lock_held_elsewhere_is_free_after_its_ttl(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = Clock(clock.monotonic, clock.sleep)
    store = open_store(tmp_path)
    from streambank.control.claims import Claim, Holder
    from streambank.control.processes import ProcessId

    theirs = OperationLock(store, "flights", here=ELSEWHERE, clock=watch)
    claim = theirs.claims.claim(
        Holder(ELSEWHERE, (ProcessId("operation", 1, 1),), {"operation": "restore"}, 1.0, 30.0)
    )
    assert isinstance(claim, Claim)
    began = clock.now
    with OperationLock(store, "flights", clock=watch).hold("start", by=BY):
        assert clock.now - began >= 30


def test_the_lock_is_let_go_when_the_operation_fails(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    with pytest.raises(ZeroDivisionError), lock.hold("restore", by=BY):
        raise ZeroDivisionError
    with lock.hold("start", by=BY):
        pass


@pytest.mark.parametrize(
    ("every_s", "expected"),
    [
        (0, ["one ...", "one: 0 s so far ...", "two ...", "one ..."]),
        (1000, ["one ...", "two ...", "one ..."]),
    ],
)
def test_a_wait_is_logged_once_and_again_while_it_lasts(
    every_s: float, expected: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streambank.control.operation.LOGGED_EVERY_S", every_s)
    caplog.set_level(logging.INFO, "streambank")
    waits = WaitLog(logging.getLogger("streambank.job.start"))
    for text in ("one", "one", "two", "one"):
        waits(text)
    assert caplog.messages == expected
