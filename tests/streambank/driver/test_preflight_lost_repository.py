"""A job whose repository is gone is not taken for one that never ran: its checkpoint's marker says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.compaction.job import compact_job
from streambank.control.marker import read_marker, renew_marker, write_marker
from streambank.core.errors import NotFoundError, RefusedError
from streambank.core.names import MAIN
from streambank.doctor.diagnose import diagnose_job
from streambank.driver import preflight
from streambank.driver.preflight import check_start, declared_query, savepoints_lost
from streambank.driver.prepare import prepare_launch
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.recovery.exchange_state import exchange
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.sla.assess import assess_job
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.cli import streambank
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.lost_repository import (
    SINK,
    in_repository,
    lose_repository,
    move_on,
    refused,
    worked,
    worked_in_repository,
)


def test_a_job_whose_repository_is_gone_is_not_started_from_nothing(folder: Path) -> None:
    job = worked_in_repository(folder)
    second = move_on(job)
    shutil.rmtree(folder / "checkpoints/flights")
    lose_repository(folder)

    error = refused(lambda: start_job(job, by=BY, launcher=fake_launcher(folder)))

    assert f"there are none at file://{folder}/repository/jobs/flights" in error.message
    assert second in error.message
    for way in ("Mount the repository", "-r REPLICA", "without `-r`", "another output", "--fresh-start"):
        assert way in error.hint
    assert list((folder / "repository").iterdir()) == [], "nothing was created in its place"
    assert not (folder / "checkpoints/flights").exists()


def test_everything_that_looks_at_the_job_says_so(folder: Path) -> None:
    job = worked_in_repository(folder)
    lose_repository(folder)

    refused(lambda: savepoint_job(job, by=BY))
    refused(lambda: compact_job(job, label="x", by=BY))
    refused(lambda: prepare_launch(job, job.records(), by=BY))
    status = job_status(job)
    assert (status.state, "generation 1" in status.why) == ("repository-lost", True)
    assessment = assess_job(job)
    assert assessment.level == "breach"
    assert "[repository-lost]" in assessment.verdicts[0].why
    (diagnosis,) = diagnose_job(job)
    found = [(one.code, one.severity) for one in diagnosis.findings]
    assert found == [("records-in-repository", "info"), ("repository-lost", "error")]
    assert list((folder / "repository").iterdir()) == []


def test_everything_that_looks_at_a_job_says_that_its_checkpoint_is_gone(folder: Path) -> None:
    job = worked_in_repository(folder)
    assert (job_status(job).state, diagnose_job(job)[0].findings[0].code) != ("checkpoint-lost",) * 2
    shutil.rmtree(folder / "checkpoints/flights")

    errors = [
        refused(look, "checkpoint-lost")
        for look in (
            lambda: savepoint_job(job, by=BY),
            lambda: prepare_launch(job, job.records(), by=BY),
            lambda: start_job(job, by=BY, launcher=fake_launcher(folder)),
        )
    ]
    status = job_status(job)
    assert (status.state, status.why) == ("checkpoint-lost", errors[0].message)
    history, *others = assess_job(job).verdicts
    assert (history.level, history.advice) == ("breach", errors[0].hint)
    assert errors[0].message in history.why and history.why.endswith("[checkpoint-lost]")
    assert [one.objective for one in others if one.level == "breach"] == []
    (diagnosis,) = diagnose_job(job)
    found = [one for one in diagnosis.findings if one.severity == "error"]
    assert [(one.code, one.cause, one.hint) for one in found] == [
        ("checkpoint-lost", errors[0].message, errors[0].hint)
    ]
    assert len({(one.message, one.hint) for one in errors}) == 1, "one incident, one cause, one hint"


def test_an_older_copy_of_the_records_does_not_count(folder: Path) -> None:
    job = worked_in_repository(folder)
    shutil.copytree(folder / "repository", folder / "copy")
    move_on(job)
    shutil.rmtree(folder / "repository")
    (folder / "copy").rename(folder / "repository")

    error = refused(lambda: prepare_launch(job, job.records(), by=BY))

    assert "they say generation 1" in error.message and "but generation 2" in error.message
    assert job_status(job).state == "repository-lost"


def test_a_fresh_start_is_an_act_that_is_recorded(folder: Path) -> None:
    job = worked_in_repository(folder)
    second = move_on(job)
    shutil.rmtree(folder / "checkpoints/flights")
    shutil.rmtree(folder / "checkpoints/flights.g0002")
    lose_repository(folder)

    spec = prepare_launch(job, job.records(), by=BY, fresh_start=True, why="it burnt")

    assert (spec.queries[MAIN].generation, spec.queries[MAIN].checkpoint) == (3, job.checkpoint)
    event = job.records().last_event("fresh-start")
    assert event is not None
    assert (event["by"], event["why"], event["was"]["location"]) == (BY, "it burnt", second)
    marker = read_marker(job.checkpoint)
    assert marker is not None and marker.accepted is not None
    assert (marker.generation, marker.location, marker.by) == (3, job.checkpoint, BY)
    assert (marker.accepted["why"], marker.accepted["was"]["generation"]) == ("it burnt", 2)
    prepare_launch(job, job.records(), by=BY)
    worked(job)
    renewed = read_marker(job.checkpoint)
    assert renewed is not None and renewed.accepted == marker.accepted, "it stays known"


def test_the_lost_records_come_back_when_the_job_has_begun_again(folder: Path) -> None:
    job = worked_in_repository(folder)
    move_on(job)
    for name in ("flights", "flights.g0002"):
        (folder / f"checkpoints/{name}").rename(folder / f"checkpoints/{name}.away")
    lose_repository(folder)
    prepare_launch(job, job.records(), by=BY, fresh_start=True)
    worked(job)
    shutil.rmtree(folder / "repository")
    (folder / "repository.gone").rename(folder / "repository")
    (folder / "checkpoints/flights.g0002.away").rename(folder / "checkpoints/flights.g0002")

    error = refused(lambda: prepare_launch(job, job.records(), by=BY))

    assert "they say generation 2" in error.message and "but generation 3" in error.message


def test_a_fresh_start_does_not_go_on_in_an_older_checkpoint(folder: Path) -> None:
    job = worked_in_repository(folder)
    move_on(job)
    shutil.rmtree(folder / "checkpoints/flights.g0002")
    lose_repository(folder)

    error = refused(lambda: start_job(job, by=BY, launcher=fake_launcher(folder), fresh_start=True))

    assert "an older checkpoint than" in error.message and "move" in error.hint
    assert list((folder / "repository").iterdir()) == []


def test_a_fresh_start_goes_on_in_the_checkpoint_that_counted(folder: Path) -> None:
    job = in_repository(folder)
    checkpoint = worked(job)
    lose_repository(folder)

    spec = prepare_launch(job, job.records(), by=BY, fresh_start=True)

    assert spec.queries[MAIN].committed == checkpoint.last


@pytest.mark.parametrize("older_copy", [False, True])
def test_a_fresh_start_goes_on_in_the_generation_that_counted(folder: Path, older_copy: bool) -> None:
    job = worked_in_repository(folder)
    if older_copy:
        shutil.copytree(folder / "repository", folder / "copy")
    second = move_on(job)
    lose_repository(folder)
    if older_copy:
        (folder / "repository").rmdir()
        (folder / "copy").rename(folder / "repository")

    spec = prepare_launch(job, job.records(), by=BY, fresh_start=True)

    assert (spec.queries[MAIN].generation, spec.queries[MAIN].checkpoint) == (3, second)
    marker = read_marker(job.checkpoint)
    assert marker is not None and (marker.generation, marker.location) == (3, second)
    assert [one.location for one in job.records().generations().all()] == [job.checkpoint, second]
    assert prepare_launch(job, job.records(), by=BY).queries[MAIN].generation == 3
    assert move_on(job).endswith("flights.g0004")


def test_a_fresh_start_goes_on_in_a_generation_that_counted_again(folder: Path) -> None:
    job = worked_in_repository(folder)
    records = job.records()
    first = records.generations().all()[0]
    move_on(job)
    with records.operation("reinstate", by=BY) as operation:
        records.generations().switch(records.generations().reinstated(first, by=BY), operation=operation)
    worked(job)
    lose_repository(folder)

    spec = prepare_launch(job, job.records(), by=BY, fresh_start=True)

    assert (spec.queries[MAIN].generation, spec.queries[MAIN].checkpoint) == (4, job.checkpoint)
    current = job.records().generation()
    assert current is not None and (current.again, current.base) == (1, job.checkpoint)


def test_a_fresh_start_of_a_job_that_has_lost_nothing_is_a_start(folder: Path) -> None:
    job = in_repository(folder)
    prepare_launch(job, job.records(), by=BY, fresh_start=True)
    worked(job)
    prepare_launch(job, job.records(), by=BY, fresh_start=True)

    assert job.records().last_event("fresh-start") is None


def test_a_restore_from_a_replica_is_the_way_out(folder: Path) -> None:
    job = in_repository(folder)
    checkpoint = worked(job)
    move_on(job)
    savepoint_job(job, by=BY)
    shutil.copytree(folder / "repository", folder / "replica", ignore=shutil.ignore_patterns("jobs"))
    lose_repository(folder)

    report = restore(
        RestoreRequest(
            Repository.open(open_store(folder / "replica")),
            "latest-good",
            job="flights",
            generation=job.records(),
            checkpoint=job.checkpoint,
            sink="accept",
            by=BY,
        )
    )

    marker = read_marker(job.checkpoint)
    assert marker is not None
    (warning,) = report.warnings
    assert "names generation 2" in warning and "make sure that none is" in warning
    assert (marker.generation, marker.location) == (report.plan.generation, report.layout.target)
    assert report.plan.generation == 3, "above the generation that was lost, should it come back"
    assert marker.repository == job.repository, "where its savepoints belong"
    spec = prepare_launch(job, job.records(), by=BY)
    assert (spec.queries[MAIN].generation, spec.queries[MAIN].committed) == (
        report.plan.generation,
        checkpoint.last,
    )
    assert spec.queries[MAIN].declared == job.checkpoint


def test_a_restore_that_comes_to_nothing_leaves_the_job_lost(folder: Path) -> None:
    job = worked_in_repository(folder)
    savepoint_job(job, by=BY)
    shutil.copytree(folder / "repository", folder / "replica", ignore=shutil.ignore_patterns("jobs"))
    shutil.rmtree(folder / "checkpoints/flights")
    lose_repository(folder)

    replica = Repository.open(open_store(folder / "replica"))
    again = {"job": "flights", "generation": job.records(), "checkpoint": job.checkpoint, "by": BY}
    refused(lambda: restore(RestoreRequest(replica, "latest-good", **again)), "sink-not-guarded")  # type: ignore[arg-type]

    assert job.records().generation() is None
    refused(lambda: prepare_launch(job, job.records(), by=BY))


def test_where_the_marker_says_that_it_worked_nothing_begins_from_nothing(folder: Path) -> None:
    """What a restore that was killed at its switch leaves behind: a generation, and no facts of the query."""
    job = worked_in_repository(folder)
    shutil.rmtree(folder / "checkpoints/flights")
    lose_repository(folder)
    job.records().generations().ensure_first(job.checkpoint, by=BY)

    refused(lambda: prepare_launch(job, job.records(), by=BY), "checkpoint-lost")


def test_another_repository_in_its_place_is_a_loss_unless_it_has_the_job_s_savepoints(folder: Path) -> None:
    job = declare(folder, more='control = "control"')
    worked(job)
    savepoint_job(job, by=BY)
    lose_repository(folder)
    other = Repository.open(open_store(job.repository), create=True)

    error = refused(lambda: savepoint_job(job, by=BY))
    assert f"is another one ({other.id})" in error.message

    for part in ("savepoints", "packs", "index"):
        shutil.copytree(folder / "repository.gone" / part, folder / "repository" / part, dirs_exist_ok=True)
    savepoint_job(job, by=BY)


@pytest.mark.parametrize("by_a_link", ["", "checkpoints/flights", "repository"])
@pytest.mark.parametrize("more", ["", 'control = "control"'])
def test_a_take_by_the_command_line_makes_no_repository_in_its_place(
    folder: Path, more: str, by_a_link: str
) -> None:
    job = declare(folder, more=more)
    worked(job)
    savepoint_job(job, by=BY)
    lose_repository(folder)

    place, repository = folder / "checkpoints/flights", folder / "repository"
    jobs = folder / "streaming_jobs.toml"
    (folder / "link").symlink_to(folder / by_a_link)
    named = [
        folder / "link" if str(one.relative_to(folder)) == by_a_link else one for one in (place, repository)
    ]
    said = streambank("take", named[0], "-r", named[1], "--job", "flights", "--jobs", jobs)

    assert said.code == RefusedError.exit_code and " gone" in said.err
    assert list(repository.iterdir()) == []


def test_a_repository_that_is_gone_beside_records_that_are_not(folder: Path) -> None:
    job = declare(folder, more='control = "control"')
    assert job.control == f"file://{folder}/control"
    worked(job)
    savepoint_job(job, by=BY)
    marker = read_marker(job.checkpoint)
    assert marker is not None and marker.repository_id == Repository.open(open_store(job.repository)).id
    lose_repository(folder)

    error = refused(lambda: savepoint_job(job, by=BY))

    assert "no repository.json" in error.message and "--new-repository" in error.hint
    refused(lambda: exchange(job, lambda *_: None, by=BY))
    assert list((folder / "repository").iterdir()) == [], "no new one in an empty mount point"
    assert assess_job(job).level == "breach"
    (diagnosis,) = diagnose_job(job)
    found = diagnosis.findings[0]
    assert (found.code, found.severity) == ("repository-lost", "error")
    assert len(diagnosis.findings) > 1, "the rest is looked at, too"
    prepare_launch(job, job.records(), by=BY)  # nothing of the query is lost

    savepoint_job(job, by=BY, new_repository=True)
    savepoint_job(job, by=BY)
    renewed = read_marker(job.checkpoint)
    assert renewed is not None and renewed.repository_id != marker.repository_id


def test_a_driver_does_not_accept_another_repository_in_its_place(folder: Path) -> None:
    """It starts, since nothing of the query is lost; that the savepoints are has to be said all the same."""
    job = declare(folder, more='control = "control"')
    checkpoint = worked(job)
    savepoint_job(job, by=BY)
    lose_repository(folder)
    Repository.open(open_store(job.repository), create=True)  # for another job
    spec = prepare_launch(job, job.records(), by=BY)
    generation = job.records().generation(None)
    assert generation is not None

    renew_marker(
        job.checkpoint,
        job=job.name,
        query=MAIN,
        generation=generation,
        control=job.records(),
        by=BY,
        repository=spec.repository,
        repository_id=spec.repository_id,
        facts={"query_id": checkpoint.query_id, "sink": SINK},
        saved=False,
    )

    refused(lambda: savepoint_job(job, by=BY))
    assert assess_job(job).level == "breach"


def test_a_repository_on_s3_by_another_name_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = worked_in_repository(folder)
    marker = read_marker(job.checkpoint)
    assert marker is not None
    write_marker(job.checkpoint, replace(marker, repository="s3a://bucket/saved", repository_id="r1"))
    asked: list[str] = []

    def gone(store: Store) -> None:
        asked.append(store.uri)
        raise NotFoundError("It is gone.", code="no-such-repository")

    monkeypatch.setattr(preflight, "read_header", gone)
    query = replace(declared_query(job, MAIN, job.records()), repository="s3://bucket/saved")

    error = savepoints_lost(query)

    assert error is not None and error.code == "repository-lost" and asked == ["s3://bucket/saved"]
    generation = job.records().generation(None)
    assert generation is not None
    control = job.records()
    renew_marker(
        job.checkpoint,
        job=job.name,
        query=MAIN,
        generation=generation,
        control=control,
        by=BY,
        repository="s3://bucket/saved",
    )
    renewed = read_marker(job.checkpoint)
    assert renewed is not None and (renewed.repository, renewed.repository_id) == ("s3://bucket/saved", "r1")


def test_a_checkpoint_on_s3_that_is_gone_is_missed_by_either_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records were lost, and a restore that came to nothing left others."""
    job = worked_in_repository(folder)
    marker, generation = read_marker(job.checkpoint), job.records().generation(None)
    assert marker is not None and generation is not None
    write_marker(job.checkpoint, replace(marker, location="s3a://bucket/flights"))
    job.records().record_query(None, {})
    query = declared_query(job, MAIN, job.records())
    monkeypatch.setattr(preflight, "open_store", lambda location: MemoryStore())

    refused(
        lambda: check_start(query, replace(generation, location="s3://bucket/flights")), "checkpoint-lost"
    )


def test_another_repository_that_is_declared_is_no_loss(folder: Path) -> None:
    job = declare(folder, more='control = "control"')
    worked(job)
    savepoint_job(job, by=BY)

    savepoint_job(replace(job, repository=f"file://{folder}/other"), by=BY)
