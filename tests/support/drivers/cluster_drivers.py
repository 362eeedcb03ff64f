"""Drivers of a standalone cluster that is not there: each submission to a fake master runs as a thread.

Such a driver does by the records of its job what the runner does, on a separate host, so that others know
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
from streambank.control.processes import ProcessId
from streambank.core.errors import RefusedError
from streambank.driver.spec import LaunchSpec, decode_launch
from streambank_spark.stand_in.driver import StandIn
from tests.support.jobs.declared import ELSEWHERE
from tests.support.spark.fake_master import FakeMaster
from tests.support.waiting import poll


@dataclass
class DriverLife:
    """One life of a driver.

    Attributes:
        ended: How it ended: `refused`, `lease-held`, `stopped`, `died`, `killed`; None while it lives.
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
    """

    def __init__(self, drivers: ClusterDrivers) -> None:
        self._drivers = drivers
        self._leapt_s = 0.0
        self.clock = Clock(self.monotonic, self.sleep)

    def monotonic(self) -> float:
        return time.monotonic() + self._leapt_s

    def sleep(self, seconds: float) -> None:
        if any(life.beats for life in self._drivers.lives):
            time.sleep(seconds)
        else:
            self._leapt_s += seconds


class ClusterDrivers:
    """Runs the drivers of a fake master.

    Args:
        deaf: They do not obey.
        stop_code: The exit code with which a driver that is stopped ends.
    """

    def __init__(self, master: FakeMaster, *, deaf: bool = False, stop_code: int = 0) -> None:
        self.master = master
        self.deaf = deaf
        self.stop_code = stop_code
        self.room = True
        self.lives: list[DriverLife] = []
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

    def play(self, driver: str) -> DriverLife:
        arguments = self.master.submitted[int(driver.removeprefix("driver-")) - 1]["appArgs"]
        return self.play_as(driver, decode_launch(Path(arguments[-1]).read_bytes()))

    def play_as(self, driver: str, spec: LaunchSpec) -> DriverLife:
        life = DriverLife(driver, spec)
        self.lives.append(life)
        thread = threading.Thread(target=self._live, args=(life,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return life

    def _live(self, life: DriverLife) -> None:
        control = JobControl.open(life.spec.control, life.spec.job, here=ELSEWHERE)
        try:
            driver = StandIn(life.spec, control, ProcessId("python", 1, len(self.lives)))
        except RefusedError as refusal:
            self._end(life, refusal.code)
            return
        try:
            driver.begin(lambda: {"queries": {"main": {"triggered": True}}})
        except RefusedError:
            self._end(life, "refused")
            return
        life.epoch = driver.claim.epoch
        while self.master.states[life.driver] == "RUNNING" and not life.dies.is_set():
            asked = driver.stops()
            if life.frozen.is_set():
                driver.keeper.stop()
                life.beats = False
            elif asked and not self.deaf:
                driver.keeper.stop()
                for one in asked:
                    control.requests.answer(one.number, "stopped", exit_code=self.stop_code)
                driver.end(self.stop_code)
                self._end(life, "stopped", supervised=self.stop_code != 0 and life.spec.supervised)
                return
            time.sleep(0.02)
        driver.keeper.stop()
        self._end(life, "died" if life.dies.is_set() else "killed", supervised=life.dies.is_set())

    def _end(self, life: DriverLife, how: str, *, supervised: bool = False) -> None:
        life.ended = how
        if not supervised and self.master.states[life.driver] == "RUNNING":
            self.master.states[life.driver] = "FINISHED"
        life.beats = False

    def running(self) -> list[str]:
        """The drivers that the master takes to run."""
        return [driver for driver, state in self.master.states.items() if state == "RUNNING"]

    def close(self) -> None:
        for driver in self.master.states:
            self.master.states[driver] = "KILLED"
        for thread in self._threads:
            thread.join(timeout=40)
