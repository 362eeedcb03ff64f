"""All queries of a job restored as one: what is chosen, what is refused, and what ends in between."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.core.errors import FormatError, InputError, IntegrityError, NotFoundError, RefusedError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.recovery import together
from streambank.recovery.choices import parse_file_sinks
from streambank.recovery.choosing import resolve
from streambank.recovery.choosing import together as choosing
from streambank.recovery.choosing.nearest import choose_nearest
from streambank.recovery.choosing.resolve import choose
from streambank.recovery.choosing.together import from_place
from streambank.recovery.request import RestoreRequest, TogetherRequest
from streambank.recovery.restore import restore
from streambank.recovery.sinks import readers
from streambank.recovery.together import TogetherReport, plan_together, restore_together
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import VerifyReport, verify
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.sites.records import SiteRecord, Sites
from streambank.storage import open_store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import BY
from tests.support.storage.faulty_store import SimulatedCrash

QUERIES = ("hours", "sessions", "users")
OF_ALL = ("chosen", "file_sinks", "query", "savepoints", "whole")
"""What a request says of all queries; the rest is of each."""
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Trio:
    """A job of three stateful queries that write to consoles, and a clock for its savepoints."""

    job: Job
    repository: Repository
    live: dict[str, LiveCheckpoint]
    clock: pytest.MonkeyPatch

    @property
    def control(self) -> JobControl:
        return self.job.records()

    def run(self, batches: int) -> None:
        for live in self.live.values():
            for _ in range(batches):
                live.plan()
                live.commit()

    def take(self, query: str, minute: float) -> str:
        moment = BEGIN + timedelta(minutes=minute)
        self.clock.setattr("streambank.savepoint.take.datetime", _stands_at(moment))
        checkpoint = open_store(self.job.queries[query])
        sinks = sinks_from_descriptions(["ConsoleTable"])
        return take(
            TakeRequest(checkpoint, self.repository, f"{self.job.name}/{query}", sinks=sinks)
        ).savepoint

    def take_all(self, minute: float) -> dict[str, str]:
        """One savepoint of each, a second after the other."""
        return {name: self.take(name, minute + number / 60) for number, name in enumerate(QUERIES)}

    def request(self, reference: str = "latest-good", **more: Any) -> TogetherRequest:
        of_all = {name: more.pop(name) for name in OF_ALL if name in more}
        records, repository = self.control, more.pop("repository", self.repository)
        each = RestoreRequest(repository, reference, generation=records, by=BY, **more)
        return TogetherRequest(each, self.job, **of_all)

    def restore(self, **more: Any) -> TogetherReport:
        return restore_together(self.request(**more))

    def alone(self, query: str) -> RestoreRequest:
        """A restore of one query to its newest savepoint."""
        chosen = choosing.choose_together(self.job, self.repository).queries
        return together._of_query(self.request(), query, chosen)

    def generations(self) -> dict[str, tuple[int, str | None]]:
        found = {name: self.control.generation(name) for name in QUERIES}
        return {name: (one.number, one.from_savepoint) for name, one in found.items() if one is not None}

    def may_start(self) -> bool:
        try:
            prepare_launch(self.job, self.control, by=BY)
        except RefusedError as error:
            assert error.code == "restore-unfinished"
            return False
        return True

    def unlock(self) -> None:
        for lock in (self.control.operation_lock.break_operation, self.control.lease.break_lease):
            lock(by=BY, why="killed", even_live=True)


def _stands_at(moment: datetime) -> type[datetime]:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # of the base class
            return moment

    return Clock


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trio:
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(
        'repository = "repository"\n[jobs.flights]\napplication = "app.py"\ncheckpoint = "ck"\n'
        f"queries = {json.dumps(QUERIES)}\n"
    )
    job = load_jobs(tmp_path / "jobs.toml").job("flights")
    live = {name: LiveCheckpoint(open_store(job.queries[name])) for name in QUERIES}
    made = Trio(job, Repository.open(open_store(job.repository), create=True), live, monkeypatch)
    made.run(3)
    assert made.may_start()
    return made


def test_each_query_goes_back_to_its_newest(trio: Trio) -> None:
    taken = trio.take_all(0)
    trio.run(2)
    newer = trio.take_all(10)
    trio.run(1)
    plan = plan_together(trio.request())
    assert {name: one.savepoint for name, one in plan.plans.items()} == newer != taken
    assert not plan.refusals and plan.skew_s == 2.0
    assert trio.generations() == dict.fromkeys(QUERIES, (1, None)), "a plan changes nothing"
    report = trio.restore()
    assert trio.generations() == {name: (2, newer[name]) for name in QUERIES}
    assert report.plan.skew_s == 2.0 and set(report.to_dict()["queries"]) == set(QUERIES)
    assert all(batches_of(one.layout.target).committed == 4 for one in report.reports.values())
    assert trio.may_start()


def test_they_belong_together_where_one_has_none_newer(trio: Trio) -> None:
    """One query has no savepoint since minute 10: the others go back to theirs of that time."""
    trio.take_all(0)
    trio.run(1)
    together_at = trio.take_all(10)
    trio.run(1)
    for minute in (20, 30):
        trio.run(1)
        trio.take("hours", minute)
        trio.take("users", minute)
    report = trio.restore()
    assert {name: one.plan.savepoint for name, one in report.reports.items()} == together_at
    assert report.plan.skew_s == 2.0


def test_a_closer_one_that_expires_meanwhile_is_passed_over(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.take_all(0)
    closest = trio.take_all(10)["hours"]
    trio.run(1)
    newest = trio.take("hours", 12)

    def expired(repository: Repository, job: str, savepoint: str, *args: Any, **options: Any) -> VerifyReport:
        if savepoint == closest:
            raise NotFoundError("It is gone.", code="no-such-savepoint", hint="")
        return verify(repository, job, savepoint, *args, **options)

    monkeypatch.setattr(resolve, "verify", expired)
    hours = plan_together(trio.request()).plans["hours"]
    assert hours.savepoint == newest
    assert [(one.savepoint, one.why) for one in hours.skipped] == [(closest, "It has expired meanwhile.")]


def test_a_damaged_one_takes_the_others_along(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    manifest = trio.repository.load("flights/users", newer["users"])
    missing = next(entry for entry in manifest.files if entry.path.startswith("offsets/"))
    store = trio.repository.store
    for info in list(store.list("savepoints/flights/users")):
        if newer["users"] in info.path:
            store.write(info.path, store.read(info.path).replace(missing.digest.encode(), b"0" * 64))
    report = trio.restore()
    assert {name: one.plan.savepoint for name, one in report.reports.items()} == older


def test_a_living_driver_is_said_once_and_refused(trio: Trio) -> None:
    trio.take_all(0)
    lease = trio.control.lease.acquire([this_process("python")])
    assert [one.code for one in plan_together(trio.request()).refusals] == ["lease-held"]
    with pytest.raises(RefusedError) as caught:
        trio.restore()
    assert caught.value.code == "lease-held"
    assert trio.generations() == dict.fromkeys(QUERIES, (1, None))
    lease.release()


def test_what_speaks_against_one_query_stops_all(trio: Trio) -> None:
    """Each is planned before the first is changed."""
    trio.take_all(0)
    trio.control.record_query("users", {"query_id": trio.live["users"].query_id, "sink": "ForeachBatchSink"})
    trio.run(1)
    with pytest.raises(RefusedError):
        trio.restore()
    assert trio.generations() == dict.fromkeys(QUERIES, (1, None))
    assert not trio.control.store.names("restored-together") and trio.may_start()
    report = trio.restore(sink="accept")
    assert set(report.reports) == set(QUERIES)


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_crash_between_two_queries(trio: Trio, monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    """No driver starts with some of them restored; the same restore does those that are left."""
    taken = trio.take_all(0)
    trio.run(2)
    fired: list[int] = []

    def dies(*args: Any, **options: Any) -> object:
        if len(fired) == done:
            raise SimulatedCrash("killed")
        fired.append(1)
        return restore(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(together, "restore", dies)
        if done < len(QUERIES):
            with pytest.raises(SimulatedCrash):
                trio.restore()
            trio.unlock()
        else:
            trio.restore()
    assert len(fired) == done
    assert trio.may_start() == (done in (0, len(QUERIES)))
    report = trio.restore()
    again = {0: QUERIES, 1: QUERIES[1:], 2: QUERIES[2:], 3: QUERIES}[done]
    assert tuple(report.reports) == again
    assert report.plan.done == tuple(name for name in QUERIES if name not in again)
    assert {name: savepoint for name, (_, savepoint) in trio.generations().items()} == taken
    assert trio.may_start()


def test_an_unfinished_one_is_over_when_the_rest_is_restored_alone(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.take_all(0)

    def second_dies(request: Any, **options: Any) -> object:
        if "hours" not in request.job:
            raise SimulatedCrash("killed")
        return restore(request, **options)

    with monkeypatch.context() as patched:
        patched.setattr(together, "restore", second_dies)
        with pytest.raises(SimulatedCrash):
            trio.restore()
    trio.unlock()
    for name in ("sessions", "users"):
        assert not trio.may_start()
        restore(trio.alone(name))
    assert trio.may_start()


def test_a_note_that_cannot_be_read_refuses_a_start(trio: Trio) -> None:
    trio.take_all(0)
    trio.restore()
    (name,) = trio.control.store.names("restored-together")
    trio.control.store.write(f"restored-together/{name}", json.dumps({"queries": {"hours": 1}}).encode())
    with pytest.raises(FormatError) as caught:
        prepare_launch(trio.job, trio.control, by=BY)
    assert caught.value.code == "damaged-record"


def test_the_verb(trio: Trio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", str(tmp_path / "jobs.toml"))
    taken = trio.take_all(0)
    planned = succeed("job", "restore", "flights", "--dry-run").out
    for savepoint in taken.values():
        assert f"would restore savepoint {savepoint}" in planned
    assert "The savepoints were taken within 2 s of each other." in planned
    found = succeed("job", "restore", "flights", "--why", "a test", "--json").document
    assert {name: one["savepoint"] for name, one in found["queries"].items()} == taken
    assert found["skew_s"] == 2.0 and found["already_restored"] == []
    assert found["queries"]["users"]["by"]["reason"] == "a test"
    lease = trio.control.lease.acquire([this_process("python")])
    refused = streambank("job", "restore", "flights", "--dry-run")
    assert refused.code == 8 and "is held by" in refused.out
    lease.release()


def test_a_moment_or_a_name_stands_for_one_of_each(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    for query, savepoint in older.items():
        trio.repository.give_name(f"flights/{query}", savepoint, "calm", by=BY)
    for reference, expected in (
        ("2026-03-01T12:05Z", older),
        ("2026-03-01T13:00+00:30", newer),
        ("calm", older),
        ("latest", newer),
    ):
        plans = plan_together(trio.request(reference=reference)).plans
        assert {name: one.savepoint for name, one in plans.items()} == expected, reference


@pytest.mark.parametrize("reference", ["b000002", "batch:2"])
def test_a_savepoint_of_one_query_is_none_of_a_job(trio: Trio, reference: str) -> None:
    trio.take_all(0)
    with pytest.raises(InputError) as caught:
        plan_together(trio.request(reference=reference))
    assert caught.value.code == "names-one-query"


def test_one_that_came_to_its_end_is_begun_again(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since then one query alone got another generation: the others are restored again, too."""
    trio.take_all(0)
    trio.restore()
    alone = restore(trio.alone("hours")).plan.generation
    newest = {name: number for name, (number, _) in trio.generations().items()}
    assert newest == {"hours": alone, "sessions": 2, "users": 2} and alone == 3
    # It has gone on from another savepoint meanwhile.
    stream = trio.control.generations("hours").records
    last = stream.latest() or pytest.fail("no generation")
    place = f"{trio.job.queries['hours']}.g0004"
    later = {"generation": 4, "location": place, "from_savepoint": "b000099-000000000000"}
    stream.create(4, {**last.data, **later})
    report = trio.restore()
    assert report.plan.done == () and set(report.reports) == set(QUERIES)


