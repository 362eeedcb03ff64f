"""What work on a job has left behind: each kind is found, with its bytes and with what still needs it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.cleaning.left_directories import left_directories
from streambank.cleaning.left_directory import LeftDirectories, LeftDirectory
from streambank.compaction.job import compact_job, purge_job
from streambank.control.control import JobControl
from streambank.core.shape import decode
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.doctor.checks.left import check_left
from streambank.recovery.reinstate import reinstate
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.replicas.replicate import open_replica, replicate
from streambank.retention.expired import expired_savepoints
from streambank.retention.expired import set_aside as expire_aside
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import local_path, open_store
from streambank.work.staging import beside, checkpoint_name, repository_name
from streambank.work.target import NOTE
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.cli import succeed
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import go_on, next_generation, repository_of, restored_on_a_service, save
from tests.support.storage.s3_servers import S3Server, moto_server

__all__ = ["moto_server"]  # a fixture


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def found(job: Job, kind: str) -> list[LeftDirectory]:
    left = left_directories(job)
    sent = json.loads(json.dumps(left.to_dict()))
    assert decode(LeftDirectories, sent, "request").to_dict() == sent
    assert not left.unread
    return [one for one in left.directories if one.kind == kind]


def size(location: str) -> tuple[int, int]:
    files = list(open_store(location).list())
    return len(files), sum(one.size_bytes for one in files)


def test_a_job_that_was_never_worked_on_has_left_nothing(tmp_path: Path) -> None:
    job = declare(tmp_path)
    assert left_directories(job).directories == ()
    LiveCheckpoint(open_store(job.checkpoint)).run(2)
    assert left_directories(job).directories == ()
    assert not (tmp_path / "repository").exists(), "looking writes nothing"


def test_an_earlier_generation_is_the_way_back_until_the_query_goes_on(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    savepoint = save(job)
    next_generation(job, savepoint)
    (earlier,) = found(job, "generation")
    assert earlier.location == job.checkpoint
    assert (earlier.files, earlier.bytes) == size(job.checkpoint) and earlier.counted
    assert "the way back" in earlier.needed_by
    assert left_directories(job).needless == ()

    go_on(job)
    (earlier,) = found(job, "generation")
    assert earlier.needed_by == ""
    assert earlier.removal == f"rm -r -- {local_path(job.checkpoint)}"
    second = job.records().generation()
    assert second is not None and earlier.since == second.made_at

    # What never counted is found by its name; a restore that died says so itself.
    open_store(f"{job.checkpoint}.g0003").write("metadata", b'{"id": "x"}')
    note = {NOTE: {"token": "t", "job": job.name, "owner": {}, "files": []}}
    open_store(f"{job.checkpoint}.g0004").write("metadata", json.dumps(note).encode())
    assert {one.location for one in found(job, "generation")} == {job.checkpoint, f"{job.checkpoint}.g0003"}
    assert [one.location for one in found(job, "unfinished-restore")] == [f"{job.checkpoint}.g0004"]
    with job.records().operation("restore", by=BY):
        (half,) = found(job, "unfinished-restore")
        assert half.needed_by == "the operation restore, which works on the job"


def test_what_counts_again_is_not_left_and_without_savepoints_nothing_is_needless(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    savepoint = save(job)
    next_generation(job, savepoint)
    reinstate(repository_of(job), job.name, savepoint, generation=1, control=job.records(), by=BY)
    assert [one.location for one in found(job, "generation")] == [f"{job.checkpoint}.g0002"]
    go_on(job)
    assert [one.needed_by for one in found(job, "generation")] == [""]
    repository_of(job).store.delete(f"savepoints/{job.name}/{savepoint}.json")
    (last,) = found(job, "generation")
    assert "no savepoint" in last.needed_by


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_quarantine_is_needed_by_an_undo_until_the_query_goes_on(tmp_path: Path, elsewhere: bool) -> None:
    job = declare(tmp_path)
    write_with_garbage(open_store(job.checkpoint))
    place = str(tmp_path / "elsewhere") if elsewhere else None
    done = compact_job(job, label="x", by=BY, quarantine=place)["main"]
    (one,) = found(job, "quarantine")
    assert one.location == done.quarantine and one.files > len(done.files)
    assert "an undo" in one.needed_by and one.removal.startswith("streambank compact --job flights --purge")
    at_a_glance = [each.location for each in left_directories(job, glance=True).directories]
    assert at_a_glance == ([] if elsewhere else [done.quarantine])
    go_on(job)
    (one,) = found(job, "quarantine")
    assert one.needed_by == ""
    purge_job(job, one.location, by=BY)
    assert found(job, "quarantine") == []


def test_output_set_aside_is_needed_by_savepoints_of_later_batches(tmp_path: Path) -> None:
    job = declare(tmp_path)
    live, output = LiveCheckpoint(open_store(job.checkpoint)), open_store(tmp_path / "output")
    sink = FileSinkWriter(output)
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by=BY)
    records.record_query(None, {"sink": f"FileSink[{output.uri}]", "query_id": live.query_id})
    live.run(2)
    for batch in range(2):
        sink.write(batch, [{"row": batch}])
    early = save(job, FileSinkCapture(output.uri))
    live.run(2)
    for batch in range(2, 4):
        sink.write(batch, [{"row": batch}])
    late = save(job, FileSinkCapture(output.uri))
    next_generation(job, early, sink="rollback")
    (aside,) = found(job, "output-aside")
    assert aside.location == f"{output.uri}/_streambank_aside/{early}-1"
    assert aside.needed_by.startswith(f"a restore of {late}")

    # Expired it can be brought back; and a replica may hold it when this repository no longer does.
    replica = open_replica(repository_of(job), open_store(tmp_path / "replica"))
    list(replicate(repository_of(job), replica, [(job.name, late)], by=BY))
    expire_aside(repository_of(job), job.name, late)
    repository_of(job).store.delete(f"savepoints/{job.name}/{late}.json")
    (aside,) = found(job, "output-aside")
    assert aside.needed_by.startswith(f"a restore of {late}")
    for copy in expired_savepoints(repository_of(job).store):
        repository_of(job).store.delete(copy.key)
    assert [one.needed_by for one in found(job, "output-aside")] == [""]
    for place, need in (("replica", f"a restore of {late}"), ("away", "savepoints that file:")):
        there = str(open_store(tmp_path / place).uri)
        (aside,) = found(replace(job, replicate=replace(job.replicate, to=(there,))), "output-aside")
        assert aside.needed_by.startswith(need)
    output.delete(f"_streambank_aside/{early}-1/_done.json")
    (aside,) = found(job, "output-aside")
    assert "did not finish" in aside.needed_by


def test_staging_and_copies(tmp_path: Path, temporary_folder: Path) -> None:
    job = declare(tmp_path)
    live = LiveCheckpoint(open_store(job.checkpoint))
    live.run(2)
    records: JobControl = job.records()
    records.record_query(None, {"query_id": live.query_id})
    save(job)
    work = job.work_location(None)
    ours, theirs, new = (f"{work}/{checkpoint_name()}" for _ in range(3))
    open_store(ours).write("metadata", json.dumps({"id": live.query_id}).encode())
    open_store(theirs).write("metadata", b'{"id": "another"}')
    new = beside(ours)
    open_store(new).write("state/0/0/1.delta", b"x")
    open_store(f"{work}/mine").write("file", b"x")
    here = temporary_folder / f"streambank-inspect-abc/{repository_name()}"
    here.mkdir(parents=True)
    (here / "repository.json").write_text("{}")
    assert {one.location for one in found(job, "staging")} == {ours, new, here.as_uri()}
    assert all("may still read it" in one.needed_by for one in found(job, "staging"))
    assert left_directories(job).needless == ()
    later = utc_now() + timedelta(days=2)
    assert len(left_directories(job, now=later).needless) == 3

    into = open_store(f"{job.checkpoint}.copy")
    restore(RestoreRequest(repository_of(job), "latest", job=job.name, into=into, by=BY))
    (copy,) = found(job, "restored")
    assert copy.location == into.uri and BY["user"] in copy.needed_by


def test_a_glance_counts_one_page_and_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    next_generation(job, save(job))
    go_on(job)
    for number in range(1001):
        (tmp_path / f"checkpoints/flights/sources-{number}").write_bytes(b"12")
    (one,) = left_directories(job, glance=True).directories
    assert (one.files, one.counted) == (1000, False)
    assert left_directories(job).directories[0].counted
    broken = tmp_path / "checkpoints/flights.quarantine-z"
    broken.mkdir()
    (broken / "quarantine.json").write_text("{}")
    left = left_directories(job)
    assert [one.kind for one in left.directories] == ["generation"]
    ((location, why),) = left.unread
    assert location == broken.as_uri() and why
    codes = [(getattr(one, "code", "-"), getattr(one, "severity", "-")) for one in check_left(left)]
    assert codes == [("left-directory", "info"), ("-", "-")]


def test_status_shows_one_line_and_doctor_each_directory(tmp_path: Path) -> None:
    job = declare(tmp_path)
    jobs = ("--jobs", tmp_path / "streaming_jobs.toml")
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    next_generation(job, save(job))
    nothing = {"directories": 0, "bytes": 0, "counted": True}
    assert succeed("job", "status", "flights", *jobs, "--json").document["left"] == nothing
    assert "left behind" not in succeed("job", "status", "flights", *jobs).out
    go_on(job)
    _, bytes_ = size(job.checkpoint)
    told = succeed("job", "status", "flights", *jobs, "--json").document["left"]
    assert told == {"directories": 1, "bytes": bytes_, "counted": True}
    assert "that nothing needs, in 1 directory" in succeed("job", "status", "flights", *jobs).out


@pytest.mark.server
def test_on_s3(tmp_path: Path, moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    job = restored_on_a_service(moto_server.use(monkeypatch).location(), tmp_path)
    go_on(job)
    open_store(f"{job.checkpoint}.g0003").write("metadata", b"{}")
    left = left_directories(job)
    assert not left.unread
    assert {one.location: (one.files, one.bytes) for one in left.needless} == {
        at: size(at) for at in (job.checkpoint, f"{job.checkpoint}.g0003")
    }
    assert left.directories[0].removal == f"aws s3 rm --recursive {job.checkpoint}/"


def test_nothing_that_counts_is_ever_called_left(tmp_path: Path) -> None:
    job = declare(tmp_path)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    LiveCheckpoint(open_store(job.checkpoint)).run(2)
    live = Path(job.checkpoint.removeprefix("file://"))
    (tmp_path / "link").symlink_to(live.parent)
    for other in (live.parent.as_uri(), (tmp_path / "link" / live.name).as_uri()):
        moved = replace(job, checkpoint=other, queries={"main": other})
        assert left_directories(moved).directories == ()
