from __future__ import annotations

from pathlib import Path

from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.storage import open_store
from tests.support.checkpoint.recorded import checkpoint
from tests.support.refuses import refuses

BY = {"user": "somebody", "via": "test"}


def declare(folder: Path) -> Job:
    (folder / "app.py").write_text("")
    (folder / "jobs.toml").write_text(
        'repository = "repository"\n[jobs.flights]\napplication = "app.py"\ncheckpoint = "checkpoint"\n'
    )
    return load_jobs(folder / "jobs.toml").job("flights")


def test_a_job_that_never_ran_begins_from_nothing(tmp_path: Path) -> None:
    job = declare(tmp_path)

    spec = prepare_launch(job, job.records(), by=BY)

    assert spec.queries["main"].generation == 1


def test_a_job_whose_checkpoint_is_gone_is_not_started_from_nothing(tmp_path: Path) -> None:
    job = declare(tmp_path)
    control = job.records()
    prepare_launch(job, control, by=BY)
    control.record_query(None, {"epoch": 1, "generation": 1, "query_id": "q"})

    with refuses(RefusedError, "checkpoint-lost", match="gone or empty") as caught:
        prepare_launch(job, control, by=BY)

    assert "restore latest-good --job flights --generation" in caught.value.hint


def test_a_job_whose_checkpoint_is_there_goes_on(tmp_path: Path) -> None:
    job = declare(tmp_path)
    control = job.records()
    control.record_query(None, {"epoch": 1, "generation": 1, "query_id": "q"})
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/metadata").write_text('{"id":"q"}')

    assert prepare_launch(job, control, by=BY).queries["main"].checkpoint == job.checkpoint


def test_a_query_that_has_lost_its_id_is_not_started_under_a_new_one(tmp_path: Path) -> None:
    """Spark 3.5 would do it: sinks that know batches by the query's id would take them again."""
    job = declare(tmp_path)
    recorded = checkpoint("3.5.9/hdfs-window").but("metadata")
    recorded.into(open_store(job.checkpoint))

    for _ in range(2):
        with refuses(RefusedError, "query-id-lost", match="has batches, but its file metadata"):
            prepare_launch(job, job.records(), by=BY)

    (tmp_path / "checkpoint/metadata").write_bytes(checkpoint("3.5.9/hdfs-window").files["metadata"])
    assert prepare_launch(job, job.records(), by=BY).queries["main"].committed == max(recorded.batches())


def test_a_new_generation_owes_nothing_to_what_worked_in_the_old_one(tmp_path: Path) -> None:
    job = declare(tmp_path)
    control = job.records()
    control.record_query(None, {"epoch": 1, "generation": 7, "query_id": "q"})

    assert prepare_launch(job, control, by=BY).queries["main"].generation == 1
