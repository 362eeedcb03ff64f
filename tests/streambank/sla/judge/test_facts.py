"""What is known of a query besides its history, as its records, repository and files tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from streambank.control.control import JobControl
from streambank.control.drills import record_drill
from streambank.control.generations import Generation
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.health import HealthPolicy
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.job.alive import Life
from streambank.repository.catalog import newest_good
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sla.judge.facts import Facts, breaks_of, look_up
from streambank.sla.judge.reported import Subject
from streambank.sla.judge.running import Sign, failures_of, sign_of
from streambank.sla.judge.savepoints import Drills, drills_seen, newest_savepoints
from streambank.sla.judge.spread import Spread, skews_of
from streambank.sla.objectives import objectives
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.jobs.declared import BY, declare
from tests.support.processes import child
from tests.support.sla.progress_records import at, line

(SKEW,) = (one for one in objectives() if one.name == "partition_skew")


def event(control: JobControl, second: float, kind: str, **details: Any) -> None:
    control.event_records.append({"kind": kind, "at": to_json_time(at(second)), **details})


def test_a_driver_that_failed_counts_once_by_its_last_word(control: JobControl) -> None:
    event(control, 1, "query-ended", launch_id="a", query="main", failure="No space\nat java...", batch=3)
    event(control, 3, "driver-ended", launch_id="a", exit_code=1, failed={"main": "No space"}, forced=False)
    event(control, 4, "driver-ended", launch_id="b", exit_code=0, failed={}, forced=False)
    event(control, 5, "driver-ended", launch_id="c", exit_code=0, failed={}, forced=True)
    event(control, 6, "driver-died", launch_id="d", exit_code=137)
    event(control, 7, "killed", launch_id="e", why="the queries did not stop")
    event(control, 8, "query-ended", launch_id="f", query="main", failure=None)
    control.store.write("events/0000000099.json", b"{damaged")
    found = failures_of(control, "main")
    assert [(fact.subject, fact.at) for fact in found] == [
        ("a", at(3)), ("c", at(5)), ("d", at(6)), ("e", at(7))
    ]  # fmt: skip
    assert "No space" in found[0].what and "java" not in found[0].what
    assert "by force" in found[1].what and "137" in found[2].what


def test_a_query_does_not_answer_for_another_one(control: JobControl) -> None:
    event(control, 1, "query-ended", launch_id="a", query="left", failure="No space")
    event(control, 3, "driver-ended", launch_id="a", exit_code=1, failed={"left": "No space"})
    assert failures_of(control, "right") == []
    assert len(failures_of(control, "left")) == 1


def test_a_driver_that_was_killed_and_left_no_word_is_told_by_its_lease(tmp_path: Path) -> None:
    job = declare(tmp_path)
    control = job.records()
    code = """
