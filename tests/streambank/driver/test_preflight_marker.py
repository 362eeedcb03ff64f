"""The marker beside a checkpoint: who writes it, and what it says where two jobs have one checkpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.keepalive import Keeper
from streambank.control.lease import IN_CLUSTER, Lease
from streambank.control.marker import Marker, marker_location, read_marker, renew_marker, write_marker
from streambank.control.processes import this_process
from streambank.core.names import MAIN
from streambank.declaration.load import load_jobs
from streambank.driver.preflight import (
    check_acceptable,
    check_records,
    declared_query,
    held_elsewhere,
    records_lost,
)
from streambank.driver.prepare import prepare_launch
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, ELSEWHERE, fake_launcher
from tests.support.jobs.lost_repository import (
    SINK,
    in_repository,
    lose_repository,
    refused,
    worked,
    worked_in_repository,
)


def test_a_job_that_is_older_than_markers_gets_one_and_is_refused_nothing(folder: Path) -> None:
    job = worked_in_repository(folder)
    marker = Path(str(marker_location(job.checkpoint)).removeprefix("file://"))
    assert marker == folder / "checkpoints/flights.streambank.json"
    marker.unlink()

    prepare_launch(job, job.records(), by=BY)
    assert not marker.exists(), "the driver writes it"
    savepoint_job(job, by=BY)

    said = json.loads(marker.read_bytes())
    assert (said["format"], said["job"], said["query"], said["generation"]) == (1, "flights", "main", 1)
    assert (said["control"], said["sink"]) == (f"file://{folder}/repository/jobs", SINK)
    before = marker.stat().st_mtime_ns
    savepoint_job(job, by=BY)
    assert marker.stat().st_mtime_ns == before, "a take that has nothing to add leaves it alone"


def test_without_a_marker_the_directory_of_a_later_generation_says_so(folder: Path) -> None:
    job = in_repository(folder)
    (folder / "checkpoints/flights.g0003").mkdir(parents=True)
    prepare_launch(job, job.records(), by=BY)
    shutil.rmtree(folder / "repository")
    (folder / "checkpoints/flights.g0003/metadata").write_text("{}")

    error = refused(lambda: prepare_launch(job, job.records(), by=BY))

    assert "flights.g0003 is the directory of a later generation" in error.message
    assert "flights.g0003 as the job's checkpoint" in error.hint
    refused(lambda: prepare_launch(job, job.records(), by=BY, fresh_start=True))


def test_a_checkpoint_that_another_program_made_is_adopted(folder: Path) -> None:
    job = in_repository(folder)
    LiveCheckpoint(open_store(job.checkpoint), retain=20).run(2)

    assert prepare_launch(job, job.records(), by=BY).queries[MAIN].committed == 1


def test_two_jobs_with_one_checkpoint_do_not_both_run(folder: Path) -> None:
    one = in_repository(folder)
    worked(one)
    text = (folder / "streaming_jobs.toml").read_text()
    (folder / "other.toml").write_text(text.replace("jobs.flights", "jobs.planes"))
    other = load_jobs(folder / "other.toml").job("planes")
    assert other.checkpoint == one.checkpoint

    error = refused(
        lambda: start_job(other, by=BY, launcher=fake_launcher(folder)), "checkpoint-of-another-job"
    )

    assert "belongs to job flights" in error.message
    assert job_status(other).state == "never-started"
    claim = one.records().lease.acquire([this_process("python")], beat_s=1, ttl_s=9, details={})
    held = refused(
        lambda: start_job(other, by=BY, launcher=fake_launcher(folder), fresh_start=True),
        "checkpoint-of-another-job",
    )
    assert "That job is held by" in held.message
    claim.release("released")
    prepare_launch(other, other.records(), by=BY, fresh_start=True)  # it was renamed
    refused(lambda: prepare_launch(one, one.records(), by=BY), "checkpoint-of-another-job")


def test_one_job_of_two_declarations_does_not_run_twice(folder: Path) -> None:
    job = worked_in_repository(folder)
    elsewhere = replace(job, control=f"file://{folder}/elsewhere")
    elsewhere.records().generations().ensure_first(job.checkpoint, by=BY)
    prepare_launch(elsewhere, elsewhere.records(), by=BY)  # its records were moved
    claim = job.records().lease.acquire([this_process("python")], beat_s=1, ttl_s=9, details={})

    refused(lambda: prepare_launch(elsewhere, elsewhere.records(), by=BY), "checkpoint-of-another-job")

    claim.release("released")


def test_records_by_another_name_are_no_other_records(folder: Path) -> None:
    job = worked_in_repository(folder)
    control = str(job.control).removeprefix("file://")
    (folder / "link").symlink_to(control)
    linked = replace(job, control=f"file://{folder}/link")
    query = declared_query(linked, MAIN, linked.records())
    claim = linked.records().lease.acquire(
        [this_process("python")], beat_s=1, ttl_s=9, details={"launch_id": "l1"}
    )

    assert records_lost(query) is None, "the driver itself, and whoever asks beside it"
    assert check_acceptable(query) is not None

    # A copy has the record of the old lease, but takes one of its own.
    shutil.copytree(control, folder / "copy")
    copied = replace(job, control=f"file://{folder}/copy")
    copied.records().lease.break_off(by=BY, why="a test", even_live=True)
    copied.records().lease.acquire([this_process("python")], beat_s=1, ttl_s=9)
    error = records_lost(declared_query(copied, MAIN, copied.records()))
    assert error is not None and error.code == "checkpoint-of-another-job"
    claim.release()


def test_a_driver_by_other_records_on_a_host_that_is_gone_is_judged_by_its_heartbeat(folder: Path) -> None:
    """As where a server burnt, and its records were copied to another place."""
    job = worked_in_repository(folder)
    control = str(job.control).removeprefix("file://")
    gone = Lease(job.records().store, job.name, here=ELSEWHERE)
    claim = gone.acquire([this_process("python")], beat_s=0.05, ttl_s=0.3)
    shutil.copytree(control, folder / "copy")
    copied = replace(job, control=f"file://{folder}/copy")
    copied.records().lease.acquire([this_process("python")])  # the driver has it by the time it asks
    query = declared_query(copied, MAIN, copied.records())

    assert records_lost(query) is not None, "at a glance it is not known"
    check_records(query)
    assert held_elsewhere(query) is None and check_acceptable(query) is not None
    prepare_launch(copied, copied.records(), by=BY)

    keeper = Keeper(claim).start()
    error = refused(lambda: check_records(query), "checkpoint-of-another-job")
    assert "its heartbeat moves" in error.message and "job break flights" in error.hint
    assert held_elsewhere(query) is not None
    keeper.end()


def test_one_of_a_cluster_is_believed_to_be_gone_by_its_heartbeat_alone_nowhere(folder: Path) -> None:
    job = worked_in_repository(folder)
    gone = Lease(job.records().store, job.name, here=ELSEWHERE)
    gone.acquire([this_process("python")], beat_s=0.05, ttl_s=0.3, details={IN_CLUSTER: True})
    elsewhere = replace(job, control=f"file://{folder}/elsewhere")
    elsewhere.records().generations().ensure_first(job.checkpoint, by=BY)
    query = declared_query(elsewhere, MAIN, elsewhere.records())
    refused(lambda: check_records(query), "checkpoint-of-another-job")
    job.records().lease.break_off(by=BY, why="the cluster is gone")
    check_records(query)


def test_records_on_s3_by_another_name_are_not_opened_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = worked_in_repository(folder)
    marker = read_marker(job.checkpoint)
    assert marker is not None
    control = job.records()
    generation = control.generation(None)
    assert generation is not None
    by_spark = JobControl(open_store("s3a://bucket/control/flights"), job.name)
    monkeypatch.setattr(JobControl, "generation", lambda self, query: generation)
    monkeypatch.setattr(JobControl, "open", lambda *args: pytest.fail("the same records"))
    write_marker(job.checkpoint, replace(marker, control="s3://bucket/control"))

    assert records_lost(declared_query(job, MAIN, by_spark)) is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"format": 2}', b'{"format": 1, "job": "flights"}', b"[]"])
def test_a_marker_that_cannot_be_read(folder: Path, data: bytes) -> None:
    job = worked_in_repository(folder)
    marker = folder / "checkpoints/flights.streambank.json"
    marker.write_bytes(data)

    prepare_launch(job, job.records(), by=BY)  # its records are there
    lose_repository(folder)
    error = refused(lambda: prepare_launch(job, job.records(), by=BY))
    assert "flights.streambank.json" in error.message
    prepare_launch(job, job.records(), by=BY, fresh_start=True)
    assert read_marker(job.checkpoint) is not None


def test_a_checkpoint_at_the_root_of_its_store_has_no_beside() -> None:
    for root in ("file:///checkpoint", "s3://bucket", "memory://name"):
        assert marker_location(root) is None
        assert read_marker(root) is None
    write_marker("file:///checkpoint", Marker("job", MAIN, 1, "file:///checkpoint", "file:///control"))
    assert marker_location("s3://bucket/ck") == "s3://bucket/ck.streambank.json"


def test_a_marker_holds_no_secret(folder: Path) -> None:
    job = in_repository(folder)
    control = job.records()
    generation = control.generations().ensure_first(job.checkpoint, by=BY)
    (folder / "checkpoints").mkdir()
    facts: dict[str, Any] = {"query_id": "q", "sink": "JdbcSink(url=jdbc:x, password=hunter2)"}

    why = renew_marker(
        job.checkpoint,
        job="flights",
        query=MAIN,
        generation=generation,
        control=control,
        by=BY,
        facts=facts,
    )

    assert why is None
    text = (folder / "checkpoints/flights.streambank.json").read_text()
    assert '"sink": "JdbcSink"' in text and "hunter2" not in text


def test_a_marker_that_cannot_be_written_is_said(folder: Path) -> None:
    job = in_repository(folder)
    control = job.records()
    generation = control.generations().ensure_first(job.checkpoint, by=BY)
    (folder / "checkpoints").write_text("a file")

    why = renew_marker(
        job.checkpoint, job="flights", query=MAIN, generation=generation, control=control, by=BY
    )

    assert why
