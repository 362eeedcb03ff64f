"""A disk that is full for a moment keeps a job locked for as long as the process lives that worked on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from streambank.control.claims import Clock
from streambank.control.control import JobControl
from streambank.control.operation import OperationLock
from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from streambank.upgrade.record import upgrading
from tests.support.jobs.declared import BY, ELSEWHERE
from tests.support.processes import child, say
from tests.support.waiting import FakeClock, poll

WAIT_FOR_IT = """
import sys
from streambank.control.control import JobControl
from streambank.core.errors import ConflictError
control = JobControl.open(sys.argv[1], "orders")
try:
    with control.operation("stop", by={}):
        print("free", flush=True)
except ConflictError as error:
    print(error.code, flush=True)
sys.stdin.readline()
with control.operation("stop", by={}, wait_s=20):
    print("free", flush=True)
"""


class Full(LocalStore):
    """A disk that has room for all but ends; with `disk-full` a claim tells of its end otherwise, too."""

    refused = 0
    room = False
    code = "io-error"

    def _refuse(self, key: str) -> None:
        if key.endswith(".end.json") and not self.room:
            self.refused += 1
            raise StorageError("No space left on device.", code=self.code, hint="Make room.")

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        self._refuse(key)
        super().write(key, data, exclusive=exclusive)

    def link_from(self, source: Store, source_key: str, key: str) -> bool:
        self._refuse(key)
        return super().link_from(source, source_key, key)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Full]:
    found = Full(tmp_path / "orders")
    yield found
    found.room = True  # whoever tries to write an end on it comes to an end


def ending(disk: Full) -> list[str]:
    """Threads that try to write an end."""
    names = [one.name for one in threading.enumerate()]
    return [one for one in names if one.startswith("end-") and disk.uri in one]


def control_of(disk: Store, **more: Any) -> JobControl:
    return JobControl(disk, "orders", **more)


def unended(disk: Full) -> JobControl:
    """A job on which an operation has worked whose end could not be written."""
    control = control_of(disk)
    lock = control.operation_lock
    with pytest.raises(StorageError, match="No space"), lock.hold("restore", by=BY, beat_s=0.05):
        pass
    assert disk.refused, "the fault fired"
    return control


HELD: list[tuple[str, Callable[[JobControl], AbstractContextManager[object]]]] = [
    ("operation", lambda control: control.operation("start", by=BY)),
    ("lease", lambda control: control.lease.held("restore", by=BY)),
    ("upgrade", lambda control: upgrading(control, BY)),
]


@pytest.mark.parametrize("hold", [one for _, one in HELD], ids=[name for name, _ in HELD])
def test_the_process_that_has_let_go_works_on_at_once(
    disk: Full, hold: Callable[[JobControl], AbstractContextManager[object]]
) -> None:
    with pytest.raises(StorageError, match="No space"), hold(control_of(disk)):
        pass
    before = disk.refused
    assert before
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(StorageError, match="No space"))
        stack.enter_context(hold(control_of(disk)))
        with pytest.raises((ConflictError, RefusedError)):
            hold(control_of(disk)).__enter__()
    assert disk.refused > before


def test_how_it_was_is_said(disk: Full) -> None:
    lock = unended(disk).operation_lock
    view = lock.view()
    assert view is not None
    assert (view.state, view.why) == ("dead", "this process has let go of it, and could not record that")
    disk.room = True
    with lock.hold("start", by=BY):
        held = lock.view()
        assert held is not None and held.holder is not None and held.state == "live"
        assert held.holder.details["replaces"]["why"] == view.why


def test_another_process_gets_the_lock_once_there_is_room_again(disk: Full, tmp_path: Path) -> None:
    unended(disk)
    with child(WAIT_FOR_IT, tmp_path) as other:
        assert say(other) == "operation-in-progress", "it sees that this process lives"
        disk.room = True
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()
        assert say(other) == "free"


def test_another_host_gets_the_lock_after_its_ttl(disk: Full) -> None:
    unended(disk)
    clock = FakeClock()
    began = clock.now
    theirs = OperationLock(disk, "orders", here=ELSEWHERE, clock=Clock(clock.monotonic, clock.sleep))
    view = theirs.view()
    assert view is not None and view.state == "unknown"
    view = theirs.claims.settle()
    assert view is not None and view.state == "dead" and 30 <= clock.now - began < 60


def test_the_end_is_written_at_last_and_nothing_is_tried_after_that(disk: Full) -> None:
    control = unended(disk)
    poll(lambda: disk.refused > 2)
    assert ending(disk)
    disk.room = True
    poll(lambda: (view := control.operation_lock.view()) is not None and view.state == "ended")
    poll(lambda: not ending(disk))


def test_a_full_disk_lets_the_last_heartbeat_say_that_it_is_over(disk: Full, tmp_path: Path) -> None:
    disk.code = "disk-full"
    unended(disk)
    for here in (None, ELSEWHERE):
        view = OperationLock(open_store(tmp_path / "orders"), "orders", here=here).view()
        assert view is not None and view.state == "ended" and "gave it back" in view.why
    with child(WAIT_FOR_IT, tmp_path) as other:
        assert say(other) == "free"


def test_a_living_claim_of_this_process_holds_by_whatever_address(disk: Full, tmp_path: Path) -> None:
    disk.room = True
    (tmp_path / "link").symlink_to(tmp_path / "orders")
    with control_of(disk).operation("restore", by=BY) as operation:
        for other in (open_store(tmp_path / "orders"), open_store(tmp_path / "link")):
            with pytest.raises(ConflictError) as caught, control_of(other).operation("stop", by=BY):
                pass
            assert caught.value.code == "operation-in-progress"
        operation.check()


def test_a_child_sees_that_its_parent_holds(disk: Full) -> None:
    disk.room = True
    lock = control_of(disk).operation_lock
    with lock.hold("restore", by=BY):
        pid = os.fork()
        if pid == 0:
            view = lock.view()
            os._exit(0 if view is not None and view.state == "live" else 1)
        assert os.waitpid(pid, 0)[1] == 0


def test_many_threads_take_turns_while_no_end_can_be_written(disk: Full) -> None:
    """One that has let go is told from one that holds, in one process as well."""
    inside: list[int] = []
    wrong: list[str] = []

    def work() -> None:
        for _ in range(3):
            try:
                with control_of(disk).operation("start", by=BY, wait_s=30) as operation:
                    inside.append(1)
                    if len(inside) > 1:
                        wrong.append("two inside")
                    operation.check()
                    inside.pop()
            except StorageError:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and disk.refused > 11
