"""Restores as a person approves them: to a new output, and where the sink is ahead or the job lives."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TriggerRule
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from streambank.control.records import RecordStream
from streambank.control.watch import Watches
from streambank.job.history import job_history
from streambank.job.savepoint import savepoint_job
from streambank.job.status import job_status
from streambank.overview.recoveries import recoveries_part
from streambank.storage import open_store
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.markdown import cell
from streambank_airflow.operators.approve import PLAN_KEY
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from tests.support.airflow_face.metadata_db import (
    Question,
    answer_question,
    pause,
    run_dag,
    task_states,
    write_dags,
    xcom,
)
from tests.support.airflow_face.notifiers import told
from tests.support.airflow_face.releases import needs_3_2
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.jobs.managed_job import BY, Managed
from tests.support.storage.contents import contents
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def out(managed: Managed) -> Path:
    """The output of the job, stopped and saved; it has one batch more than the savepoint."""
    managed.start(until=2)
    poll(lambda: managed.control.query_facts() is not None)
    managed.stop()
    folder = managed.folder / "out"
    sink = FileSinkWriter(open_store(folder))
    for batch in range(managed.last_batch() + 1):
        sink.write(batch, [{"batch": batch}])
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "sink": f"FileSink[file:{folder}]"})
    savepoint_job(managed.job, by=BY)
    sink.write(managed.last_batch() + 1, [{"batch": "later"}])
    return folder


def test_a_dag_of_ones_own_reads_what_it_can_give_its_operators(
    managed: Managed, out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan alone offers no choice, and a refusal names the argument that loses nothing first."""
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file)}
    with DAG("own-restore", schedule=None) as dag:
        RestoreSavepointOperator(task_id="plan", plan_only=True, sink="rollback", **where)
        RestoreSavepointOperator(task_id="restore", **where)

    run = run_dag(dag)

    assert task_states(run) == {"plan": "success", "restore": "failed"}
    shown = xcom(run, "plan", PLAN_KEY)
    assert "Choose" not in shown and "Reject" not in shown
    (do,) = [one for one in caplog.messages if one.startswith("What to do: ")]
    assert do.startswith('What to do: `sink="rollback"` ')
    assert "Output written after the savepoint" not in do


def test_a_person_approves_a_new_output_and_the_job_goes_on_there(managed: Managed, out: Path) -> None:
    new, before = managed.folder / "new", contents(open_store(out))
    unreadable = managed.folder / "repository/savepoints/flights/b999999-0123456789ab.json"
    unreadable.write_text("{")

    run = run_dag(
        build_dags(managed.jobs_file)["flights.restore"],
        run_conf={"new_sinks": [f"{out}={new}"]},
        mark_success_pattern="check_run|approve|stop|start|keep_running|watched",
    )

    states = task_states(run)
    assert (states["plan"], states["restore"]) == ("success", "success")
    shown = xcom(run, "plan", PLAN_KEY)
    assert f"| Writes to | {cell(f'{new.as_uri()} instead of {out.as_uri()}')} |" in shown
    assert "must write to" in shown
    generation = managed.generation
    assert (generation.number, generation.new_sinks) == (2, {out.as_uri(): new.as_uri()})
    batch = xcom(run, "restore")["batch"]
    assert sorted(open_store(new).names("_spark_metadata")) == [str(number) for number in range(batch + 1)]
    assert contents(open_store(out)) == before
    # What the plan has passed over stands in the report, though that is of a savepoint by its id.
    (skipped,) = xcom(run, "restore")["skipped"]
    assert skipped["savepoint"] == unreadable.stem and "manifest" in skipped["why"]
    assert xcom(run, "plan")["skipped"] == [skipped]
    (report,) = (one.data for one in RecordStream(managed.control.store, "restores").all())
    assert report["skipped"] == recoveries_part(managed.job, managed.control)["restores"][0]["skipped"]
    assert report["skipped"] == [skipped]
    (restored,) = (one for one in job_history(managed.job) if one.kind == "restored")
    assert restored.facts is not None and restored.facts["skipped"].startswith(f"{unreadable.stem}: ")


