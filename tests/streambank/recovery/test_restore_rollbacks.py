"""A restore that ended between taking the sinks back and switching: the older checkpoint is not started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.control.generations import Generations
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import check_generations
from streambank.recovery import restore as restoring
from streambank.recovery.preconditions import Prepared, prepare
from streambank.recovery.report import RestoreReport
from streambank.sinks.file import rollback
from streambank.storage.store import Store
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob
from tests.support.storage.faulty_store import SimulatedCrash


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path)


@pytest.fixture
def job(shop: SimulatedJob, tmp_path: Path) -> Job:
    """The job as one that was started once, with six batches of which three are saved."""
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(
        f'repository = "repository"\n[jobs.{JOB}]\napplication = "app.py"\ncheckpoint = "ck"\n'
    )
    declared = load_jobs(tmp_path / "jobs.toml").job(JOB)
    shop.run(3)
    shop.take()
    shop.run(3)
    assert prepare_launch(declared, declared.records(), by=BY).queries["main"].generation == 1
    return declared


def go_back(shop: SimulatedJob) -> RestoreReport:
    return shop.restore_next("b000002", by=BY, sink="rollback")


def _die(*args: object, **options: object) -> None:
    raise SimulatedCrash("killed")


def killed(
    shop: SimulatedJob,
    patch: pytest.MonkeyPatch,
    where: object,
    name: str,
    die: Callable[..., object] = _die,
) -> None:
    """A restore of batch 2 that is killed as it is about to call something; its locks are broken then."""
    with patch.context() as patched:
        patched.setattr(where, name, die)
        with pytest.raises(SimulatedCrash):
            go_back(shop)
    shop.control().operation_lock.break_off(by=BY, why="killed", even_live=True)
    shop.control().lease.break_off(by=BY, why="killed", even_live=True)


@pytest.mark.parametrize(("where", "name"), [(Generations, "switch"), (rollback, "_move")])
def test_the_older_generation_is_not_started(
    shop: SimulatedJob, job: Job, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    launched = prepare_launch(job, job.records(), by=BY)
    killed(shop, monkeypatch, where, name)

    starts: list[Callable[[], object]] = [
        lambda: prepare_launch(job, job.records(), by=BY),
        lambda: check_generations(launched, job.records()),  # launched before, and the lease only now
    ]
    for start in starts:
        with pytest.raises(RefusedError, match="rolled back to batch 2") as refused:
            start()
        assert refused.value.code == "sinks-taken-back"
        assert f"--job {JOB} --generation --sink rollback" in refused.value.hint

    report = go_back(shop)
    spec = prepare_launch(job, job.records(), by=BY)
    assert spec.queries["main"].generation == report.plan.generation
    check_generations(spec, job.records())


def test_one_that_was_killed_before_it_touched_a_sink_is_no_obstacle(
    shop: SimulatedJob, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(shop, monkeypatch, restoring, "roll_back_sinks")

    assert not job.records().store.names("taken-back/main")
    assert prepare_launch(job, job.records(), by=BY).queries["main"].generation == 1


def test_one_that_was_killed_right_after_its_note_is_no_obstacle(
    shop: SimulatedJob, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of a rollback of files is the first that it changes: without one nothing was touched."""
    write = type(shop.sink_store).write

    def die(store: Store, key: str, *args: object, **options: object) -> object:
        if "_rollback.json" in key:
            raise SimulatedCrash(key)
        return write(store, key, *args, **options)  # type: ignore[arg-type]  # passed on

    killed(shop, monkeypatch, type(shop.sink_store), "write", die)

    assert job.records().store.names("taken-back/main")  # it got as far as the note
    assert prepare_launch(job, job.records(), by=BY).queries["main"].generation == 1


def test_one_that_is_refused_before_it_touches_the_output_leaves_no_note(
    shop: SimulatedJob, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the savepoint's batches disappear after the comparison."""

    def look_and_lose(*args: object) -> Prepared:
        found = prepare(*args)  # type: ignore[arg-type]  # passed on
        for name in shop.sink_store.names(""):
            if name.startswith("part-00000"):
                shop.sink_store.delete(name)
        return found

    with monkeypatch.context() as patched, pytest.raises(RefusedError) as caught:
        patched.setattr(restoring, "prepare", look_and_lose)
        go_back(shop)
    assert caught.value.code == "sink-cannot-roll-back"
    assert not job.records().store.names("taken-back/main")
    assert prepare_launch(job, job.records(), by=BY).queries["main"].generation == 1


def test_after_a_restore_into_a_directory_the_job_is_not_started_either(shop: SimulatedJob, job: Job) -> None:
    shop.restore("b000002", sink="rollback", control=job.records())

    with pytest.raises(RefusedError, match="restored") as refused:
        prepare_launch(job, job.records(), by=BY)
    assert refused.value.code == "sinks-taken-back"

    go_back(shop)
    assert prepare_launch(job, job.records(), by=BY).queries["main"].generation == 2
