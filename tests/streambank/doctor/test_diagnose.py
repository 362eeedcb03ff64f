"""A whole diagnosis: of a checkpoint, of a declared job, and as the command says it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.progress import ProgressWriter
from streambank.core.finding import Finding
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.doctor.checks import installation
from streambank.doctor.checks.checkpoint import check_budget
from streambank.doctor.diagnose import Machine, diagnose_checkpoint, diagnose_job
from streambank.driver.launchers import disks
from streambank.repository.manifest import Manifest
from streambank.savepoint.plan import Budget
from streambank.sla.skew.hot_key_record import keep_hot_keys
from streambank.storage import open_store
from streambank.storage.local.space import space_at
from tests.support.checkpoint.doctor_inputs import DISK, NFS, mounts
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.declared import ELSEWHERE, declare, declare_recorded, write_jobs
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.sinks.lake import Lake
from tests.support.sla.progress_records import BEGIN, line, operator

HDFS, ROCKSDB = "4.3.0/hdfs-window", "4.3.0/rocksdb-window"
MACHINE = Machine(mounts(nfs=NFS, disk=DISK), 8 << 30, {})


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here is not what these tests are about."""
    monkeypatch.setattr(installation, "check_installation", lambda: [])


def codes(findings: tuple[Finding, ...], *severities: str) -> set[str]:
    wanted = severities or ("error", "warning")
    return {one.code for one in findings if one.severity in wanted}


def test_a_sink_that_is_not_guarded_and_a_source_that_cannot_be_repeated(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS)
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by={"user": "test"})
    records.record_query(None, {"sink": "ForeachBatchSink", "kafka": {"streams": ["socket"], "sink": None}})
    (found,) = diagnose_job(job, machine=MACHINE)
    told = {one.code: one for one in found.findings}
    assert told["unguarded-sink"].severity == "info" and "ForeachBatchSink" in told["unguarded-sink"].cause
    assert "until a person accepts" in told["unguarded-sink"].effect
    assert "--sink accept" in told["unguarded-sink"].hint
    assert (
        told["source-cannot-repeat"].severity == "warning" and "socket" in told["source-cannot-repeat"].cause
    )
    records.record_query(None, {"sink": "MemorySink", "kafka": {"streams": ["FileSource"], "sink": None}})
    (found,) = diagnose_job(job, machine=MACHINE)
    assert not {"unguarded-sink", "source-cannot-repeat"} & codes(found.findings, "info", "warning")


def record(job: Job, count: int = 10, **operators: int) -> None:
    """Progress records of batches up to now, of a query with one operator."""
    second = (utc_now() - BEGIN).total_seconds()
    lines = [
        line(batch, second - 60 * (count - batch), took_s=2.0, stateOperators=[operator(**operators)])
        for batch in range(count)
    ]
    job.records().store.write("progress/main/0000000001.jsonl", b"\n".join(lines) + b"\n")


def test_a_checkpoint_alone_says_what_it_cannot_tell_once_for_each_reason(tmp_path: Path) -> None:
    place = unpack(HDFS, tmp_path) / "checkpoint"
    found = diagnose_checkpoint(str(place), machine=MACHINE)
    told = [one for one in found.findings if one.code == "not-checked"]
    assert len({one.cause for one in told}) == len(told) == 4
    assert [one for one in told if "it may not see it" in one.cause], "where Spark had read its input"
    (records,) = [one for one in told if "progress records" in one.cause]
    assert "fits the heap; how often the query is restarted" in records.effect
    assert (found.job, found.query, found.checkpoint) == (None, "main", place.as_uri())


def test_a_checkpoint_beside_its_savepoints(tmp_path: Path) -> None:
    place = unpack(HDFS, tmp_path) / "checkpoint"
    repository = tmp_path / "repository"
    succeed("take", place, "-r", repository, "--job", "orders")
    found = diagnose_checkpoint(str(place), repository=str(repository), name="orders", machine=MACHINE)
    assert "one-disk" in codes(found.findings)
    apart = Machine(lambda path: DISK if "repository" in path.parts else MACHINE.mount_of(path), 1, {})
    found = diagnose_checkpoint(str(place), repository=str(repository), name="orders", machine=apart)
    assert "one-disk" not in codes(found.findings)


