"""`<job>.compact`, `.rescale`, `.transform`, `.bootstrap`: they exchange the state of a job, or leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from streambank.control.watch import Watches
from streambank.core.errors import RefusedError, StorageError
from streambank.core.units import utc_now
from streambank.drills.report import UNPROVEN, DrillReport, QueryDrill
from streambank.drills.request import DrillRequest
from streambank.driver.launchers.local import LocalLauncher
from streambank.job.alive import DAGS
from streambank.job.savepoint import savepoint_job
from streambank.recovery import foresee
from streambank.repository.catalog import heads
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_airflow.dags.forms import rewrite
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.markdown import cell
from streambank_airflow.operators.hand_over import CheckRunDagOperator
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.rewrite import NOTHING_KEY, BootstrapStateOperator, CompactStateOperator
from streambank_spark.submit.executor import SparkExecutor
from tests.streambank_airflow.dags.test_failover import STANDBY_TABLE
from tests.support.airflow_face.metadata_db import (
    Question,
    answer_question,
    pause,
    run_dag,
    task_states,
    write_dags,
    xcom,
)
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.managed_job import BY, Managed, hand_over
from tests.support.repository.derived_savepoint import derive
from tests.support.waiting import poll

WAY_BACK = ("go_back", "start_again", "keep_running_again", "watched_again")
WHERE = "value.count < 3"
OLD = {"where": True, "dry_run": False}


class Rewriting:
    """Stands where Spark does: makes a savepoint with a byte of its state changed, or what a test says.

    What it was asked to make is in `asked`; a look beforehand is not.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Mapping[str, Any], SparkExecutor]] = []
        self.fails: Exception | None = None
        self.finds_nothing = False
        self.table_changes = False
        self.shows_nothing = False
        patch.setattr("streambank_spark.submit.state_change.submit_rewrite", self)

    def __call__(self, plan: Mapping[str, Any], spark: SparkExecutor) -> dict[str, Any]:
        order, job = plan["order"], plan["job"]
        shows = order.get("dry_run", False)
        made = None
        repository = Repository.open(open_store(plan["repository"]))
        if self.table_changes and order.get("table_digest"):
            raise RefusedError("The table gives other rows now.", code="approval-outdated", hint="")
        if not shows:
            self.asked.append((plan, spark))
            if self.fails is not None:
                raise self.fails
            if not self.finds_nothing:
                made = derive(repository, job, plan["savepoint"])
        report = {
            "of": f"{job}/{plan['savepoint']}",
            "batch": repository.load(job, plan["savepoint"]).batch,
            "operation": order["operation"],
            "dry_run": shows,
            "savepoint": made,
            "stores": [],
        }
        key, of = {"key": {"k": "a|b"}}, {"operator": 0, "part": "default"}
        if order["operation"] == "bootstrap":
            row = {**key, "value": {"count": 5}}
            counts = {"rows": 4, "table_rows": 5, "table_digest": "5:1234567890", "existing_rows": 9}
            return {**report, **of, **counts, "samples": [row]}
        keys = 0 if (self.shows_nothing if shows else self.finds_nothing) else 2
        gone = {"operator": 0, "name": "stateStoreSave", "keys": keys, "rows": keys, "rows_before": 9}
        document = {**report, "operators": [{**gone, "about_bytes": 10, "meaning": "They start from zero."}]}
        if order["operation"] == "transform":
            change = {**key, "before": {"count": 1}, "after": {"count": 100}}
            document["changes"] = [{**of, "rows": 3, "samples": [change]}] if keys else []
        return document


@pytest.fixture
def rewriting(monkeypatch: pytest.MonkeyPatch) -> Rewriting:
    return Rewriting(monkeypatch)