ROLLBACK = "Restore and set later output aside"
ACCEPT = "Restore and leave later output"
AFTERWARDS = "start|keep_running"


def test_a_plan_that_nobody_is_asked_about_offers_nothing(managed: Managed, out: Path) -> None:
    with DAG("own", schedule=None) as dag:
        where: dict[str, Any] = {"job": "flights", "jobs_file": managed.jobs_file}
        RestoreSavepointOperator(task_id="plan", plan_only=True, sink="accept", **where)

    shown = xcom(run_dag(dag), "plan", PLAN_KEY)

    assert "Savepoint" in shown and "Choose" not in shown and "Reject" not in shown


@contextmanager
def answering(option: str, before: Callable[[], None] = lambda: None) -> Iterator[Future[Question]]:
    """Answer the approval of the run in the block; what was shown is in the result."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(answer_question, "flights.restore", "approve", option, before=before)


def restore(managed: Managed, **how: Any) -> Any:
    dag = build_dags(managed.jobs_file, default_args={"retries": 0})["flights.restore"]
    return run_dag(dag, **{"mark_success_pattern": f"stop|{AFTERWARDS}", **how})


def test_a_flipped_byte_of_a_named_savepoint_is_found_before_a_person_is_asked(
    managed: Managed, out: Path
) -> None:
    saved = savepoint_job(managed.job, by=BY).savepoints["main"].savepoint
    state = max((managed.checkpoint / "state" / "0").glob("*/[0-9]*.delta")).read_bytes()
    packs = [one for one in (managed.folder / "repository" / "packs").rglob("*") if one.is_file()]
    (pack,) = (one for one in packs if state in one.read_bytes())
    pack.write_bytes(pack.read_bytes().replace(state, state[:-1] + bytes([state[-1] ^ 1])))

    states = task_states(restore(managed, run_conf={"savepoint": saved}))

    assert (states["plan"], states["approve"]) == ("failed", "upstream_failed")


@pytest.mark.parametrize(
    ("option", "stays"), [(ROLLBACK, False), pytest.param(ACCEPT, True, marks=pytest.mark.storm)]
)
def test_where_the_sink_is_ahead_one_run_asks_what_becomes_of_later_output(
    managed: Managed, out: Path, option: str, stays: bool
) -> None:
    later = max(out.glob("part-*"), key=lambda one: one.name)

    with answering(option) as shown:
        run = restore(managed)

    question = shown.result()
    assert question.options == [ROLLBACK, ACCEPT, "Reject"]
    assert question.subject.startswith("Restore flights to batch ")
    assert question.subject.endswith(" old? 1 row was written since.")
    assert "Spark would skip what the query writes again, and lose rows of 1 file" in question.body
    assert f"- **{ROLLBACK}**: Files of later batches are set aside" in question.body
    assert (task_states(run)["plan"], task_states(run)["restore"]) == ("success", "success")
    assert later.exists() == stays
    assert managed.generation.number == 2


@pytest.mark.storm
def test_who_rejects_a_choice_changes_nothing(managed: Managed, out: Path) -> None:
    before = contents(open_store(out))

    with answering("Reject"):
        run = restore(managed)

    assert task_states(run)["restore"] == "skipped"
    assert contents(open_store(out)) == before


@pytest.mark.storm
def test_a_form_that_has_decided_asks_for_yes_or_no(managed: Managed, out: Path) -> None:
    with answering("Approve") as shown:
        run = restore(managed, run_conf={"sink": "rollback"})

    assert shown.result().options == ["Approve", "Reject"]
    assert shown.result().subject.endswith(" 1 row is set aside.")
    assert task_states(run)["restore"] == "success"


def test_a_job_that_lives_is_stopped_by_the_choice_that_says_so_and_not_before(
    managed: Managed, out: Path
) -> None:
    managed.start()
    managed.wait_for_batch(managed.last_batch() + 1)
    lived: list[bool] = []

    def look() -> None:
        lived.append(managed.driver_lives())

    with answering(f"Stop the job, r{ROLLBACK[1:]}", before=look) as shown:
        run = restore(managed, mark_success_pattern=AFTERWARDS)

    assert shown.result().options == [
        f"Stop the job, r{ROLLBACK[1:]}",
        f"Stop the job, r{ACCEPT[1:]}",
        "Reject",
    ]
    assert "It runs, and will be stopped." in shown.result().subject
    assert "It will be stopped first." in shown.result().body
    assert lived == [True]
    assert (task_states(run)["stop"], task_states(run)["restore"]) == ("success", "success")
    assert not managed.driver_lives()


@pytest.mark.parametrize(
    "chosen",
    [
        {"sink": "accept", "source": "accept", "stop": False, "resolves": ["source-would-lose-records"]},
        {"sink": "rollback-accept", "source": "refuse", "stop": True},  # no file was missing then
        # As a version before would have left it for an approval that is still waiting.
        {"sink": "accept", "source": "accept", "stop": True, "resolves": ["source-gone"], "missing": {}},
    ],
)
def test_a_choice_holds_only_for_what_was_shown(
    managed: Managed, out: Path, capfd: pytest.CaptureFixture[str], chosen: dict[str, Any]
) -> None:
    (out / "part-00000-a0000-c000.json").unlink()
    choice = {"label": "Restore", "missing": {out.as_uri(): 0}, **chosen}
    with DAG("approved_before") as dag:
        RestoreSavepointOperator(
            task_id="restore", job="flights", jobs_file=str(managed.jobs_file), approved=choice
        )

    run = run_dag(dag)

    assert task_states(run)["restore"] == "failed"
    assert "approval-outdated" in capfd.readouterr().out
    assert managed.generation.number == 1


@pytest.mark.parametrize("option", ["rollback", "accept"])
@pytest.mark.storm
def test_no_more_output_is_given_up_than_was_shown(
    managed: Managed, out: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    """The job was down when its plan was shown, is started meanwhile, writes, and is down again."""
    shown = managed.last_batch() + 1

    def goes_on() -> None:
        FileSinkWriter(open_store(out)).write(shown + 1, [{"batch": "unseen"}])

    with answering("Approve", before=goes_on):
        run = restore(managed, run_conf={"sink": option})

    assert task_states(run)["restore"] == "failed"
    said = capfd.readouterr().out
    assert f"Query flights has gone on to batch {shown + 1}, but the plan ended at batch {shown}." in said
    assert "[approval-outdated]" in said
    assert managed.generation.number == 1


@pytest.mark.storm
def test_a_restore_that_fails_after_its_stop_says_and_alerts_that_the_job_stands_still(
    managed: Managed, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = managed.declare_alerts("giving-up")
    managed.start()
    gone = managed.repository.store.child("savepoints")

    def lose() -> None:
        for path in Path(gone.uri.removeprefix("file:")).rglob("*"):
            if path.is_file():
                path.unlink()

    with answering(f"Stop the job, r{ROLLBACK[1:]}", before=lose):
        run = restore(managed, mark_success_pattern=AFTERWARDS)

    states = task_states(run)
    assert (states["stop"], states["restore"], states["start"]) == ("success", "failed", "upstream_failed")
    assert not managed.driver_lives()
    still = "Job flights is stopped and not restored: nothing starts it until a restore succeeds"
    assert still in capfd.readouterr().out
    (alert,) = told(file)
    assert alert.startswith("giving-up: flights.restore.restore: ")
    assert alert.count(still) == 1


@needs_3_2  # before, a task cannot ask whether a DAG is paused
def test_a_job_is_not_stopped_for_a_restore_that_could_not_hand_it_over(
    managed: Managed, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    write_dags(build_dags(managed.jobs_file)["flights.run"])
    pause("flights.run")

    run = restore(managed, run_conf={"stop_running": True, "sink": "rollback"}, mark_success_pattern=None)

    pause("flights.run", False)

    states = task_states(run)
    assert (states["check_run"], states["approve"], states["stop"], states["restore"]) == (
        "failed", "upstream_failed", "upstream_failed", "upstream_failed",
    )  # fmt: skip
    assert managed.driver_lives()
    said = capfd.readouterr().out
    assert "flights.run is paused" in said and "Hint: unpause flights.run" in said


@pytest.mark.storm
def test_a_restore_is_red_where_no_run_takes_the_job_over(
    managed: Managed, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dags = build_dags(managed.jobs_file, default_args={"retries": 0})
    write_dags(dags["flights.run"])
    pause("flights.run", False)
    dag = dags["flights.restore"]
    dag.get_task("watched").timeout_s = 0.1  # type: ignore[union-attr]  # it is one of ours
    monkeypatch.setattr(Watches, "begin", lambda self, **how: 0)

    run = run_dag(dag, run_conf={"sink": "rollback"}, mark_success_pattern="approve")

    states = task_states(run)
    assert (states["restore"], states["keep_running"], states["watched"]) == ("success", "success", "failed")


def test_of_a_sink_that_is_not_guarded_a_person_may_leave_later_output(managed: Managed) -> None:
    managed.start(until=2)
    poll(lambda: managed.control.query_facts() is not None)
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "sink": "ForeachBatchSink"})
    savepoint_job(managed.job, by=BY)
    managed.wait_for_batch(managed.last_batch() + 2)
    managed.stop()
    ahead = managed.last_batch()

    with answering(ACCEPT) as shown:
        run = restore(managed)

    question = shown.result()
    assert question.options == [ACCEPT, "Reject"]
    assert f"to {ahead} were sent to a sink that is not guarded." in question.subject
    assert "ForeachBatchSink" in question.body
    assert task_states(run)["restore"] == "success"
    generation = managed.generation
    assert (generation.number, generation.from_savepoint) == (2, xcom(run, "plan")["savepoint"])


def test_nothing_is_stopped_for_a_restore_that_will_not_run(
    managed: Managed, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # As after "clear only failed" of a run whose restore was skipped.
    managed.start()
    with DAG("cleared_in_part") as dag:
        followed = EmptyOperator(task_id="restore")
        stop = StopStreamingJobOperator(
            task_id="stop",
            job="flights",
            jobs_file=str(managed.jobs_file),
            only_before="restore",
            trigger_rule=TriggerRule.ALL_DONE,
        )
        followed >> stop

    run = run_dag(dag)

    assert task_states(run)["stop"] == "failed"
    assert "Hint: clear restore and what follows it too" in capfd.readouterr().out
    assert managed.driver_lives()


@pytest.mark.storm
def test_a_run_that_has_asked_before_does_not_ask_with_the_old_plan(
    managed: Managed, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with create_session() as session:
        of_other_runs = set(session.scalars(select(TaskInstance.id)))

    def ask_before() -> None:
        """What a cleared task leaves: Airflow keeps the first question of a run."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            # SQLite is locked now and then while the run goes on.
            with suppress(OperationalError), create_session() as session:
                task = session.scalar(
                    select(TaskInstance)
                    .where(TaskInstance.dag_id == "flights.restore", TaskInstance.task_id == "approve")
                    .where(TaskInstance.state.is_(None))
                    .where(TaskInstance.id.not_in(of_other_runs))
                )
                if task is not None:
                    session.add(
                        HITLDetail(
                            ti_id=task.id, options=["Approve", "Reject"], subject="Old?", body="An old plan."
                        )
                    )
                    session.commit()
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=ask_before)
    thread.start()
    run = restore(managed)
    thread.join()

    assert task_states(run)["approve"] == "failed"
    assert "Airflow would show the old plan" in capfd.readouterr().out


