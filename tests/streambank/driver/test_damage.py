"""A job on a damaged checkpoint: refused before its driver starts, and named where a driver died of it."""

from __future__ import annotations

import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from streambank.core.errors import RefusedError, StorageError
from streambank.core.units import utc_now
from streambank.doctor.diagnose import diagnose_job
from streambank.driver import damage as damaged
from streambank.driver.damage import unloadable
from streambank.driver.prepare import prepare_launch
from streambank.job.hopeless import died_alike, hopeless_death
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, declare_recorded, fake_launcher, launched
from tests.support.refuses import refuses

RECORDED = "3.5.9/hdfs-window"
CUT_OFF = (
    "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: "
    "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during "
    "loading state. SQLSTATE: 58030 Caused by: java.io.EOFException: Stream ended prematurely"
)
MISSING = (
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] Error reading delta file "
    "file:/ck/state/0/0/7.delta of HDFSStateStoreProvider: it does not exist."
)
NETWORK = (
    "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. "
    "Caused by: java.net.SocketTimeoutException: Read timed out"
)


def cut(folder: Path) -> str:
    """Cut off the newest delta, as a disk that was full does; its path."""
    state = folder / "checkpoints/flights/state/0/0"
    newest = max(state.glob("*.delta"), key=lambda one: int(one.stem))
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    return f"state/0/0/{newest.name}"


def test_a_start_on_a_damaged_checkpoint_is_refused_with_the_savepoint_to_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declare_recorded(tmp_path, RECORDED)
    prepare_launch(job, job.records(), by=BY)
    (taken,) = savepoint_job(job, by=BY).savepoints.values()
    prepare_launch(job, job.records(), by=BY)
    path = cut(tmp_path)
    monkeypatch.setattr(damaged, "utc_now", lambda: utc_now() + timedelta(minutes=2))

    with refuses(RefusedError, "checkpoint-damaged") as caught:
        prepare_launch(job, job.records(), by=BY)

    assert f"{path} has " in caught.value.message and taken.savepoint in caught.value.message
    assert f"Restore {taken.savepoint} (2 min old): trigger flights.restore in Airflow" in caught.value.hint
    assert f"streambank restore {taken.savepoint} --job flights --generation" in caught.value.hint


def test_a_damaged_checkpoint_without_a_way_out_is_left_to_spark(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, RECORDED)
    cut(tmp_path)
    prepare_launch(job, job.records(), by=BY)


def test_a_repository_that_cannot_be_read_keeps_no_job_from_starting(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, RECORDED)
    savepoint_job(job, by=BY)
    cut(tmp_path)
    shutil.rmtree(tmp_path / "repository/savepoints")
    (tmp_path / "repository/repository.json").write_text("{")
    prepare_launch(job, job.records(), by=BY)


@pytest.mark.parametrize("damage", [None, "offsets", "state/0/1"])
def test_doctor_names_the_file_and_the_savepoint(tmp_path: Path, damage: str | None) -> None:
    job = declare_recorded(tmp_path, RECORDED)
    prepare_launch(job, job.records(), by=BY)
    (taken,) = savepoint_job(job, by=BY).savepoints.values()
    if damage == "offsets":
        newest = max((tmp_path / "checkpoints/flights/offsets").glob("[0-9]*"), key=lambda one: int(one.name))
        newest.unlink()
    elif damage is not None:
        shutil.rmtree(tmp_path / "checkpoints/flights" / damage)
    path = cut(tmp_path) if damage is None else damage

    (diagnosis,) = diagnose_job(job)

    (found, *_) = [one for one in diagnosis.findings if one.code == "checkpoint-damaged"]
    assert found.severity == "error" and path in (found.file or found.cause)
    assert f"Restore {taken.savepoint} (" in found.hint and "trigger flights.restore" in found.hint


def test_doctor_says_nothing_of_a_healthy_checkpoint(tmp_path: Path) -> None:
    job = declare_recorded(tmp_path, RECORDED)
    savepoint_job(job, by=BY)
    (diagnosis,) = diagnose_job(job)
    assert not {one.code for one in diagnosis.findings} & {"checkpoint-damaged", "damaged-snapshot"}


