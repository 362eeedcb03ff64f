"""Whom a job names is alerted of what operators find: once an incident, and in no task's way."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from streambank.control.pruning import Retention, prune_records
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.job.savepoint import savepoint_job
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.failures import as_airflow
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.notify.alerts import Alert, alert_of_failure, code_of, send_alert
from streambank_airflow.notify.notify import declared_tellers
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator, StartStreamingJobOperator
from streambank_airflow.operators.repository import ReplicateSavepointsOperator
from streambank_airflow.operators.savepoint import VerifySavepointOperator
from streambank_airflow.operators.sla import CheckSlaOperator
from tests.support.airflow_face.metadata_db import answer_question, run_dag, task_states
from tests.support.airflow_face.notifiers import FILE_NOTIFIER, told
from tests.support.jobs.managed_job import BY, Managed
from tests.support.repository.repositories import save


def declare(managed: Managed, *kinds: str, name: str = "chat") -> Path:
    """Let a file have the alerts of these kinds; of all without any."""
    file = managed.folder / name
    managed.declare(
        '\n[[jobs.flights.notify]]\nclass = "tests.support.airflow_face.notifiers.FileNotifier"\n'
        f'args = {{file = "{file}", text = "{{{{ kind }}}}: {{{{ message }}}}"}}\n'
        + (f"kinds = {list(kinds)}\n" if kinds else "")
    )
    return file


def hook_of(managed: Managed) -> StreambankHook:
    return StreambankHook(jobs_file=str(managed.jobs_file))


class KeptXComs:
    """A task whose next runs find what it has left."""

    task_id = "task"
    task: Any = None

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, str]] = {}

    def xcom_pull(self, *, task_ids: str, key: str, include_prior_dates: bool) -> Any:
        assert task_ids == self.task_id and include_prior_dates
        return self.kept.get(key)

    def xcom_push(self, key: str, value: dict[str, str]) -> None:
        self.kept[key] = value


def once(dag: DAG) -> DAG:
    for task in dag.tasks:
        task.retries = 0
    return dag


def alone(managed: Managed, operator: type[Any], **arguments: Any) -> DAG:
    with DAG("alone") as dag:
        operator(task_id="task", job="flights", jobs_file=str(managed.jobs_file), **arguments)
    return dag


def test_each_gets_the_kinds_that_it_wants_and_one_that_fails_hinders_no_other(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    broken = declare(managed, "restart", name="broken")
    Path(f"{broken}.down").touch()
    everything, other = declare(managed, name="everything"), declare(managed, "giving-up", name="other")

    sent = send_alert(hook_of(managed), "flights", Alert(("restart",), "Gone."), {})

    assert sent == 1
    assert (told(broken), told(everything), told(other)) == ([], ["restart: Gone."], [])
    assert "FileNotifier failed: ConnectionError: nobody answers" in caplog.text


def test_the_most_special_kind_counts_once(managed: Managed) -> None:
    general, both = declare(managed, "giving-up", name="general"), declare(managed, name="both")

    send_alert(hook_of(managed), "flights", Alert(("checkpoint-lost", "giving-up"), "It is gone."), {})

    assert told(general) == ["giving-up: It is gone."]
    assert told(both) == ["checkpoint-lost: It is gone."]


def test_what_every_run_finds_again_is_sent_once_to_each_that_got_it(managed: Managed) -> None:
    up, down = declare(managed, name="up"), declare(managed, name="down")
    off = Path(f"{down}.down")
    off.touch()
    found = Alert(("checkpoint-lost",), "It is gone.")
    for _ in range(2):
        send_alert(hook_of(managed), "flights", found, {})
    off.unlink()
    send_alert(hook_of(managed), "flights", found, {})
    send_alert(hook_of(managed), "flights", Alert(("checkpoint-damaged",), "Cut off."), {})
    # In the next generation it is lost once more.
    managed.control.generations().ensure_first(managed.job.queries["main"], by=BY)
    send_alert(hook_of(managed), "flights", found, {})

    lost = "checkpoint-lost: It is gone."
    expected = [lost, "checkpoint-damaged: Cut off.", lost]
    assert told(up) == expected
    assert told(down) == expected
    assert prune_records(managed.control, Retention(1, utc_now())) == 4


def test_of_a_lost_repository_nothing_is_written_where_it_was(managed: Managed) -> None:
    file = declare(managed, "repository-lost")
    task = KeptXComs()
    for _ in range(2):
        send_alert(hook_of(managed), "flights", Alert(("repository-lost",), "It is gone."), {"ti": task})
    assert told(file) == ["repository-lost: It is gone."]

    (known,) = task.kept.values()
    known["repository-lost"] = to_json_time(utc_now() - timedelta(minutes=61))
    send_alert(hook_of(managed), "flights", Alert(("repository-lost",), "It is gone."), {"ti": task})

    assert len(told(file)) == 2
    assert not (managed.folder / "repository").exists()


def test_where_the_records_cannot_be_read_it_is_sent_all_the_same(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declare(managed)

    def fail(job: Job) -> NoReturn:
        raise StorageError("The disk is away.")

    with monkeypatch.context() as patch:
        patch.setattr(Job, "records", fail)
        for kinds in (("giving-up",), ("checkpoint-lost",)):
            assert send_alert(hook_of(managed), "flights", Alert(kinds, "Gone."), {}) == 1

    assert told(file) == ["giving-up: Gone.", "checkpoint-lost: Gone."]


def test_a_notifier_that_hangs_is_not_waited_for_and_loses_no_alert_of_another(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = managed.folder / "go on"
    for name in ("a", "b"):
        managed.declare(
            '\n[[jobs.flights.notify]]\nclass = "tests.support.airflow_face.notifiers.HangingNotifier"\n'
            f'args = {{file = "{go_on}", text = "{name}"}}\n'
        )
    file = declare(managed)
    monkeypatch.setattr("streambank_airflow.notify.send.PATIENCE_S", 0.5)

    assert send_alert(hook_of(managed), "flights", Alert(("restart",), "Gone."), {}) == 1

    go_on.touch()
    assert told(file) == ["restart: Gone."]
    assert caplog.text.count("it took longer than 0.5 s") == 2


def test_one_that_is_declared_twice_for_a_kind_gets_it_once(managed: Managed) -> None:
    file = declare(managed)
    declare(managed, "checkpoint-lost", "restart")

    assert send_alert(hook_of(managed), "flights", Alert(("checkpoint-lost",), "Gone."), {}) == 1

    assert told(file) == ["checkpoint-lost: Gone."]


def test_the_address_of_a_webhook_is_not_in_the_log(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    managed.declare(
        '\n[[jobs.flights.notify]]\nclass = "tests.support.airflow_face.notifiers.WebhookNotifier"\n'
        'args = {url = "https://hooks.example/services/sEcReT99", token = "tok-1234"}\n'
    )

    assert send_alert(hook_of(managed), "flights", Alert(("restart",), "Gone."), {}) == 0

    assert "WebhookNotifier failed: ConnectionError: POST ***" in caplog.text
    assert "sEcReT99" not in caplog.text
    assert "tok-1234" not in caplog.text


def test_nobody_is_alerted_of_a_job_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    assert send_alert(StreambankHook(jobs_file="/nowhere.toml"), "a", Alert(("restart",), "Gone."), {}) == 0
    assert "No alert about job a could be sent" in caplog.text


def test_only_of_a_job_that_was_not_found_the_alert_itself_says_why_nobody_got_it(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    (broken := managed.folder / "broken.toml").write_text("jobs = [", encoding="utf-8")
    with pytest.raises(StreambankError) as unread:
        StreambankHook(jobs_file=broken).declared.read()
    with pytest.raises(StreambankError) as unknown:
        hook_of(managed).declared.job("trains")
    caplog.clear()

    assert send_alert(hook_of(managed), "trains", Alert(("giving-up",), str(unknown.value)), {}) == 0
    assert "No alert" not in caplog.text
    hook = StreambankHook(jobs_file=broken)
    assert send_alert(hook, "trains", Alert(("giving-up",), str(unread.value)), {}) == 0
    assert "No alert about job trains could be sent" in caplog.text


def test_the_code_of_a_failure_is_that_of_the_engines_error_or_of_what_its_text_says() -> None:
    lost = RefusedError("It is gone.", code="checkpoint-lost")
    wrapped = as_airflow(lost)
    wrapped.__cause__ = lost
    assert code_of(wrapped) == "checkpoint-lost"
    assert code_of(AirflowFailException("It gave up: [repository-lost] Hint: ...")) == "repository-lost"
    assert code_of(AirflowFailException("not-checkpoint-lost")) == ""
    assert code_of("The task was lost.") == code_of(None) == ""


@pytest.mark.parametrize(
    ("dag_id", "task_id", "own", "says"),
    [
        ("mine", "task", ("replica-failed",), ["replica-failed: mine.task: Broken."]),
        ("mine", "task", (), []),
        ("flights.compact", "stop", (), ["compaction-failed: flights.compact.stop: Broken."]),
        ("flights.rescale", "start", ("giving-up",), ["compaction-failed: flights.rescale.start: Broken."]),
        (
            "flights.bootstrap",
            "start",
            ("giving-up",),
            ["compaction-failed: flights.bootstrap.start: Broken."],
        ),
        ("flights.restore", "stop", (), ["giving-up: flights.restore.stop: Broken."]),
        ("flights.restore", "restore", (), ["giving-up: flights.restore.restore: Broken."]),
        ("flights.restore", "plan", (), []),
    ],
)
def test_the_failure_of_a_task_is_an_alert_by_its_operator_or_its_dag(
    managed: Managed, dag_id: str, task_id: str, own: tuple[str, ...], says: list[str]
) -> None:
    managed.declare('\n[jobs.flights.replicate]\nto = ["replica"]\n')
    file = declare(managed, "compaction-failed", "replica-failed", "giving-up")
    task = SimpleNamespace(
        job="flights", hook=hook_of(managed), dag_id=dag_id, task_id=task_id, alert_kinds=own
    )

    alert_of_failure({"ti": SimpleNamespace(task=task), "exception": AirflowFailException("Broken.")})

    assert told(file) == says


def test_of_a_task_whose_templates_are_not_rendered_the_job_counts(managed: Managed) -> None:
    file = declare(managed, "repository-lost", "compaction-failed")
    error = AirflowFailException("It is gone. [repository-lost]")
    for dag_id in ("mine", "flights.compact"):
        task = SimpleNamespace(
            job="flights/{{ params.query }}", hook=hook_of(managed), dag_id=dag_id, task_id="task"
        )
        alert_of_failure({"ti": SimpleNamespace(task=task), "exception": error})

    assert [line.split(":")[0] for line in told(file)] == ["repository-lost"] * 2


@pytest.mark.usefixtures("airflow_database")
def test_a_replica_that_cannot_be_written_is_an_alert(managed: Managed) -> None:
    taken = managed.folder / "taken"
    taken.mkdir()
    (taken / "somebody's").write_text("file", encoding="utf-8")
    managed.declare(f'\n[jobs.flights.replicate]\nto = ["{taken}", "{managed.folder / "two"}"]\n')
    file = declare(managed, "replica-failed")
    save(Repository.open(open_store(managed.folder / "repository"), create=True))

    states = [task_states(run_dag(alone(managed, ReplicateSavepointsOperator)))["task"] for _ in range(2)]

    assert states == ["failed", "failed"]
    (alert,) = told(file)
    assert alert.startswith("replica-failed: alone.task: ")
    assert "[not-empty]" in alert


def test_a_query_that_is_not_declared_has_nobody_to_alert(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    for task in (
        SimpleNamespace(job="flights", checkpoint="/c"),
        CheckSlaOperator(task_id="all", jobs="all", jobs_file=str(managed.jobs_file)),
    ):
        alert_of_failure({"ti": SimpleNamespace(task=task), "exception": AirflowFailException("Broken.")})

    assert not caplog.records


def test_a_job_that_cannot_be_judged_for_its_repository_is_an_alert(managed: Managed) -> None:
    file = declare(managed, "repository-lost")
    with DAG("flights.sla"):
        check = CheckSlaOperator(task_id="check", job="flights", jobs_file=str(managed.jobs_file))
    task_instance = KeptXComs()
    task_instance.task = check
    error = AirflowFailException("Job flights could not be judged: It is gone. [repository-lost]")

    for callback in check.on_failure_callback:
        context: Any = {"ti": task_instance, "exception": error}
        callback(context)

    assert told(file) == [f"repository-lost: flights.sla.check: {error}"]


def test_those_of_the_kind_sla_hear_of_objectives_like_those_of_sla_notify(managed: Managed) -> None:
    declare(managed, "sla")
    declare(managed, "restart", name="other")
    managed.declare('\n[jobs.flights.sla]\nnotify = [{class = "x.Y"}]\n')

    assert [one.label for one in declared_tellers(managed.job)] == [
        "x.Y",
        FILE_NOTIFIER,
    ]


@pytest.mark.usefixtures("airflow_database")
def test_a_restart_and_giving_up_are_alerts(managed: Managed) -> None:
    managed.declare('\n[jobs.flights.health]\nbackoff = "100ms"\nmax_failures = 2\n')
    file = declare(managed)
    managed.dies.write_text("0")

    run = run_dag(alone(managed, KeepStreamingJobRunningOperator, poll_interval_s=0.1))

    assert task_states(run) == {"task": "failed"}
    restart, gave_up = told(file)
    assert restart.startswith("restart: The driver of job flights is gone (")
    assert (
        "After a pause of " in restart and "another one is launched. It is restart 1 of this run" in restart
    )
    assert gave_up.startswith("giving-up: alone.task: Job flights is not started any more: 2 drivers of")


@pytest.mark.usefixtures("airflow_database")
def test_a_lost_checkpoint_is_one_alert_however_often_it_is_found(managed: Managed) -> None:
    file = declare(managed, "checkpoint-lost")
    managed.start(until=2)
    managed.kill()
    shutil.rmtree(managed.checkpoint)

    states = [task_states(run_dag(alone(managed, StartStreamingJobOperator)))["task"] for _ in range(2)]

    assert states == ["failed", "failed"]
    (alert,) = told(file)
    assert alert.startswith("checkpoint-lost: alone.task: ")
    assert "[checkpoint-lost] Hint:" in alert


@pytest.mark.usefixtures("airflow_database")
def test_a_damaged_savepoint_is_an_alert_even_where_its_task_may_go_on(managed: Managed) -> None:
    file = declare(managed, "savepoint-damaged")
    managed.start(until=2)
    managed.stop()
    savepoint_job(managed.job, by=BY)
    for pack in (managed.folder / "repository/packs").rglob("*"):
        if pack.is_file():
            data = pack.read_bytes()
            pack.write_bytes(bytes([data[0] ^ 1]) + data[1:])

    for level in ("full", "full", "sampled"):
        dag = alone(managed, VerifySavepointOperator, level=level, share="100%", fail_on_findings=False)
        assert task_states(run_dag(dag)) == {"task": "success"}

    (alert,) = told(file)
    assert alert.startswith("savepoint-damaged: Savepoint b")


@pytest.mark.usefixtures("airflow_database")
def test_a_compaction_that_fails_is_an_alert_and_no_notifier_changes_how_it_ends(managed: Managed) -> None:
    Path(f"{declare(managed, name='broken')}.down").touch()
    file = declare(managed, "compaction-failed")

    run = run_dag(once(build_dags(managed.jobs_file)["flights.compact"]), run_conf={"dry_run": False})

    assert task_states(run)["preview"] == "failed"
    (alert,) = told(file)
    assert alert.startswith("compaction-failed: flights.compact.preview: ")

    run = run_dag(once(build_dags(managed.jobs_file)["flights.compact"]), run_conf={"dry_run": True})

    assert task_states(run)["preview"] == "failed"
    assert told(file) == [alert], "whoever asked what it would do reads that"


@pytest.mark.usefixtures("airflow_database")
def test_an_approval_that_waits_is_told_and_only_approvers_may_give_it(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://airflow.example")
    alert = declare(managed, "approval-waits")
    asked, broken = managed.folder / "asked", managed.folder / "broken"
    Path(f"{broken}.down").touch()
    ask = ", ".join(
        f'{{class = "{FILE_NOTIFIER}", args = {{file = "{one}", text = "{text}"}}}}'
        for one, text in ((broken, "?"), (asked, "{{ subject }} {{ link }}"))
    )
    managed.declare(f'\n[jobs.flights.restore]\napprovers = ["ann", "bob"]\nask = [{ask}]\n')
    managed.start(until=2)
    managed.stop()
    savepoint_job(managed.job, by=BY)

    with ThreadPoolExecutor(1) as pool:
        shown = pool.submit(answer_question, "flights.restore", "approve", "Reject")
        run = run_dag(once(build_dags(managed.jobs_file)["flights.restore"]))

    question = shown.result()
    assert task_states(run)["approve"] == "success"
    assert question.assignees == [{"id": "ann", "name": "ann"}, {"id": "bob", "name": "bob"}]
    (said,) = told(asked)
    assert said.startswith(question.subject)
    assert "http://airflow.example/dags/flights.restore/runs/" in said
    (said,) = told(alert)
    assert said.startswith(f"approval-waits: {question.subject} Answer it at http://airflow.example/")
    assert said.endswith("Without an answer it is rejected after 1 h.")
