"""Drivers of a standalone cluster that is not there: each submission that a fake master takes is played.

A played driver does by the records of its job what the runner does, on a host of its own, so that others know
it by its heartbeat alone: it takes the lease, looks whether it is wanted, beats, and obeys a stop.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streambank.control.claims import Clock
from streambank.control.control import JobControl
from streambank.control.keepalive import Keeper
from streambank.control.processes import ProcessId
from streambank.control.requests import STOP
from streambank.core.errors import RefusedError
from streambank.driver.spec import LaunchSpec, decode_launch
from streambank_spark.runner.superseded import check_not_superseded, take_lease
from tests.support.fake_spark_master import FakeMaster
from tests.support.jobs import ELSEWHERE, poll


@dataclass
class Played:
    """One life of a driver.

    Attributes:
        driver: What the master calls it.
        spec: Its launch.
        ended: How it ended: `refused`, `lease-held`, `stopped`, `died`, `killed`; None while it lives.
        epoch: Its epoch of the lease.
        beats: Whether it beats, or is about to.
        frozen: It stands still: it neither beats nor obeys, and its master does not know.
        dies: Set to let it die, with its supervisor yet to bring it back.
    """

    driver: str
    spec: LaunchSpec
    ended: str | None = None
    epoch: int | None = None
    beats: bool = True
    frozen: threading.Event = field(default_factory=threading.Event)
    dies: threading.Event = field(default_factory=threading.Event)

    def freeze(self) -> None:
        """Let it stand still, and wait until it does: its last beat is behind it."""
        self.frozen.set()
        poll(lambda: not self.beats)


class LeapingClock:
    """An observer's clock that leaps over a wait while no driver beats: nothing can happen in it.

    While one beats, or has yet to come up, time passes as it does: a late beat is never taken for a lost one.

    Args:
        drivers: Those who might beat.
    """

    def __init__(self, drivers: PlayedDrivers) -> None:
        self._drivers = drivers
        self._leapt_s = 0.0
        self.clock = Clock(self.monotonic, self.sleep)

    def monotonic(self) -> float:
        """Seconds, with those that were leapt over."""
        return time.monotonic() + self._leapt_s

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass for the observer."""
        if any(life.beats for life in self._drivers.lives):
            time.sleep(seconds)
        else:
            self._leapt_s += seconds


class PlayedDrivers:
    """Plays the drivers of a fake master.

    Args:
        master: It.
        deaf: They do not obey.
        stop_code: The exit code with which a driver that is stopped ends.
    """

    def __init__(self, master: FakeMaster, *, deaf: bool = False, stop_code: int = 0) -> None:
        self.master = master
        self.deaf = deaf
        self.stop_code = stop_code
        self.room = True
        self.lives: list[Played] = []
        self.late: list[str] = []
        """Drivers that get room just before the next submission does."""
        self._threads: list[threading.Thread] = []
        self._submit = master.submit
        master.submit = self._take  # type: ignore[method-assign]  # that is the point

    def _take(self, body: dict[str, Any]) -> str:
        driver = self._submit(body)
        for one in self.late:
            life = self.play(one)
            poll(lambda life=life: life.ended or life.epoch)  # type: ignore[misc]  # bound as it is now
        self.late = []
        if self.room:
            self.play(driver)
        return driver

    def play(self, driver: str) -> Played:
        """Let a driver that was submitted come up (again)."""
        arguments = self.master.submitted[int(driver.removeprefix("driver-")) - 1]["appArgs"]
        return self.play_as(driver, decode_launch(Path(arguments[-1]).read_bytes()))

    def play_as(self, driver: str, spec: LaunchSpec) -> Played:
        """Let a driver come up under this name."""
        life = Played(driver, spec)
        self.lives.append(life)
        thread = threading.Thread(target=self._live, args=(life,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return life

    def _live(self, life: Played) -> None:
        control = JobControl.open(life.spec.control, life.spec.job, here=ELSEWHERE)
        try:
            claim = take_lease(life.spec, control, [ProcessId("python", 1, len(self.lives))])
        except RefusedError as refusal:
            self._end(life, refusal.code)
            return
        keeper = Keeper(claim, status=lambda: {"queries": {"main": {"triggered": True}}}).start()
        try:
            check_not_superseded(life.spec, control, claim)
        except RefusedError:
            keeper.stop()
            claim.release("refused")
            self._end(life, "refused")
            return
        life.epoch = claim.epoch
        while self.master.states[life.driver] == "RUNNING" and not life.dies.is_set():
            asked = [one for one in control.requests.open(claim.epoch) if one.kind == STOP]
            if life.frozen.is_set():
                keeper.stop()
                life.beats = False
            elif asked and not self.deaf:
                keeper.stop()
                for one in asked:
                    control.requests.answer(one.number, "stopped", exit_code=self.stop_code)
                claim.release("released", exit_code=self.stop_code)
                self._end(life, "stopped", supervised=self.stop_code != 0 and life.spec.supervised)
                return
            time.sleep(0.02)
        keeper.stop()
        self._end(life, "died" if life.dies.is_set() else "killed", supervised=life.dies.is_set())

    def _end(self, life: Played, how: str, *, supervised: bool = False) -> None:
        life.ended = how
        if not supervised and self.master.states[life.driver] == "RUNNING":
            self.master.states[life.driver] = "FINISHED"
        life.beats = False

    def running(self) -> list[str]:
        """The drivers that the master takes to run."""
        return [driver for driver, state in self.master.states.items() if state == "RUNNING"]

    def close(self) -> None:
        """End them all."""
        for driver in self.master.states:
            self.master.states[driver] = "KILLED"
        for thread in self._threads:
            thread.join(timeout=40)
