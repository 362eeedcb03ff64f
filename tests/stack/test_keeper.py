"""The keeper: parts one after the other, back when they were killed, gone in the right order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo import ending, keeper, processes
from demo.parts import Part, read, write
from demo.places import PROCESS_MARK, Places
from demo.ready import is_ready
from tests.support.waiting import poll

pytestmark = pytest.mark.storm

# Accepts connections on a port, and writes down when it is asked to end, and when it has.
SERVER = """
import signal, socket, sys, time
name, port, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def end(*_):
    with open(log, "a") as file: file.write(f"{name} asked\\n")
    time.sleep(0.3)
    with open(log, "a") as file: file.write(f"{name} ended\\n")
    raise SystemExit(0)
signal.signal(signal.SIGTERM, end)
server = socket.create_server(("127.0.0.1", port))
print(name, "listens", flush=True)
while True:
    server.accept()[0].close()
"""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    here = Places(tmp_path / "kept")
    here.logs.mkdir(parents=True)
    yield here
    processes.end(lambda: ending.marked(here), grace_s=0)


@pytest.fixture
def keep(places: Places) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def go(*parts: Part, stay: bool = False) -> subprocess.Popen[bytes]:
        started.append(keeper.start(places, "http://127.0.0.1:9", parts, stay=stay))
        return started[-1]

    yield go
    for process in started:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def python(places: Places, name: str, source: str, *arguments: str, **more: object) -> Part:
    environment = {"PATH": os.environ["PATH"], PROCESS_MARK: str(places.home)}
    command = (sys.executable, "-c", source, *arguments)
    return Part(name, command, environment, str(places.home), **more)  # type: ignore[arg-type]


def server(places: Places, name: str, port: int, **more: object) -> Part:
    log = str(places.home / "ends")
    return python(places, name, SERVER, name, str(port), log, ready=f"tcp://127.0.0.1:{port}", **more)


def state(places: Places) -> keeper.KeeperState:
    found = keeper.read_state(places)
    assert found is not None
    return found


def phase(places: Places) -> str:
    found = keeper.read_state(places)
    return found.phase if found is not None else ""


def test_parts_pass_through_the_pipe_as_they_are(places: Places) -> None:
    parts = [server(places, "one", 5, again=True), python(places, "two", "pass", once=True)]
    assert read(write(parts)) == parts
    assert "PATH" not in repr(parts[0]), "an environment may hold secrets"


def test_a_part_starts_when_the_one_before_is_done_or_ready(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]]
) -> None:
    done = places.home / "done"
    first = python(
        places, "first", "import sys, time; time.sleep(0.5); open(sys.argv[1], 'w')", str(done), once=True
    )
    port = free_port()
    needs = f"assert __import__('os').path.exists({str(done)!r}); "
    needs += f"__import__('socket').create_connection(('127.0.0.1', {port}))"
    keep(first, server(places, "second", port), python(places, "third", needs, once=True))
    poll(lambda: phase(places) in {"running", "failed"}, timeout_s=90)
    assert (state(places).phase, state(places).ready) == ("running", ["first", "second", "third"])
    assert set(state(places).services) == {"second"}


def test_a_part_that_dies_at_its_start_ends_all_others_and_says_its_last_words(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]]
) -> None:
    port = free_port()
    dies = "import sys; print('this is what was wrong'); sys.exit(3)"
    late = python(places, "late", "raise AssertionError('never started')", once=True)
    running = keep(
        server(places, "one", port, again=True),
        python(places, "two", dies, ready="tcp://127.0.0.1:9", again=True),
        late,
    )
    assert running.wait(60) == 1
    found = state(places)
    assert found.phase == "failed"
    assert found.detail.startswith("two ended with 3; the end of ")
    assert "this is what was wrong" in found.detail
    assert not is_ready(f"tcp://127.0.0.1:{port}")
    assert not ending.marked(places) and not (places.logs / "late.log").exists()


def test_a_part_that_never_gets_ready_is_named(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]]
) -> None:
    sleeps = "import time; print('still warming up', flush=True); time.sleep(600)"
    part = python(places, "slow", sleeps, ready=f"tcp://127.0.0.1:{free_port()}", start_timeout_s=3.0)
    assert keep(part).wait(60) == 1
    assert state(places).detail.startswith("slow is not ready after 3 s")
    assert "still warming up" in state(places).detail


def test_what_is_killed_comes_back_and_only_that(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]]
) -> None:
    one, two = free_port(), free_port()
    keep(server(places, "one", one, again=True), server(places, "two", two, again=True))
    poll(lambda: phase(places) == "running", timeout_s=90)
    before = dict(state(places).services)
    os.kill(before["one"], signal.SIGKILL)
    poll(lambda: "one" not in state(places).services, timeout_s=90)
    poll(lambda: "one" in state(places).services and is_ready(f"tcp://127.0.0.1:{one}"), timeout_s=90)
    after = state(places)
    assert after.again == {"one": 1} and after.phase == "running"
    assert after.services["one"] != before["one"] and after.services["two"] == before["two"]


def test_what_may_not_come_back_ends_all(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]]
) -> None:
    running = keep(server(places, "one", free_port()), server(places, "two", free_port(), again=True))
    poll(lambda: phase(places) == "running", timeout_s=90)
    os.kill(state(places).services["one"], signal.SIGKILL)
    assert running.wait(60) == 1
    assert state(places).detail.startswith("one ended by SIGKILL")
    assert not ending.marked(places)


def test_what_others_need_to_end_well_ends_last(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]]
) -> None:
    running = keep(
        server(places, "storage", free_port(), ends_last=True),
        server(places, "user", free_port(), again=True),
    )
    poll(lambda: phase(places) == "running", timeout_s=90)
    running.terminate()
    assert running.wait(60) == 0
    lines = (places.home / "ends").read_text().splitlines()
    assert lines == ["user asked", "user ended", "storage asked", "storage ended"]
    assert state(places).phase == "ended" and state(places).left_behind == []


def test_a_keeper_that_stays_is_ended_by_down(
    places: Places, keep: Callable[..., subprocess.Popen[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    keep(server(places, "one", port, again=True), stay=True)
    poll(lambda: phase(places) == "running", timeout_s=90)
    assert keeper.is_running(places)
    assert ending.down(places, what="the stack", whose="its jobs") == 0
    assert capsys.readouterr().out == "Ended the stack at http://127.0.0.1:9 and its jobs\n"
    assert not is_ready(f"tcp://127.0.0.1:{port}") and not ending.marked(places)


def test_secrets_are_on_no_command_line(places: Places, keep: Callable[..., subprocess.Popen[bytes]]) -> None:
    part = server(places, "one", free_port())
    secret = Part(
        part.name, part.command, {**part.environment, "WORD": "hush-7"}, part.folder, ready=part.ready
    )
    running = keep(secret)
    poll(lambda: phase(places) == "running", timeout_s=90)
    lines = [
        process.command for process in (processes.look_at(running.pid), *ending.marked(places)) if process
    ]
    assert lines and not any("hush-7" in line for line in lines)
    assert "hush-7" not in places.keeper.read_text()
    environment = (Path("/proc") / str(state(places).services["one"]) / "environ").read_bytes()
    assert b"WORD=hush-7" in environment.split(b"\0")
