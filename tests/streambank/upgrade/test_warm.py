"""A driver that waits for its release: for whom, and what ends it; by a driver without Spark."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from streambank.core.errors import IntegrityError
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import Waiting
from streambank.driver.spec import (
    NOT_NEEDED,
    LaunchSpec,
    is_held,
    is_same_launch,
    read_launch,
    release_launch,
    released_launch,
    spec_of,
    write_launch,
)
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.upgrade import upgrade as swapping
from streambank.upgrade.plan import plan_upgrade
from streambank.upgrade.record import upgrading
from streambank.upgrade.warm import NotWarmError, end_held, launch_held
from tests.support.jobs.managed_job import BY, Managed
from tests.support.jobs.upgraded_job import (
    Killed,
    before,
    deploy,
    epoch,
    interrupt,
    kinds,
    request_of,
    runs,
    upgraded,
)
from tests.support.refuses import refuses
from tests.support.waiting import poll


def launcher_of(managed: Managed) -> Launcher:
    return launcher_for(managed.job)


def wait_there(managed: Managed, claim: int) -> Waiting:
    """Launch what the job declares now, held."""
    launcher = launcher_of(managed)
    plan = plan_upgrade(request_of(managed), managed.control, launcher)
    return launch_held(plan.runs, managed.control, launcher, plan.after, claim, by=BY, why="a test")


@contextmanager
def waiting_there(managed: Managed) -> Iterator[Waiting]:
    """A driver that waits, and is not needed afterwards."""
    with upgrading(managed.control, BY) as claim:
        waiting = wait_there(managed, claim.epoch)
        yield waiting
        end_held(launcher_of(managed), managed.control, waiting)


def is_there(managed: Managed, waiting: Waiting) -> bool:
    return launcher_of(managed).status(waiting.handle).state == "running"


def test_it_waits_without_the_lease_while_the_old_code_works(managed: Managed) -> None:
    old = runs(managed)
    deploy(managed)
    with waiting_there(managed) as waiting:
        assert is_there(managed, waiting) and is_held(waiting.spec, managed.control)
        assert (runs(managed), epoch(managed)) == (old, 1)
        assert "launched" not in kinds(managed)[kinds(managed).index("launched") + 1 :]
    poll(lambda: not is_there(managed, waiting), timeout_s=60)
    assert (runs(managed), epoch(managed)) == (old, 1)


@pytest.mark.storm
def test_it_ends_with_the_upgrade_that_holds_it(managed: Managed) -> None:
    deploy(managed)
    with upgrading(managed.control, BY) as claim:
        waiting = wait_there(managed, claim.epoch)
        assert is_there(managed, waiting)
    poll(lambda: not is_there(managed, waiting), timeout_s=60)
    event = managed.control.last_event(NOT_NEEDED, launch_id=waiting.spec.launch_id)
    assert event is not None and event["why"] == "the upgrade has ended"
    assert managed.driver_lives()


@pytest.mark.storm
def test_it_ends_where_the_job_is_stopped(managed: Managed) -> None:
    deploy(managed)
    with upgrading(managed.control, BY) as claim:
        waiting = wait_there(managed, claim.epoch)
        managed.stop()
        assert job_status(managed.job).state == "stopped"
        poll(lambda: not is_there(managed, waiting), timeout_s=60)
    event = managed.control.last_event(NOT_NEEDED, launch_id=waiting.spec.launch_id)
    assert event is not None and event["why"] == "the job was stopped"


def test_a_start_that_finds_the_old_driver_dead_ends_it(managed: Managed) -> None:
    old = runs(managed)
    deploy(managed)
    with waiting_there(managed) as waiting:
        view = managed.control.lease.view()
        assert view is not None and view.holder is not None
        launch = spec_of(managed.control, str(view.holder.details["launch_id"]))
        assert launch is not None
        for handle in launcher_of(managed).find(managed.control):
            if handle.launch_id == launch.launch_id:
                launcher_of(managed).kill(handle)
        poll(lambda: not managed.driver_lives(), timeout_s=60)
        started = start_job(managed.job, by=BY)
        assert started.state == "started" and started.launch_id != waiting.spec.launch_id
        assert not is_there(managed, waiting)
    assert epoch(managed) == 2 and old is not None


def test_a_driver_that_its_cluster_starts_again_does_not_wait(managed: Managed) -> None:
    launcher = launcher_of(managed)
    plan = plan_upgrade(request_of(managed), managed.control, launcher)
    runs = replace(
        plan.runs,
        launch=replace(plan.runs.launch, on="yarn", deploy_mode="cluster"),
        spark={**plan.runs.spark, "spark.yarn.maxAppAttempts": "2"},
    )
    with pytest.raises(NotWarmError, match="starts again by itself"):
        launch_held(runs, managed.control, launcher, plan.after, 1, by=BY, why="a test")


def test_it_runs_what_is_released_and_nothing_else(managed: Managed) -> None:
    with waiting_there(managed) as waiting:
        held, control = waiting.spec, managed.control
        later = replace(
            held,
            asked=7,
            held_by=None,
            queries={name: replace(one, committed=99) for name, one in held.queries.items()},
        )
        assert is_same_launch(held, later)
        others: list[LaunchSpec] = [
            replace(later, application="/elsewhere.py"),
            replace(later, args=("--other",)),
            replace(later, queries={}),
            replace(
                later,
                queries={name: replace(one, checkpoint="file:///x") for name, one in held.queries.items()},
            ),
            replace(later, queries={name: replace(one, generation=2) for name, one in held.queries.items()}),
            replace(later, spark_version="9.9"),
        ]
        assert not any(is_same_launch(held, one) for one in others)
        other = replace(others[0], launch_id="launch-other")
        write_launch(control, replace(held, launch_id="launch-other"))
        release_launch(control, other, waiting.secret)
        with refuses(IntegrityError, "changed-launch", match="something else of what runs"):
            released_launch(control, replace(held, launch_id="launch-other"))
        # Nor is it released by those who can write among the records, and do not know the secret.
        forged = replace(held, launch_id="launch-forged")
        write_launch(control, forged)
        release_launch(control, replace(later, launch_id="launch-forged"), "guessed")
        with pytest.raises(IntegrityError):
            released_launch(control, forged)
        assert read_launch(control, held.launch_id).held_by is not None


def test_code_that_never_comes_to_its_first_query_is_launched_after_the_stop(managed: Managed) -> None:
    deploy(managed)
    runs_not = replace(managed.job, args=(*managed.job.args, "--without-boot"))
    with upgrading(managed.control, BY) as claim, pytest.raises(NotWarmError, match="before its first query"):
        plan = plan_upgrade(request_of(managed), managed.control, launcher_of(managed))
        launch_held(
            runs_not, managed.control, launcher_of(managed), plan.after, claim.epoch, by=BY, why="a test"
        )
    assert managed.driver_lives() and epoch(managed) == 1


@pytest.mark.storm
def test_where_the_driver_that_waited_is_gone_another_one_is_launched(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    ended = []

    def lost(*given: object, **named: object) -> Waiting:
        waiting = launch_held(*given, **named)  # type: ignore[arg-type]  # as it was called
        launcher_of(managed).kill(waiting.handle)
        poll(lambda: not is_there(managed, waiting), timeout_s=60)
        ended.append(waiting.spec.launch_id)
        return waiting

    monkeypatch.setattr(swapping, "launch_held", lost)
    done = upgraded(managed)
    assert done.state == "upgraded" and done.launch_id not in ended and len(ended) == 1
    assert not done.warm and "it had ended" in done.notes[0]


@pytest.mark.storm
def test_a_driver_that_is_released_and_does_nothing_is_replaced(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    frozen = []

    def freeze(*given: object, **named: object) -> Waiting:
        waiting = launch_held(*given, **named)  # type: ignore[arg-type]  # as it was called
        for one in launcher_of(managed).find(managed.control):
            if one.launch_id == waiting.spec.launch_id:
                for process in one.processes:
                    os.kill(process.pid, signal.SIGSTOP)
                frozen.append(waiting)
        return waiting

    monkeypatch.setattr(swapping, "launch_held", freeze)
    monkeypatch.setattr(swapping, "_RELEASED_S", 2.0)
    done = upgraded(managed)
    assert (done.state, done.warm, len(frozen)) == ("upgraded", False, 1)
    assert "has not taken the lease" in done.notes[0]
    assert not is_there(managed, frozen[0])


@pytest.mark.storm
def test_it_is_the_driver_that_takes_over(managed: Managed) -> None:
    deploy(managed)
    done = upgraded(managed)
    assert (done.state, done.warm) == ("upgraded", True)
    said = kinds(managed)
    assert said.index("driver-waiting") < said.index("upgrading")
    event = managed.control.last_event("driver-waiting")
    assert event is not None and event["launch_id"] == done.launch_id
    cold = upgraded(managed, args=(*managed.job.args, "--batches", "1000000"), cold=True)
    assert (cold.state, cold.warm, "launch" in cold.steps) == ("upgraded", False, False)


@pytest.mark.storm
def test_an_upgrade_that_dies_while_it_waits_leaves_nothing_behind(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    there = threading.Event()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(swapping, "end_held", lambda *given: there.set())
        interrupt(patch, swapping, "stop_job", before)
        upgraded(managed)
    assert there.is_set()
    launcher = launcher_of(managed)
    poll(lambda: len(launcher.find(managed.control)) == 1, timeout_s=60)
    done = upgraded(managed)
    assert (done.state, done.resumed) == ("upgraded", True)
