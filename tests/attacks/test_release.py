"""Who can write among a job's records lays down the release of a driver that waits, before its upgrade."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, FormatError, IntegrityError, StorageError, StreambankError
from streambank.driver.launcher import Handle
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import Waiting
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, release_launch, released_key
from streambank.job import start as starting
from streambank.job.start import StartResult
from streambank.upgrade import upgrade as swapping
from streambank.upgrade.plan import UpgradeRequest
from streambank.upgrade.upgrade import _Upgrading
from streambank.upgrade.warm import launch_held
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.jobs.upgraded_job import deploy, upgraded

NOT_OURS = (
    ConflictError("It is there.", code="exists"),
    IntegrityError("It says something else.", code="changed-launch"),
    FormatError("It is cut off.", code="damaged-record"),
    FormatError("It is of a later version.", code="unknown-format"),
)
"""What a start says of a release that somebody else has laid down."""


class Swap(_Upgrading):
    """An upgrade whose driver waits, and what a start without it comes to."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, error: StreambankError) -> None:
        job = declare(folder)
        super().__init__(UpgradeRequest(job, by=BY), job.records(), fake_launcher(folder), lambda said: None)
        self.waiting = Waiting(prepare_launch(job, self.control, by=BY), Handle("launch-warm", (), None), "")
        self.ended: list[Handle] = []
        self.asked: list[Waiting | None] = []
        self.notes: list[str] = []

        def start(*given: Any, held: Waiting | None = None, **named: Any) -> StartResult:
            self.asked.append(held)
            if held is not None:
                raise error
            return StartResult(job.name, "started", launch_id="launch-cold")

        patch.setattr(swapping, "start_job", start)
        patch.setattr(swapping, "end_drivers", lambda launcher, control, handles: self.ended.extend(handles))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("error", NOT_OURS, ids=lambda error: error.code)
def test_a_release_that_is_not_ours_costs_the_warm_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: StreambankError
) -> None:
    swap = Swap(tmp_path, monkeypatch, error)
    started = swap._start_new(None, swap.waiting, {})  # type: ignore[arg-type]  # the lock is not asked
    assert (started.launch_id, swap.asked) == ("launch-cold", [swap.waiting, None])
    assert swap.ended == [swap.waiting.handle] and error.message in swap.notes[0]


def test_what_says_nothing_of_the_driver_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swap = Swap(tmp_path, monkeypatch, StorageError("The disk is full.", code="disk-full"))
    with pytest.raises(StorageError):
        swap._start_new(None, swap.waiting, {})  # type: ignore[arg-type]  # the lock is not asked
    assert swap.asked == [swap.waiting] and not swap.ended


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with managed_job(tmp_path, monkeypatch) as found:
        found.declare('[[jobs.flights.sinks]]\nkind = "idempotent-by-key"\n')
        found.hangs.write_text("8", encoding="utf-8")
        found.start(until=7)
        yield found


@pytest.mark.storm
@pytest.mark.parametrize("what", [b"garbage", b'{"format": 1, "job": "flights"}'])
@pytest.mark.parametrize("when", ["as it is released", "while the old code stops"])
def test_the_new_code_runs_all_the_same(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, what: bytes, when: str
) -> None:
    planted: list[str] = []

    def plant(control: JobControl, launch_id: str) -> None:
        control.store.write(released_key(launch_id), what)
        planted.append(launch_id)

    def late(control: JobControl, released: LaunchSpec, secret: str) -> None:
        plant(control, released.launch_id)
        release_launch(control, released, secret)

    def early(*given: Any, **named: Any) -> Waiting:
        waiting = launch_held(*given, **named)
        for one in launcher_for(managed.job).find(managed.control):
            if one.launch_id == waiting.spec.launch_id:
                for process in one.processes:  # else it sees the release, and ends at once
                    os.kill(process.pid, signal.SIGSTOP)
        plant(managed.control, waiting.spec.launch_id)
        return waiting

    if when == "as it is released":
        monkeypatch.setattr(starting, "release_launch", late)
    else:
        monkeypatch.setattr(swapping, "launch_held", early)
    deploy(managed)
    done = upgraded(managed)
    assert (done.state, done.warm, len(planted)) == ("upgraded", False, 1)
    assert done.launch_id not in planted and "was not the one that runs" in done.notes[0]
    assert managed.driver_lives()
