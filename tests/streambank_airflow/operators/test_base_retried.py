"""A task whose worker is lost after its work: another try finds what was done; who clears it asks once more.

`execute` is called as Airflow does for each try; between two of them the job may go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from streambank.job.savepoint import savepoint_job
from streambank_airflow.operators.compact import CleanJobOperator, CompactCheckpointOperator
from streambank_airflow.operators.drill import RunDrillOperator
from streambank_airflow.operators.job import (
    RestartStreamingJobOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
)
from streambank_airflow.operators.repository import (
    ExpireSavepointsOperator,
    ReplicateSavepointsOperator,
    SweepRepositoryOperator,
)
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import (
    CreateSavepointOperator,
    PinSavepointOperator,
    UndeleteSavepointOperator,
    VerifySavepointOperator,
)
from tests.support.jobs.managed_job import BY, Managed, managed_job

pytestmark = pytest.mark.usefixtures("airflow_database")


def attempt(*, run: str = "scheduled__2026-11-28", cleared: int = 0) -> Any:
    """What Airflow gives a try: `max_tries` grows by the tries before, whenever a person clears the task."""
    task = SimpleNamespace(retries=1)
    return {
        "dag_run": SimpleNamespace(dag_id="own", run_id=run, run_type="scheduled", triggering_user_name=None),
        "ti": SimpleNamespace(
            dag_id="own",
            run_id=run,
            task_id="t",
            map_index=-1,
            max_tries=1 + cleared,
            task=task,
            try_number=1 + cleared,
            xcom_push=lambda **_: None,
        ),
        "outlet_events": OutletEventAccessors(),
    }


@pytest.fixture
def stopped(managed: Managed) -> Managed:
    """A job that stands still, with a savepoint."""
    managed.start(until=1)
    managed.stop()
    savepoint_job(managed.job, by=BY)
    return managed


def generations(managed: Managed, query: str | None = None) -> list[int]:
    return [one.number for one in managed.control.generations(query).all()]


def test_a_restore_in_place_is_done_once_for_all_tries(stopped: Managed) -> None:
    restore = RestoreSavepointOperator(task_id="t", job="flights", jobs_file=stopped.jobs_file, sink="accept")

    first = restore.execute(attempt())
    again = restore.execute(attempt())

    assert generations(stopped) == [1, 2]
    assert [
        one.name for one in sorted((stopped.folder / "checkpoints").glob("flights.g*")) if one.is_dir()
    ] == ["flights.g0002"]
    assert (first["already_restored"], again["already_restored"]) == (False, True)
    assert {**again, "already_restored": False} == first
    restore.execute(attempt(cleared=1))
    assert generations(stopped) == [1, 2, 3], "a person asks for it once more"
    restore.execute(attempt(run="scheduled__2026-11-29"))
    assert generations(stopped) == [1, 2, 3, 4], "so does another run"


def test_a_restore_that_is_gone_or_was_followed_by_another_one_is_done_again(stopped: Managed) -> None:
    restore = RestoreSavepointOperator(task_id="t", job="flights", jobs_file=stopped.jobs_file, sink="accept")
    restore.execute(attempt())
    (stopped.checkpoint / "metadata").unlink()

    assert restore.execute(attempt())["generation"] == 3

    restore.execute(attempt(run="manual__2026-11-28"))
    assert restore.execute(attempt())["generation"] == 5


def test_a_restore_into_a_directory_can_be_tried_again_and_cleared(stopped: Managed, tmp_path: Path) -> None:
    into = tmp_path / "proof"
    restore = RestoreSavepointOperator(
        task_id="t", job="flights", jobs_file=stopped.jobs_file, into=str(into), mode="fork", sink="accept"
    )

    first = restore.execute(attempt())

    assert {**restore.execute(attempt()), "already_restored": False} == first
    assert restore.execute(attempt(cleared=1))["already_restored"]
    with pytest.raises(AirflowFailException, match="target-not-empty"):
        restore.execute(attempt(run="scheduled__2026-11-29"))
    earlier = first["batch"] - 1
    taken = savepoint_job(stopped.job, by=BY, name="other", batch=earlier).savepoints["main"].savepoint
    assert taken != first["savepoint"]
    restore.savepoint = "other"  # the DAG says so now
    with pytest.raises(AirflowFailException, match="target-not-empty"):
        restore.execute(attempt(cleared=1))
    restore.savepoint = first["savepoint"]
    assert restore.execute(attempt(cleared=1))["already_restored"]
    (into / "metadata").unlink()
    with pytest.raises(AirflowFailException):
        restore.execute(attempt())


def test_a_named_take_of_a_running_job_can_be_tried_again_and_cleared(managed: Managed) -> None:
    managed.start(until=1)
    take = CreateSavepointOperator(task_id="t", job="flights", jobs_file=managed.jobs_file, name="nightly")
    take.outlets = []

    first = take.execute(attempt())
    managed.wait_for_batch(first["batch"] + 2)
    again = take.execute(attempt())
    cleared = take.execute(attempt(cleared=1))

    assert (again["savepoint"], again["already_there"]) == (first["savepoint"], True)
    assert cleared["batch"] > first["batch"]
    assert managed.repository.find("nightly") == ("flights", cleared["savepoint"])
    managed.wait_for_batch(cleared["batch"] + 1)
    with pytest.raises(AirflowFailException, match="name-taken"):
        take.execute(attempt(run="scheduled__2026-11-29"))


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A stopped job with two queries, with a savepoint of each."""
    with managed_job(tmp_path, monkeypatch, ("hourly", "sessions")) as job:
        job.start()
        for query in ("hourly", "sessions"):
            job.wait_for_batch(1, query)
        job.stop()
        savepoint_job(job.job, by=BY)
        yield job


