"""A stop that the same asker asks for again, as a task that is tried again; this process plays the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.claims import Claim
from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.job.stop import ask_to_stop
from streambank.job.stop_request import StopAsked
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses


@pytest.fixture
def job(folder: Path) -> Job:
    return declare(folder)


@pytest.fixture
def control(job: Job) -> JobControl:
    return job.records()


def run(control: JobControl) -> Claim:
    """Somebody starts the job."""
    control.set_desired("running", by={**BY, "user": "ann"})
    return control.lease.acquire([this_process("python")])


def ask(job: Job, asker: str = "a task") -> StopAsked:
    return ask_to_stop(job, by=BY, asker=asker)


def requests(control: JobControl) -> list[int]:
    return control.requests.records.numbers()


def test_nothing_is_asked_twice(job: Job, control: JobControl) -> None:
    run(control)
    numbers = control.desired_records.numbers()

    first = ask(job)

    assert (first.epoch, first.request) == (1, 1)
    assert ask(job) == first
    assert control.requests.answer(1, "stopped")
    assert ask(job) == first  # the driver has heard it, and is about to end
    assert requests(control) == [1]
    assert len(control.desired_records.numbers()) == len(numbers) + 1


def test_it_is_told_which_driver_it_was_when_that_is_gone(job: Job, control: JobControl) -> None:
    driver = run(control)
    first = ask(job)
    driver.release(exit_code=0)

    assert ask(job) == first


def test_a_driver_that_somebody_has_started_since_is_not_asked(job: Job, control: JobControl) -> None:
    driver = run(control)
    ask(job)
    driver.release(exit_code=0)
    run(control)

    with refuses(RefusedError, "started-since", match="again after this stop was requested, by ann"):
        ask(job)

    desired = control.desired()
    assert desired is not None and desired.state == "running"
    assert requests(control) == [1]
    assert ask(job, "another task").epoch == 2  # which is a separate request


def test_somebody_who_wants_it_to_run_on_has_the_last_word_too(job: Job, control: JobControl) -> None:
    run(control)
    ask(job)
    control.set_desired("running", by=BY)

    with refuses(RefusedError, "started-since"):
        ask(job)


def test_a_stop_of_somebody_else_in_between_is_as_good(job: Job, control: JobControl) -> None:
    driver = run(control)
    first = ask(job)
    driver.release(exit_code=0)
    run(control).release(exit_code=0)
    control.set_desired("stopped", by=BY)

    assert ask(job) == first


def test_a_driver_that_was_still_coming_up_is_asked(job: Job, control: JobControl) -> None:
    control.set_desired("running", by=BY)
    first = ask(job)
    control.lease.acquire([this_process("python")])

    again = ask(job)

    assert (first.epoch, again.epoch, again.at) == (None, 1, first.at)


def test_who_gives_no_name_asks_anew_each_time(job: Job, control: JobControl) -> None:
    run(control)
    ask_to_stop(job, by=BY)
    control.set_desired("running", by=BY)

    assert ask_to_stop(job, by=BY).epoch == 1
