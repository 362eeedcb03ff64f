from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.processes import ProcessId
from streambank.control.progress import ProgressWriter
from streambank.core.errors import InputError, NotFoundError, RefusedError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.savepoint import savepoint_job, sinks_of
from streambank.job.stop import stop_job
from streambank.kafka.recording import KafkaSinkCapture
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.plan import make_plan
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import local_path, open_store
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.kafka.fake_broker import FakeBroker
from tests.support.refuses import refuses


def live(location: str, batches: int) -> LiveCheckpoint:
    return LiveCheckpoint(open_store(location)).run(batches)


def manifest(job: Job, savepoint: str, name: str | None = None) -> Any:
    return Repository.open(open_store(job.repository)).load(name or job.name, savepoint)


@pytest.fixture
def running(folder: Path) -> Iterator[Job]:
    """A job with a file sink that has committed three batches, as its driver left the records."""
    job = declare(folder, "--secret", "hunter2", more='[jobs.flights.spark]\nspark.key = "hunter3"')
    live(job.checkpoint, 3)
    sink = FileSinkWriter(open_store(folder / "out"))
    for batch in range(3):
        sink.write(batch, [{"n": batch}])
    control = job.records()
    control.generations().ensure_first(job.checkpoint, by=BY)
    control.record_query(
        None, {"sink": f"FileSink[file:{folder}/out]", "spark_version": "4.3.0", "generation": 1}
    )
    yield job


def test_a_savepoint_of_a_managed_job_knows_its_sink_and_what_ran(running: Job) -> None:
    taken = savepoint_job(running, by=BY, why="before lunch", note="hot", pin=True)
    result = taken.to_dict()
    assert (result["job"], result["batch"], result["already_there"]) == ("flights", 2, False)
    kept = manifest(running, result["savepoint"])
    (sink,) = kept.sinks
    assert sink["kind"] == "file" and sink["path"].endswith("/out") and sink["files"]
    assert kept.spark_version == "4.3.0"
    assert kept.taken_by["reason"] == "before lunch" and kept.taken_by["via"] == "test"
    assert kept.taken_by["records"] == running.records().store.uri
    assert kept.application["path"] == running.application and kept.application["digest"].startswith(
        "sha256:"
    )
    assert kept.conf["names"] == ["spark.key"]
    text = json.dumps([kept.application, kept.conf, dict(kept.taken_by)])
    assert "hunter" not in text, "arguments and values of settings may be secrets"
    event = running.records().last_event("savepoint-taken")
    assert event is not None and event["savepoint"] == result["savepoint"] and event["generation"] == 1


@pytest.mark.parametrize("control", [None, "elsewhere"])
def test_the_command_line_leaves_the_same_event_as_any_other(
    folder: Path, running: Job, control: str | None
) -> None:
    jobs = folder / "streaming_jobs.toml"
    if control is not None:  # with its records apart, a job is found by its declaration alone
        (folder / "repository.control").rename(folder / control)
        jobs.write_text(f'control = "{control}"\n' + jobs.read_text(encoding="utf-8"), encoding="utf-8")
    job = load_jobs(jobs).job("flights")
    named: list[str | int | Path] = ["--jobs", jobs] if control is not None else []
    savepoint_job(job, by=BY, batch=1)
    expected = job.records().last_event("savepoint-taken")

    place, repository = folder / "checkpoints/flights", folder / "repository"
    taken = succeed("take", place, "-r", repository, "--job", "flights", *named)

    event = job.records().last_event("savepoint-taken")
    assert event is not None and expected is not None
    assert event.keys() == expected.keys()
    assert (event["batch"], event["generation"], event["query"]) == (2, 1, "main")
    assert event["savepoint"] in taken.out and event["by"]["via"] == "cli"
    assert manifest(job, event["savepoint"]).taken_by["records"] == job.records().store.uri


def test_a_take_of_another_directory_is_no_event_of_the_job(folder: Path, running: Job) -> None:
    live(f"{folder}/other", 2)
    succeed("take", folder / "other", "-r", folder / "repository", "--job", "flights")
    assert running.records().last_event("savepoint-taken") is None


