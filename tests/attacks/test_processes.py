"""Findings 11 and 21: a stranger's process with the right arguments is taken for the job's driver; and a
signal reaches whoever has a pid by now."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import command_line, is_own
from streambank.driver.launchers.local import LocalLauncher, launch_prefix
from tests.support.jobs.declared import declare
from tests.support.permissions import NOBODY
from tests.support.waiting import poll

LAUNCH = "launch-0123456789abcdef0123456789abcdef"


@contextmanager
def process_with(argument: str, user: int | None = None) -> Iterator[int]:
    """A process whose arguments are those of a driver."""
    child = subprocess.Popen(
        ["/bin/sh", "-c", "read _", "sh", "--launch", argument], stdin=subprocess.PIPE, user=user
    )
    try:
        poll(lambda: argument in command_line(child.pid))
        yield child.pid
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def control(tmp_path: Path) -> JobControl:
    return declare(tmp_path).records()


def test_a_strangers_process_is_not_the_jobs_driver(
    control: JobControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.store.write(f"launches/{LAUNCH}.json", b"{}")
    root = os.geteuid() == 0
    with process_with(f"{launch_prefix(control)}{LAUNCH}.json", NOBODY if root else None) as pid:
        if not root:  # who cannot become another user sees its own process as another one's
            monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
        assert not is_own(pid)
        assert LocalLauncher().find(control) == []


@pytest.mark.parametrize("name", [LAUNCH, "../../elsewhere/launches/launch-1", "a//b", "", "\x1b[31m"])
def test_a_launch_that_the_records_do_not_know_is_nobodys(control: JobControl, name: str) -> None:
    with process_with(f"{launch_prefix(control)}{name}.json") as pid:
        assert is_own(pid)
        assert LocalLauncher().find(control) == []


def test_the_jobs_own_driver_is_found(control: JobControl) -> None:
    control.store.write(f"launches/{LAUNCH}.json", b"{}")
    with process_with(f"{launch_prefix(control)}{LAUNCH}.json") as pid:
        (found,) = LocalLauncher().find(control)
        assert (found.launch_id, [one.pid for one in found.processes]) == (LAUNCH, [pid])
        assert not is_own(1) or os.geteuid() in (0, Path("/proc/1").stat().st_uid)


def test_a_process_that_is_gone_is_nobodys() -> None:
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    assert not is_own(child.pid)
