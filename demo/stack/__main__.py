"""`python -m demo.stack [up|down|test]`: what `make stack`, `make stack-down` and `make test-stack` run."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from demo import ending, keeper, processes
from demo.ending import InterruptedBySignal
from demo.jars import WrongJarError
from demo.job import WaitedTooLongError
from demo.places import ROOT
from demo.ports import NoFreePortError
from demo.rest import RestError, RunFailedError
from demo.screen import Screen
from demo.stack import addresses, story, whole
from demo.stack.places import StackPlaces, default_places
from demo.stack.postgres import MissingError
from demo.stack.whole import Stack
from demo.story import Story
from streambank.core.errors import StreambankError

LOOK_EVERY_S = 0.2
KEPT_OF_A_TEST = ("logs", "report.json")


class NotStartedError(Exception):
    """A part did not start; says which, with the last lines of its log."""


def main(argv: Sequence[str] | None = None) -> int:
    """Start the stack, end it, or tell the story on one of its own."""
    parser = argparse.ArgumentParser(prog="python -m demo.stack", description=__doc__.partition(":")[0])
    parser.add_argument("verb", nargs="?", choices=("up", "down", "test"), default="up")
    parser.add_argument(
        "--home", type=Path, help="the folder for everything that is written (default: .streambank/stack)"
    )
    parser.add_argument("--keep", action="store_true", help="down: leave the data for the next start")
    for name, port in addresses.PREFERRED.items():
        parser.add_argument(
            f"--{name}-port", type=int, help=f"a port on loopback (default: {port}, or a free one)"
        )
    options = parser.parse_args(argv)
    tested = options.verb == "test"
    places = (
        StackPlaces(options.home.absolute())
        if options.home
        else StackPlaces(ROOT / ".streambank" / "test-stack")
        if tested
        else default_places()
    )
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Airflow would start twice as slowly
    if options.verb == "down":
        return down(places, keep=options.keep)
    if keeper.is_running(places):
        state = keeper.read_state(places)
        print(f"The stack is up already at {state.url if state else '?'}: make stack-down ends it")
        return 1 if tested else 0
    wanted = {name: getattr(options, f"{name.replace('-', '_')}_port") for name in addresses.PREFERRED}
    return run(places, wanted, tested=tested)


def run(places: StackPlaces, wanted: dict[str, int | None], *, tested: bool) -> int:
    """Start all parts; then leave them running, or tell the story and end them.

    Args:
        places: The stack's folders.
        wanted: Ports that were asked for, by name.
        tested: Tell the story.

    Returns:
        0 where all went well, 1 where not, 128 + the signal's number where it was interrupted.
    """
    screen = Screen()
    ending.be_interruptible()
    processes.adopt_orphans()
    running: subprocess.Popen[bytes] | None = None
    code, began, fresh = 1, False, tested
    told: Story | None = None
    try:
        fresh = prepare(places, fresh=tested)
        began = True
        stack = whole.assemble(places, addresses.choose(wanted))
        screen.say(f"Everything is written to {places.home}; all parts listen on loopback only")
        running = keeper.start(places, stack.airflow.url, stack.parts, stay=not tested)
        check = _checker(places, running)
        wait_for_parts(stack, screen, check)
        os.environ.update(stack.passwords.s3_environment(stack.addresses))
        told = story.StackStory(
            places, stack.airflow, screen, check=check, patience=story.PATIENCE, stack=stack
        )
        if tested:
            story.chapters(told, running.pid)
        else:
            told.wait_for_airflow()
            told.look_around(running.pid)
        code = 0
    except InterruptedBySignal as interrupt:
        screen.say(f"Interrupted by {interrupt.name}")
        code = 128 + interrupt.number
    except (MissingError, NoFreePortError, WrongJarError) as error:
        print(error, file=sys.stderr)
    except (NotStartedError, WaitedTooLongError, RunFailedError, RestError, StreambankError) as error:
        screen.console.print(f"Failed: {error}", style="red", markup=False)
    finally:
        ending.ignore_signals()
        if began and (code or tested):
            screen.say("Cleaning up")
            left = ending.clean_up(places, running)
            if told is not None:
                told.report.left_behind = left
            for one in left:
                print(f"Could not end {one}", file=sys.stderr)
            code = code or (1 if left else 0)
            if fresh:  # data of an earlier start stays what it is
                remove(places, but=KEPT_OF_A_TEST)
    if told is not None and tested:
        return tell_result(told, screen, places, code)
    if code == 0:
        screen.say("All parts are up; make stack-down ends them")
        for title, where in stack.where_to_click().items():
            screen.say_more(f"{title:<16} {where}")
    elif began:
        screen.say(f"Logs are in {places.logs}")
    return code


def prepare(places: StackPlaces, *, fresh: bool) -> bool:
    """See that the folder can be used, and that all is installed that must be.

    Returns:
        Whether the folder is empty now; not so where data was kept, and `fresh` does not forbid it.

    Raises:
        MissingError: Not so; says what to do.
    """
    whole.check_what_is_needed()
    if not ending.may_be_replaced(places):
        raise MissingError(f"{places.home} holds something other than a stack: choose another with --home")
    if ending.marked(places):
        raise MissingError(
            f"Processes of an earlier stack are left in {places.home}: make stack-down ends them"
        )
    empty = fresh or not places.secrets.exists()
    if empty:
        shutil.rmtree(places.home, ignore_errors=True)
    places.logs.mkdir(parents=True, exist_ok=True)
    return empty


def wait_for_parts(stack: Stack, screen: Screen, check: Callable[[], None]) -> None:
    """Say of each part when it is ready, or done.

    Raises:
        NotStartedError: One did not start.
        WaitedTooLongError: The keeper is gone.
    """
    said = 0
    began = time.monotonic()
    while said < len(stack.parts):
        state = keeper.read_state(stack.places)
        ready = state.ready if state else []
        for name in ready[said:]:
            part = stack.part(name)
            what = "done" if part.once else "ready" if part.ready else "started"
            now = time.monotonic()
            screen.say(f"{name}: {what} after {now - began:.1f} s")
            began = now
        said = len(ready)
        if state is not None and state.phase == "failed":
            raise NotStartedError(state.detail)
        check()
        time.sleep(LOOK_EVERY_S)


def _checker(places: StackPlaces, running: subprocess.Popen[bytes]) -> Callable[[], None]:
    return lambda: ending.check(places, running)


def remove(places: StackPlaces, but: Sequence[str] = ()) -> None:
    """Remove what the stack wrote, except for what is named."""
    for entry in places.home.iterdir() if places.home.is_dir() else ():
        if entry.name in but:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if not but:
        shutil.rmtree(places.home, ignore_errors=True)


def tell_result(told: Story, screen: Screen, places: StackPlaces, code: int) -> int:
    """Show and write the report; the exit code."""
    report = told.report
    report.steps = screen.steps
    report.total_s = round(time.monotonic() - screen.began, 1)
    report.ok = code == 0
    report.write(places.report)
    if code == 0:
        report.where_to_click = {"make stack": "the same parts, to click in"}
        report.show(screen.console, places.report)
    else:
        screen.say(f"Logs are in {places.logs}; figures so far in {places.report}")
    return code


def down(places: StackPlaces, *, keep: bool) -> int:
    """End the stack, and remove what it wrote unless told to keep it."""
    if places.home.exists() and not ending.may_be_replaced(places):
        print(f"{places.home} holds something other than a stack", file=sys.stderr)
        return 1
    code = ending.down(places, what="the stack", whose="its jobs")
    if code == 0 and places.home.exists():
        if keep:
            shutil.rmtree(places.temporary, ignore_errors=True)
            print(f"Its data stays in {places.home}")
        else:
            remove(places)
    return code


if __name__ == "__main__":
    sys.exit(main())