def test_a_query_that_is_not_declared_any_more_does_not_stop_a_job(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.take_all(0)

    def last_dies(request: Any, **options: Any) -> object:
        if "users" in request.job:
            raise SimulatedCrash("killed")
        return restore(request, **options)

    with monkeypatch.context() as patched:
        patched.setattr(together, "restore", last_dies)
        with pytest.raises(SimulatedCrash):
            trio.restore()
    trio.unlock()
    assert not trio.may_start()
    queries = {name: location for name, location in trio.job.queries.items() if name != "users"}
    prepare_launch(replace(trio.job, queries=queries), trio.control, by=BY)


def test_a_reference_with_a_place_is_of_one_query(trio: Trio) -> None:
    trio.take_all(0)
    with pytest.raises(InputError) as caught:
        plan_together(trio.request(reference="flights/users/latest-good"))
    assert caught.value.code == "names-one-query"


@pytest.mark.parametrize("left", [QUERIES[:1], QUERIES[:2]])
def test_savepoints_that_were_named_of_other_queries_are_refused(trio: Trio, left: tuple[str, ...]) -> None:
    """Queries were declared no more since they were planned: what is left is not all that was approved."""
    taken = trio.take_all(0)
    trio.job = replace(trio.job, queries={name: trio.job.queries[name] for name in left})
    for named in (taken, {"users": taken["users"]}):
        for doing in (plan_together, restore_together):
            with pytest.raises(InputError) as caught:
                doing(trio.request(savepoints=named))
            assert caught.value.code == "names-one-query"
        with pytest.raises(InputError, match="savepoints are named of"):
            from_place(
                trio.job, "nearest", "latest-good", control=trio.control, target=trio.job.queries["hours"],
                record=False, savepoints=named,
            )  # fmt: skip
    assert trio.generations() == dict.fromkeys(QUERIES, (1, None))


def test_a_job_that_has_lost_its_checkpoints_comes_back(trio: Trio, tmp_path: Path) -> None:
    taken = trio.take_all(0)
    for name in QUERIES:
        trio.control.record_query(name, {"query_id": trio.live[name].query_id})
    shutil.rmtree(tmp_path / "ck")
    command = ("job", "restore", "flights", "--jobs", tmp_path / "jobs.toml")
    done = succeed(*command, "--sink", "accept", "--json").document
    assert {name: one["savepoint"] for name, one in done["queries"].items()} == taken
    assert not any("goes back to this savepoint" in str(one["warnings"]) for one in done["queries"].values())


def unreadable(place: Repository, query: str, savepoint: str) -> None:
    place.store.write(f"savepoints/flights/{query}/{savepoint}.json", b"{}")


def test_of_a_time_the_error_names_the_time_of_the_next_older_one(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    unreadable(trio.repository, "users", newer["users"])
    with pytest.raises(IntegrityError) as caught:
        plan_together(trio.request(reference="2999-01-01"))
    assert newer["users"] in caught.value.message and older["users"] in caught.value.message
    moment = "2026-03-01T12:00:02.000Z"
    assert caught.value.hint.startswith(f"To go back that far, give {moment} as the savepoint instead of")
    plan = plan_together(trio.request(reference=moment))
    assert {name: one.savepoint for name, one in plan.plans.items()} == older


def flip(place: Repository, query: str, savepoint: str) -> None:
    """Let a savepoint name content that is not there; when it was taken can still be read."""
    manifest = place.load(f"flights/{query}", savepoint)
    missing = next(entry for entry in manifest.files if entry.path.startswith("offsets/"))
    (path,) = [one.path for one in place.store.list(f"savepoints/flights/{query}") if savepoint in one.path]
    place.store.write(path, place.store.read(path).replace(missing.digest.encode(), b"0" * 64))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("readable", [True, False])
def test_what_the_error_names_belongs_together(trio: Trio, query: str, readable: bool) -> None:
    """Hourly savepoints of each query, a second after the other, and the newest of one is damaged."""
    trio.take_all(-60)
    trio.run(1)
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(60)
    (flip if readable else unreadable)(trio.repository, query, newer[query])
    with pytest.raises(IntegrityError) as caught:
        plan_together(trio.request(reference="latest", whole=True))
    assert older[query] in caught.value.message
    moment = "2026-03-01T12:00:02.000Z"
    if readable or query == "users":
        assert f"give {moment} as the savepoint instead of latest" in caught.value.hint
        plan = plan_together(trio.request(reference=moment))
    else:  # any later moment than that of the older one may mean the one that cannot be read
        assert caught.value.hint.startswith("Latest-good goes back by itself, with all queries to")
        plan = plan_together(trio.request())
    assert {name: one.savepoint for name, one in plan.plans.items()} == older and plan.skew_s == 2.0


@pytest.mark.parametrize("place", [None, "nearest"])
def test_no_younger_one_is_named_as_the_next_older_one(trio: Trio, place: str | None) -> None:
    older = trio.take("hours", 0)
    trio.run(1)
    meant = trio.take("hours", 10)
    trio.run(1)
    younger = trio.take("hours", 120)
    unreadable(trio.repository, "hours", meant)
    moment = "2026-03-01T12:30:00Z"
    with pytest.raises((IntegrityError, NotFoundError)) as caught:
        if place is None:
            choose(trio.repository, moment, "flights/hours", record=False)
        else:
            choose_nearest(
                (trio.job.repository,),
                moment,
                "flights/hours",
                target=trio.job.queries["hours"],
                record=False,
                open_place=trio.job.open_place,
            )
    assert f"verifies is {older} of batch" in caught.value.message and younger not in caught.value.message
    assert f"give {older} as the savepoint" in caught.value.hint


def test_the_plan_says_how_each_was_chosen(trio: Trio) -> None:
    older = trio.take_all(0)
    trio.run(1)
    newer = trio.take_all(10)
    flip(trio.repository, "users", newer["users"])
    plan = plan_together(trio.request())
    assert [one.savepoint for one in plan.plans["users"].skipped] == [newer["users"]]
    moment = "2026-03-01T12:05:00.000Z"
    plan = plan_together(trio.request(reference=moment))
    assert {to_json_time(one.as_of.at) for one in plan.plans.values() if one.as_of} == {moment}
    report = trio.restore()
    assert {name: one.plan.savepoint for name, one in report.reports.items()} == older
    assert [one.savepoint for one in report.reports["users"].plan.skipped] == [newer["users"]]


def test_of_a_query_that_is_restored_already_nothing_is_asked(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.take_all(0)
    trio.control.record_query("hours", {"query_id": trio.live["hours"].query_id, "sink": "ForeachBatchSink"})
    trio.run(1)

    def second_dies(request: Any, **options: Any) -> object:
        if "hours" not in request.job:
            raise SimulatedCrash("killed")
        return restore(request, **options)

    with monkeypatch.context() as patched:
        patched.setattr(together, "restore", second_dies)
        with pytest.raises(SimulatedCrash):
            trio.restore(sink="accept")
    trio.unlock()
    plan = plan_together(trio.request())
    assert plan.done == ("hours",)
    hours = plan.plans["hours"]
    assert not [*hours.refusals, *hours.other_refusals]
    assert not any([*hours.sink_refusals.values(), *hours.source_refusals.values()])


def test_a_choice_for_a_sink_of_one_query_is_none_for_the_others(trio: Trio) -> None:
    trio.take_all(0)
    trio.control.record_query("users", {"query_id": trio.live["users"].query_id, "sink": "ForeachBatchSink"})
    trio.run(1)
    plan = plan_together(trio.request())
    assert [one.code for one in plan.refusals] == ["sink-not-guarded"]
    _, sink = plan.plans["users"].sinks
    report = trio.restore(sink="rollback", sink_of={sink["path"]: "accept"})
    assert set(report.reports) == set(QUERIES)
    with pytest.raises(InputError) as caught:
        plan_together(trio.request(sink_of={"/nowhere": "accept"}))
    assert caught.value.code == "unknown-sink"


class TestFileSinksNamedAfterwards:
    """Savepoints that name no sink, of queries that write files."""

    @pytest.fixture
    def named(self, trio: Trio, tmp_path: Path) -> list[str]:
        """Its output directories, as `--file-sink` takes them."""
        outputs = {name: tmp_path / f"out-{name}" for name in QUERIES}
        for batch in range(4):
            if batch == 3:
                for name in QUERIES:
                    take(TakeRequest(open_store(trio.job.queries[name]), trio.repository, f"flights/{name}"))
                trio.run(1)
            for name, output in outputs.items():
                FileSinkWriter(open_store(output)).write(batch, [{"batch": batch}])
                while_it_ran = (tmp_path / "ck" / name / "commits" / str(batch)).stat().st_mtime_ns
                os.utime(output / "_spark_metadata" / str(batch), ns=(while_it_ran, while_it_ran))
        return [f"{name}={output}" for name, output in outputs.items()]

    def test_each_is_compared_with_its_query(self, trio: Trio, named: list[str]) -> None:
        assert {one.code for one in plan_together(trio.request()).refusals} == {"no-sink-known"}
        sinks = parse_file_sinks(named, trio.job.queries)
        plan = plan_together(trio.request(file_sinks=sinks))
        assert [one.code for one in plan.refusals] == ["sink-would-lose-rows"] * len(QUERIES)
        report = trio.restore(file_sinks=sinks, sink="rollback")
        for query, one in report.reports.items():
            (back,) = one.rolled_back
            assert back["path"].endswith(f"out-{query}") and back["files_aside"] == 1

    def test_of_queries_that_read_each_other(
        self, trio: Trio, named: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A savepoint from after the writer's may know of files that are taken back."""
        sinks = parse_file_sinks(named, trio.job.queries)
        for reader, read in (("hours", "users"), ("users", "sessions")):
            facts = {"sources": [f"FileStreamSource[file:{sinks[read][0]}]"]}
            trio.control.record_query(reader, {"query_id": trio.live[reader].query_id, **facts})
        looked = Mock(side_effect=load_jobs)
        monkeypatch.setattr(readers, "load_jobs", looked)
        done = trio.restore(file_sinks=sinks, sink="rollback").reports
        assert looked.call_count == len(QUERIES), "a job that stands does not wait for a second look"
        assert not any("reads file:" in one for one in done["users"].warnings), "hours is from before"
        (said,) = (one for one in done["sessions"].warnings if "reads file:" in one)
        assert said.startswith("Query flights/users reads file:") and "--with" not in said

    def test_the_verb(self, trio: Trio, named: list[str], tmp_path: Path) -> None:
        command = ["job", "restore", "flights", "--jobs", str(tmp_path / "jobs.toml"), "--sink", "rollback"]
        assert streambank(*command).code == 8
        refused = streambank(*command, "--file-sink", named[0].partition("=")[2])
        assert refused.code == 2 and "does not say which query" in refused.err
        succeed(*command, *(word for one in named for word in ("--file-sink", one)))
        assert {number for number, _ in trio.generations().values()} == {2}


class TestFromPlace:
    """Where the savepoints of all queries come from, as one."""

    @pytest.fixture
    def pair(self, trio: Trio, tmp_path: Path) -> Trio:
        """The job with a replica of its repository."""
        replica = open_store(tmp_path / "replica").uri
        trio.job = replace(trio.job, replicate=replace(trio.job.replicate, to=(replica,)))
        return trio

    def replicate(self, trio: Trio) -> Repository:
        replica = open_replica(trio.repository, open_store(trio.job.replicate.to[0]))
        list(replicate(trio.repository, replica, newest_first(trio.repository)))
        return Repository.open(open_store(trio.job.replicate.to[0]))

    def nearest(self, trio: Trio, reference: str = "latest-good") -> tuple[str, dict[str, str], set[str]]:
        """The place, the savepoint of each query, and what was passed over."""
        place, chosen = from_place(
            trio.job,
            "nearest",
            reference,
            control=trio.control,
            target=trio.job.queries["hours"],
            record=False,
        )
        assert chosen is not None
        passed = {one.location for each in chosen.values() for one in each.passed_over}
        plan = plan_together(trio.request(reference, chosen=chosen, repository=place))
        assert {one.repository for one in plan.plans.values()} == {place.store.uri}
        return place.store.uri, {name: one.manifest.savepoint for name, one in chosen.items()}, passed

    @pytest.mark.parametrize("reference", ["latest-good", "latest", "2999-01-01"])
    def test_the_nearest_place_has_those_of_all_queries(self, pair: Trio, reference: str) -> None:
        newest = pair.take_all(0)
        replica = self.replicate(pair)
        place, found, passed = self.nearest(pair, reference)
        assert (place, found) == (pair.repository.store.uri, newest)
        unreadable(pair.repository, "sessions", newest["sessions"])
        place, found, passed = self.nearest(pair, reference)
        assert (place, found, passed) == (replica.store.uri, newest, {pair.repository.store.uri})

    def test_which_ones_are_meant_does_not_depend_on_the_place(self, pair: Trio) -> None:
        """The replica is behind, and of one query the repository is damaged down to where that is."""
        older = pair.take_all(0)
        replica = self.replicate(pair)
        pair.run(1)
        newer = pair.take_all(10)
        assert self.nearest(pair)[:2] == (pair.repository.store.uri, newer)
        unreadable(pair.repository, "users", newer["users"])
        assert self.nearest(pair)[:2] == (pair.repository.store.uri, older), "the same moment, and nearer"
        unreadable(pair.repository, "users", older["users"])
        assert self.nearest(pair)[:2] == (replica.store.uri, older)
        with pytest.raises(NotFoundError) as caught:
            self.nearest(pair, "latest")
        assert caught.value.code == "no-good-savepoint"
        assert "give 2026-03-01T12:00:02.000Z as the savepoint" in caught.value.hint

    def test_a_place_that_cannot_be_better_is_not_read(
        self, pair: Trio, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is closest to the moment of all may be older than that moment."""
        pair.take("users", 0)
        pair.take("sessions", 0.1)
        pair.run(1)
        pair.take("hours", 1)
        pair.run(1)
        pair.take("users", 2.5)
        pair.take("sessions", 2.6)
        self.replicate(pair)
        read: list[str] = []
        real = choosing.choose_together

        def spy(job: Job, repository: Repository, **options: Any) -> object:
            read.append(repository.store.uri)
            return real(job, repository, **options)

        monkeypatch.setattr(choosing, "choose_together", spy)
        place, found, _ = self.nearest(pair)
        assert read == [pair.repository.store.uri] == [place]
        assert pair.repository.load("flights/users", found["users"]).taken_at == BEGIN

    def test_of_latest_no_place_has_all_though_each_is_somewhere(self, pair: Trio) -> None:
        newest = pair.take_all(0)
        replica = self.replicate(pair)
        unreadable(pair.repository, "users", newest["users"])
        unreadable(replica, "hours", newest["hours"])
        with pytest.raises(NotFoundError) as caught:
            self.nearest(pair, "latest")
        assert caught.value.code == "no-good-savepoint" and "older one" not in caught.value.message
        assert newest["users"] in caught.value.message and newest["hours"] in caught.value.message

    def test_a_place_with_nothing_of_the_job_s_own_does_not_decide_what_that_is(
        self, pair: Trio, tmp_path: Path
    ) -> None:
        """Of one query a replica has but newer savepoints of a test, and nothing else says its query id."""
        own = pair.take_all(0)
        replica = self.replicate(pair)
        for key in [info.path for info in replica.store.list("savepoints/flights/users")]:
            replica.store.delete(key)
        for name in ("hours", "sessions"):
            pair.clock.setattr("streambank.savepoint.take.datetime", _stands_at(BEGIN + timedelta(hours=1)))
            live = pair.live[name]
            live.plan()
            live.commit()
            sinks = sinks_from_descriptions(["ConsoleTable"])
            take(TakeRequest(live.store, replica, f"flights/{name}", sinks=sinks))
        test = LiveCheckpoint(open_store(tmp_path / "test"), seed=1)
        test.run(9)
        take(TakeRequest(test.store, replica, "flights/users", sinks=sinks))
        assert self.nearest(pair)[:2] == (pair.repository.store.uri, own)

    def test_a_site_that_the_job_left_does_not_count(self, pair: Trio) -> None:
        older = pair.take_all(0)
        pair.run(1)
        pair.take_all(10)
        left = {name: open_store(pair.job.queries[name]).uri for name in QUERIES}
        Sites(pair.control).write(
            SiteRecord(3, "active", STANDBY, PRIMARY, True, {}, "", BEGIN, older, {}, left)
        )
        assert self.nearest(pair)[1] == older

    def test_the_command_restores_from_the_nearest_place(self, pair: Trio, tmp_path: Path) -> None:
        newest = pair.take_all(0)
        replica = self.replicate(pair)
        declared = tmp_path / "jobs.toml"
        declared.write_text(f'{declared.read_text()}[jobs.flights.replicate]\nto = ["replica"]\n')
        unreadable(pair.repository, "users", newest["users"])
        command = ("job", "restore", "flights", "--jobs", declared, "--from")
        plan = succeed(*command, "nearest", "--dry-run", "--json").document
        assert {one["repository"] for one in plan["queries"].values()} == {replica.store.uri}
        assert plan["queries"]["users"]["passed_over"][0]["location"] == pair.repository.store.uri
        done = succeed(*command, "nearest", "--json").document
        assert {name: one["savepoint"] for name, one in done["queries"].items()} == newest
        again = succeed(*command, replica.store.uri, "--dry-run", "--json").document
        assert {one["repository"] for one in again["queries"].values()} == {replica.store.uri}
