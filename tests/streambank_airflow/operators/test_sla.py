"""The operator that judges SLAs, run by Airflow, with findings as a test says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from streambank.core.errors import InputError, StorageError
from streambank.declaration.load import load_jobs
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_airflow.operators.sla import CheckSlaOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.notifiers import FileNotifier, told
from tests.support.airflow_face.sla_operator import Check, check, jobs_file
from tests.support.sla.fake_assessments import Assessor, assessor

__all__ = ["assessor", "check", "jobs_file"]


def dag_of(**arguments: Any) -> DAG:
    with DAG("one_check", schedule=None) as dag:
        CheckSlaOperator(task_id="check", job="flights", **arguments)
    return dag


@pytest.mark.usefixtures("airflow_database")
def test_a_breach_fails_the_task_and_its_verdicts_are_left(
    jobs_file: Path, assessor: Assessor, capfd: pytest.CaptureFixture[str]
) -> None:
    assessor.says(state_bytes="breach", growth="warn", hot_key="unknown", pause="ok")

    run = run_dag(dag_of(jobs_file=str(jobs_file)))

    assert task_states(run) == {"check": "failed"}
    result = xcom(run, "check")
    assert {name: value for name, value in result.items() if name != "verdicts"} == {
        "job": "flights",
        "jobs": 1,
        "level": "breach",
        "breaches": 1,
        "warnings": 1,
        "unknown": 1,
        "muted": 0,
        "not_judged": 0,
        "told": 3,
        "not_told": 0,
        "failed_notifiers": 0,
        "worst": "flights: state_bytes is broken. It is breach.",
        "levels": {"flights": "breach"},
    }
    assert [(one["objective"], one["level"]) for one in result["verdicts"]] == [
        ("history", "ok"),
        ("state_bytes", "breach"),
        ("growth", "warn"),
        ("hot_key", "unknown"),
        ("pause", "ok"),
    ]
    assert "flights: growth warns. It is warn." in capfd.readouterr().out
    assert told(jobs_file.parent / "chat") == [
        "flights state_bytes broke breach",
        "flights growth broke warn",
    ]
    assert told(jobs_file.parent / "pager") == ["flights state_bytes broke breach"]


@pytest.mark.usefixtures("airflow_database")
def test_a_notifier_that_fails_once_is_asked_by_the_retry_and_nobody_hears_twice(
    jobs_file: Path, assessor: Assessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assessor.says(state_bytes="breach")
    down = jobs_file.parent / "chat.down"
    down.touch()
    judged = assessor.assess_job

    def judge(*args: Any, **how: Any) -> Any:
        if len(assessor.asked) == 1:
            down.unlink()
        return judged(*args, **how)

    monkeypatch.setattr("streambank_airflow.watch.sla.assess_job", judge)
    run = run_dag(dag_of(jobs_file=str(jobs_file), retries=1, retry_delay=timedelta(milliseconds=1)))

    # The first try fails for the notifier, and is tried again; the second for the breach alone, and is not.
    assert len(assessor.asked) == 2
    assert task_states(run) == {"check": "failed"}
    assert xcom(run, "check")["breaches"] == 1
    for name in ("chat", "pager"):
        assert told(jobs_file.parent / name) == ["flights state_bytes broke breach"]


@pytest.mark.parametrize(("on_breach", "fails"), [("fail", True), ("warn", False), ("report", False)])
def test_what_a_breach_does_is_a_choice(
    check: Check, assessor: Assessor, on_breach: str, fails: bool
) -> None:
    assessor.says(state_bytes="breach", growth="breach")

    done = check(on_breach=on_breach, tell="False")

    assert done.result["level"] == "breach"
    assert (done.error is not None) is fails
    if fails:
        assert isinstance(done.error, AirflowFailException)
        assert str(done.error) == (
            "flights: state_bytes is broken. It is breach. (and 1 more, in the log above)"
        )


def test_warnings_what_is_unknown_and_what_is_muted_fail_nothing(check: Check, assessor: Assessor) -> None:
    assessor.says(growth="warn", hot_key="unknown", state_bytes="breach")
    assessor.muted.add("state_bytes")

    done = check()

    assert done.error is None
    assert (done.result["level"], done.result["muted"], done.result["breaches"]) == ("warn", 1, 0)


def test_one_job_that_cannot_be_judged_hides_no_other(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    assessor.says("flights", state_bytes="breach")
    assessor.errors["trains"] = StorageError("The disk is away.", hint="Mount it.")

    done = check(jobs=["trains", "ships", "orders/left", "flights"], on_breach="report")

    assert not isinstance(done.error, AirflowFailException)
    assert "Job trains could not be judged: The disk is away. [storage] Hint: Mount it." in str(done.error)
    assert "Job ships could not be judged" in str(done.error)
    assert done.result["levels"] == {
        "trains": "breach",
        "ships": "breach",
        "orders/left": "ok",
        "flights": "breach",
    }
    assert [(one["job"], one["objective"]) for one in done.result["verdicts"]] == [("flights", "state_bytes")]
    assert (done.result["jobs"], done.result["not_judged"]) == (4, 2)
    assert told(tmp_path / "chat") == ["flights state_bytes broke breach"]


def test_of_many_that_cannot_be_judged_a_few_are_named(check: Check, assessor: Assessor) -> None:
    done = check(jobs=[f"ship{number}" for number in range(9)])

    assert str(done.error).count("could not be judged") == 3
    assert str(done.error).endswith("(And 6 more, in the log above.)")


def test_metrics_that_cannot_be_sent_change_nothing(
    check: Check, assessor: Assessor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*args: Any, **how: Any) -> None:
        raise OSError("no route")

    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setattr("airflow.providers.common.compat.sdk.Stats.gauge", fail)
    assessor.says(state_bytes="breach")

    done = check()

    assert isinstance(done.error, AirflowFailException)
    assert told(tmp_path / "chat") == ["flights state_bytes broke breach"]


def test_a_job_that_is_not_declared_fails_for_good(check: Check, assessor: Assessor) -> None:
    assert isinstance(check(job="ships").error, AirflowFailException)
    assert isinstance(check(jobs=["ships", "trains"]).error, AirflowFailException)


def test_all_declared_jobs_are_judged_in_one_task(check: Check, assessor: Assessor) -> None:
    done = check(jobs="all", skew=False)

    assert list(done.result["levels"]) == ["flights", "trains", "orders"]
    assert sorted(assessor.asked) == [
        ("flights", None, False),
        ("orders", None, False),
        ("trains", None, False),
    ]


def test_many_jobs_read_their_declaration_once(
    check: Check, assessor: Assessor, jobs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = "".join(
        f'[jobs.j{number}]\napplication = "a.py"\ncheckpoint = "c/j{number}"\n' for number in range(100)
    )
    jobs_file.write_text(f'repository = "r"\n{jobs}', encoding="utf-8")
    read: list[Any] = []

    def load(file: Any, **how: Any) -> Any:
        read.append(file)
        return load_jobs(file, **how)

    monkeypatch.setattr("streambank_airflow.hooks.declared.read_jobs", load)

    done = check(jobs="all")

    assert (done.result["jobs"], done.result["verdicts"]) == (100, [])
    assert len(read) == 1


def test_queries_of_one_job_are_told_of_apart(check: Check, assessor: Assessor, tmp_path: Path) -> None:
    assessor.says("orders/left", state_bytes="breach")
    assessor.says("orders/right", state_bytes="breach")
    own = [FileNotifier(str(tmp_path / "own"), "{{ verdict.query }} {{ news.kind }}")]

    for ref in ("orders/left", "orders/right", "orders/left", "orders"):
        check(job=ref, notifiers=own)
    assessor.says("orders/left", state_bytes="ok")
    check(job="orders", notifiers=own)

    assert told(tmp_path / "own") == ["left broke", "right broke", "left healed"]


def test_a_checkpoint_is_judged_and_what_was_told_is_kept_in_its_repository(
    check: Check, assessor: Assessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Repository.open(open_store(str(tmp_path / "own-repository")), create=True)
    assessor.says("sales/daily", state_bytes="breach")
    own = [FileNotifier(str(tmp_path / "own"))]
    arguments = {"job": "sales/daily", "checkpoint": "/data/sales", "notifiers": own, "jobs_file": None}

    lost = check(**arguments)
    monkeypatch.setenv(
        "AIRFLOW_CONN_STREAMBANK_DEFAULT",
        f'{{"conn_type": "streambank", "extra": {{"repository": "{tmp_path / "own-repository"}"}}}}',
    )
    for _ in range(2):
        done = check(**arguments)

    assert "There is no location to record the alerts about sales/daily." in str(lost.error)
    assert isinstance(done.error, AirflowFailException)
    assert told(tmp_path / "own") == ["sales state_bytes broke breach"]
    assert assessor.asked[-1] == ("/data/sales", str(tmp_path / "own-repository"), True)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"job": "a", "jobs": ["b"]},
        {"jobs": ["b"], "checkpoint": "/c"},
        {"job": "a", "on_breach": "skip"},
        {"job": "a", "least": "ok"},
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_read(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        CheckSlaOperator(task_id="check", **wrong)


def test_what_came_of_a_template_is_checked_too(check: Check, assessor: Assessor) -> None:
    assert "on_breach must be one of" in str(check(on_breach="{{ 'x' }}").error)
    assert "tell must be true or false" in str(check(tell="perhaps").error)
    assert "jobs, unless it is a list" in str(check(jobs="some").error)
