"""What the demo leaves behind: nothing, also of detached and stubborn processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from demo import ports, processes
from tests.support.paths import ROOT
from tests.support.waiting import poll

SLEEPER = "import time; print('here', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
# Starts a process in a separate session, tells its pid, and ends.
DETACH = """
import subprocess, sys
command = [sys.executable, "-c", sys.argv[1]]
print(subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL).pid)
"""
# A keeper in small: adopts orphans, has a grandchild detached, then ends what is left.
ADOPTER = """
import json, os, subprocess, sys
from demo import processes
processes.adopt_orphans()
pid = int(subprocess.check_output([sys.executable, "-c", sys.argv[3], sys.argv[1]]))
orphan = processes.look_at(pid)
left = processes.end(
    lambda: processes.descendants(os.getpid()),
    grace_s=float(sys.argv[2]),
    on_poll=lambda: processes.reap() and None,
)
print(json.dumps({"pid": pid, "parent": orphan.parent, "me": os.getpid(), "left": len(left)}))
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python process that says when it is there; what is left of it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def go(code: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield go
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_process_has_its_parents_above_it(start: Callable[..., subprocess.Popen[str]]) -> None:
    child = start(SLEEPER)
    assert processes.ancestors(child.pid) == {os.getpid(), *processes.ancestors(os.getpid())}
    assert child.pid not in processes.ancestors(child.pid)


@pytest.mark.parametrize(("code", "grace_s"), [(SLEEPER, 10), (STUBBORN, 0.3)], ids=["obedient", "stubborn"])
def test_a_detached_grandchild_is_found_and_ended(code: str, grace_s: float) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", ADOPTER, code, str(grace_s), DETACH],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["parent"] == found["me"], "the orphan was not adopted"
    assert found["left"] == 0
    assert processes.look_at(found["pid"]) is None


def test_a_child_that_is_told_to_dies_with_its_parent(start: Callable[..., subprocess.Popen[str]]) -> None:
    parent = start(
        "import subprocess, sys, time; from demo import processes;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True, preexec_fn=processes.die_with_parent);"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    (child,) = processes.descendants(parent.pid)
    parent.kill()
    parent.wait()
    poll(lambda: not processes.is_alive(child))


def test_marked_processes_are_found_by_the_whole_variable_only(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    ours = start(SLEEPER, STREAMBANK_TEST_MARK="/some/place")
    start(SLEEPER, STREAMBANK_TEST_MARK="/some/place/else")
    start(SLEEPER, OLDPWD="/some/place")
    assert [process.pid for process in processes.marked("STREAMBANK_TEST_MARK", "/some/place")] == [ours.pid]


def test_a_process_is_told_from_a_later_one_with_its_pid(start: Callable[..., subprocess.Popen[str]]) -> None:
    running = start(SLEEPER)
    seen = processes.look_at(running.pid)
    assert seen is not None and processes.is_alive(seen)
    namesake = processes.Process(
        seen.pid, seen.parent, seen.session, seen.started - 1, seen.state, seen.command
    )
    assert not processes.is_alive(namesake)
    processes.signal_all([namesake], signal.SIGKILL)
    assert processes.is_alive(seen)


def test_a_zombie_does_not_count(start: Callable[..., subprocess.Popen[str]]) -> None:
    running = start(SLEEPER)
    seen = processes.look_at(running.pid)
    assert seen is not None
    running.kill()
    poll(lambda: (now := processes.look_at(running.pid)) is not None and now.is_zombie)
    assert not processes.is_alive(seen)
    assert running.pid not in {process.pid for process in processes.descendants(os.getpid())}


def test_listening_addresses_are_read_back() -> None:
    me = processes.look_at(os.getpid())
    assert me is not None
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("0.0.0.0", 0)) as all_interfaces,
    ):
        found = processes.listening([me])
        assert ("127.0.0.1", one.getsockname()[1]) in found
        assert ("0.0.0.0", all_interfaces.getsockname()[1]) in found


def test_a_port_in_use_is_found_out_before() -> None:
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        assert not ports.is_free(port)
        with pytest.raises(ports.NoFreePortError, match=f"port {port} of 127.0.0.1 is in use"):
            ports.choose(port)
    assert ports.is_free(ports.choose())
