"""`make stack` from its beginning to its end, with small parts in place of the real ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import ending, keeper, processes
from demo.ready import is_ready
from demo.stack.places import StackPlaces
from tests.support.paths import ROOT
from tests.support.waiting import poll

# The command with other parts: one that does its work, one that listens, and one that is as `WHAT` says.
STACK = """
import os, sys
from demo.parts import Part
from demo.places import PROCESS_MARK
from demo.stack import __main__ as main
from demo.stack import story, whole

port, what, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]

def small(places, addresses):
    places.temporary.mkdir(parents=True, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], PROCESS_MARK: str(places.home)}
    def python(name, source, **more):
        return Part(name, (sys.executable, "-c", source), environment, str(places.home), **more)
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    last = {
        "well": "print('done')",
        "dies": "raise SystemExit('it has no disk')",
        "hangs": "import time; time.sleep(600)",
    }[what]
    parts = (
        python("first", "print('made')", once=True),
        python("second", listen, ready=f"tcp://127.0.0.1:{port}", again=True),
        python("third", last, once=True),
    )
    client = whole.Airflow(addresses.airflow, "admin", "password")
    return whole.Stack(places, addresses, whole.passwords(places), parts, client)

whole.assemble = small
whole.check_what_is_needed = lambda: None
story.StackStory.wait_for_airflow = lambda self: None
sys.exit(main.main(argv))
"""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[StackPlaces]:
    here = StackPlaces(tmp_path / "stack")
    yield here
    processes.end(lambda: ending.marked(here), grace_s=0)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def command(places: StackPlaces, port: int, what: str, *words: str) -> list[str]:
    return [sys.executable, "-c", STACK, str(port), what, *words, "--home", str(places.home)]


def run(places: StackPlaces, port: int, what: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(places, port, what, *words),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'provider'}"}


def ready(places: StackPlaces) -> list[str]:
    state = keeper.read_state(places)
    return state.ready if state else []


def test_it_stays_up_says_so_the_second_time_and_goes_without_a_trace(places: StackPlaces, port: int) -> None:
    first = run(places, port, "well", "up")
    assert first.returncode == 0, first.stdout + first.stderr
    said = [line.split("  ", 1)[-1] for line in first.stdout.splitlines()]
    assert [line.split(" after ")[0] for line in said if " after " in line] == [
        *("first: done", "second: ready", "third: done")
    ]
    assert "make stack-down ends them" in first.stdout and "admin / password" in first.stdout
    assert is_ready(f"tcp://127.0.0.1:{port}")

    kept = keeper.read_state(places)
    second = run(places, port, "well", "up")
    assert second.returncode == 0 and "The stack is up already" in second.stdout
    assert keeper.read_state(places) == kept
    assert run(places, port, "well", "test").returncode == 1, "a test does not use what is somebody's"

    end = run(places, port, "well", "down")
    assert end.returncode == 0, end.stdout + end.stderr
    assert not places.home.exists() and not ending.marked(places)
    assert not is_ready(f"tcp://127.0.0.1:{port}")


@pytest.mark.storm
def test_data_that_is_kept_is_there_again(places: StackPlaces, port: int) -> None:
    assert run(places, port, "well", "up").returncode == 0
    secrets = places.secrets.read_text()
    assert run(places, port, "well", "down", "--keep").returncode == 0
    assert not places.temporary.exists()
    assert run(places, port, "well", "up").returncode == 0
    assert places.secrets.read_text() == secrets
    failed = (
        run(places, port, "well", "down", "--keep").returncode or run(places, port, "dies", "up").returncode
    )
    assert failed == 1
    assert places.secrets.read_text() == secrets, "a start that failed took kept data with it"


def test_a_part_that_dies_at_its_start_takes_the_others_with_it(places: StackPlaces, port: int) -> None:
    answer = run(places, port, "dies", "up")
    assert answer.returncode == 1
    assert "third ended with 1" in answer.stdout and "it has no disk" in answer.stdout
    assert not is_ready(f"tcp://127.0.0.1:{port}") and not ending.marked(places)
    assert [entry.name for entry in places.home.iterdir()] == ["logs"]


@pytest.mark.parametrize("verb", ["up", "test"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left_where_it_is_interrupted(
    places: StackPlaces, port: int, verb: str, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        command(places, port, "hangs", verb),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        poll(lambda: "second" in ready(places), timeout_s=120)
        running.send_signal(number)
        output, _ = running.communicate(timeout=120)
    assert running.returncode == code, output
    assert f"Interrupted by {number.name}" in output
    assert not is_ready(f"tcp://127.0.0.1:{port}") and not ending.marked(places)
    assert [entry.name for entry in places.home.iterdir()] == ["logs"]


def test_who_is_killed_leaves_no_test_running(places: StackPlaces, port: int) -> None:
    with subprocess.Popen(command(places, port, "hangs", "test"), cwd=ROOT, env=environment()) as running:
        poll(lambda: "second" in ready(places), timeout_s=120)
        running.kill()
        running.wait()
    poll(lambda: not ending.marked(places), timeout_s=120)
    assert not is_ready(f"tcp://127.0.0.1:{port}")
    assert run(places, port, "well", "down").returncode == 0
    assert not places.home.exists()
