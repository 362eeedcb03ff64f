"""All queries of a job restored as one: what is refused, and what ends in between."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from streambank.checkpoint.position import batches_of
from streambank.control.processes import this_process
from streambank.core.errors import FormatError, InputError, RefusedError
from streambank.core.restore_choices import parse_file_sinks
from streambank.core.units import to_json_time
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.recovery import together
from streambank.recovery.restore import restore
from streambank.recovery.sinks import readers
from streambank.recovery.together import plan_together
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import BY
from tests.support.jobs.trio import QUERIES, Trio, flip
from tests.support.storage.faulty_store import SimulatedCrash


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


def test_an_unfinished_one_is_over_when_the_rest_is_restored_alone(trio: Trio) -> None:
    trio.take_all(0)

    trio.killed_at("sessions")
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


def test_a_query_that_is_not_declared_any_more_does_not_stop_a_job(trio: Trio) -> None:
    trio.take_all(0)

    trio.killed_at("users")
    assert not trio.may_start()
    queries = {name: location for name, location in trio.job.queries.items() if name != "users"}
    prepare_launch(replace(trio.job, queries=queries), trio.control, by=BY)


def test_a_job_that_has_lost_its_checkpoints_comes_back(trio: Trio, tmp_path: Path) -> None:
    taken = trio.take_all(0)
    for name in QUERIES:
        trio.control.record_query(name, {"query_id": trio.live[name].query_id})
    shutil.rmtree(tmp_path / "ck")
    command = ("job", "restore", "flights", "--jobs", tmp_path / "jobs.toml")
    done = succeed(*command, "--sink", "accept", "--json").document
    assert {name: one["savepoint"] for name, one in done["queries"].items()} == taken
    assert not any("goes back to this savepoint" in str(one["warnings"]) for one in done["queries"].values())


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


def test_of_a_query_that_is_restored_already_nothing_is_asked(trio: Trio) -> None:
    trio.take_all(0)
    trio.control.record_query("hours", {"query_id": trio.live["hours"].query_id, "sink": "ForeachBatchSink"})
    trio.run(1)

    trio.killed_at("sessions", sink="accept")
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
