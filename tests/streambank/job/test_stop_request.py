"""A stop in two steps: asked for by one process, finished by another when the driver is gone."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from streambank.core.errors import ConflictError, RefusedError
from streambank.declaration.declaration import Job
from streambank.job.start import start_job
from streambank.job.stop import StopResult, ask_to_stop, stop_job
from streambank.job.stop_request import StopAsked
from tests.support.jobs.declared import BY, declare, fake_launcher, started
from tests.support.refuses import refuses
from tests.support.waiting import poll


def start(folder: Path, job: Job) -> None:
    start_job(job, by=BY, launcher=fake_launcher(folder))


class Options(TypedDict, total=False):
    """What asking and finishing take alike."""

    why: str
    drain: bool
    force_after_s: float


def ask(job: Job, asker: str | None = None, **options: Unpack[Options]) -> StopAsked:
    """Ask, and keep of it what another process would get."""
    asked = ask_to_stop(job, by=BY, asker=asker, **options)
    return StopAsked(**json.loads(json.dumps(asdict(asked))))


def finish(folder: Path, job: Job, asked: StopAsked, **options: Unpack[Options]) -> StopResult:
    return stop_job(job, by=BY, launcher=fake_launcher(folder), asked=asked, **options)


def wait_until_gone(job: Job) -> None:
    records = job.records()
    poll(lambda: (view := records.lease.view()) is not None and view.free)


def requests(job: Job) -> int:
    return len(list(job.records().requests.records.all()))


def test_the_driver_stops_by_the_asking_alone_and_the_rest_is_told_as_of_any_stop(folder: Path) -> None:
    job = started(folder)

    asked = ask(job, why="lunch", drain=True)
    wait_until_gone(job)
    desired = job.records().desired()
    assert desired is not None and (desired.state, desired.why) == ("stopped", "lunch")
    result = finish(folder, job, asked, drain=True)

    assert (result.state, result.how, result.epoch, result.batch) == ("stopped", "boundary", 1, 0)
    assert result.drained is True
    assert requests(job) == 1
    event = job.records().last_event("stopped")
    assert event is not None and (event["how"], event["by"]) == ("boundary", BY)


def test_finishing_at_once_waits_for_the_same_request(folder: Path) -> None:
    job = started(folder, "--forced")

    result = finish(folder, job, ask(job))

    assert (result.state, result.how, requests(job)) == ("stopped", "forced", 1)


def test_what_a_stop_took_counts_from_the_asking(folder: Path) -> None:
    job = declare(folder)
    asked = StopAsked("2013-01-01T00:00:00.000Z", 60.0)

    assert finish(folder, job, asked).seconds > 3600


def test_nobody_is_asked_where_no_driver_lives(folder: Path) -> None:
    job = declare(folder)

    asked = ask(job)

    assert (asked.epoch, asked.request) == (None, None)
    assert asked.patience_s == 2 * job.stop.force_after_s + 15
    assert finish(folder, job, asked).state == "already-stopped"


def test_an_operation_that_holds_the_lease_is_not_asked(folder: Path) -> None:
    job = declare(folder)

    with job.records().lease.held("restore", by=BY):
        assert ask(job).epoch is None
    assert requests(job) == 0


def test_asking_needs_no_lock_and_finishing_needs_it(folder: Path) -> None:
    job = started(folder)

    with job.records().operation("savepoint", by=BY):
        asked = ask(job, force_after_s=0.01)
        wait_until_gone(job)
        waiting = StopAsked(asked.at, asked.patience_s, asked.epoch, asked.request)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ConflictError) as caught:
            patch.setattr("streambank.job.stop._MARGIN_S", 0.1)
            finish(folder, job, waiting, force_after_s=0.01)

    assert caught.value.code == "operation-in-progress"
    assert finish(folder, job, asked).how == "boundary"


def test_a_deaf_driver_is_killed_when_the_patience_of_both_steps_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.3)
    job = started(folder, "--deaf")

    result = finish(folder, job, ask(job, force_after_s=0.2), force_after_s=0.2)

    assert (result.state, result.how, requests(job)) == ("stopped", "killed", 1)


def test_a_start_in_between_has_the_last_word(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    wait_until_gone(job)
    start_job(job, by={**BY, "user": "ann"}, launcher=fake_launcher(folder))

    with refuses(
        RefusedError, "started-since", match="started again after this stop was requested, by ann on "
    ):
        finish(folder, job, asked)

    view = job.records().lease.view()
    assert view is not None and (view.epoch, view.state) == (2, "live")
    desired = job.records().desired()
    assert desired is not None and desired.state == "running"


def test_a_stop_of_somebody_else_in_between_is_as_good(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    start(folder, job)
    stop_job(job, by=BY, launcher=fake_launcher(folder))

    result = finish(folder, job, asked)

    assert (result.state, result.how, result.epoch) == ("stopped", "boundary", 1)


def test_a_driver_that_another_start_brought_and_another_stop_wants_gone_is_stopped(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    wait_until_gone(job)
    start(folder, job)
    job.records().set_desired("stopped", by=BY)

    result = finish(folder, job, asked)

    assert (result.state, result.how, result.epoch, requests(job)) == ("stopped", "boundary", 2, 2)


def test_an_operation_that_had_the_lease_in_between_does_not_hide_how_the_driver_ended(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    wait_until_gone(job)
    with job.records().lease.held("restore", by=BY):
        pass

    result = finish(folder, job, asked)

    assert (result.state, result.how, result.epoch) == ("stopped", "boundary", 1)


def test_an_equal_request_is_not_made_twice_and_another_one_is(folder: Path) -> None:
    job = started(folder, "--deaf")

    first = ask(job, drain=True)

    assert ask(job, drain=True).request == first.request
    assert ask(job).request != first.request  # ends the wait of a drain
    assert requests(job) == 2


def test_many_may_finish_the_same_stop(folder: Path) -> None:
    job = started(folder)
    asked = ask(job)
    results: list[StopResult] = []
    threads = [threading.Thread(target=lambda: results.append(finish(folder, job, asked))) for _ in range(2)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [(one.state, one.how, one.epoch) for one in results] == [("stopped", "boundary", 1)] * 2
    assert requests(job) == 1
