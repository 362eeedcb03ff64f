"""A fail-over that is killed at each of its steps: a second run ends well, and no two sites may start."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from streambank.core.names import PRIMARY, STANDBY
from tests.support.jobs.two_sites import two_sites
from tests.support.processes import child

pytestmark = [pytest.mark.storm, pytest.mark.timeout(300)]

KILLED = """
import os, signal, sys
from pathlib import Path
from streambank.sites.records import Sites
from streambank.failover import failover as module
from tests.support.jobs.two_sites import TwoSites

folder, point, when, call, to = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
place, name = (Sites, "write") if point == "write" else (module, point)
real, calls = getattr(place, name), 0

def dies(*args, **options):
    global calls
    calls += 1
    if calls == call and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    found = real(*args, **options)
    if calls == call:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

setattr(place, name, dies)
TwoSites(folder).fail_over(to)
"""
"""A fail-over that is killed before or after the n-th call of one of its steps."""

POINTS = [
    ("fence_site", "after", 1),
    ("savepoint_job", "after", 1),
    ("replicate_to", "after", 1),
    ("write", "before", 1),
    ("write", "after", 1),
    ("write", "after", 2),
    ("restore", "before", 1),
    ("restore", "after", 1),
    ("write", "before", 3),
    ("write", "after", 3),
    ("write", "after", 4),
    ("start_job", "after", 1),
]


@pytest.mark.parametrize(("point", "when", "call"), POINTS)
def test_a_second_run_ends_well(tmp_path: Path, point: str, when: str, call: int) -> None:
    with two_sites(tmp_path) as sites:
        sites.start()
        sites.until_batch(PRIMARY, 2)
        with child(KILLED, tmp_path, point, when, str(call), STANDBY) as process:
            assert process.wait() == -signal.SIGKILL, "the fault has fired"
        last = sites.batch(PRIMARY)
        assert len(sites.may_start()) <= 1

        report = sites.fail_over(None)  # the same command, which finishes what was begun
        assert sites.may_start() == [STANDBY]
        assert (sites.state(PRIMARY), sites.state(STANDBY)) == ("stopped", "running")
        assert sites.batch(PRIMARY) == last, "it was stopped before, or was not fenced yet"
        assert report.batches_behind in (0, None)
        assert sites.newest(PRIMARY) == sites.newest(STANDBY) == (3, "active", STANDBY)
        generation = sites.at(STANDBY).records().generation()
        assert generation is not None and generation.from_savepoint is not None
        assert generation.from_savepoint.startswith(f"b{last:06d}")
        sites.until_batch(STANDBY, last + 1)


@pytest.mark.parametrize(("point", "when", "call"), [("write", "after", 2), ("restore", "after", 1)])
def test_a_fail_over_that_broke_off_can_be_given_up(tmp_path: Path, point: str, when: str, call: int) -> None:
    with two_sites(tmp_path) as sites:
        sites.start()
        sites.until_batch(PRIMARY, 2)
        with child(KILLED, tmp_path, point, when, str(call), STANDBY) as process:
            assert process.wait() == -signal.SIGKILL, "the fault has fired"
        last = sites.batch(PRIMARY)
        assert sites.may_start() == []
        report = sites.fail_over(PRIMARY)
        assert (report.site, report.was, report.savepoints, report.rpo_s) == (PRIMARY, PRIMARY, {}, None)
        assert sites.may_start() == [PRIMARY]
        sites.until_batch(PRIMARY, last + 1)
        assert sites.state(STANDBY) == "stopped" or sites.state(STANDBY) == "never-started"