def test_the_current_generation_is_what_is_saved(running: Job) -> None:
    control = running.records()
    with control.operation("restore", by=BY) as operation:
        second = control.generations().propose(taken=lambda location: False)
        LiveCheckpoint(open_store(second.location), query_id="q2").run(2)
        control.generations().switch(replace(second, by=BY), operation=operation)
    result = savepoint_job(running, by=BY).to_dict()
    assert result["batch"] == 1
    assert manifest(running, result["savepoint"]).checkpoint == second.location


def test_a_batch_can_be_named(running: Job) -> None:
    assert savepoint_job(running, by=BY, batch=1).to_dict()["batch"] == 1


def test_several_queries_are_several_savepoints_that_say_so(folder: Path) -> None:
    job = declare(folder, more='queries = ["left", "right"]')
    live(job.queries["left"], 2)
    live(job.queries["right"], 4)
    result = savepoint_job(job, by=BY).to_dict()
    assert result["mutually_consistent"] is False
    assert {name: one["batch"] for name, one in result["queries"].items()} == {"left": 1, "right": 3}
    assert {one["job"] for one in result["queries"].values()} == {"flights/left", "flights/right"}
    assert savepoint_job(job, by=BY, query="right", batch=2).savepoints["right"].batch == 2
    with refuses(InputError, "which-query"):
        savepoint_job(job, by=BY, batch=1)
    with refuses(InputError, "no-such-query"):
        savepoint_job(job, by=BY, query="middle")


