"""However a demo or a stack ends (with success, with a failure, by a signal), nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from demo import keeper, processes
from demo.job import WaitedTooLongError
from demo.places import PROCESS_MARK, Places

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEEPER_ENDS_WITHIN_S = 30.0


class InterruptedBySignal(BaseException):
    """Somebody asked the demo to end. This is not an error, and only the end of the demo may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def name(self) -> str:
        """The signal's name."""
        return signal.Signals(self.number).name


def be_interruptible() -> None:
    """Raise `InterruptedBySignal` at the first signal that asks us to end."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    ignore_signals()  # once is enough: nothing may disturb the cleaning up
    raise InterruptedBySignal(number)


def ignore_signals() -> None:
    """Let no further signal disturb what follows."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def may_be_replaced(places: Places) -> bool:
    """Whether there is nothing in the folder but an earlier demo."""
    return not places.home.exists() or places.logs.is_dir() or not any(places.home.iterdir())


def check(places: Places, running: subprocess.Popen[bytes] | None) -> None:
    """Check that the keeper still runs.

    Raises:
        WaitedTooLongError: It does not; the message says why.
    """
    if running is None or running.poll() is not None:
        state = keeper.read_state(places)
        raise WaitedTooLongError(
            f"Airflow is gone: {state.detail if state and state.detail else 'its keeper has ended'}"
        )


def clean_up(places: Places, running: subprocess.Popen[bytes] | None) -> list[str]:
    """End the keeper, its descendants and those of an earlier demo here; returns what could not be ended."""
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
    left += processes.end(lambda: marked(places), grace_s=1.0)
    return sorted({f"{process.pid} {process.command}" for process in left})


def marked(places: Places) -> list[processes.Process]:
    """Every process that descends from a demo in this folder."""
    return processes.marked(PROCESS_MARK, str(places.home))


def _forget(_: object) -> None:
    """How an orphan ended does not matter here."""


def down(places: Places, *, what: str = "Airflow", whose: str = "the job") -> int:
    """End what was left running here, through its keeper if that lives.

    Args:
        places: The folders.
        what: What the keeper keeps, for people.
        whose: What ends with it.

    Returns:
        0 if nothing is left, 1 if something could not be ended.
    """
    state = keeper.read_state(places)
    if state is not None and keeper.is_running(places):
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + KEEPER_ENDS_WITHIN_S
        while keeper.is_running(places) and time.monotonic() < deadline:
            time.sleep(0.1)
        print(f"Ended {what} at {state.url} and {whose}")
    elif not marked(places):
        print("Nothing is up")
        return 0
    left = processes.end(lambda: marked(places), grace_s=5.0)
    for process in left:
        print(f"Could not end {process.pid} {process.command}", file=sys.stderr)
    return 1 if left else 0
