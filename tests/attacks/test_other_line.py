"""A genuine savepoint of another query of the same name and key is not the job's, wherever it is brought."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.checkpoint.files import read_query_id
from streambank.control.control import JobControl
from streambank.control.marker import renew_marker
from streambank.core.errors import NotFoundError, StreambankError
from streambank.core.names import PRIMARY, STANDBY
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.doctor.subject import look_at_job
from streambank.driver.damage import savepoints_of
from streambank.failover.failover import plan_failover
from streambank.failover.report import FailoverRequest
from streambank.overview.saved import newest_saved
from streambank.overview.savepoints import newest_verified
from streambank.recovery.choosing.nearest import choose_nearest
from streambank.recovery.choosing.resolve import Chosen, choose, next_ones
from streambank.recovery.choosing.together import choose_together
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.recovery.together import TogetherPlan
from streambank.repository.catalog import batch_of_id
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.sites.forks import QueryLines
from streambank.sla.ages import ages_of_job
from streambank.sla.judge.savepoints import newest_in_replicas, newest_savepoints
from streambank.storage import open_store
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.repository import RepositoryVerbs
from streambank_airflow.restore_plans import plan_markdown
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.lost_repository import move_on, worked
from tests.support.jobs.simulated_job import quick_store
from tests.support.jobs.two_sites import TwoSites
from tests.support.refuses import refuses

BY_AGE = ("latest-good", "latest", "2030-01-01", "batch:4")


@pytest.fixture
def job(tmp_path: Path, key: Path) -> Job:
    """Production."""
    (tmp_path / "production").mkdir()
    return declare(tmp_path / "production")


def saved(job: Job, checkpoint: LiveCheckpoint, *, new_query: bool = False) -> str:
    """Take a savepoint of a job as it is."""
    repository = job.open_repository(create=True)
    nothing = sinks_from_descriptions(["ForeachBatchSink"])
    request = TakeRequest(checkpoint.store, repository, job.name, sinks=nothing, new_query=new_query)
    return take(request).savepoint


def bring(source: Job, target: Job) -> None:
    """Copy what is missing, as who may write in the repository."""
    there = open_store(source.repository).uri.removeprefix("file://")
    for file in Path(there).rglob("*"):
        goes = Path(target.repository.removeprefix("file://")) / file.relative_to(there)
        if file.is_file() and not goes.exists():
            goes.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, goes)


def planted(folder: Path, job: Job, name: str = "flights", batches: int = 2) -> str:
    """A savepoint of a test, which is newer than all of the job's, in the job's repository."""
    (folder / "test").mkdir()
    test = declare(folder / "test", name=name)
    checkpoint = worked(test)
    checkpoint.run(batches)
    savepoint = saved(test, checkpoint)
    bring(test, job)
    assert verify(job.open_repository(), name, savepoint, "full").restorable, "it is genuine"
    return savepoint


def chosen(job: Job, reference: str) -> Chosen:
    lines = QueryLines.of(job.records(), "main")
    return choose(job.open_repository(), reference, job.name, record=False, lines=lines)


def plan(job: Job, reference: str) -> RestorePlan:
    records = job.records()
    return plan_restore(
        RestoreRequest(
            job.open_repository(), reference, job=job.name, generation=records, checkpoint=job.checkpoint,
            sink="accept",
        )
    )  # fmt: skip


@pytest.mark.parametrize("reference", BY_AGE)
def test_no_reference_means_it(job: Job, tmp_path: Path, reference: str) -> None:
    own = saved(job, worked(job).run(2 if reference == "batch:4" else 0))
    other = planted(tmp_path, job)
    found = chosen(job, reference)
    assert found.manifest.savepoint == own
    assert [one.savepoint for one in found.skipped] == [other]
    assert "of another line: of query" in found.skipped[0].why and "/test/checkpoints" in found.skipped[0].why


def test_a_whole_restore_leaves_it_out_too(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    other = planted(tmp_path, job)
    together = choose_together(job, job.open_repository())
    assert together.queries["main"].manifest.savepoint == own
    for reference in ("latest-good", "latest"):
        _, found = choose_nearest(
            (job.repository,), reference, job.name, target=job.checkpoint, record=False,
            open_place=job.open_place, lines=QueryLines.of(job.records(), "main"),
        )  # fmt: skip
        assert found.manifest.savepoint == own
        assert any("another line" in one.why for one in found.passed_over), other


@pytest.mark.parametrize("reference", ["latest-good", "latest"])
def test_one_that_is_older_than_what_is_restored_is_not_spoken_of(
    job: Job, tmp_path: Path, reference: str
) -> None:
    checkpoint = worked(job)
    saved(job, checkpoint)
    other = planted(tmp_path, job)
    checkpoint.run(1)
    own = saved(job, checkpoint)

    def found() -> Chosen:
        return choose_nearest(
            (job.repository,), reference, job.name, target=job.checkpoint, record=False,
            open_place=job.open_place, lines=QueryLines.of(job.records(), "main"),
        )[1]  # fmt: skip

    assert (found().manifest.savepoint, found().passed_over) == (own, ())
    assert other in [one.savepoint for one in job.open_repository().candidates(job.name)]
    later = tmp_path / "later"
    later.mkdir()
    newer = planted(later, job, batches=9)
    assert [newer in one.why for one in found().passed_over] == [True]


def test_by_its_id_the_plan_says_it_first_and_the_approval_shows_it(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    other = planted(tmp_path, job)
    said = plan(job, other)
    assert said.possible, "a person may want it"
    assert said.another_line.startswith("It is of another line: of query ")
    assert (
        plan_markdown(TogetherPlan({"main": said}))
        .splitlines()[2]
        .startswith("| Another line | It is of another line: of query ")
    )
    assert plan(job, own).another_line == ""
    where = ("--jobs", job.source, "--job", job.name, "--generation", "--sink", "accept", "--dry-run")
    assert succeed("restore", other, *where).out.splitlines()[0] == said.another_line
    assert "another line" not in succeed("restore", own, *where).out.splitlines()[0]
    assert [one.savepoint for one in said.next] == [own]
    assert plan(job, own).next == (), "nor does it come next where its own fails"


def test_where_only_another_is_there_the_error_says_so(job: Job, tmp_path: Path) -> None:
    worked(job)
    job.open_repository(create=True)
    other = planted(tmp_path, job)
    for reference in ("latest", "latest-good", "batch:4"):
        with pytest.raises(NotFoundError) as missing:
            chosen(job, reference)
        assert missing.value.code == "no-such-savepoint" and "another query" in missing.value.message
        assert f"such as {job.name}/{other}: " in missing.value.hint
        assert plan(job, f"{job.name}/{other}").possible


def test_where_its_own_is_damaged_the_error_says_that_none_verifies(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    planted(tmp_path, job)
    repository, store = job.open_repository(), open_store(job.repository)
    (digest,) = (one.digest for one in repository.load(job.name, own).files if one.path == "metadata")
    alone, key = repository.objects.read(digest), repository.objects.locate(digest).key
    store.write(key, store.read(key).replace(alone, bytes(len(alone))))  # the two share all else
    with refuses(NotFoundError, "no-good-savepoint", match="another line"):
        chosen(job, "latest-good")


def lose_records(job: Job) -> None:
    shutil.rmtree(Path(f"{job.repository}.control".removeprefix("file://")))


def test_a_job_whose_records_are_lost_knows_its_line_by_the_marker(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    planted(tmp_path, job)
    lose_records(job)
    assert chosen(job, "latest-good").manifest.savepoint == own


def test_without_the_marker_it_knows_it_by_what_was_saved_in_its_own_place(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    planted(tmp_path, job)
    lose_records(job)
    Path(f"{job.checkpoint}.streambank.json".removeprefix("file://")).unlink()
    for reference in ("latest-good", "latest"):
        assert chosen(job, reference).manifest.savepoint == own
        _, found = choose_nearest(
            (job.repository,), reference, job.name, target=job.checkpoint, record=False,
            open_place=job.open_place, lines=QueryLines.of(job.records(), "main"),
        )  # fmt: skip
        assert found.manifest.savepoint == own


def let_records_name(job: Job, savepoint: str, place: Job | None = None) -> None:
    """Forge what drivers write unsigned: the records, and by them the marker."""
    repository = (place or job).open_repository()
    facts = {"generation": 1, "query_id": repository.load(job.name, savepoint).query_id}
    records = job.records()
    records.record_query("main", facts)
    generation = records.generation()
    assert generation is not None
    why = renew_marker(job.checkpoint, job=job.name, query="main", generation=generation, control=records,
                       by=BY, facts=facts)  # fmt: skip
    assert why is None


@pytest.mark.parametrize("reference", BY_AGE)
def test_no_reference_means_it_because_a_record_names_its_query(
    job: Job, tmp_path: Path, reference: str
) -> None:
    own = saved(job, worked(job).run(2 if reference == "batch:4" else 0))
    other = planted(tmp_path, job)
    let_records_name(job, other)
    found = chosen(job, reference)
    assert found.manifest.savepoint == own
    assert [one.savepoint for one in found.skipped] == [other]
    assert plan(job, other).another_line.startswith("It is of another line: of query ")
    assert [one.savepoint for one in plan(job, other).next] == [own]
    assert (plan(job, own).another_line, plan(job, own).next) == ("", ())


def test_nor_in_a_replica_that_has_no_other(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    replica = replace(job, repository=f"{job.repository}-replica")
    replica.open_repository(create=True)
    let_records_name(job, planted(tmp_path, replica), replica)
    for reference in BY_AGE[:3]:
        _, found = choose_nearest(
            (job.repository, replica.repository), reference, job.name, target=job.checkpoint, record=False,
            open_place=lambda location: Repository.open(open_store(location)),
            lines=QueryLines.of(job.records(), "main"),
        )  # fmt: skip
        assert found.manifest.savepoint == own, reference
        assert reference != "latest-good" or any("another line" in one.why for one in found.passed_over)


def test_where_nothing_says_which_is_the_job_s_the_plan_says_so_first(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    other = planted(tmp_path, job)
    (tmp_path / "rebuilt").mkdir()
    rebuilt = declare(tmp_path / "rebuilt")
    shutil.copytree(job.repository.removeprefix("file://"), rebuilt.repository.removeprefix("file://"))
    assert chosen(rebuilt, "latest-good").manifest.savepoint == other, "nothing says that it is not"
    for savepoint in (own, other):
        said = plan(rebuilt, savepoint)
        assert said.another_line.startswith("It may be of another line: of query ")
        assert "of 2 queries" in said.another_line
    assert (
        plan_markdown(TogetherPlan({"main": said}))
        .splitlines()[2]
        .startswith("| Another line | It may be of another line: ")
    )
    where = ("--jobs", rebuilt.source, "--job", job.name, "--generation", "--sink", "accept", "--dry-run")
    assert succeed("restore", "latest-good", *where).out.splitlines()[0] == said.another_line


def by_the_verb(job: Job, reference: str, *more: str) -> str:
    """What `streambank restore` would restore, without --job."""
    asked = ("restore", reference, "-r", job.repository, "--jobs", job.source, "--sink", "accept", *more)
    return str(json.loads(succeed(*asked, "--dry-run", "--json").out)["savepoint"])


@pytest.mark.parametrize("reference", ["flights/latest-good", "latest-good", "latest", "2030-01-01"])
def test_nor_where_the_verb_is_not_given_the_job(job: Job, tmp_path: Path, reference: str) -> None:
    own = saved(job, worked(job))
    planted(tmp_path, job)
    assert by_the_verb(job, reference, "--generation") == own
    assert by_the_verb(job, reference, "--into", str(tmp_path / "into")) == own


def test_it_takes_no_place_from_the_job_s_own_where_savepoints_expire(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    other = planted(tmp_path, job)
    succeed("expire", "-r", job.repository, "--jobs", job.source, "--keep-last", "1")
    assert {one.savepoint for one in job.open_repository().candidates(job.name)} == {own, other}
    verbs = RepositoryVerbs(DeclaredJobs("streambank_default", job.source, None))
    verbs.expire(job.name, keep_last=1, by=BY)
    assert chosen(job, "latest-good").manifest.savepoint == own
    succeed("expire", "-r", job.repository, "--job", job.name, "--keep-last", "1")
    assert [one.savepoint for one in job.open_repository().candidates(job.name)] == [other], "undeclared"


def test_it_is_neither_the_age_of_the_job_s_savepoints_nor_its_way_back(job: Job, tmp_path: Path) -> None:
    checkpoint = worked(job)
    own = saved(job, checkpoint)
    other = planted(tmp_path, job)
    records = job.records()
    assert [one.subject for one in newest_savepoints(job.repository, job.name)] == [other, own]
    assert [one.subject for one in newest_savepoints(job.repository, job.name, records)] == [own]
    brought = newest_in_replicas([job.repository], job.name, records).newest
    assert [one.subject for one in brought.values() if one is not None] == [own]
    seen = look_at_job(job, "main", utc_now())
    assert seen is not None and [one.savepoint for one in seen.savepoints or ()] == [own]
    assert [one.savepoint for one in savepoints_of(job, "main")[0]] == [own]
    verify(job.open_repository(), job.name, own, "full")
    shown = newest_verified(newest_saved(job, job.open_repository(), utc_now()))
    assert shown is not None and shown.summary.savepoint == own, "on the page"
    taken_at = job.open_repository().load(job.name, own).taken_at
    age_s = ages_of_job(job, now=taken_at + timedelta(hours=1)).savepoint_s["main"]
    assert age_s == 3600.0


def test_what_a_site_saved_that_the_job_has_left_does_not_come_next(job: Job) -> None:
    checkpoint = worked(job)
    own = saved(job, checkpoint)
    checkpoint.run(1)
    left = saved(job, checkpoint)
    checkpoint.run(1)
    manifest = job.open_repository().load(job.name, saved(job, checkpoint))
    lines = QueryLines({manifest.checkpoint: batch_of_id(own)})
    found = [next_ones(job.open_repository(), manifest, each) for each in (QueryLines(), lines)]
    assert [[one.savepoint for one in each] for each in found] == [[left, own], [own]]


# The honest cases: what must not be taken for another line.


def test_an_airflow_without_records_restores_what_another_place_has_saved(job: Job, tmp_path: Path) -> None:
    """Production is rebuilt elsewhere, with other paths, from the repository alone."""
    own = saved(job, worked(job))
    (tmp_path / "rebuilt").mkdir()
    rebuilt = declare(tmp_path / "rebuilt")
    shutil.copytree(job.repository.removeprefix("file://"), rebuilt.repository.removeprefix("file://"))
    for reference in ("latest-good", "latest"):
        assert chosen(rebuilt, reference).manifest.savepoint == own
    assert plan(rebuilt, own).another_line == ""


def test_each_generation_counts_whatever_its_query_id(job: Job) -> None:
    """A fork, and a query that began again, have other ids."""
    saved(job, worked(job))
    location = move_on(job)  # with another id
    second = LiveCheckpoint(quick_store(location)).run(6)
    newest = take(
        TakeRequest(second.store, job.open_repository(), job.name, new_query=True,
                    sinks=sinks_from_descriptions(["ForeachBatchSink"]))
    ).savepoint  # fmt: skip
    found = chosen(job, "latest-good")
    assert (found.manifest.savepoint, found.skipped) == (newest, ())


def test_a_query_that_began_anew_counts_before_it_is_saved_in_its_own_place(job: Job, tmp_path: Path) -> None:
    """What is there of it is a copy by `cp -r`, and only the checkpoint knows its id."""
    saved(job, worked(job))
    again = LiveCheckpoint(quick_store(move_on(job)))  # with another id
    copy = LiveCheckpoint(quick_store(tmp_path / "copy"), query_id=read_query_id(again.store), seed=1).run(6)
    newest = saved(job, copy, new_query=True)
    found = chosen(job, "latest-good")
    assert (found.manifest.savepoint, found.skipped) == (newest, ())


def test_a_copy_counts_before_anything_was_saved_in_its_own_place(job: Job, tmp_path: Path) -> None:
    """Then what the driver has recorded is all that there is."""
    checkpoint = worked(job)
    copy = LiveCheckpoint(quick_store(tmp_path / "copy"), query_id=checkpoint.query_id, seed=1).run(6)
    job.open_repository(create=True)
    own = saved(job, copy)
    planted(tmp_path, job, batches=9)
    found = chosen(job, "latest-good")
    assert found.manifest.savepoint == own and len(found.skipped) == 1


def test_an_own_savepoint_needs_no_look_at_any_other(job: Job) -> None:
    saved(job, worked(job))
    lines = QueryLines.of(job.records(), "main")
    heads = iter([job.open_repository().candidates(job.name)[0]])
    known = lines.knowing(heads)
    assert known.why_not(job.open_repository().candidates(job.name)[0]) == ""
    assert len(list(heads)) == 1, "none was read"


def test_the_same_query_id_counts_whatever_its_place(job: Job, tmp_path: Path) -> None:
    """A checkpoint that was moved, a copy that was imported, a replica's other spelling."""
    checkpoint = worked(job)
    saved(job, checkpoint)
    moved = LiveCheckpoint(quick_store(tmp_path / "moved"), query_id=checkpoint.query_id, seed=1).run(6)
    newest = saved(job, moved)
    found = chosen(job, "latest-good")
    assert (found.manifest.savepoint, found.skipped) == (newest, ())