def test_a_restore_of_all_queries_is_done_once_for_all_tries(several: Managed) -> None:
    where: dict[str, Any] = {"job": "flights/*", "jobs_file": several.jobs_file, "sink": "accept"}

    first = RestoreSavepointOperator(task_id="t", **where).execute(attempt())
    again = RestoreSavepointOperator(task_id="t", **where).execute(attempt())

    assert generations(several, "hourly") == generations(several, "sessions") == [1, 2]
    assert (first["already_restored"], again["already_restored"]) == ([], ["hourly", "sessions"])
    for query in ("hourly", "sessions"):
        assert again["queries"][query]["savepoint"] == first["queries"][query]["savepoint"]
    assert again["skew_s"] == first["skew_s"]
    RestoreSavepointOperator(task_id="t", **where).execute(attempt(cleared=1))
    assert generations(several, "hourly") == [1, 2, 3]


def test_an_approved_plan_of_all_queries_does_not_go_over_what_somebody_else_restored(
    several: Managed,
) -> None:
    where: dict[str, Any] = {"task_id": "t", "job": "flights/*", "jobs_file": several.jobs_file}
    left: dict[str, Any] = {}
    planned = attempt(run="mine")
    planned["ti"].try_number, planned["ti"].xcom_push = 1, lambda key, value: left.update({key: value})
    RestoreSavepointOperator(plan_only=True, offer=True, **where).execute(planned)
    shown = left["planned_generations"]
    RestoreSavepointOperator(sink="accept", **where).execute(attempt(run="of_ann"))

    late = RestoreSavepointOperator(sink="accept", shown=shown, **where)
    with pytest.raises(AirflowFailException, match="approval-outdated"):
        late.execute(attempt(run="mine"))

    assert shown == {"flights/hourly": 1, "flights/sessions": 1}
    assert generations(several, "hourly") == generations(several, "sessions") == [1, 2]


