"""A restart: one driver makes room for another, whoever asks again, and whatever dies in between."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, StorageError
from streambank.core.shape import decode
from streambank.declaration.declaration import Job
from streambank.job.restart import RestartAsked, RestartResult, ask_to_restart, restart_job
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from tests.support.jobs.declared import BY, declare, end_drivers, fake_launcher, started
from tests.support.refuses import refuses
from tests.support.waiting import poll


def start(folder: Path, job: Job) -> None:
    start_job(job, by=BY, launcher=fake_launcher(folder))


def ask(job: Job, asker: str | None = "a task") -> RestartAsked:
    """Ask, and keep of it what another process would get."""
    asked = ask_to_restart(job, by=BY, asker=asker, why="new code")
    assert asked is not None
    return decode(RestartAsked, json.loads(json.dumps(asked.to_dict())), "request")


def finish(folder: Path, job: Job, asked: RestartAsked, *, wait: bool = True) -> RestartResult:
    return restart_job(job, asked, by=BY, why="new code", wait=wait, launcher=fake_launcher(folder))


def desired(job: Job) -> str | None:
    found = job.records().desired()
    return found.state if found else None


def requests(job: Job) -> int:
    return len(job.records().requests.records.numbers())


def wait_until_gone(job: Job) -> None:
    records = job.records()
    poll(lambda: (view := records.lease.view()) is not None and view.free)


def test_one_driver_takes_over_from_another_at_a_boundary(folder: Path) -> None:
    job = started(folder)
    numbers = job.records().desired_records.numbers()

    result = finish(folder, job, ask(job))

    assert (result.state, result.how, result.stopped_epoch) == ("restarted", "boundary", 1)
    assert (result.start.epoch, result.start.batch) == (2, 1)
    assert requests(job) == 1
    assert job.records().desired_records.numbers() == numbers  # nobody was told that it is to be stopped
    said = result.to_dict()
    assert (said["state"], said["epoch"], said["how"]) == ("restarted", 2, "boundary")


def test_the_old_driver_ends_by_the_asking_alone(folder: Path) -> None:
    job = started(folder)

    asked = ask(job)
    wait_until_gone(job)
    assert desired(job) == "running"
    result = finish(folder, job, asked)

    assert (result.state, result.how, result.start.epoch) == ("restarted", "boundary", 2)


def test_who_asks_again_never_stops_the_driver_that_has_replaced_the_first(folder: Path) -> None:
    job = started(folder)
    finish(folder, job, ask(job), wait=False)

    again = finish(folder, job, ask(job))

    assert (again.state, again.start.epoch, again.how) == ("restarted", 2, None)
    assert requests(job) == 1
    assert finish(folder, job, ask(job, "another task")).start.epoch == 3


def test_who_asks_again_before_anything_was_finished_asks_the_same_driver_once(folder: Path) -> None:
    job = started(folder, "--deaf")

    first, second = ask(job), ask(job)

    assert (first.before, first.stop.epoch, first.stop.request) == (1, 1, 1)
    assert (second.before, second.stop.epoch, second.stop.request) == (1, 1, 1)
    assert requests(job) == 1


def test_a_driver_that_somebody_has_started_in_between_was_the_restart(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    wait_until_gone(job)
    start(folder, job)

    result = finish(folder, job, asked)

    assert (result.state, result.start.epoch, result.how) == ("restarted", 2, None)
    assert requests(job) == 1


def test_a_job_that_is_meant_to_be_stopped_is_not_even_asked(folder: Path) -> None:
    job = started(folder)
    stop_job(job, by=BY, launcher=fake_launcher(folder))

    assert ask_to_restart(job, by=BY) is None
    assert job.records().last_event("restart-asked") is None


def test_a_stop_in_between_has_the_last_word(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    stop_job(job, by=BY, launcher=fake_launcher(folder))

    assert finish(folder, job, asked).state == "not-desired"
    view = job.records().lease.view()
    assert view is not None and (view.epoch, view.free) == (1, True)


def test_a_stop_while_the_old_driver_is_waited_for_has_the_last_word_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = started(folder)
    asked = ask(job)

    def stop_and_be_told(*args: object, **kwargs: object) -> object:
        result = stop_job(*args, **kwargs)  # type: ignore[arg-type]  # as it was called
        job.records().set_desired("stopped", by=BY)
        return result

    monkeypatch.setattr("streambank.job.restart.stop_job", stop_and_be_told)

    assert finish(folder, job, asked).state == "not-desired"
    view = job.records().lease.view()
    assert view is not None and (view.epoch, view.free) == (1, True)


def test_a_dead_driver_is_replaced(folder: Path) -> None:
    job = started(folder)
    end_drivers(job.records())

    result = finish(folder, job, ask(job))

    assert (result.state, result.how, result.start.epoch) == ("started", "dead", 2)
    # Nobody was asked; it is a mark against drivers that come up late.
    assert [one.data["epoch"] for one in job.records().requests.records.all()] == [0]


def test_a_job_that_never_ran_is_started(folder: Path) -> None:
    job = declare(folder)

    asked = ask(job)
    result = finish(folder, job, asked)

    assert (asked.before, result.state, result.start.epoch) == (0, "started", 1)
    assert finish(folder, job, ask(job)).start.epoch == 1


@pytest.mark.storm
def test_a_deaf_driver_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 2.0)
    job = started(folder, "--deaf", more='[jobs.flights.stop]\nforce_after = "100ms"\n')

    result = finish(folder, job, ask(job), wait=False)

    assert (result.state, result.how, result.start.epoch) == ("restarted", "killed", 2)


def test_after_a_failed_start_another_try_starts_and_stops_nothing(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    dying = declare(folder, "--die-before-lease", "9")
    with pytest.raises(StorageError) as caught:
        finish(folder, dying, asked)
    assert (caught.value.code, desired(job)) == ("driver-died", "running")

    job = declare(folder)
    result = finish(folder, job, ask(job))

    assert (result.start.epoch, result.how) == (2, "boundary")
    assert requests(job) == 1


def test_nobody_else_works_on_the_job_meanwhile(folder: Path) -> None:
    job = started(folder, "--deaf")
    records = job.records()
    asked = ask(job)
    failed: list[BaseException] = []

    def restart() -> None:
        try:
            finish(folder, job, asked, wait=False)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        poll(
            lambda: (
                (view := records.operation_lock.view()) is not None and not view.free and _is_restart(view)
            )
        )
        with pytest.raises(ConflictError) as caught, records.operation("restore", by=BY):
            pass
        assert caught.value.code == "operation-in-progress"
    finally:
        end_drivers(records)
        thread.join()
    assert failed == []


def _is_restart(view: object) -> bool:
    holder = getattr(view, "holder", None)
    return holder is not None and holder.details["operation"] == "restart"


def test_no_driver_is_stopped_under_the_hands_of_another_operation(folder: Path) -> None:
    job = started(folder, more='[jobs.flights.stop]\nforce_after = "10ms"\n')

    with job.records().operation("compact", by=BY):
        for attempt in (ask_to_restart, restart_job):
            with refuses(ConflictError, "operation-in-progress"):
                attempt(job, by=BY)

    assert requests(job) == 0
    assert job.records().last_event("restart-asked") is None


def test_a_restart_waits_no_longer_than_the_old_driver_may_take(folder: Path) -> None:
    job = declare(folder)
    asked = RestartAsked(0, replace(ask(job).stop, patience_s=0.0))

    with job.records().operation("restore", by=BY), pytest.raises(ConflictError) as caught:
        finish(folder, job, asked)

    assert caught.value.code == "operation-in-progress"
