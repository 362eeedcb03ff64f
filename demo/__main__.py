"""`python -m demo [up|down]`: what `make demo`, `make up` and `make down` run."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from demo import keeper, ports, processes, stack
from demo.job import WaitedTooLongError
from demo.places import Places, default_places
from demo.report import Report
from demo.rest import Airflow, RestError, RunFailedError
from demo.screen import Screen
from demo.story import (
    DISASTER_AFTER,
    FIRST_SAVEPOINT_AT,
    SECOND_SAVEPOINT_AFTER,
    Story,
)

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEEPER_ENDS_WITHIN_S = 30.0


class InterruptedBySignal(BaseException):
    """Somebody asked the demo to end; no error, and nothing but the end may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, frame: object) -> None:
    _ignore_signals()  # once is enough: nothing may disturb the cleaning up
    raise InterruptedBySignal(number)


def _ignore_signals() -> None:
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main(argv: Sequence[str] | None = None) -> int:
    """Tell the story, or end what `up` left."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="The story of one disaster and its end."
    )
    parser.add_argument("verb", nargs="?", choices=("run", "up", "down"), default="run")
    parser.add_argument("--port", type=int, help="where Airflow listens on loopback (default: a free port)")
    parser.add_argument("--home", type=Path, help="where everything goes (default: .streambank/demo)")
    options = parser.parse_args(argv)
    places = Places(options.home.absolute()) if options.home else default_places()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Airflow would start twice as slowly
    if options.verb == "down":
        return down(places)
    if keeper.is_running(places):
        state = keeper.read_state(places)
        print(f"The demo is up already at {state.url if state else '?'}: make down ends it", file=sys.stderr)
        return 1
    return tell(places, port=options.port, stay=options.verb == "up")


def tell(places: Places, *, port: int | None, stay: bool) -> int:
    """Tell the story.

    Args:
        places: The demo's folders; what an earlier demo left there is removed.
        port: Airflow's; None for a free one.
        stay: Leave Airflow and the job running at the end.

    Returns:
        0 where all of it held, 1 where not, 128 + the signal's number where it was interrupted.
    """
    screen = Screen()
    try:
        port = ports.choose(port)
    except ports.NoFreePortError as error:
        print(error, file=sys.stderr)
        return 1
    for number in ENDING_SIGNALS:
        signal.signal(number, _interrupt)
    processes.adopt_orphans()
    if not may_be_replaced(places):
        print(f"{places.home} holds something else than a demo: choose another folder", file=sys.stderr)
        return 1
    shutil.rmtree(places.home, ignore_errors=True)
    for folder in (places.logs, places.data):
        folder.mkdir(parents=True)
    airflow = Airflow(f"http://{ports.HOST}:{port}", stack.USER, stack.write_password(places))
    screen.say(f"Everything goes to {places.home}; Airflow gets port {port} of {ports.HOST}, which is free")
    screen.say(f"Watch along at {airflow.url} (user {airflow.user}, password {airflow.password})")
    story = Story(places, airflow, screen)
    running: subprocess.Popen[bytes] | None = None
    code = 1
    try:
        running = keeper.start(places, airflow.url, stack.environment(places, port), stay=stay)
        story.check = lambda: _check(places, running)
        chapters(story, running.pid, stay=stay)
        code = 0
    except InterruptedBySignal as interrupt:
        screen.say(f"Interrupted by {signal.Signals(interrupt.number).name}")
        code = 128 + interrupt.number
    except (WaitedTooLongError, RunFailedError, RestError) as error:
        screen.console.print(f"The demo failed: {error}", style="red", markup=False)
    finally:
        _ignore_signals()
        if code or not stay:
            screen.say("Cleaning up")
            story.report.left_behind = clean_up(places, running)
    return finish(story.report, screen, places, code, stay=stay)


def may_be_replaced(places: Places) -> bool:
    """Whether there is nothing in the demo's folder but an earlier demo."""
    return not places.home.exists() or places.logs.is_dir() or not any(places.home.iterdir())


def chapters(story: Story, keeper_pid: int, *, stay: bool) -> None:
    """The chapters in their order."""
    story.wait_for_airflow()
    story.start_the_job()
    first = story.take_savepoint("The first savepoint, hot", "hot", FIRST_SAVEPOINT_AT)
    second = story.take_savepoint(
        "The second, incremental", "incremental", first.batch + SECOND_SAVEPOINT_AFTER
    )
    story.disaster(second.batch + DISASTER_AFTER)
    story.restore()
    story.to_the_end()
    story.look_around(keeper_pid)
    if not stay:
        story.stop_the_job()
        story.prove()
        story.report.where_to_click = {"make up": "the same, and Airflow stays up to click in"}


def finish(report: Report, screen: Screen, places: Places, code: int, *, stay: bool) -> int:
    """Show and write the report; the exit code."""
    report.steps = screen.steps
    report.total_s = round(time.monotonic() - screen.began, 1)
    if report.left_behind:
        screen.console.print(f"Left behind: {report.left_behind}", style="red", markup=False)
        code = code or 1
    report.ok = code == 0
    report.write(places.report)
    if code == 0:
        report.show(screen.console, places.report)
        if stay:
            screen.say("Airflow and the job stay up: make down ends them")
    else:
        screen.say(
            f"Logs are in {places.logs} and {places.airflow / 'logs'}; figures so far in {places.report}"
        )
    return code


def _check(places: Places, running: subprocess.Popen[bytes] | None) -> None:
    if running is None or running.poll() is not None:
        state = keeper.read_state(places)
        raise WaitedTooLongError(f"Airflow is gone: {state.detail if state else 'its keeper never started'}")


def clean_up(places: Places, running: subprocess.Popen[bytes] | None) -> list[str]:
    """End the keeper and all that came of it, or of an earlier demo here; what could not be ended."""
    if running is not None and running.poll() is None:
        running.terminate()
        try:
            running.wait(KEEPER_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
    left = processes.end(
        lambda: processes.descendants(os.getpid()),
        grace_s=1.0,
        on_poll=lambda: _forget(processes.reap()),
    )
    left += processes.end(lambda: _marked(places), grace_s=1.0)
    return sorted({f"{process.pid} {process.command}" for process in left})


def _marked(places: Places) -> list[processes.Process]:
    return processes.marked(stack.PROCESS_MARK, str(places.home))


def _forget(_: object) -> None:
    """How an orphan ended does not matter here."""


def down(places: Places) -> int:
    """End what `up` left running."""
    state = keeper.read_state(places)
    if state is not None and keeper.is_running(places):
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + KEEPER_ENDS_WITHIN_S
        while keeper.is_running(places) and time.monotonic() < deadline:
            time.sleep(0.1)
        print(f"Ended Airflow at {state.url} and the job")
    elif not _marked(places):
        print("Nothing is up")
        return 0
    left = processes.end(lambda: _marked(places), grace_s=5.0)
    for process in left:
        print(f"Could not end {process.pid} {process.command}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