@pytest.mark.storm
def test_the_guides_proof_of_a_savepoint_runs_beside_the_job(managed: Managed) -> None:
    guide = (ROOT / "docs" / "howto" / "airflow.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*prove_flights.*?)```", guide, re.DOTALL)
    proofs = managed.folder / "proofs"
    for told_there, here in (
        ("/var/lib/streambank/proofs", str(proofs)),
        ("dags/streaming_jobs.toml", str(managed.jobs_file)),
    ):
        assert told_there in block
        block = block.replace(told_there, here)
    managed.start(until=1)
    savepoint_job(managed.job, by=BY)
    before, names = job_status(managed.job), dict[str, Any]()
    exec(block, names)

    run = run_dag(names["dag"])

    assert set(task_states(run).values()) == {"success"}
    restored = xcom(run, "restore")
    assert (restored["mode"], restored["generation"]) == ("fork", None)
    (proof,) = (place for place in proofs.iterdir() if place.is_dir())
    ids = [json.loads((place / "metadata").read_text())["id"] for place in (proof, managed.checkpoint)]
    assert ids[0] != ids[1]
    committed = max(int(path.name) for path in (proof / "commits").iterdir() if path.name.isdigit())
    assert committed == restored["batch"]
    after = job_status(managed.job)
    assert (after.state, after.launch_id) == ("running", before.launch_id)


