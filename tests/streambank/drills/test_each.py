"""A drill of each savepoint: which belong together, what becomes of the others, and what a retry does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.control.drills import drills_of, outcomes, record_drill, round_over
from streambank.core.python310 import UTC
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.drills.each import Kept, RoundReport, alike, drill_each, kept, sets_of
from streambank.drills.request import DrillRequest
from streambank.job.savepoint import savepoint_job
from streambank.repository.catalog import manifest_key
from streambank.sla.judge.savepoints import drills_seen
from tests.support.cli import streambank
from tests.support.jobs.declared import declare
from tests.support.jobs.managed_job import BY, Managed, managed_job
from tests.support.json_examples import examples, mismatches
from tests.support.repository.damaged_savepoints import damage_alone
from tests.support.waiting import poll

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
TASK = {**BY, "dag_id": "flights.drill", "run_id": "scheduled__1", "task_id": "drill"}


def taken(query: str, minute: float) -> Kept:
    at = NOON + timedelta(minutes=minute)
    return Kept(query, f"{query}{minute:g}", at, at)


def sets(*there: Kept) -> list[str]:
    """The sets, of savepoints in any order."""
    newest_first = sorted(there, key=lambda one: one.order_at, reverse=True)
    queries = sorted({one.query for one in there})
    return [" ".join(one.savepoint for one in found) for found in sets_of(newest_first, queries)]


def test_savepoints_of_several_queries_are_drilled_with_those_that_were_taken_closest() -> None:
    assert sets(taken("a", 0), taken("a", 5)) == ["a5", "a0"]
    together = [taken("a", 0), taken("b", 0.1), taken("a", 5.1), taken("b", 5)]
    assert sets(*together) == ["a5.1 b5", "a0 b0.1"]
    # One query has more: each of them is drilled, with whatever there is of the other. The first set is the
    # one that a restore chooses: the moment is that of b1, which both reach back to.
    assert sets(taken("a", 0), taken("a", 5), taken("a", 9), taken("b", 1)) == ["a0 b1", "a9 b1", "a5 b1"]
    # One of them was taken beside those of the others.
    assert sets(*together, taken("b", 7)) == ["a5.1 b5", "a5.1 b7", "a0 b0.1"]


def failed(step: str, code: str, state: Any = None) -> dict[str, Any]:
    return {"failed_step": step, "code": code, "queries": [{"state": state or {}}]}


def test_a_round_ends_once_the_application_fails_alike_on_three_savepoints_in_a_row() -> None:
    passed: dict[str, Any] = {"failed_step": None, "code": None, "queries": []}
    died = failed("state", "drill-died")
    assert alike([passed, died, died, died], left=7) == (
        "The round ended: 3 drills in a row failed alike, at the step state (drill-died), "
        "and 7 more were not begun."
    )
    for one in (failed("launch", "start-failed"), failed("batches", "drill-timeout"), failed("clean", "no")):
        assert alike([one] * 3, left=1).endswith("and 1 more was not begun.")
        assert alike([one] * 2, left=1) == ""
        assert alike([one, one, passed, one], left=1) == ""
        assert alike([one, one, died], left=1) == ""
    # What may be damage of one savepoint, or of a file that several share.
    opened = failed("state", "drill-died", {"parts": []})
    damage = (
        ("choose", "savepoint-damaged"),
        ("restore", "object-damaged"),
        ("batches", "drill-died"),
        ("compare", "drill-differs"),
    )
    for one in (opened, *(failed(*which) for which in damage)):
        assert alike([one] * 5, left=1) == ""


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    with managed_job(tmp_path, monkeypatch) as managed:
        yield managed


def saved(managed: Managed, count: int = 3) -> list[str]:
    """Savepoints of a running job, the newest first; then it commits no more, and so purges none."""
    managed.start()
    found: list[str] = []
    for _ in range(count):
        managed.wait_for_batch(managed.last_batch() + 1)
        poll(lambda: managed.control.query_facts() is not None)
        found.insert(0, savepoint_job(managed.job, by=BY).savepoints["main"].savepoint)
    last = managed.last_batch() + 6
    managed.hangs.write_text(str(last), encoding="utf-8")
    managed.wait_for_batch(last - 1)
    return found


def drilled(managed: Managed) -> list[str]:
    """The savepoints of the drills that there have been, in their order."""
    reports = list(drills_of(managed.control))[::-1]
    return [one["round"]["savepoints"].get("main", "") for one in reports]


def passed_at(managed: Managed) -> str | None:
    """When the newest drill that passed began, as the objective has it."""
    found = drills_seen(managed.control, ["main"]).passed_at
    return None if found is None else to_json_time(found)


def asked(managed: Managed, **more: Any) -> DrillRequest:
    return DrillRequest(managed.job, savepoint="each", **{"batches": 1, "by": BY, **more})


def each(managed: Managed, *options: str, code: int = 0) -> Any:
    words = ("drill", "flights", "--jobs", managed.jobs_file, "--savepoint", "each", "--batches", "1")
    answer = streambank(*words, *options)
    assert answer.code == code, f"{answer.out}{answer.err}"
    return answer


@pytest.mark.storm
def test_one_that_is_damaged_fails_the_drill_and_does_not_end_the_others(managed: Managed) -> None:
    newest, damaged, oldest = saved(managed)
    damage_alone(managed.repository, "flights", damaged)
    answer = each(managed, code=1)

    assert answer.out.startswith("drill of job flights: 2 of 3 passed\n")
    drills = answer.out.splitlines()[-3:]
    assert [line.split()[2] for line in drills] == [newest, damaged, oldest]
    assert ["  passed, RTO " in line for line in drills] == [True, False, True]
    assert " old, failed at the step " in drills[1]
    progress = [line for line in answer.err.splitlines() if line.startswith("savepoint ")]
    assert progress == [
        f"savepoint {number} of 3: {one}" for number, one in enumerate((newest, damaged, oldest), 1)
    ]
    # The records have each drill, and the objective counts them as one, which failed.
    assert drilled(managed) == [newest, damaged, oldest]
    seen = drills_seen(managed.control, ["main"])
    assert seen.passed_at is None
    assert seen.failed.startswith(f"The newest drill of each savepoint failed: {damaged} at the step ")
    history = streambank("drill", "flights", "--jobs", managed.jobs_file, "--history").out
    assert all(one in history for one in (newest, damaged, oldest))

    # The negative control: the others alone pass, and that counts.
    limited = json.loads(each(managed, "--limit", "1", "--json").out)
    assert (limited["passed"], limited["error"], len(limited["drills"])) == (True, "", 1)
    assert list(mismatches(examples()["drill of each savepoint"], limited)) == []
    assert passed_at(managed) == limited["started_at"]
    assert drills_seen(managed.control, ["main"]).failed == ""


@pytest.mark.storm
def test_one_that_expires_meanwhile_is_skipped_and_is_no_failure(managed: Managed) -> None:
    newest, expires, oldest = saved(managed)

    def say(words: str) -> None:
        if words.startswith("savepoint 1 of 3"):
            managed.repository.store.delete(manifest_key("flights", expires))

    report = drill_each(asked(managed), say=say)
    assert report.passed and drilled(managed) == [newest, oldest]
    (skipped,) = report.to_dict()["skipped"]
    assert skipped == {"savepoints": {"main": expires}, "why": "it has expired meanwhile"}
    assert passed_at(managed) == report.to_dict()["started_at"]


@pytest.mark.storm
def test_an_application_that_hangs_on_three_in_a_row_ends_the_round(managed: Managed) -> None:
    kept_ones = saved(managed, 4)
    managed.hangs.write_text("0", encoding="utf-8")
    report = drill_each(asked(managed, batches=0, timeout_s=4.0, limit=0))
    assert [one["code"] for one in report.drills] == ["drill-timeout"] * 3
    assert drilled(managed) == kept_ones[:3] and not report.passed
    says = "3 drills in a row failed alike, at the step batches (drill-timeout), and 1 more was not begun."
    assert report.ended.endswith(says) and report.error.endswith(report.ended)
    over = round_over(managed.control, report.id)
    assert over is not None and over["ended"] == report.ended


@pytest.mark.storm
def test_once_its_time_is_over_a_round_ends_and_the_next_one_goes_on(managed: Managed) -> None:
    newest, second, oldest = saved(managed)
    managed.declare('\n[jobs.flights.drill]\ntime_limit = "1ms"\n')
    report = drill_each(asked(managed))
    assert report.passed and drilled(managed) == [newest], "one is drilled, however short the time is"
    assert report.ended == (
        "The round ended: its time limit of 0.001 s was over, and 2 more were not begun. "
        "The next round with a limit goes on from there."
    )
    assert report.left == ({"main": second}, {"main": oldest})
    over = round_over(managed.control, report.id)
    assert over is not None and over["left"] == list(report.left) and over["drilled"] == [{"main": newest}]

    answer = json.loads(each(managed, "--json").out)
    assert answer["left"] == [{"main": oldest}]
    last = drill_each(asked(managed))
    assert drilled(managed) == [newest, second, oldest], "those that were left, one in each round"
    assert (last.left, last.ended) == ((), "")
    over = round_over(managed.control, last.id)
    assert over is not None and len(over["drilled"]) == 3
    again = drill_each(asked(managed))
    assert again.drills[0]["round"]["savepoints"] == {"main": newest}, "and all over again"
    # The negative control: without a limit all are drilled, whatever was left.
    assert len(json.loads(each(managed, "--time-limit", "0s", "--json").out)["drills"]) == 3


@pytest.mark.storm
def test_those_that_a_round_left_are_not_forgotten_by_a_round_of_one(managed: Managed) -> None:
    newest, second, _ = saved(managed)
    managed.declare('\n[jobs.flights.drill]\ntime_limit = "1ms"\n')
    drill_each(asked(managed))
    by_hand = json.loads(each(managed, "--time-limit", "0s", "--limit", "1", "--json").out)
    assert [one["round"]["savepoints"] for one in by_hand["drills"]] == [{"main": newest}]
    assert by_hand["left"] == []
    assert drill_each(asked(managed)).drills[0]["round"]["savepoints"] == {"main": second}


class Killed(BaseException):
    """The task was ended from outside."""


def killing(at: str) -> Callable[[str], None]:
    """Ends what it is called by once a drill, or a step, begins."""

    def say(words: str) -> None:
        if words.startswith(at):
            raise Killed

    return say


@pytest.mark.storm
def test_the_retry_of_a_task_goes_on_with_those_that_are_left_and_a_person_begins_again(
    managed: Managed,
) -> None:
    newest, second, oldest = saved(managed)
    with pytest.raises(Killed):
        drill_each(asked(managed, by=TASK), say=killing("savepoint 2 of 3"))
    assert drilled(managed) == [newest]
    assert passed_at(managed) is None, "a round that is not over has not passed"

    report = drill_each(asked(managed, by=TASK))
    assert (report.passed, report.resumed) == (True, 1)
    assert [one["round"]["savepoints"]["main"] for one in report.drills] == [newest, second, oldest]
    assert [one["round"]["number"] for one in report.drills] == [1, 2, 3]
    assert drilled(managed) == [newest, second, oldest]
    assert round_over(managed.control, report.id) is not None
    assert passed_at(managed) == report.to_dict()["started_at"]

    # A task that is cleared when its round is over, another run, and a person begin again.
    for by in (TASK, {**TASK, "run_id": "manual__2"}, BY):
        with pytest.raises(Killed):
            drill_each(asked(managed, by=by), say=killing("savepoint 1 of 3"))
    with pytest.raises(Killed):
        drill_each(asked(managed), say=killing("savepoint 2 of 3"))
    again = drill_each(asked(managed))
    assert (again.resumed, len(again.drills)) == (0, 3)


def left_by(job: Job, minute: int, *, number: int = 0, token: str = "a", **more: Any) -> None:
    """The report of a drill that began so many minutes after a round did, an hour ago."""
    began = utc_now() - timedelta(hours=1)
    facts = {"id": f"20261126T120000Z-{token}", "number": number, "savepoints": {"main": f"s{number}"}}
    report = {
        "started_at": to_json_time(began + timedelta(minutes=minute)),
        "seconds": 60.0,
        "passed": True,
        "repository": job.repository,
        "by": TASK,
        "round": {**facts, "started_at": to_json_time(began)} if number else None,
    }
    record_drill(job.records(), {**report, **more})


def resumed(job: Job) -> list[str]:
    """The savepoints that a retry of the task takes over; then it finds no savepoint that is kept."""
    report = drill_each(DrillRequest(job, savepoint="each", by=TASK))
    return [one["round"]["savepoints"]["main"] for one in report.drills[: report.resumed]]


def test_a_retry_takes_over_each_drill_of_its_round(tmp_path: Path) -> None:
    job = declare(tmp_path)
    left_by(job, 1, number=1)
    left_by(job, -5, seconds=500.0)  # by a person: it began before the round, and ended within it
    left_by(job, 2, number=2)
    for number in range(1, 31):  # another round beside it, of another task
        left_by(job, 3, number=number, token="b", by={**TASK, "run_id": "manual__2"})
    job.records().store.write("drills/0000000034.json", b"{")
    assert resumed(job) == ["s1", "s2"]
    assert resumed(job) == [], "it is over now"


def test_a_round_that_was_killed_long_ago_is_over(tmp_path: Path) -> None:
    job = declare(tmp_path)
    left_by(job, -8 * 24 * 60, number=1)
    assert resumed(job) == []


@pytest.mark.storm
def test_several_queries_are_drilled_in_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with managed_job(tmp_path, monkeypatch, ["days", "hours"]) as managed:
        managed.start()
        of_queries: list[dict[str, str]] = []
        for _ in range(2):
            for query in ("days", "hours"):
                managed.wait_for_batch(managed.last_batch(query) + 1, query)
                poll(lambda query=query: managed.control.query_facts(query) is not None)  # type: ignore[misc]
            found = savepoint_job(managed.job, by=BY).savepoints
            of_queries.insert(0, {name: one.savepoint for name, one in found.items()})
        # The other query has one that was taken apart from the others.
        managed.wait_for_batch(managed.last_batch("days") + 1, "days")
        alone = savepoint_job(managed.job, query="days", by=BY).savepoints["days"].savepoint
        managed.wait_for_batch(managed.last_batch("days") + 2, "days")
        report = drill_each(asked(managed))
        assert report.passed
        assert [one["round"]["savepoints"] for one in report.drills] == [
            of_queries[0],
            {**of_queries[0], "days": alone},
            of_queries[1],
        ]


def test_where_there_is_no_savepoint_the_drill_has_failed(managed: Managed) -> None:
    managed.start()
    managed.wait_for_batch(1)
    savepoint = savepoint_job(managed.job, by=BY).savepoints["main"].savepoint
    managed.repository.store.delete(manifest_key("flights", savepoint))
    report = drill_each(asked(managed))
    assert (report.passed, report.to_dict()["code"]) == (False, "no-such-savepoint")
    assert report.hint and "hint" not in report.to_dict()
    (failed,) = outcomes(managed.control)
    assert failed.failed.startswith("of each savepoint failed: at the step choose: There is no savepoint of")


def test_a_savepoint_whose_manifest_is_damaged_is_one_of_those_that_are_kept(managed: Managed) -> None:
    newest, damaged, oldest = saved(managed)
    store = managed.repository.store
    store.write(manifest_key("flights", damaged), b"{}")
    there = kept(store, managed.job)
    assert [one.savepoint for one in there] == [newest, damaged, oldest]
    assert [one.taken_at is None for one in there] == [False, True, False]


REFUSED: Sequence[tuple[Sequence[str], str]] = (
    (("--limit", "2"), "--limit is for drills of each savepoint"),
    (("--time-limit", "2h"), "--time-limit is for drills of each savepoint"),
)


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_options_that_do_not_go_together_are_refused(
    managed: Managed, options: Sequence[str], says: str
) -> None:
    answer = streambank("drill", "flights", "--jobs", managed.jobs_file, *options)
    assert answer.code == 2 and says in answer.err


def test_people_read_how_old_the_savepoint_was_whose_drill_failed() -> None:
    report = {"passed": False, "failed_step": "restore", "error": "No.", "started_at": "2026-03-02T12:00:00Z"}
    rows = []
    for taken_at in ("2026-03-01T12:00:00Z", None):
        drills = ({**report, "round": {"savepoints": {"main": "b000001"}, "taken_at": taken_at}},)
        rows += RoundReport("r", "flights", "file:///r", drills, (), 0, utc_now(), 1.0).rows()[1:]
    failed = "failed at the step restore: No."
    assert rows == [("drill of b000001", f"1 d old, {failed}"), ("drill of b000001", failed)]