import sys, time
from streambank.declaration.load import load_jobs
from streambank.control.processes import this_process
control = load_jobs(sys.argv[1]).job("flights").records()
control.lease.acquire([this_process("python")], details={"launch_id": "launch-1"}).beat()
print("there", flush=True)
time.sleep(60)
"""
    with child(code, tmp_path / "streaming_jobs.toml") as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        assert failures_of(control, "main") == []
    (fact,) = failures_of(control, "main")
    assert fact.subject == "launch-1" and "died" in fact.what
    later = utc_now() + timedelta(minutes=1)
    record = line(7, (later - at(0)).total_seconds(), epoch=1)
    control.store.write("progress/main/0000000001.jsonl", record + b"\n")
    (after,) = failures_of(control, "main")
    assert after.at > later.replace(microsecond=0), "it died after its last record"


def test_how_long_a_query_may_be_without_progress_grows_with_its_trigger() -> None:
    def sign(policy: HealthPolicy | None = None, **said: object) -> Sign:
        status = {"queries": {"main": {"still_s": 30.0, "triggered": True, **said}}}
        life = Life(True, up=True, status=status, said_at=at(100))
        return sign_of(life, "main", policy or HealthPolicy())

    assert sign(trigger_s=10.0) == Sign(at(70), 1800.0)
    assert sign(trigger_s=3600.0).limit_s == 3 * 3600.0
    assert sign(trigger_s=None).limit_s == 1800.0
    assert sign(triggered=False).limit_s == 3600.0, "its first batch loads the state"
    assert sign(HealthPolicy(first_batch_s=20_000.0), triggered=False).limit_s == 20_000.0
    assert sign(HealthPolicy(timeout_s=7200.0)).limit_s == 3 * 7200.0
    assert sign(still_s=None).at is None, "nothing is said"
    assert sign(over=True).over == "it has ended well"
    assert sign(over=True, failed=True).over == ""
    stopped = sign_of(Life(False, "it is meant to be stopped"), "main", HealthPolicy())
    assert (stopped.over, stopped.finished) == ("it is meant to be stopped", False)


def test_generations_that_were_switched_to_are_breaks(control: JobControl) -> None:
    control.generations().ensure_first("file:///ck", by=BY)
    assert breaks_of(control, "main") == ()
    made = Generation(2, "file:///ck.g0002", "b000003-1", at(9), BY)
    control.generations().records.create(2, made.to_dict())
    assert breaks_of(control, "main") == (at(9),)


def saved(folder: Path, batches: int) -> tuple[Repository, list[str]]:
    repository = Repository.open(open_store(folder / "repository"), create=True)
    live = LiveCheckpoint(open_store(folder / "checkpoint"), retain=4)
    ids = []
    for _ in range(batches):
        live.run(2)
        ids.append(take(TakeRequest(live.store, repository, "flights")).savepoint)
        take(TakeRequest(live.store, repository, "flights/left"))
    return repository, ids


def test_the_newest_drill_that_passed_counts_and_one_that_failed_since_is_named(control: JobControl) -> None:
    assert drills_seen(control, ["main"]) == Drills()
    first = control.generations().ensure_first("file:///checkpoint", by=BY)
    assert drills_seen(control, ["main"]) == Drills(begun=first.made_at)

    def drilled(second: float, **report: Any) -> None:
        record_drill(control, {"started_at": to_json_time(at(second)), **report})

    drilled(1, passed=False, failed_step="launch", error="It died.")
    assert drills_seen(control, ["main"]) == Drills(
        None, "The newest drill failed at the step launch: It died.", first.made_at
    )
    drilled(2, passed=True)
    assert drills_seen(control, ["main"]) == Drills(at(2))
    drilled(3, passed=False, failed_step="compare", error="It differs.")
    assert drills_seen(control, ["main"]) == Drills(
        at(2), "The newest drill failed at the step compare: It differs."
    )


def test_the_newest_savepoints_are_those_of_the_query_itself(tmp_path: Path) -> None:
    repository, ids = saved(tmp_path, 4)
    found = newest_savepoints(str(tmp_path / "repository"), "flights")
    assert [fact.subject for fact in found] == ids[::-1]
    assert found[0].at == repository.load("flights", ids[-1]).taken_at
    assert newest_savepoints(str(tmp_path / "repository"), "other") == []
    assert newest_savepoints(str(tmp_path / "nowhere"), "flights") == []
    assert [head.savepoint for head in newest_good(repository.store, "flights", 2)] == ids[:-3:-1]


def test_a_savepoint_that_is_damaged_is_none(tmp_path: Path) -> None:
    repository, ids = saved(tmp_path, 3)
    manifest = tmp_path / f"repository/savepoints/flights/{ids[2]}.json"
    manifest.write_bytes(b"{}")
    assert [fact.subject for fact in newest_savepoints(str(tmp_path / "repository"), "flights")] == [
        ids[1], ids[0]
    ]  # fmt: skip
    for pack in (tmp_path / "repository/packs").rglob("*"):
        if pack.is_file():
            pack.write_bytes(pack.read_bytes()[:-9])
    assert not verify(repository, "flights", ids[1], level="full").ok
    assert [one.savepoint for one in newest_good(repository.store, "flights", 5)] == [ids[0]]


def test_skew_is_told_of_stores_where_it_means_something(tmp_path: Path) -> None:
    folder = unpack("4.3.0/rocksdb-window", tmp_path / "unpacked") / "checkpoint"
    found = skews_of(str(folder), SKEW, at(0), begun=True)
    assert found is not None and all(fact.value <= 3.0 for fact in found)
    strict = replace(SKEW, warn=1.0, breach=1.01)
    assert skews_of(str(folder), strict, at(0), begun=True) is not None


def test_a_checkpoint_that_has_not_begun_is_nothing_to_look_at_and_one_that_is_gone_is(
    tmp_path: Path,
) -> None:
    job = declare(tmp_path)

    found = all_facts(job)
    assert found.found["partition_skew"] == Spread(None) and found.unreadable == ()
    job.records().store.write("progress/main/0000000001.jsonl", line(0, 1) + b"\n")
    (sentence,) = all_facts(job).unreadable
    assert "Its state" in sentence


def all_facts(job: Job, *, skew: bool = True) -> Facts:
    wanted = objectives(SlaPolicy({"savepoint_age": Declared(breach=60.0)}))
    return look_up(Subject(job, "main", job.records(), job.checkpoint, at(0), skew=skew), wanted)


def test_what_cannot_be_read_is_said_and_ends_nothing(tmp_path: Path) -> None:
    job = declare(tmp_path)
    control = job.records()
    for name in ("savepoints", "marks"):
        (tmp_path / "repository" / name).mkdir(parents=True)
    (tmp_path / "repository/savepoints/flights").write_text("no folder")
    control.store.write("generation/main/0000000001.json", b"{damaged")
    event(control, 1, "driver-died", launch_id="a", exit_code=1)
    found = all_facts(job)
    assert len(found.found["failed_batches"]) == 1
    assert any("Its generations" in one for one in found.unreadable)
    assert all_facts(job, skew=False).found["partition_skew"] is None