def test_a_renamed_job_goes_on_in_its_checkpoint(tmp_path: Path, key: Path) -> None:
    """Under the new name there are no records, and the marker is the old one's."""
    checkpoint = worked(declare(tmp_path))
    renamed = load_jobs(declare(tmp_path, name="trips", more="").source).job("trips")
    renamed = replace(renamed, checkpoint=checkpoint.store.uri, queries={"main": checkpoint.store.uri})
    own = saved(renamed, checkpoint)
    found = chosen(renamed, "latest-good")
    assert (found.manifest.savepoint, found.skipped) == (own, ())


def test_both_sites_are_the_job_s_own(tmp_path: Path, key: Path) -> None:
    sites = TwoSites(tmp_path)
    primary, standby = sites.at(PRIMARY), sites.at(STANDBY)
    assert worked(primary)
    repository = standby.open_repository(create=True)
    there = LiveCheckpoint(open_store(standby.checkpoint)).run(3)
    own = take(
        TakeRequest(there.store, repository, primary.name, sinks=sinks_from_descriptions(["ConsoleTable"]))
    ).savepoint
    lines = QueryLines.of(primary.records(), "main")
    found = choose(repository, "latest-good", primary.name, record=False, lines=lines)
    assert (found.manifest.savepoint, found.skipped) == (own, ())