def twice(operator: type[Any], managed: Managed, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a task gives whose worker is lost after its work, and what its next try gives."""
    results = []
    for number in (1, 2):
        task = operator(task_id="t", job="flights", jobs_file=managed.jobs_file, **arguments)
        context = attempt()
        context["ti"].try_number = number
        results.append(task.execute(context))
    return results[0], results[1]


def savepoints(managed: Managed) -> list[str]:
    return [one.savepoint for one in managed.repository.manifests("flights")]


def test_another_try_of_a_start_finds_its_driver(managed: Managed) -> None:
    first, again = twice(StartStreamingJobOperator, managed)

    assert (first["state"], again["state"]) == ("started", "already-running")
    assert all(first[name] == again[name] for name in ("epoch", "launch_id", "pid", "host"))


def test_another_try_of_a_stop_gives_the_savepoint_of_the_first(managed: Managed) -> None:
    managed.start(until=1)

    first, again = twice(StopStreamingJobOperator, managed, savepoint=True)

    assert again["savepoint"] == first["savepoint"] and savepoints(managed) == [first["savepoint"]]
    assert again["batch"] == first["batch"] == managed.last_batch()


def test_another_try_of_a_restart_leaves_the_new_driver(managed: Managed) -> None:
    managed.start(until=1)
    before = managed.control.lease.view()

    first, again = twice(RestartStreamingJobOperator, managed)

    assert before is not None and first["stopped_epoch"] == before.epoch
    assert all(first[name] == again[name] for name in ("epoch", "launch_id", "pid"))


def test_another_try_of_a_verification_finds_the_same(stopped: Managed) -> None:
    first, again = twice(VerifySavepointOperator, stopped, level="full")

    changing = {"seconds", "at"}
    assert {name: first[name] for name in first.keys() - changing} == {
        name: again[name] for name in again.keys() - changing
    }


def test_another_try_of_a_replication_moves_nothing_more(stopped: Managed, tmp_path: Path) -> None:
    first, again = twice(ReplicateSavepointsOperator, stopped, to=[str(tmp_path / "replica")])

    assert (first["copied"], first["there"], again["copied"], again["there"]) == (1, 0, 0, 1)
    assert first["moved_bytes"] > 0 == again["moved_bytes"]


def test_another_try_of_retention_and_of_a_sweep_removes_nothing_more(managed: Managed) -> None:
    managed.start(until=1)
    for batch in (1, 3, 5):
        managed.wait_for_batch(batch)
        savepoint_job(managed.job, by=BY)
    kept = savepoints(managed)[-1:]

    first, again = twice(ExpireSavepointsOperator, managed, keep_last=1, min_verified=0)
    assert (first["dropped"], again["dropped"], again["kept"]) == (2, 0, 1)
    assert savepoints(managed) == kept
    swept, once_more = twice(SweepRepositoryOperator, managed, grace_s="2h")
    assert swept["deleted_files"] == once_more["deleted_files"] == 0
    assert swept["kept_files"] == once_more["kept_files"] > 0
    verified, _ = twice(VerifySavepointOperator, managed, level="full")
    assert (verified["ok"], verified["savepoint"]) == (True, kept[0])


def test_another_try_of_a_pin_and_of_an_undelete_finds_it_done(managed: Managed) -> None:
    managed.start(until=1)
    old = savepoint_job(managed.job, by=BY).savepoints["main"].savepoint
    managed.wait_for_batch(managed.last_batch() + 2)
    savepoint_job(managed.job, by=BY)
    twice(ExpireSavepointsOperator, managed, keep_last=1, min_verified=0)

    first, again = twice(UndeleteSavepointOperator, managed, savepoint=old)
    assert (first["already_listed"], again["already_listed"]) == (False, True)
    pinned, still = twice(PinSavepointOperator, managed, savepoint=old)
    assert pinned == still == {"job": "flights", "savepoint": old, "pinned": True}


def test_another_try_of_a_drill_rehearses_once_more_and_leaves_nothing(managed: Managed) -> None:
    managed.start(until=2)
    savepoint_job(managed.job, by=BY)
    managed.wait_for_batch(managed.last_batch() + 4)

    first, again = twice(RunDrillOperator, managed, batches=1)

    assert first["passed"] and again["passed"] and first["scratch"] is again["scratch"] is None
    assert managed.driver_lives() and managed.desired.state == "running"


def test_another_try_of_a_compaction_and_of_cleaning_finds_nothing_left(stopped: Managed) -> None:
    first, again = twice(CompactCheckpointOperator, stopped, stopped=True)
    assert (first["already_done"], again["already_done"]) == (False, True)
    assert all(again[name] == first[name] for name in ("quarantine", "files", "bytes"))
    cleaned, once_more = twice(CleanJobOperator, stopped, keep_for_s="0s")
    assert once_more["removed"] == 0 == once_more["failed"] == cleaned["failed"]


def test_a_person_who_clears_a_task_asks_for_it_once_more(managed: Managed) -> None:
    where: dict[str, Any] = {"task_id": "t", "job": "flights", "jobs_file": managed.jobs_file}
    start = StartStreamingJobOperator(**where)
    first = start.execute(attempt())
    assert start.execute(attempt(cleared=1))["launch_id"] == first["launch_id"], "it runs, as was asked"
    assert RestartStreamingJobOperator(**where).execute(attempt())["stopped_epoch"] == first["epoch"]
    restarted = RestartStreamingJobOperator(**where).execute(attempt(cleared=1))
    assert restarted["stopped_epoch"] == first["epoch"] + 1
    stop = StopStreamingJobOperator(savepoint=True, **where)
    stopped = stop.execute(attempt())
    again = stop.execute(attempt(cleared=1))
    assert (again["state"], again["savepoint"]) == ("already-stopped", stopped["savepoint"])