@pytest.mark.parametrize("failure", [CUT_OFF, MISSING])
def test_a_driver_that_died_of_its_state_is_not_tried_again(folder: Path, failure: str) -> None:
    job = declare_recorded(folder, RECORDED, "--fail", failure, "--die-after-lease", "1")
    (taken,) = savepoint_job(job, by=BY).savepoints.values()

    with refuses(RefusedError, "state-not-loadable") as caught:
        start_job(job, by=BY, launcher=fake_launcher(folder))

    assert not caught.value.retryable
    assert "CANNOT_LOAD_STATE_STORE" in caught.value.message
    assert f"Restore {taken.savepoint} (" in caught.value.hint
    again = hopeless_death(job, launcher=fake_launcher(folder))
    assert again is not None and again.code == "state-not-loadable"


def test_what_a_driver_died_of_is_named_where_it_is_found(folder: Path) -> None:
    job = declare_recorded(folder, RECORDED, "--fail", CUT_OFF, "--die-after-lease", "1")
    path = cut(folder)  # nothing was saved, so the start is not refused

    with refuses(RefusedError, "checkpoint-damaged", match=path) as caught:
        start_job(job, by=BY, launcher=fake_launcher(folder))

    assert caught.value.message.startswith(
        "The driver of job flights ended with exit code 1 before its first"
    )
    assert "It has no good savepoint" in caught.value.hint


def test_what_may_pass_is_tried_again(folder: Path) -> None:
    job = declare_recorded(folder, RECORDED, "--fail", NETWORK, "--die-after-lease", "1")
    savepoint_job(job, by=BY)
    with refuses(StorageError, "driver-died") as caught:
        start_job(job, by=BY, launcher=fake_launcher(folder))
    assert caught.value.retryable
    assert hopeless_death(job, launcher=fake_launcher(folder)) is None


def test_a_driver_that_has_loaded_its_state_did_not_die_of_it(tmp_path: Path) -> None:
    """Its log has what a task met that was tried again, or a snapshot that Spark repaired."""
    job = declare_recorded(tmp_path, RECORDED)
    (taken,) = savepoint_job(job, by=BY).savepoints.values()
    commits = tmp_path / "checkpoints/flights/commits"
    newest = max(commits.glob("[0-9]*"), key=lambda one: int(one.name))
    newest.rename(tmp_path / "later")
    control, spec = launched(job)
    checkpoints = {name: query.checkpoint for name, query in spec.queries.items()}
    ask = partial(unloadable, job, control, spec.launch_id, checkpoints, ended="The driver died.")
    warned = [f"26/11/23 01:00:00 WARN TaskSetManager: Lost task 0.0 in stage 3.0: {MISSING}"]

    before = ask(warned)
    assert before is not None and before.code == "state-not-loadable", "it never committed a batch"
    (tmp_path / "later").rename(newest)
    assert ask(warned) is None, "out of memory, perhaps: another start may help"
    control.record_event("query-ended", launch_id=spec.launch_id, failure=MISSING)
    said = ask([])
    assert said is not None and taken.savepoint in said.hint, "that is what Spark ended the query for"


def test_two_drivers_of_one_run_that_die_alike_are_told_from_others(folder: Path) -> None:
    job = declare(
        folder, "--fail", "java.io.IOException: no route to host 10.0.0.7", "--die-after-lease", "1"
    )
    launcher = fake_launcher(folder)
    run = {**BY, "dag_id": "flights.run", "run_id": "manual__1"}
    for by, alike in ((run, False), (run, True), ({**run, "run_id": "manual__2"}, False)):
        with pytest.raises(StorageError):
            start_job(job, by=by, launcher=launcher)
        assert (died_alike(job, by, launcher=launcher) is not None) == alike
    other = declare(folder, "--fail", "java.lang.OutOfMemoryError", "--die-after-lease", "1")
    with pytest.raises(StorageError):
        start_job(other, by={**run, "run_id": "manual__2"}, launcher=launcher)
    assert died_alike(other, {**run, "run_id": "manual__2"}, launcher=launcher) is None
    assert died_alike(other, BY, launcher=launcher) is None