def test_a_setting_that_the_checkpoint_keeps_is_named(tmp_path: Path) -> None:
    job = declare_recorded(
        tmp_path, ROCKSDB, more='[jobs.flights.spark]\n"spark.sql.shuffle.partitions" = "8"\n'
    )
    (found,) = diagnose_job(job, machine=MACHINE)
    (kept,) = [one for one in found.findings if one.code == "setting-without-effect"]
    assert (kept.severity, kept.file) == ("info", "offsets/7")
    assert "declared as 8, and the checkpoint keeps 2" in kept.cause
    assert "`streambank job rescale flights --partitions 8`" in kept.hint


def test_a_declared_job_that_is_well_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS)
    record(job, memoryUsedBytes=1_000_000)
    keep_hot_keys(job.records(), None, of="x", batch=1, operators=[])
    machine = Machine(
        lambda path: DISK if "repository" in path.parts else MACHINE.mount_of(path), 8 << 30, {}
    )
    (found,) = diagnose_job(job, machine=machine)
    assert not codes(found.findings), found.findings
    # The recorded input was not unpacked to where Spark had read it.
    (unseen,) = [one for one in found.findings if one.code == "not-checked"]
    assert "it may not see it" in unseen.cause


def test_why_the_traffic_of_a_job_is_not_measured_is_named(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS, more="[jobs.flights.hot_keys]\n")

    def told() -> str:
        (found,) = diagnose_job(job, machine=MACHINE)
        return next(one.cause for one in found.findings if "hot keys by traffic" in one.effect)

    assert "no batch was measured yet" in told()
    traffic = {
        "window_s": 600.0,
        "operators": [{"operator": 0, "name": "Aggregate", "by": [], "why": "it has no key"}],
    }
    writer = ProgressWriter(job.records().store, None, epoch=1)
    writer.add({"runId": "r", "batchId": 7, "durationMs": {"addBatch": 1}}, traffic)
    writer.flush()
    assert "operator 0 (Aggregate): it has no key." in told()


def test_a_driver_that_is_older_than_the_table_hot_keys_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(managed: Managed) -> list[str]:
        (found,) = diagnose_job(managed.job, machine=MACHINE)
        return [one.cause for one in found.findings if "hot keys by traffic" in one.effect]

    with managed_job(tmp_path, monkeypatch) as managed:
        launch = managed.start().launch_id
        keep_hot_keys(managed.control, None, of="x", batch=1, operators=[])
        assert said(managed) == [], "no table asks for it"
        managed.declare("\n[jobs.flights.hot_keys]\n")
        (cause,) = said(managed)
        assert f"The driver of launch {launch} does not count" in cause
        managed.stop()
        managed.start()
        assert said(managed) == [], "the new driver was launched with it"


def test_a_declared_job_is_held_against_what_it_declares(tmp_path: Path) -> None:
    more = 'master = "local[2]"\nspark = {"spark.driver.memory" = "1g"}\n'
    job = declare_recorded(tmp_path, HDFS, more=more)
    Path(job.application).write_text('spark.readStream.option("cleanSource", "delete")')
    record(job, memoryUsedBytes=2_500_000_000)
    hot = {"operator": 0, "keys": 9, "times_mean": 40.0, "rows": 1, "partitions": [1]}
    keep_hot_keys(job.records(), None, of="flights/b", batch=3, operators=[hot])
    (found,) = diagnose_job(job, machine=MACHINE)
    assert codes(found.findings) >= {
        "hdfs-state-exceeds-heap",
        "large-heap-state",
        "hot-key",
        "clean-source",
        "one-disk",
    }


def test_rocksdb_of_a_declared_job(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, ROCKSDB, more='spark = {"spark.local.dir" = "/nfs/x"}\n')
    record(job, memoryUsedBytes=8 << 30, commitTimeMs=4000)
    (found,) = diagnose_job(job, machine=MACHINE)
    assert codes(found.findings) >= {"rocksdb-memory", "rocksdb-without-changelog", "rocksdb-local-dir"}


