"""Records of a job have `clean` delete the checkpoint in use, or what a rollback of another job set aside."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.control.records import encode_json
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from tests.attacks.test_clean import clean, record, restored, states
from tests.attacks.test_clean import temporary_folder as temporary_folder
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import go_on, next_generation, save


@pytest.mark.parametrize("numbers", [(3,), (3, 4), (3, 4, 5, 6)])
def test_the_checkpoint_in_use_stays_where_records_name_newer_ones(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    job = restored(declare(tmp_path))
    records, live = job.records(), tmp_path / "checkpoints/flights.g0002"
    (tmp_path / "checkpoints/flights.streambank.json").unlink()  # nor does a marker say which one counts
    for number in numbers:
        at = open_store(f"{job.checkpoint}.g{number:04d}").uri
        made_at = to_json_time(utc_now() + timedelta(minutes=1))
        records.store.write(
            f"generation/main/{number:010d}.json",
            encode_json(
                {"generation": number, "location": at, "from_savepoint": None, "by": BY, "made_at": made_at}
            ),
        )
    found = {one.directory.location: one.why for one in clean(job).decisions}
    assert "which has not committed a later batch yet" in found[live.as_uri()]
    assert (live / "offsets").is_dir() and (live / "commits").is_dir()


def test_the_checkpoint_in_use_stays_where_a_record_lets_an_earlier_one_count(tmp_path: Path) -> None:
    job = declare(tmp_path, batches=2)
    early = save(job)
    for _ in range(4):
        go_on(job)
    next_generation(job, early, sink="accept")
    go_on(job)
    live = open_store(f"{job.checkpoint}.g0002").uri
    record(job, 3, job.checkpoint, again=1)
    found = {one.directory.location: one.why for one in clean(job).decisions}
    assert "the marker beside the checkpoint" in found[live] and open_store(live).exists("metadata")


def test_an_earlier_generation_goes_once_the_query_is_ahead_of_it(tmp_path: Path) -> None:
    """Of two that were left at batch 5, by a restore of batch 1."""
    job = declare(tmp_path, batches=2)
    early = save(job)
    for _ in range(4):
        go_on(job)
    for _ in range(2):
        next_generation(job, early, sink="accept")
    go_on(job)
    second = f"{job.checkpoint}.g0002"
    assert states(clean(job)) == {job.checkpoint: "kept", second: "removed"}, "2 was left at batch 1"
    for _ in range(4):
        go_on(job)
    assert states(clean(job)) == {job.checkpoint: "removed"}


# What a rollback has set aside.


def rolled_back(job: Job, output: Path) -> Path:
    """What a rollback of the job has set aside in its output, which no savepoint needs any more."""
    live, sink = LiveCheckpoint(open_store(job.checkpoint)), FileSinkWriter(open_store(output))
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    told(job, output)
    for batch in range(3):
        live.run(1)
        sink.write(batch, [{"row": batch}])
        if batch == 1:
            early = save(job, FileSinkCapture(str(output)))
    next_generation(job, early, sink="rollback")
    return output / "_streambank_aside" / f"{early}-1"


def told(job: Job, output: Path) -> None:
    """Who may write the job's records says where its query writes."""
    job.records().record_query(None, {"sink": f"FileSink[{output.as_uri()}]", "query_id": "q"})


def two_jobs(tmp_path: Path) -> tuple[Job, Job]:
    more = '[jobs.payments]\napplication = "app.py"\ncheckpoint = "checkpoints/payments"'
    job = declare(tmp_path, more=more)
    return job, load_jobs(job.source).job("payments")


def test_what_another_job_has_set_aside_stays_where_records_name_its_output(tmp_path: Path) -> None:
    job, other = two_jobs(tmp_path)
    aside = rolled_back(other, tmp_path / "output")
    told(restored(job), tmp_path / "output")
    (decision,) = (one for one in clean(job).decisions if one.directory.kind == "output-aside")
    assert decision.state == "kept" and f"rm -r -- {aside}" in decision.why and aside.is_dir()
    assert states(clean(other))[aside.as_uri()] == "removed" and not aside.exists(), "its own job's clean"


@pytest.mark.parametrize("says", [None, "payments", "flights/left", "", 1, ["flights"], "flights"])
def test_only_a_journal_that_names_the_query_lets_it_go(tmp_path: Path, says: object) -> None:
    job, _ = two_jobs(tmp_path)
    aside = rolled_back(job, tmp_path / "output")
    journal = aside / "_rollback.json"
    told_by_it = json.loads(journal.read_text())
    assert told_by_it.pop("job") == "flights"
    journal.write_text(json.dumps(told_by_it if says is None else {**told_by_it, "job": says}))
    assert states(clean(job))[aside.as_uri()] == ("removed" if says == "flights" else "kept")
