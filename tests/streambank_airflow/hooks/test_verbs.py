"""The hook in a task of one's own: who asks, what another try does, and what an error says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG, task

from streambank.core.errors import InputError, NotFoundError, StorageError, StreambankError
from streambank.driver.spec import read_launch
from streambank.storage import open_store
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import StopStreamingJobOperator
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.usefixtures("airflow_database")


def run_task(work: Callable[..., Any], retries: int = 1, **arguments: Any) -> Any:
    with DAG("own", schedule=None) as dag:
        task(task_id="work", retries=retries, retry_delay=timedelta(0), **arguments)(work)()
    return run_dag(dag)


def hook_of(managed: Managed) -> StreambankHook:
    return StreambankHook(jobs_file=managed.jobs_file)


def epoch(managed: Managed) -> int:
    view = managed.control.lease.view()
    assert view is not None
    return view.epoch


def fails_after_its_first_try(tries: list[Any], result: Any) -> Any:
    tries.append(result)
    if len(tries) == 1:
        raise RuntimeError("The worker is lost.")
    return None


def test_a_mistyped_name_is_not_tried_again_and_says_what_to_do(managed: Managed) -> None:
    managed.start(until=1)
    seen: list[BaseException] = []

    def work() -> None:
        try:
            hook_of(managed).savepoints.verify("flights", "nonsense")
        except NotFoundError as error:
            seen.append(error)
            raise

    assert task_states(run_task(work, retries=3)) == {"work": "failed"}
    (error,) = seen
    assert isinstance(error, AirflowFailException) and isinstance(error, NotFoundError)
    assert type(error).__name__ == "NotFoundError" and error.to_dict()["kind"] == "NotFoundError"


def test_an_error_in_a_task_says_its_code_and_hint_in_words_of_the_place(managed: Managed) -> None:
    said: list[str] = []

    def work() -> None:
        hook = hook_of(managed)
        wrong: list[Callable[[], object]] = [
            lambda: hook.savepoints.take("flights"),
            hook.get_conn,
            lambda: hook.declared.job("trains"),
        ]
        for verb in wrong:
            try:
                verb()
            except StreambankError as error:
                said.append(str(error))

    run_task(work)
    never, unnamed, unknown = said
    assert never.endswith("[never-started]\nHint: Start it first: run StartStreamingJobOperator.")
    assert unnamed.endswith("[no-repository-named]\nHint: Fill in its field Repository.")
    assert "[no-such-job]\nHint: " in unknown


def test_a_type_checker_knows_what_a_verb_takes(managed: Managed) -> None:
    hook = hook_of(managed)
    with pytest.raises(TypeError):
        hook.savepoints.take("flights", pim=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        hook.recovery.refresh("flights")  # type: ignore[call-arg]
    with pytest.raises(InputError):
        hook.savepoints.take("flights", closure="saef")  # type: ignore[arg-type]


def test_what_a_retry_may_heal_is_tried_again(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[BaseException] = []

    def away(*_: Any, **__: Any) -> None:
        raise StorageError("The disk is away.", code="io-error", hint="Look at it.")

    def work() -> None:
        with monkeypatch.context() as patch:
            if not tries:
                patch.setattr("streambank.job.status.job_status", away)
            try:
                hook_of(managed).jobs.status("flights")
            except StorageError as error:
                tries.append(error)
                raise

    assert task_states(run_task(work)) == {"work": "success"}
    (error,) = tries
    assert str(error) == "The disk is away. [io-error]\nHint: Look at it."
    assert not isinstance(error, AirflowException), "Airflow decides by the task's retries"


def test_an_error_survives_pickling_as_the_engine_s(managed: Managed) -> None:
    kept: list[bytes] = []

    def work() -> None:
        try:
            hook_of(managed).savepoints.latest("trains")
        except StreambankError as error:
            kept.append(pickle.dumps(error))

    run_task(work)
    found = pickle.loads(kept[0])
    assert type(found) is InputError and found.code == "no-repository-named" and found.hint


def test_outside_of_a_task_an_error_is_the_engine_s(managed: Managed) -> None:
    with pytest.raises(NotFoundError) as caught:
        hook_of(managed).savepoints.take("flights")
    assert type(caught.value) is NotFoundError and str(caught.value) == caught.value.message


def test_who_asks_is_the_task_that_runs(managed: Managed) -> None:
    run = run_task(lambda: hook_of(managed).jobs.start("flights", note="at last").state)
    by = managed.desired.by
    assert (by["dag_id"], by["run_id"], by["task_id"]) == ("own", run.run_id, "work")
    assert "asker" not in by
    hook_of(managed).jobs.stop("flights")
    assert managed.desired.by["via"] == "airflow" and "dag_id" not in managed.desired.by


def test_a_task_starts_nothing_that_somebody_has_stopped_since(managed: Managed) -> None:
    managed.start()

    def work() -> list[str]:
        hook = hook_of(managed)
        hook.jobs.stop("flights")
        own = hook.jobs.start("flights").state  # what this run has stopped it may start
        managed.stop("for the night")
        return [own, hook.jobs.start("flights").state, hook.jobs.start("flights", obey_desired=False).state]

    assert xcom(run_task(work), "work") == ["started", "not-desired", "started"]


def test_another_try_of_a_task_takes_and_restores_nothing_twice(managed: Managed, tmp_path: Path) -> None:
    managed.start(until=2)
    managed.stop()
    tries: list[Any] = []
    into = str(tmp_path / "into")

    def work() -> None:
        hook = hook_of(managed)
        taken = hook.savepoints.take("flights", name="nightly")
        beside = hook.recovery.restore("flights", into=into)
        placed = hook.recovery.restore("flights", savepoint=taken.savepoint, sink="accept")
        fails_after_its_first_try(tries, (taken.savepoint, beside.already_restored, placed.already_restored))

    assert task_states(run_task(work)) == {"work": "success"}
    (savepoint, *first), (again, *second) = tries
    assert savepoint == again and open_store(into).exists("metadata")
    assert (first, second) == ([(), ()], [("main",), ("main",)])
    assert managed.generation.number == 2


@pytest.mark.storm
def test_a_task_that_restores_twice_means_both(managed: Managed) -> None:
    managed.start(until=2)
    managed.stop()

    def work() -> None:
        hook = hook_of(managed)
        taken = hook.savepoints.take("flights").savepoint
        for _ in range(2):
            assert hook.recovery.restore("flights", savepoint=taken, sink="accept").already_restored == ()

    assert task_states(run_task(work, retries=0)) == {"work": "success"}
    assert managed.generation.number == 3


def test_another_try_restarts_nothing_again_and_two_restarts_are_two(managed: Managed) -> None:
    managed.start(until=1)
    tries: list[Any] = []

    def work() -> None:
        hook = hook_of(managed)
        hook.jobs.restart("flights")
        hook.jobs.restart("flights")
        fails_after_its_first_try(tries, epoch(managed))

    before = epoch(managed)
    assert task_states(run_task(work)) == {"work": "success"}
    assert tries == [before + 2, before + 2]


def test_another_try_stops_again_what_it_has_started_itself(managed: Managed) -> None:
    managed.start(until=1)
    tries: list[Any] = []

    def work() -> None:
        hook = hook_of(managed)
        stopped = hook.jobs.stop("flights", savepoint=True)
        hook.jobs.start("flights")
        fails_after_its_first_try(tries, stopped.state)

    assert task_states(run_task(work)) == {"work": "success"}
    assert tries == ["stopped", "stopped"] and managed.driver_lives()


@pytest.mark.storm
def test_another_try_does_not_stop_what_somebody_else_has_started(managed: Managed) -> None:
    managed.start(until=1)
    tries: list[Any] = []

    def work() -> None:
        hook_of(managed).jobs.stop("flights")
        managed.start()  # a person
        fails_after_its_first_try(tries, None)

    assert task_states(run_task(work)) == {"work": "failed"}
    assert len(tries) == 1 and managed.driver_lives()


def test_a_stop_that_nothing_here_could_finish_is_not_asked_for(managed: Managed) -> None:
    managed.start(until=1)
    declared = managed.jobs_file.read_text(encoding="utf-8")
    managed.declare('\n[jobs.flights.launch]\non = "not-installed"\n')

    by_hook = run_task(lambda: hook_of(managed).jobs.stop("flights").state, retries=0)
    by_operator = run_dag(one_task(StopStreamingJobOperator, managed, retries=0))

    assert (task_states(by_hook), task_states(by_operator)) == ({"work": "failed"}, {"task": "failed"})
    assert managed.desired.state == "running" and managed.driver_lives()
    managed.jobs_file.write_text(declared, encoding="utf-8")  # so that its driver can be ended


def test_options_are_read_by_their_types_before_anything_begins(managed: Managed) -> None:
    managed.start(until=1)
    hook: Any = hook_of(managed)
    for wrong in ({"closure": "saef"}, {"batch": "many"}, {"pin": "perhaps"}):
        with pytest.raises(InputError) as caught:
            hook.savepoints.take("flights", **wrong)
        assert caught.value.code in ("bad-choice", "bad-option")
    with pytest.raises(InputError) as caught:
        hook.jobs.stop("flights", force_after_s="5 minutes or so")
    assert caught.value.code == "bad-duration" and managed.driver_lives()
    assert hook.jobs.stop("flights", force_after_s="20s").how == "boundary"


def test_what_is_no_option_is_read_by_its_type_too(managed: Managed) -> None:
    hook: Any = hook_of(managed)
    for wrong in ({"timeout_s": "a while"}, {"wait": "perhaps"}, {"obey_desired": 3}):
        with pytest.raises(InputError) as caught:
            hook.jobs.start("flights", **wrong)
        assert caught.value.code in ("bad-option", "bad-duration") and not managed.control.lease.view()

    def launched() -> tuple[str, ...]:
        view = managed.control.lease.view()
        assert view is not None and view.launch_id is not None
        return read_launch(managed.control, view.launch_id).args

    hook.jobs.start("flights", application_args=["--period-s", 0.2], timeout_s="60s")
    assert launched() == ("--period-s", "0.2")
    hook.jobs.restart("flights", application_args="--period-s=0.3")
    assert launched() == ("--period-s=0.3",)


def test_a_savepoint_that_is_listed_is_shown_and_the_newest_good_one_is_found(managed: Managed) -> None:
    managed.start(until=1)
    hook = hook_of(managed)
    first = hook.savepoints.take("flights")
    managed.wait_for_batch(first.batch + 1)
    second = hook.savepoints.take("flights")
    assert [one.savepoint for one in hook.savepoints.list("flights")] == [first.savepoint, second.savepoint]
    assert hook.savepoints.show("flights", f"batch:{first.batch}").savepoint == first.savepoint
    assert hook.savepoints.latest("flights") == hook.savepoints.latest_good("flights") == second.savepoint
    manifest = hook.savepoints.show("flights")
    (damaged,) = [one for one in managed.folder.glob(f"repository/savepoints/**/{manifest.savepoint}.json")]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert hook.savepoints.latest_good("flights") == first.savepoint
    assert hook.jobs.status("flights").state == "running"
    assert [one.kind for one in hook.jobs.history("flights", last=1)] == ["savepoint-taken"]
