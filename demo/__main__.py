"""`python -m demo [up|down]`: what `make demo`, `make up` and `make down` run."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from demo import airflow_parts, ending, keeper, ports, processes
from demo.ending import InterruptedBySignal
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


def main(argv: Sequence[str] | None = None) -> int:
    """Tell the story, or end what `up` left running."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="The story of one disaster and its end."
    )
    parser.add_argument("verb", nargs="?", choices=("run", "up", "down"), default="run")
    parser.add_argument("--port", type=int, help="where Airflow listens on loopback (default: a free port)")
    parser.add_argument(
        "--home", type=Path, help="the folder for everything that is written (default: .streambank/demo)"
    )
    options = parser.parse_args(argv)
    places = Places(options.home.absolute()) if options.home else default_places()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Airflow would start twice as slowly
    if options.verb == "down":
        return ending.down(places)
    if keeper.is_running(places):
        state = keeper.read_state(places)
        print(f"The demo is up already at {state.url if state else '?'}: make down ends it", file=sys.stderr)
        return 1
    return tell(places, port=options.port, stay=options.verb == "up")


def tell(
    places: Places,
    *,
    port: int | None,
    stay: bool,
    jobs_file: Path = airflow_parts.JOBS_FILE,
    play: Callable[[Story], None] | None = None,
) -> int:
    """Tell the story.

    Args:
        places: The demo's folders; what an earlier demo left there is removed.
        port: Airflow's; None for a free one.
        stay: Leave Airflow and the job running at the end.
        jobs_file: Declares the jobs.
        play: What happens once Airflow is on its way; by default the chapters.

    Returns:
        0 if all checks passed, 1 if not, 128 + the signal's number if it was interrupted.
    """
    screen = Screen()
    try:
        port = ports.choose(port)
    except ports.NoFreePortError as error:
        print(error, file=sys.stderr)
        return 1
    ending.be_interruptible()
    processes.adopt_orphans()
    if not ending.may_be_replaced(places):
        print(f"{places.home} holds something other than a demo: choose another folder", file=sys.stderr)
        return 1
    shutil.rmtree(places.home, ignore_errors=True)
    for folder in (places.logs, places.data):
        folder.mkdir(parents=True)
    airflow = Airflow(f"http://{ports.HOST}:{port}", airflow_parts.USER, airflow_parts.write_password(places))
    screen.say(f"Everything is written to {places.home}; Airflow listens on {ports.HOST}, port {port}")
    screen.say(f"Watch along at {airflow.url} (user {airflow.user}, password {airflow.password})")
    story = Story(places, airflow, screen)
    running: subprocess.Popen[bytes] | None = None
    code = 1
    try:
        settings = airflow_parts.environment(places, port) | airflow_parts.streambank_settings(
            places, jobs_file
        )
        running = keeper.start(places, airflow.url, airflow_parts.parts(settings, places.home), stay=stay)
        story.check = lambda: ending.check(places, running)
        if play is None:
            chapters(story, running.pid, stay=stay)
        else:
            play(story)
        code = 0
    except InterruptedBySignal as interrupt:
        screen.say(f"Interrupted by {interrupt.name}")
        code = 128 + interrupt.number
    except (WaitedTooLongError, RunFailedError, RestError) as error:
        screen.console.print(f"The demo failed: {error}", style="red", markup=False)
    finally:
        ending.ignore_signals()
        if code or not stay:
            screen.say("Cleaning up")
            story.report.left_behind = ending.clean_up(places, running)
    return finish(story.report, screen, places, code, stay=stay)


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
    story.rehearse(late_is_fine=stay)
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


if __name__ == "__main__":
    sys.exit(main())