AT_THE_JOB = ("stop", "restore", "start", "keep_running", "watched")


@pytest.mark.parametrize("option", ["Approve", pytest.param("Reject", marks=pytest.mark.storm)])
def test_a_fork_is_restored_from_the_form_while_the_job_runs(managed: Managed, option: str) -> None:
    managed.start(until=2)
    savepoint_job(managed.job, by=BY)
    ran = managed.control.lease.view()
    place = managed.checkpoint.parent / "trial"

    def goes_on() -> None:
        managed.wait_for_batch(managed.last_batch() + 1)

    with answering(option, before=goes_on) as shown:
        run = restore(managed, run_conf={"mode": "fork", "into": str(place)}, mark_success_pattern=None)

    states = task_states(run)
    assert shown.result().subject.endswith(f" old, into {place.as_uri()}?")
    assert {states[task] for task in AT_THE_JOB} == {"skipped"}
    assert (run.state, states["check_run"], states["plan"]) == ("success", "success", "success")
    assert states["restore_into"] == ("success" if option == "Approve" else "skipped")
    assert (place / "metadata").exists() == (option == "Approve")
    runs = managed.control.lease.view()
    assert ran is not None and runs is not None and (runs.epoch, runs.state) == (ran.epoch, "live")
    if option == "Approve":
        forked = xcom(run, "restore_into")
        assert forked["query_id"] != managed.repository.load("flights", forked["savepoint"]).query_id


@pytest.mark.parametrize(
    ("form", "code", "hint"),
    [
        ({"into": "{beside}/scratch"}, "lease-held", "*What becomes of the savepoint* (`mode`) is fork"),
        ({"mode": "fork"}, "fork-needs-directory", "*Directory to restore into*"),
    ],
)
def test_a_directory_takes_a_fork_where_the_job_runs_and_a_fork_takes_a_directory(
    managed: Managed, capfd: pytest.CaptureFixture[str], form: dict[str, str], code: str, hint: str
) -> None:
    managed.start()
    savepoint_job(managed.job, by=BY)
    conf = {name: value.format(beside=managed.checkpoint.parent) for name, value in form.items()}
    run = restore(managed, run_conf=conf, mark_success_pattern=None)
    states, said = task_states(run), capfd.readouterr().out
    assert (states["plan"], states["approve"], states["restore_into"]) == (
        "failed", "upstream_failed", "upstream_failed",
    )  # fmt: skip
    assert f"[{code}]" in said and hint in said
    assert managed.driver_lives()