def test_each_refresh_of_a_copy_can_be_saved_without_what_the_one_before_has_written(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    ids, sinks = [], []
    for started in (True, False, True):
        made.run(1).take()
        made.refresh()
        copy = made.on()
        control, generation = copy.records(), copy.records().generation()
        assert generation is not None
        known = json.loads((open_store(generation.location).read("metadata")).decode())["id"]
        if started:
            (output,) = generation.new_sinks.values()
            facts = {"generation": generation.number, "query_id": known, "sink": f"FileSink[{output}]"}
            control.record_query(None, facts)
        stopped = stop_job(copy, by=BY, savepoint=True, launcher=fake_launcher(tmp_path))
        kept = manifest(copy, stopped.savepoints["main"])
        ids.append(kept.query_id)
        sinks.append([str(sink["path"]).rpartition("/")[2] for sink in kept.sinks])
        assert kept.query_id == known and kept.checkpoint == generation.location
    assert len(set(ids)) == 3
    assert sinks == [["out.g0002"], ["out.g0003"], ["out.g0004"]]


def test_a_copy_can_be_saved_before_its_first_start_and_after_it(tmp_path: Path) -> None:
    """A batch has one savepoint, so the first one has the log of the output that the refresh has begun."""
    made = CopiedJob(tmp_path)
    made.refresh()
    copy = made.on()
    first = savepoint_job(copy, by=BY).savepoints["main"]
    (sink,) = manifest(copy, first.savepoint).sinks
    assert sink["path"] == (tmp_path / "staging/out.g0002").as_uri() and sink["guarded"]
    made.ran_on_copy()
    again = savepoint_job(copy, by=BY).savepoints["main"]
    assert again.savepoint == first.savepoint and again.already_there


def test_what_was_restored_to_a_new_output_is_saved_with_that_one(tmp_path: Path) -> None:
    """The last driver wrote to the old one, which has the batch, too."""
    made = CopiedJob(tmp_path)
    job, records = made.job, made.control()
    out, new = (tmp_path / "out").as_uri(), (tmp_path / "new").as_uri()
    generation = records.generations().ensure_first(job.checkpoint, by=BY)
    facts = {"query_id": made.live.query_id, "sink": f"FileSink[{out}]", "sink_path": out}
    records.record_query(None, {"generation": generation.number, **facts})
    restore(
        RestoreRequest(
            made.repository,
            made.saved,
            generation=records,
            checkpoint=job.checkpoint,
            new_sinks={out: new},
            by=BY,
        )
    )
    current = records.generation()
    assert current is not None
    taken = savepoint_job(job, by=BY, repository=Repository.open(open_store(tmp_path / "r"), create=True))
    one = Repository.open(open_store(tmp_path / "r")).load("orders", taken.savepoints["main"].savepoint)
    assert one.checkpoint == current.location and one.batch == 2
    assert [sink["path"] for sink in one.sinks] == [new]


def test_what_was_restored_to_a_new_output_is_there_where_its_savepoint_is_listed(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    job, records = made.job, made.control()
    out, new = (tmp_path / "out").as_uri(), (tmp_path / "new").as_uri()
    others = [Repository.open(open_store(str(tmp_path / name)), create=True) for name in ("r", "s")]
    records.generations().ensure_first(job.checkpoint, by=BY)
    request = RestoreRequest(
        made.repository,
        made.saved,
        generation=records,
        checkpoint=job.checkpoint,
        new_sinks={out: new},
        by=BY,
    )
    restore(request)
    taken = savepoint_job(job, by=BY).savepoints["main"]
    assert (taken.savepoint, taken.already_there) == (made.saved, True)
    # A driver works there, and its savepoint is restored: the output is named once by the next one, too.
    facts = {"query_id": made.live.query_id, "sink": f"FileSink[{new}]", "sink_path": new}
    records.record_query(None, {"generation": 2, **facts})
    again = savepoint_job(job, by=BY, repository=others[0]).savepoints["main"].savepoint
    restore(replace(request, repository=others[0], reference=again, new_sinks={}))
    current = records.generation()
    assert current is not None and (current.number, current.new_sinks) == (3, {out: new})
    third = savepoint_job(job, by=BY, repository=others[1]).savepoints["main"].savepoint
    assert [sink["path"] for sink in others[1].load("orders", third).sinks] == [new]


def test_a_savepoint_by_another_name_of_the_output_is_the_same(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path)
    made.refresh()
    copy = made.on()
    first = savepoint_job(copy, by=BY).savepoints["main"]
    (tmp_path / "link").symlink_to(tmp_path / "staging")
    made.ran_on_copy()
    facts = dict(copy.records().query_facts("main") or {})
    link = (tmp_path / "link/out.g0002").as_uri()
    copy.records().record_query(None, {**facts, "sink": f"FileSink[{link}]", "sink_path": link})
    assert savepoint_job(copy, by=BY).savepoints["main"].savepoint == first.savepoint


def test_a_job_that_never_ran_has_nothing_to_save(folder: Path) -> None:
    with refuses(NotFoundError, "never-started"):
        savepoint_job(declare(folder), by=BY)
    assert not (folder / "repository/repository.json").exists()


def test_a_job_that_never_committed_says_so(folder: Path) -> None:
    job = declare(folder)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    LiveCheckpoint(open_store(job.checkpoint)).plan()
    with refuses(NotFoundError, "no-committed-batch") as caught:
        savepoint_job(job, by=BY)
    assert "flights" in caught.value.message and job.checkpoint in caught.value.message


def test_a_job_that_has_not_even_a_checkpoint_yet_says_so(folder: Path) -> None:
    job = declare(folder)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    with refuses(NotFoundError, "no-committed-batch"):
        savepoint_job(job, by=BY)


def test_a_job_that_has_lost_its_checkpoint_is_told_to_restore(running: Job) -> None:
    running.records().record_query(None, {"generation": 1, "query_id": "q"})
    shutil.rmtree(running.checkpoint.removeprefix("file://"))
    with refuses(RefusedError, "checkpoint-lost", hint="restore latest-good --job flights"):
        savepoint_job(running, by=BY)


def test_a_driver_that_takes_over_in_the_middle_is_noticed(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = running.records().lease
    gone = ProcessId("python", 2**22 - 9, 1)
    lease.acquire([gone])
    takeovers: list[int] = []

    def plan_while_another_takes_over(*args: Any) -> Any:
        if not takeovers:
            takeovers.append(lease.acquire([gone]).epoch)
        return make_plan(*args)

    monkeypatch.setattr("streambank.savepoint.take.make_plan", plan_while_another_takes_over)
    result = savepoint_job(running, by=BY).to_dict()
    assert (takeovers, result["replans"]) == ([2], 1)


def test_a_stop_with_savepoint_takes_it_after_the_stop(running: Job, folder: Path) -> None:
    stopped = stop_job(running, by=BY, savepoint=True, note="upgrade", launcher=fake_launcher(folder))
    assert (stopped.state, stopped.batch) == ("already-stopped", 2)
    kept = manifest(running, stopped.savepoints["main"])
    assert (kept.batch, kept.note) == (2, "upgrade")


def test_the_savepoint_of_a_stop_has_a_name_and_one_that_is_taken_is_refused_before(
    folder: Path, running: Job
) -> None:
    launcher = fake_launcher(folder)
    stopped = stop_job(running, by=BY, savepoint=True, name="before-upgrade", launcher=launcher)
    repository = running.open_repository()
    assert repository.find("before-upgrade", "flights")[1] == stopped.savepoints["main"]
    again = stop_job(running, by=BY, savepoint=True, name="before-upgrade", launcher=launcher)
    assert again.savepoints == stopped.savepoints, "the same stop once more"

    records = running.records()
    records.set_desired("running", by=BY)
    with records.lease.held("run", by=BY):
        for name, code in (("before-upgrade", "name-taken"), ("03:00", "bad-savepoint-name")):
            with refuses(InputError, code):
                stop_job(running, by=BY, savepoint=True, name=name, launcher=launcher)
    desired = records.desired()
    assert desired is not None and desired.state == "running", "it was not stopped for nothing"


def test_a_stop_whose_savepoint_fails_leaves_the_job_stopped_and_unlocked(folder: Path) -> None:
    job = declare(folder)
    with pytest.raises(StreambankError):
        stop_job(job, by=BY, savepoint=True, launcher=fake_launcher(folder))
    records = job.records()
    desired, lock = records.desired(), records.operation_lock.view()
    assert desired is not None and desired.state == "stopped"
    assert lock is not None and lock.state == "ended"


TABLE = "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable"


@pytest.mark.parametrize("told", [{}, None, {"bootstrap": "kafka:9092", "topic": "out"}])
def test_a_file_sink_is_guarded_whatever_its_path_is_called(tmp_path: Path, told: Any) -> None:
    facts = {"sink": "FileSink[file:/data/kafka-out]", "kafka": {"sources": [], "sink": told}}
    (sink,) = sinks_of(facts, open_store(str(tmp_path)), FakeBroker().brokers())
    assert isinstance(sink, FileSinkCapture)
    assert sink.keeps_files


def test_a_kafka_sink_is_one(tmp_path: Path) -> None:
    facts = {"sink": TABLE, "kafka": {"sources": [], "sink": {"bootstrap": "kafka:9092", "topic": "out"}}}
    (sink,) = sinks_of(facts, open_store(str(tmp_path)), FakeBroker().brokers())
    assert isinstance(sink, KafkaSinkCapture)
    assert sink.path == "kafka://kafka:9092/out"


@pytest.mark.parametrize(("reported", "of_this_query"), [(1, True), (2, True), (1, False)])
def test_state_that_is_gone_is_known_from_what_the_driver_said(
    running: Job, reported: int, of_this_query: bool
) -> None:
    control = running.records()
    checkpoint = local_path(running.checkpoint)
    assert checkpoint is not None
    query_id = json.loads((checkpoint / "metadata").read_text())["id"] if of_this_query else "another"
    writer = ProgressWriter(control.store, None, epoch=1)
    operators = [{"operatorName": "stateStoreSave"}] * reported
    writer.add({"runId": "a", "id": query_id, "batchId": 2, "numInputRows": 1, "stateOperators": operators})
    writer.flush()
    if reported == 1:
        shutil.rmtree(checkpoint / "state")
    if not of_this_query:  # negative control: by its files alone it is a query without state
        assert savepoint_job(running, by=BY).savepoints["main"].batch == 2
        return
    with refuses(
        NotFoundError, "missing-state-file", match=f"reported {reported} with batch 2: state was deleted"
    ):
        savepoint_job(running, by=BY)
