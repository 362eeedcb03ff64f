"""Stops of real drivers: at a batch boundary whoever gets the TERM, at once between triggers, or forced."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.drivers.real_driver import Driver, Job, printed
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

LONG = "1000 days"
"""Triggers begin at whole multiples of their interval since 1970: the next one of a minute may be near."""


def pair(folder: Path) -> Job:
    """Two queries by name; the application gives one of them a name that cannot be one of ours."""
    return Job(folder, queries=("quick", "slow"), spark_names={"slow": "Slow Zähler"})


def to_python(driver: Driver) -> None:
    os.kill(driver.python, signal.SIGTERM)


def to_jvm(driver: Driver) -> None:
    os.kill(driver.jvm, signal.SIGTERM)


def to_group(driver: Driver) -> None:
    os.killpg(driver.jvm, signal.SIGTERM)


@pytest.mark.storm
@pytest.mark.parametrize("term", [to_python, to_group, to_jvm])
def test_term_in_the_middle_of_a_batch_lets_it_commit(tmp_path: Path, term: Callable[[Driver], None]) -> None:
    with Job(tmp_path).driver("steady.py", str(tmp_path), "--batch-s", "3") as driver:
        driver.wait_committed(0)
        batch = driver.wait_in_batch()
        term(driver)
        assert driver.wait() == 0, driver.tail()
        assert driver.batches("offsets") == driver.batches("commits")
        assert driver.batches("commits")[-1] >= batch
        assert [record.batch for record in driver.progress()] == driver.batches("commits")
        assert "the application has ended in good order" in driver.tail(200)
        (asked,) = driver.events("stop-asked")
        assert asked["reason"] == "term"
        view = driver.control.lease.view()
        assert view is not None and view.state == "ended"


@pytest.mark.storm
def test_idle_stop_on_request_is_quick_and_everything_is_left_behind(tmp_path: Path) -> None:
    with Job(tmp_path).driver("steady.py", str(tmp_path), "--trigger", LONG) as driver:
        driver.wait_committed(0)
        driver.event("first-trigger")
        wait_for("progress of batch 0", lambda: driver.progress())
        requested = time.monotonic()
        control = driver.control
        request = control.requests.post(
            "stop", epoch=driver.epoch, by={"user": "me"}, why="to see", drain=False
        )
        answer = wait_for("an answer", lambda: control.requests.answer_to(request.number), 30)
        assert time.monotonic() - requested < 30, "and not until the next trigger"
        assert driver.wait(30) == 0

    assert answer["state"] == "stopped"
    assert answer["batches"] == {"main": 0}
    assert [event["kind"] for event in driver.events()] == [
        "driver-started",
        "query-started",
        "first-trigger",
        "stop-asked",
        "query-ended",
        "driver-ended",
    ]
    assert (
        driver.events("stop-asked")[0] | {"reason": "request", "by": {"user": "me"}, "why": "to see"}
        == (driver.events("stop-asked")[0])
    )
    # The application's own checkpoint, twice in its code, gave way to the job's.
    assert not (tmp_path / "own-checkpoint").exists()
    assert not (tmp_path / "own-checkpoint-too").exists()
    assert driver.batches("offsets") == driver.batches("commits") == [0]
    # It ran as Python would have run it.
    seen = printed(driver)
    assert seen["main"] == "__main__"
    assert seen["helper"] == "found beside the application"
    assert seen["argv"] == [driver.spec.application, str(tmp_path), "--trigger", LONG]
    assert seen["path"] == str(Path(driver.spec.application).parent)
    # The sink was learnt from Spark; its path was relative.
    facts = control.query_facts()
    assert facts is not None
    assert facts["sink"] == f"FileSink[file:{tmp_path}/relative-output]"
    assert facts["sink_path"] == f"file://{tmp_path}/relative-output"
    assert facts["generation"] == 1
    assert facts["spark_version"] == "4.3.0"
    assert facts["query_id"] in (driver.checkpoint() / "metadata").read_text()


@pytest.mark.storm
def test_two_queries_by_name_both_end_at_a_boundary(tmp_path: Path) -> None:
    with pair(tmp_path).driver("pair.py", str(tmp_path)) as driver:
        driver.wait_committed(0, "slow")
        driver.wait_in_batch("slow")
        to_jvm(driver)
        assert driver.wait() == 0, driver.tail()
        for query in ("quick", "slow"):
            assert driver.batches("offsets", query) == driver.batches("commits", query)
            assert [record.batch for record in driver.progress(query)] == driver.batches("commits", query)


@pytest.mark.storm
def test_a_failed_query_is_seen_in_the_exit_code_and_the_other_one_ends_at_a_boundary(tmp_path: Path) -> None:
    job = pair(tmp_path)
    with job.driver("pair.py", str(tmp_path), "--fail-at", "2") as driver:
        assert driver.wait() == 1, driver.tail()
        assert "swallowed StreamingQueryException" in driver.tail(400)
        assert driver.batches("offsets", "slow") == driver.batches("commits", "slow")
        assert driver.batches("offsets", "quick") != driver.batches("commits", "quick")
        (ended,) = driver.events("driver-ended")
        assert list(ended["failed"]) == ["quick"]
        failures = {event["query"]: event["failure"] for event in driver.events("query-ended")}
        assert failures["slow"] is None
        assert failures["quick"] == "ValueError: a row that cannot be understood"


@pytest.mark.storm
def test_a_batch_that_takes_too_long_is_abandoned_and_that_is_said(tmp_path: Path) -> None:
    with Job(tmp_path).driver("steady.py", str(tmp_path), "--batch-s", "90") as driver:
        driver.wait_in_batch()
        wait_for("the batch to run", lambda: "Starting Python task execution" in driver.tail(1000))
        by = {"user": "me"}
        request = driver.control.requests.post("stop", epoch=driver.epoch, by=by, force_after_s=2.0)
        assert driver.wait(60) == 0, driver.tail()
        answer = driver.control.requests.answer_to(request.number)
        assert answer is not None
        assert answer["state"] == "forced"
        assert driver.events("stop-forced")[0]["queries"] == ["main"]
        assert (driver.batches("offsets"), driver.batches("commits")) == ([0], [])


@pytest.mark.storm
def test_what_cannot_be_stopped_is_killed(tmp_path: Path) -> None:
    with Job(tmp_path, force_after_s=2.0).driver("deaf.py") as driver:
        wait_for("the batch", lambda: "in a batch" in driver.log.read_text())
        to_python(driver)
        assert driver.wait(60) == -signal.SIGKILL
        assert [event["kind"] for event in driver.events()][-2:] == ["stop-forced", "killed"]
        view = driver.control.lease.view()
        assert view is not None
        assert view.state == "dead"