def test_the_output_of_the_last_driver_is_looked_at(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, "4.3.0/file-sink")
    output = tmp_path / "unpacked/output"
    job.records().record_query(None, {"sink": f"FileSink[file:{output}]", "query_id": "q"})
    (found,) = diagnose_job(job, machine=MACHINE)
    assert not codes(found.findings) & {"sink-ahead", "sink-behind", "sink-log-gap", "no-sink-log"}
    log = output / "_spark_metadata"
    newest = max((one for one in log.iterdir() if one.name.isdecimal()), key=lambda one: int(one.name))
    newest.unlink()
    (found,) = diagnose_job(job, machine=MACHINE)
    (behind,) = [one for one in found.findings if one.code == "sink-behind"]
    assert behind.severity == "error" and f"committed batch {newest.name}" in behind.cause


def test_a_disk_of_a_declared_job_that_is_full_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "space_at", lambda path: replace(space_at(path), free_bytes=0))
    job = declare_recorded(tmp_path, HDFS)
    full = [one for found in diagnose_job(job) for one in found.findings if one.code == "no-free-space"]
    assert full and "the checkpoint" in full[0].cause.lower()


def test_a_driver_elsewhere_has_disks_that_cannot_be_seen(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, ROCKSDB, more='spark = {"spark.local.dir" = "/nfs/x"}\n')
    records = job.records()
    there = type(records)(records.store, "flights", here=ELSEWHERE)
    there.lease.acquire([])
    (found,) = diagnose_job(job, machine=MACHINE)
    assert "rocksdb-local-dir" not in codes(found.findings)
    assert any("on another machine" in one.cause for one in found.findings)


def test_a_job_that_never_ran_or_has_just_been_launched_is_no_error(tmp_path: Path) -> None:
    job = declare(tmp_path)
    for _ in range(2):
        (found,) = diagnose_job(job, machine=MACHINE)
        assert not codes(found.findings, "error")
        assert any("has no checkpoint yet" in one.cause for one in found.findings)
        job.records().generations().ensure_first(job.checkpoint, by={})


def test_a_checkpoint_that_is_gone_is_an_error_and_the_other_queries_are_looked_at(tmp_path: Path) -> None:
    job = declare(tmp_path, more='queries = ["left", "right"]')
    for name in ("left", "right"):
        job.records().generations(name).ensure_first(job.queries[name], by={})
    job.records().store.write("progress/left/0000000001.jsonl", line(1, 1.0) + b"\n")
    LiveCheckpoint(open_store(job.queries["right"])).run(3)
    left, right = diagnose_job(job, machine=MACHINE)
    assert [(one.code, one.severity) for one in left.findings] == [("not-a-checkpoint", "error")]
    assert right.query == "right" and "missing-checksums" in codes(right.findings, "info")
    answer = streambank("doctor", "--job", "flights", "--jobs", tmp_path / "streaming_jobs.toml")
    assert answer.code == 1 and "query left:" in answer.out and "query right:" in answer.out


def test_a_take_that_had_to_plan_again_says_what_it_needs(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "ck"), retain=3).run(9)
    for number, path in enumerate(sorted((tmp_path / "ck/commits").iterdir(), key=lambda one: int(one.name))):
        os.utime(path, (1_700_000_000 + 6 * number, 1_700_000_000 + 6 * number))
    budget = Budget.of({info.path: info for info in live.store.list()})
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    calm = Manifest(
        savepoint="b1", job="j", query_id="q", batch=1, taken_at=moment, stats={"seconds": 90.0, "replans": 0}
    )
    slow = replace(calm, stats={"seconds": 90.0, "replans": 2})
    assert not [*check_budget(budget)] and not [*check_budget(budget, [calm])]
    (finding,) = check_budget(budget, [slow])
    assert "Savepoint b1 took 90.0 s, and had to plan 2 times again." in finding.cause
    assert "minBatchesToRetain to 31" in finding.hint
    assert [*check_budget(budget, [calm], holds=False)], "where nothing can be held, a take needs all of it"