def test_records_without_a_declaration_judge_nothing(job: Job, tmp_path: Path) -> None:
    worked(job)
    records = job.records()
    plain = QueryLines.of(JobControl(records.store, job.name), "main")
    job.open_repository(create=True)
    other = planted(tmp_path, job)
    assert (
        choose(job.open_repository(), "latest", job.name, record=False, lines=plain).manifest.savepoint
        == other
    )


def test_a_time_before_all_says_what_is_the_oldest(job: Job, tmp_path: Path) -> None:
    own = saved(job, worked(job))
    planted(tmp_path, job)
    with refuses(StreambankError, "no-such-savepoint"):
        chosen(job, "2020-01-01")
    taken = job.open_repository().load(job.name, own).taken_at + timedelta(milliseconds=1)
    assert chosen(job, taken.isoformat()).manifest.savepoint == own


def test_a_fail_over_passes_it_over_and_its_plan_says_it_first(tmp_path: Path, key: Path) -> None:
    sites = TwoSites(tmp_path)
    checkpoint = worked(sites.at(PRIMARY))
    saved(sites.at(PRIMARY), checkpoint)
    bring(sites.at(PRIMARY), sites.at(STANDBY))
    own = sites.at(STANDBY).open_repository().find("latest")[1]
    other = planted(tmp_path, sites.at(STANDBY), name="orders")
    found = plan_failover(FailoverRequest(sites.job, to=STANDBY, by=BY))
    assert found.savepoints["main"].savepoint == own, "known by what was saved in its own place"
    ask = ("failover", "orders", "--jobs", sites.jobs, "--to", STANDBY, "--savepoint", other, "--dry-run")
    (first, *_) = streambank(*ask).out.splitlines()[1:]
    assert first.startswith("query main: another line") and "It is of another line: of query " in first