@pytest.fixture(autouse=True)
def handed_over(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs of `<job>.run` that have taken over: what is triggered does so at once."""
    return hand_over(lambda: managed.control, monkeypatch)


def dag(managed: Managed, verb: str = "compact", *, paused: bool = False) -> DAG:
    """One of the job's DAGs, without retries; `<job>.run`, to which it hands over, is known to Airflow.

    A job that declares nothing of its state says which keys go.
    """
    if "[jobs.flights.compact]" not in managed.jobs_file.read_text(encoding="utf-8"):
        managed.declare(f'\n[jobs.flights.compact]\nwhere = "{WHERE}"\n')
    dags = build_dags(managed.jobs_file)
    write_dags(dags["flights.run"])
    pause("flights.run", paused)
    for task in dags[f"flights.{verb}"].tasks:
        task.retries = 0
    return dags[f"flights.{verb}"]


def exchange(managed: Managed, form: Mapping[str, Any], wanted: DAG | None = None) -> Any:
    """Run one of the DAGs of a job that has a savepoint, and approve what it shows."""
    savepoint_job(managed.job, by=BY)
    return run_dag(wanted or dag(managed), run_conf=form, mark_success_pattern="approve")


def generation(managed: Managed) -> tuple[int, int | None]:
    found = managed.control.generation()
    assert found is not None
    return found.number, found.again


@pytest.mark.storm
def test_expired_keys_go_and_the_job_goes_on(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    managed.wait_for_batch(2)

    run = exchange(managed, {**OLD, "note": "too many"})

    states = task_states(run)
    assert {states.pop(task) for task in WAY_BACK} == {"skipped"}
    assert set(states.values()) == {"success"}
    done = xcom(run, "rewrite")
    assert (done["operation"], done["generation"], done["keys"], done["rows_before"]) == ("compact", 1, 2, 9)
    assert done["savepoint"] == xcom(run, "restore")["savepoint"] != xcom(run, "stop")["savepoint"]
    assert generation(managed) == (2, None)
    managed.wait_for_batch(done["batch"] + 1)
    ((plan, spark),) = rewriting.asked
    assert plan["order"]["where"] == WHERE and plan["order"]["note"] == "too many"
    assert plan["work"] == f"{managed.job.checkpoint}.work" and spark.master == managed.job.master
    assert plan["by"]["task_id"] == "rewrite"


@pytest.mark.storm
def test_partitions_are_what_the_form_says(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    monkeypatch.setattr(foresee, "_check_rescale", lambda *_: None)  # its state is not RocksDB
    run = exchange(managed, {"partitions": 7}, dag(managed, "rescale"))
    assert task_states(run)["keep_running"] == "success"
    assert rewriting.asked[0][0]["order"]["partitions"] == 7
    assert generation(managed) == (2, None)


def test_where_nothing_goes_the_job_goes_on(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    rewriting.finds_nothing = True
    run = exchange(managed, OLD)
    states = task_states(run)
    assert (states["restore"], states["start"], states["keep_running"]) == ("skipped", "success", "success")
    assert generation(managed) == (1, None)
    assert managed.driver_lives()


@pytest.mark.parametrize("start", [pytest.param(True, marks=pytest.mark.storm), False])
def test_a_job_is_not_touched_where_it_could_not_be_handed_over(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
    start: bool,
) -> None:
    """A run of a paused DAG waits in the queue for ever, while the task that triggered it is green."""
    managed.start()
    run = exchange(managed, {**OLD, "start": start}, dag(managed, paused=True))

    states, out = task_states(run), capfd.readouterr().out
    if start:
        assert (states["check_run"], states["stop"], states["go_back"]) == (
            "failed", "upstream_failed", "skipped",
        )  # fmt: skip
        assert managed.driver_lives() and not rewriting.asked
        assert "flights.run is paused" in out and "Hint: unpause flights.run" in out
    else:
        assert (states["check_run"], states["restore"], states["start"]) == ("success", "success", "skipped")


def test_a_scheduled_run_asks_nothing_of_a_job_that_is_left_stopped(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.watch.paused.is_paused", lambda context, dag_id: True)
    monkeypatch.setattr("streambank_airflow.operators.hand_over.by_schedule", lambda context: True)
    check = CheckRunDagOperator(
        task_id="check_run", job="flights", run_dag_id="flights.run", jobs_file=str(managed.jobs_file)
    )
    context: Any = {"dag_run": SimpleNamespace(run_id="scheduled__1")}

    managed.control.set_desired("running", by={"user": "ann"})
    with pytest.raises(AirflowFailException, match=r"flights\.run is paused"):
        check.execute(context)
    managed.control.set_desired("stopped", by={"user": "ann"})
    assert check.execute(context)["paused"] is None


@pytest.mark.storm
def test_it_is_red_where_nobody_takes_over(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    monkeypatch.setattr(Watches, "begin", lambda self, **how: 0)
    rewriting.finds_nothing = True
    compact = dag(managed)
    compact.get_task("watched").timeout_s = 0.1  # type: ignore[union-attr]  # it is one of ours

    run = exchange(managed, OLD, compact)

    states = task_states(run)
    assert (run.state, states["keep_running"], states["watched"]) == ("failed", "success", "failed")
    assert states["go_back"] == "skipped" and managed.driver_lives()


def test_a_look_stops_nothing(airflow_database: None, managed: Managed, rewriting: Rewriting) -> None:
    managed.start()
    run_dag(build_dags(managed.jobs_file)["flights.savepoint"])
    epoch = managed.control.lease.view()
    run = run_dag(dag(managed), run_conf={**OLD, "dry_run": True})
    states = task_states(run)
    assert states.pop("preview") == states.pop("check_run") == "success"
    assert set(states.values()) == {"skipped"}
    assert xcom(run, "preview")["savepoint"] is None
    now = managed.control.lease.view()
    assert epoch is not None and now is not None and now.epoch == epoch.epoch


@pytest.mark.storm
def test_the_job_stays_as_it_was_where_it_cannot_be_done(
    airflow_database: None, managed: Managed, rewriting: Rewriting, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    managed.wait_for_batch(1)
    rewriting.fails = RefusedError("It holds too much.", code="hdfs-backed", hint="Move it.")

    run = exchange(managed, OLD)

    assert run.state == "failed"
    states = task_states(run)
    assert (states["stop"], states["rewrite"], states["restore"]) == ("success", "failed", "upstream_failed")
    assert {states[task] for task in WAY_BACK} == {"success"}
    assert xcom(run, "go_back")["state"] == "not-left"
    assert generation(managed) == (1, None)
    assert managed.driver_lives()
    assert "It holds too much. [hdfs-backed]\nHint: Move it." in capfd.readouterr().out


@pytest.mark.storm
def test_the_job_goes_back_where_it_does_not_start(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    managed.wait_for_batch(1)
    submit = LocalLauncher.submit
    refused = []

    def breaking(self: LocalLauncher, job: Any, control: Any, spec: Any) -> Any:
        if spec.queries["main"].generation == 2:
            refused.append(spec)
            raise StorageError("It does not start.", code="driver-died")
        return submit(self, job, control, spec)

    monkeypatch.setattr(LocalLauncher, "submit", breaking)
    run = exchange(managed, OLD)

    assert refused, "the fault fired"
    states = task_states(run)
    assert (run.state, states["restore"], states["start"]) == ("failed", "success", "failed")
    assert {states[task] for task in WAY_BACK} == {"success"}
    assert (xcom(run, "go_back")["state"], generation(managed)) == ("reinstated", (3, 1))
    managed.wait_for_batch(managed.last_batch() + 1)


@pytest.mark.storm
def test_the_job_runs_on_where_going_back_could_repeat_rows(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first driver with the new state dies within a batch: what its sink got of it nobody can say."""
    managed.start()
    managed.wait_for_batch(1)
    submit = LocalLauncher.submit
    begun: list[int] = []

    def dying(self: LocalLauncher, job: Any, control: Any, spec: Any) -> Any:
        if spec.queries["main"].generation == 2 and not begun:
            batch, log = managed.last_batch(), managed.checkpoint / "offsets"
            (log / str(batch + 1)).write_bytes((log / str(batch)).read_bytes())
            begun.append(batch + 1)
            raise StorageError("It died.", code="driver-died")
        return submit(self, job, control, spec)

    monkeypatch.setattr(LocalLauncher, "submit", dying)
    run = exchange(managed, OLD)

    assert begun, "the fault fired"
    states = task_states(run)
    assert (run.state, states["start"]) == ("failed", "failed")
    assert {states[task] for task in WAY_BACK} == {"success"}, "whoever stays is watched, too"
    assert (xcom(run, "go_back")["state"], xcom(run, "go_back")["code"]) == ("stays", "batch-begun")
    assert generation(managed) == (2, None)
    managed.wait_for_batch(begun[0])


@pytest.mark.storm
def test_a_job_whose_start_failed_after_a_batch_stays_and_is_watched(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its new state works, but the start cannot tell: going back would repeat what is committed."""
    managed.start()
    managed.wait_for_batch(1)
    submit = LocalLauncher.submit
    failed: list[int] = []

    def losing_sight(self: LocalLauncher, job: Any, control: Any, spec: Any) -> Any:
        handle = submit(self, job, control, spec)
        if spec.queries["main"].generation == 2 and not failed:
            failed.append(managed.last_batch() + 1)
            managed.wait_for_batch(failed[0])
            raise StorageError("Nobody knows where it is.", code="driver-died")
        return handle

    monkeypatch.setattr(LocalLauncher, "submit", losing_sight)
    run = exchange(managed, OLD)

    assert failed, "the fault fired"
    states = task_states(run)
    assert (run.state, states["restore"], states["start"]) == ("failed", "success", "failed")
    assert {states[task] for task in WAY_BACK} == {"success"}
    assert (xcom(run, "go_back")["state"], xcom(run, "go_back")["code"]) == ("stays", "query-went-on")
    assert generation(managed) == (2, None) and managed.driver_lives()
    assert xcom(run, "start_again")["state"] == "already-running"
    assert "The job stays where it is, and does not go back to generation 1" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("verb", "form"),
    [("compact", {"dry_run": False, "where": False}), ("compact", {**OLD, "idle_for": "3d"})],
)
def test_a_mistake_in_the_form_stops_nothing_and_starts_nothing(
    airflow_database: None, managed: Managed, rewriting: Rewriting, verb: str, form: dict[str, Any]
) -> None:
    managed.start()
    managed.stop("for the night")
    run = run_dag(dag(managed, verb), run_conf=form)
    states = task_states(run)
    assert (run.state, states["preview"], states["stop"]) == ("failed", "failed", "upstream_failed")
    assert states["go_back"] == "skipped"
    assert not managed.driver_lives() and not rewriting.asked


def test_what_is_declared_is_what_the_form_begins_with(managed: Managed) -> None:
    managed.declare('\n[jobs.flights.compact]\nschedule = "@weekly"\nidle_for = "30d"\nmax_rows = 1000\n')
    compact = dag(managed)
    assert str(compact.schedule) == "@weekly"
    assert (compact.params["idle_for"], compact.params["max_rows"]) == ("30d", 1000)
    compact.params.validate()


def test_a_schedule_leaves_alone_what_somebody_has_stopped(managed: Managed) -> None:
    hook = StreambankHook(jobs_file=str(managed.jobs_file))
    for kind, wanted in {"scheduled": True, "manual": False}.items():
        stop = dag(managed).get_task("stop")
        assert isinstance(stop, StopStreamingJobOperator)
        context: Any = {
            "params": {"dry_run": False, "note": None},
            "dag_run": SimpleNamespace(run_type=kind),
            "ti": SimpleNamespace(xcom_pull=lambda **_: None),
        }
        stop.render_template_fields(context, stop.get_template_env())
        assert stop.skip_if_stopped is wanted

    assert hook.jobs.is_left_stopped("flights", "run-1"), "it was never started"
    managed.start()
    assert not hook.jobs.is_left_stopped("flights", "run-1")
    managed.control.set_desired("stopped", by={"run_id": "run-1"})
    assert not hook.jobs.is_left_stopped("flights", "run-1"), "another try of the run that stopped it"
    assert hook.jobs.is_left_stopped("flights", "run-2")


@pytest.mark.parametrize(
    ("verb", "form", "code"),
    [
        ("rescale", {"partitions": 7}, "hdfs-backed"),
        pytest.param(
            "compact",
            {"where": False, "idle_for": "30d", "dry_run": False},
            "no-such-savepoint",
            marks=pytest.mark.storm,
        ),
        pytest.param("compact", {**OLD, "operator": 5}, "which-operator", marks=pytest.mark.storm),
    ],
)
def test_what_cannot_be_done_stops_no_job_that_runs(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
    verb: str,
    form: dict[str, Any],
    code: str,
) -> None:
    managed.start()
    run = run_dag(dag(managed, verb), run_conf=form)
    states = task_states(run)
    assert (run.state, states["preview"], states["stop"]) == ("failed", "failed", "upstream_failed")
    assert states["go_back"] == "skipped"
    assert managed.driver_lives() and len(managed.control.lease.recent_launches()) == 1
    assert f"[{code}]" in capfd.readouterr().out and not rewriting.asked


def test_a_schedule_for_which_it_is_too_early_leaves_the_job_alone(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In the first 30 days no savepoint is 30 days old."""
    managed.declare('\n[jobs.flights.compact]\nschedule = "@weekly"\nidle_for = "30d"\n')
    managed.start()
    monkeypatch.setattr("streambank_airflow.operators.rewrite.base.by_schedule", lambda context: True)

    run = run_dag(dag(managed))

    states = task_states(run)
    assert (run.state, states.pop("check_run"), set(states.values())) == ("success", "success", {"skipped"})
    assert managed.driver_lives() and len(managed.control.lease.recent_launches()) == 1
    assert not rewriting.asked
    assert xcom(run, "preview", NOTHING_KEY).startswith("No savepoint of flights is from ")
    assert "The job is left alone: No savepoint of flights is from " in capfd.readouterr().out


APPROVES = "Remove 2 keys (2 of 9 rows) from the state of flights? It runs, and will be stopped."


@contextmanager
def answering(
    option: str, before: Callable[[], None] = lambda: None, verb: str = "compact"
) -> Iterator[Future[Question]]:
    """Answer the approval of the run in the block; what was shown is in the result."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(answer_question, f"flights.{verb}", "approve", option, before=before)


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_a_person_sees_what_goes_before_anything_is_stopped(
    airflow_database: None, managed: Managed, rewriting: Rewriting, option: str
) -> None:
    managed.declare('\n[jobs.flights.restore]\napprovers = ["ann"]\n')
    managed.start()
    savepoint_job(managed.job, by=BY)
    lived: list[bool] = []

    def look() -> None:
        lived.append(managed.driver_lives() and not rewriting.asked)

    with answering(option, before=look) as shown:
        run = run_dag(dag(managed), run_conf=OLD)

    question, states = shown.result(), task_states(run)
    assert (question.subject, question.options) == (APPROVES, ["Approve", "Reject"])
    assert question.assignees == [{"id": "ann", "name": "ann"}]
    assert "| Remove keys where | value.count &lt; 3 |" in question.body
    assert "| Operator 0, stateStoreSave | 2 keys with 2 of 9 rows, about 10 B. They start from zero. |" in (
        question.body
    )
    assert lived == [True]
    if option == "Approve":
        assert (states["stop"], states["restore"], generation(managed)) == ("success", "success", (2, None))
    else:
        assert (run.state, states["preview"], states["approve"]) == ("success", "success", "success")
        assert {states[task] for task in ("stop", "rewrite", "restore", "start", *WAY_BACK)} == {"skipped"}
        assert managed.driver_lives() and not rewriting.asked


def test_where_nothing_would_go_nobody_is_asked_and_nothing_is_stopped(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    savepoint_job(managed.job, by=BY)
    rewriting.shows_nothing = True

    run = run_dag(dag(managed), run_conf=OLD)

    states = task_states(run)
    assert (states.pop("preview"), states.pop("check_run")) == ("success", "success")
    assert set(states.values()) == {"skipped"}
    assert xcom(run, "preview", NOTHING_KEY).endswith(" nothing goes.")
    assert managed.driver_lives() and not rewriting.asked


@pytest.mark.parametrize("saved", [pytest.param(False, marks=pytest.mark.storm), True])
def test_what_would_go_is_counted_in_how_things_are_now(
    airflow_database: None, managed: Managed, rewriting: Rewriting, saved: bool
) -> None:
    """The newest savepoint may be of last week, when there was nothing to remove; or there is none yet."""
    managed.start()
    before = savepoint_job(managed.job, by=BY).savepoints["main"].batch if saved else -1
    managed.wait_for_batch(before + 2)

    run = run_dag(dag(managed), run_conf={**OLD, "dry_run": True, "note": "too many"})

    counted = xcom(run, "preview")
    assert (run.state, counted["batch"] >= before + 2) == ("success", True)
    assert counted["of"] == f"flights/{next(heads(managed.repository.store, 'flights')).savepoint}"
    assert managed.driver_lives() and not rewriting.asked


@pytest.mark.parametrize(
    ("declared", "kind", "asks"),
    [
        ("", "manual", True),
        ("", "scheduled", False),
        ("approve = true", "scheduled", True),
        ("", "operator_triggered", True),
    ],
)
def test_a_schedule_that_is_declared_is_the_consent_unless_it_says_otherwise(
    managed: Managed, declared: str, kind: str, asks: bool
) -> None:
    managed.declare(f'\n[jobs.flights.compact]\nschedule = "@weekly"\nidle_for = "30d"\n{declared}\n')
    preview = dag(managed).get_task("preview")
    assert isinstance(preview, CompactStateOperator)
    answers = {**{name: None for name in rewrite.COMPACT_FIELDS}, "dry_run": False, "note": None}
    context: Any = {"params": answers, "dag_run": SimpleNamespace(run_type=kind)}
    preview.render_template_fields(context, preview.get_template_env())
    assert preview.only_if is asks


CHANGES = """
[jobs.flights.transform]
sets = ["value.count = value.count * 100"]
where = "key.k = 'a|b'"
delete_where = "value.count < 3"
samples = 1

[jobs.flights.bootstrap]
tables = ["totals"]
format = "csv"
sql = "SELECT k, count(*) AS count FROM source GROUP BY k"
values = ["count = n"]
"""
SET = "Set 3 rows and delete 2 keys in the state of flights? It runs, and will be stopped."
MADE = "Give the state of flights 4 rows from a table? It has 9 rows now. It runs, and will be stopped."


@pytest.mark.storm
@pytest.mark.parametrize(("verb", "asks"), [("transform", SET), ("bootstrap", MADE)], ids=["set", "made"])
def test_a_change_that_is_declared_is_made_once_a_person_has_read_it(
    airflow_database: None, managed: Managed, rewriting: Rewriting, verb: str, asks: str
) -> None:
    managed.declare(CHANGES)
    managed.start()
    savepoint_job(managed.job, by=BY)
    form = {"dry_run": False, "note": "of November", **({"existing": "keep"} if verb == "bootstrap" else {})}

    with answering("Approve", verb=verb) as shown:
        run = run_dag(dag(managed, verb), run_conf=form)

    question, states = shown.result(), task_states(run)
    assert (question.subject, question.options) == (asks, ["Approve", "Reject"])
    assert {states.pop(task) for task in WAY_BACK} == {"skipped"} and set(states.values()) == {"success"}
    ((plan, _),) = rewriting.asked
    order, done = plan["order"], xcom(run, "rewrite")
    assert (order["samples"], order["note"], order.get("from_form")) == (
        1 if verb == "transform" else 0, "of November", None,
    )  # fmt: skip
    assert done["savepoint"] == xcom(run, "restore")["savepoint"] != xcom(run, "stop")["savepoint"]
    assert (done["rehearsed"], done["rehearsal"], generation(managed)) == (False, None, (2, None))
    body = question.body
    if verb == "transform":
        assert order["sets"] == ["value.count = value.count * 100"] and order["where"] == "key.k = 'a|b'"
        assert "| Set | value.count = value.count \\* 100 |" in body
        assert "| Only rows where | key.k = 'a\\|b' |" in body
        assert "| Delete keys where | value.count &lt; 3 |" in body
        assert (
            "| Operator 0, default | 3 rows set |" in body and '{"count": 1} becomes {"count": 100}' in body
        )
        assert (done["keys"], done["rows"], done["rows_before"], done["changed"]) == (2, 2, 9, 3)
    else:
        assert order["query"] == "SELECT k, count(*) AS count FROM source GROUP BY k"
        assert (order["format"], order["values"], order["existing"]) == ("csv", ["count = n"], "keep")
        assert order["table"] == f"file://{managed.jobs_file.parent}/totals" and cell(order["table"]) in body
        assert "| Rows that are there | 9 rows. They stay, also where the table has" in body
        assert (done["rows"], done["table_rows"], done["existing_rows"]) == (4, 5, 9)
        assert order["table_digest"] == xcom(run, "preview")["table_digest"] == "5:1234567890"


@pytest.mark.storm
def test_a_table_that_has_changed_since_the_plan_stops_no_job(
    airflow_database: None, managed: Managed, rewriting: Rewriting, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.declare(CHANGES)
    managed.start()
    savepoint_job(managed.job, by=BY)
    rewriting.table_changes = True
    with answering("Approve", verb="bootstrap"):
        run = run_dag(dag(managed, "bootstrap"), run_conf={"dry_run": False, "existing": "keep"})
    states = task_states(run)
    assert (states["approve"], states["check_table"], states["stop"]) == (
        "success",
        "failed",
        "upstream_failed",
    )
    assert {states[task] for task in WAY_BACK} == {"skipped"} and not rewriting.asked
    assert "[approval-outdated]" in capfd.readouterr().out
    assert generation(managed) == (1, None)


def test_the_table_of_a_plan_is_read_again_before_the_job_is_stopped(managed: Managed) -> None:
    managed.declare(CHANGES)
    dags = build_dags(managed.jobs_file)
    assert "check_table" not in dags["flights.transform"].task_ids, "it reads no table"
    check, made = (dags["flights.bootstrap"].get_task(name) for name in ("check_table", "rewrite"))
    assert isinstance(check, BootstrapStateOperator) and isinstance(made, BootstrapStateOperator)
    assert (check.upstream_task_ids, check.downstream_task_ids) == ({"approve"}, {"stop"})
    assert check.plan_only and check.planned_table == made.planned_table and check.planned == made.planned


def rehearsal_of(request: DrillRequest, failed_step: Any = None) -> DrillReport:
    """What a rehearsal of what was asked came to; one that fails does so at this step."""
    (savepoint,) = request.savepoints.values()
    error = "No batch was committed within 30 minutes." if failed_step else ""
    query = QueryDrill("main", savepoint, 3, utc_now(), 1.0, not_compared=(f"{UNPROVEN}: nothing to read",))
    return DrillReport(
        request.job.name, str(request.repository), (query,), {}, None, failed_step,
        "drill-timeout" if failed_step else None, error, "", "file:///scratch", False, utc_now(), 1.0,
        request.by, request.why,
    )  # fmt: skip


@pytest.mark.storm
@pytest.mark.parametrize("fails", [True, False])
def test_what_fails_in_a_rehearsal_is_not_restored_and_the_job_goes_on_as_it_was(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fails: bool,
) -> None:
    managed.declare(CHANGES)
    managed.start()
    managed.wait_for_batch(1)
    asked: list[DrillRequest] = []

    def rehearse(request: DrillRequest, **how: Any) -> DrillReport:
        asked.append(request)
        assert not managed.driver_lives()
        return rehearsal_of(request, "batches" if fails else None)

    monkeypatch.setattr("streambank.drills.of_savepoint.rehearse", rehearse)
    run = exchange(managed, {"dry_run": False, "rehearse": True}, dag(managed, "transform"))

    (request,), states = asked, task_states(run)
    assert (request.compare, request.by["task_id"]) == ("none", "rewrite")
    (made,) = request.savepoints.values()
    assert managed.repository.load("flights", made).derived_from == xcom(run, "stop")["savepoint"]
    assert managed.driver_lives()
    assert "| Rehearsal | The job's own application runs on a copy" in xcom(run, "preview", "plan_markdown")
    if fails:
        assert (states["rewrite"], states["restore"]) == ("failed", "upstream_failed")
        assert {states[task] for task in WAY_BACK} == {"success"} and generation(managed) == (1, None)
        said = capfd.readouterr().out
        assert (
            "The rehearsal FAILED at the step batches: No batch was committed within 30 minutes. Do not "
            in said
        )
        assert f"restore {made} before that is understood. flights/" in said and "[drill-timeout]" in said
        assert xcom(run, "rewrite") is None and "drill" in xcom(run, "rewrite", "report_markdown").lower()
    else:
        assert {states[task] for task in WAY_BACK} == {"skipped"} and generation(managed) == (2, None)
        done = xcom(run, "rewrite")
        assert done["rehearsed"] is True
        assert done["rehearsal"].startswith("The job's application ran on it (query main: 0 batches of")
        assert "Not proven: of query main no batch was processed" in done["rehearsal"]


def test_a_job_that_cannot_be_rehearsed_is_not_stopped_for_a_rehearsal(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
) -> None:
    managed.declare(CHANGES)
    managed.start()
    poll(lambda: managed.control.query_facts() is not None)
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "output": {"kind": "foreachBatch"}})
    form = {"dry_run": False, "rehearse": True}
    run = run_dag(dag(managed, "transform"), run_conf=form, mark_success_pattern="approve")
    states = task_states(run)
    assert (states["preview"], states["stop"]) == ("failed", "upstream_failed")
    assert "[rehearsal-not-run]" in capfd.readouterr().out
    assert managed.driver_lives() and not rewriting.asked


@pytest.mark.parametrize(
    ("verb", "form", "code"),
    [
        ("transform", {"sets": ["value.count = 0"]}, "expression-not-declared"),
        ("transform", {"operator": 3}, "expression-not-declared"),
        ("bootstrap", {"table": "/etc"}, "place-not-allowed"),
        ("bootstrap", {"sql": "SELECT 1"}, "expression-not-declared"),
        ("bootstrap", {"keys": ["k = 1"]}, "expression-not-declared"),
    ],
)
def test_a_form_makes_no_change_that_is_not_declared(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
    verb: str,
    form: dict[str, Any],
    code: str,
) -> None:
    """A trigger by REST may name fields that the form does not have."""
    managed.declare(CHANGES)
    run = run_dag(dag(managed, verb), run_conf={"dry_run": False, **form})
    assert (run.state, task_states(run)["preview"]) == ("failed", "failed")
    assert f"[{code}]" in capfd.readouterr().out and not rewriting.asked


def test_each_dag_that_hands_the_job_over_is_expected_to_have_it_watched(managed: Managed) -> None:
    managed.declare(CHANGES + STANDBY_TABLE)
    hand_over = {
        dag_id.removeprefix("flights.")
        for dag_id, built in build_dags(managed.jobs_file).items()
        if any(getattr(task, "trigger_dag_id", None) == "flights.run" for task in built.tasks)
    }
    assert "failover" in hand_over and hand_over <= set(DAGS)


def test_only_a_job_that_declares_changes_has_forms_for_them(managed: Managed) -> None:
    verbs = {"flights.transform", "flights.bootstrap"}
    assert not verbs & set(build_dags(managed.jobs_file))
    managed.declare(CHANGES)
    dags = build_dags(managed.jobs_file)
    assert verbs <= set(dags)
    for verb in verbs:
        dags[verb].params.validate()
        assert DagSerialization.from_dict(DagSerialization.to_dict(dags[verb])).dag_id == verb
        assert dags[verb].params["dry_run"] is True