def test_a_young_query_is_not_said_to_retain_little(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path / "young")).run(6)
    LiveCheckpoint(open_store(tmp_path / "old"), retain=2).run(6)
    for name, expected in (("young", False), ("old", True)):
        found = diagnose_checkpoint(str(tmp_path / name), machine=MACHINE)
        assert ("short-retention" in codes(found.findings)) == expected


def test_the_command_looks_at_a_declared_job(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS)
    file = tmp_path / "streaming_jobs.toml"
    answer = streambank("doctor", "--job", "flights", "--jobs", file, "--json").document
    assert (answer["job"], answer["checkpoint"]) == ("flights", job.checkpoint)
    assert {one["query"] for one in answer["findings"]} == {"main"}
    assert "flights" in load_jobs(file).jobs


def test_the_command_finds_the_checkpoint_of_a_job_by_its_savepoints(tmp_path: Path) -> None:
    place, repository = unpack(HDFS, tmp_path) / "checkpoint", tmp_path / "repository"
    succeed("take", place, "-r", repository, "--job", "orders/left")
    answer = streambank("doctor", "--job", "orders/left", "-r", repository, "--json").document
    assert answer["checkpoint"] == place.as_uri()
    assert "one-disk" in [one["code"] for one in answer["findings"]]
    unknown = streambank("doctor", "--job", "orders", "-r", repository)
    assert (unknown.code, "There are savepoints of orders/left." in unknown.err) == (3, True)
    records = JobControl.open(f"{repository}.control", "orders")
    records.generations("left").ensure_first(str(tmp_path / "moved"), by={"user": "test"})
    moved = streambank("doctor", "--job", "orders/left", "-r", repository)
    assert (moved.code, "moved" in moved.err) == (3, True)


def test_a_repository_beside_a_declared_job_is_the_one_that_is_looked_at(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, HDFS)
    file = tmp_path / "streaming_jobs.toml"
    other = tmp_path / "other"
    succeed("take", job.checkpoint, "-r", other, "--job", "flights")
    answer = streambank("doctor", "--job", "flights", "--jobs", file, "-r", other, "--json").document
    assert answer["checkpoint"] == job.checkpoint
    assert [one["file"] for one in answer["findings"] if one["code"] == "one-disk"] in ([], [other.as_uri()])
    assert "source-files-gone" not in [one["code"] for one in answer["findings"]]  # after its savepoint


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--job", "flights"], 2),
        (["--job", "flights", "-r", "repository"], 3),
        (["--job", "flights", "--jobs", "streaming_jobs.toml", "--file-sink", "out"], 2),
        (["-r", "repository"], 2),
        (["--file-sink", "out"], 2),
        (["checkpoint", "--job", "flights"], 2),
        (["--job", "flights/left", "--jobs", "streaming_jobs.toml"], 2),
        (["--job", "other", "--jobs", "streaming_jobs.toml"], 3),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    write_jobs(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert streambank("doctor", *words).code == code


def test_clocks_of_this_machine_count(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path / "ck")).run(3)
    fast = Machine(MACHINE.mount_of, 1, {}, lambda: utc_now() - timedelta(hours=1))
    assert "clock-skew" in codes(diagnose_checkpoint(str(tmp_path / "ck"), machine=fast).findings)
    assert "clock-skew" not in codes(diagnose_checkpoint(str(tmp_path / "ck"), machine=MACHINE).findings)


def test_data_files_of_a_table_that_are_gone(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, '[[jobs.orders.sinks]]\nkind = "delta"\ntable = "lake"\n')
    lake = Lake(tmp_path / "lake", "a writer")
    lake.write(0, ["a"])

    def found() -> list[str]:
        return [one.code for one in diagnose_job(made.job)[0].findings if one.code == "table-files-gone"]

    assert found() == []
    next(lake.folder.glob("*.parquet")).unlink()
    assert found() == ["table-files-gone"]
