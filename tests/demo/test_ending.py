"""However the demo ends, nothing of it is left: a real Airflow is started, and the story cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import airflow_parts, ending, keeper, processes
from demo.places import Places
from tests.support.paths import ROOT
from tests.support.waiting import poll


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A folder for its own demo; whatever should be left of it in spite of all is ended."""
    here = Places(tmp_path / "demo")
    yield here
    processes.end(lambda: ending.marked(here), grace_s=0)


def services(places: Places) -> dict[str, int]:
    state = keeper.read_state(places)
    return state.services if state else {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.storm),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.storm),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_nothing_is_left_of_a_demo_that_was_interrupted(
    places: Places, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "demo", "--home", str(places.home)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'provider'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as story:
        poll(lambda: len(services(places)) == len(airflow_parts.SERVICES), timeout_s=180)
        started = processes.descendants(story.pid)
        assert set(services(places).values()) <= {process.pid for process in started}
        story.send_signal(number)
        output, _ = story.communicate(timeout=90)
        assert story.returncode == code, output
    poll(lambda: not any(map(processes.is_alive, started)) and not ending.marked(places), timeout_s=40)
    state = keeper.read_state(places)
    assert state is not None and state.left_behind == []


def test_a_folder_with_something_else_in_it_is_not_touched(places: Places) -> None:
    places.home.mkdir()
    (places.home / "thesis.tex").write_text("years of work")
    answer = subprocess.run(
        [sys.executable, "-m", "demo", "--home", str(places.home)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'provider'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert "holds something other than a demo" in answer.stderr
    assert (places.home / "thesis.tex").read_text() == "years of work"


def test_down_where_nothing_is_up_says_so(places: Places) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "demo", "down", "--home", str(places.home)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'provider'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stdout.strip()) == (0, "Nothing is up")
