"""Another savepoint made of one, and state judged, as tasks; in the storm by its own real Spark."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import RefusedError
from streambank.core.signing import VARIABLE, new_key
from streambank.core.units import utc_now
from streambank.declaration.load import load_jobs
from streambank.drills.report import DrillReport
from streambank.replicas.replicate import newest_first, replicate_to
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.hooks.state import StateVerbs
from streambank_airflow.operators.erase import EraseStateOperator
from streambank_airflow.operators.rewrite import (
    BootstrapStateOperator,
    MigrateStateOperator,
    StateOperator,
    TransformStateOperator,
    ValidateStateOperator,
)
from streambank_airflow.operators.rewrite.base import digest_of
from streambank_airflow.operators.savepoint import VerifySavepointOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.checkpoint.recorded import unpack
from tests.support.repository.repositories import FILES, save

JOBS = """
repository = "savepoints"
[jobs.dedup]
application = "app.py"
checkpoint = "old/checkpoint"
master = "local[1]"
"""


@pytest.mark.spark
@pytest.mark.storm
@pytest.mark.parametrize("signed", [False, True])
def test_state_is_migrated_to_rocksdb(
    airflow_database: None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    signed: bool,
) -> None:
    if signed:
        new_key(tmp_path / "keys")
        monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    (tmp_path / "jobs.toml").write_text(JOBS, encoding="utf-8")
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    source = open_store(unpack("4.3.0/hdfs-dedup", tmp_path / "old") / "checkpoint")
    taken = take(TakeRequest(source, repository, "dedup"))
    where: dict[str, Any] = {"job": "dedup", "jobs_file": str(tmp_path / "jobs.toml")}
    with DAG("own", schedule=None, default_args={"retries": 0}) as dag:
        as_text: Any = "3"
        MigrateStateOperator(task_id="migrate", partitions=as_text, note="bigger", **where)
        MigrateStateOperator(task_id="wrong", provider="leveldb", **where)

    run = run_dag(dag)

    assert task_states(run) == {"migrate": "success", "wrong": "failed"}
    assert "migrate needs the provider rocksdb" in capfd.readouterr().out
    done = xcom(run, "migrate")
    assert (done["operation"], done["of"], done["batch"]) == (
        "migrate",
        f"dedup/{taken.savepoint}",
        taken.batch,
    )
    made = repository.load("dedup", done["savepoint"])
    assert made.batch == taken.batch and made.note == "bigger"
    assert len(repository.signatures.of("dedup", done["savepoint"])) == (1 if signed else 0)
    assert {file.path.split("/")[2] for file in made.files if file.path.startswith("state/0/")} >= {
        "0",
        "1",
        "2",
    }


Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
RULE = {"rule": "value.n > 0", "operator": 0, "part": "default", "rows": 50, "broken": 3, "examples": []}
VALID: dict[str, Any] = {
    "of": "orders/b1", "batch": 3, "ok": False, "rules": [RULE], "repairs": [], "savepoint": None,
    "dry_run": False,
}  # fmt: skip
ERASED: dict[str, Any] = {
    "operation": "erase", "dry_run": False, "of": "orders/b1", "batch": 3, "savepoint": "b2", "stores": [],
    "operators": [], "passed_over": [], "searched": True, "savepoints": 4, "looked_into": 2,
    "holding": [
        {"repository": "file:///r", "savepoint": "b0", "pinned": True, "found": "yes"},
        {"repository": "file:///x", "savepoint": None, "pinned": False, "found": "unknown: it is gone"},
    ],
    "live": [{"location": "file:///c", "generation": 1, "current": True, "found": "unknown: it may"}],
    "left": [
        {"kind": "generation", "location": "file:///c1", "needed_by": "", "found": "yes"},
        {"kind": "restored", "location": "file:///c2", "needed_by": "", "found": "no"},
    ],
    "left_unread": [{"location": "file:///c3", "why": "It is closed."}],
}  # fmt: skip


class Orders:
    """A job with a savepoint, whose Spark answers what a test says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        (folder / "app.py").write_text("")
        self.jobs_file = folder / "jobs.toml"
        self.jobs_file.write_text(
            'repository = "savepoints"\n[jobs.orders]\napplication = "app.py"\ncheckpoint = "checkpoint"\n'
            'replicate.to = ["replica"]\n'
        )
        self.repository = Repository.open(open_store(folder / "savepoints"), create=True)
        save(self.repository, FILES, job="orders")
        self.plans: list[Mapping[str, Any]] = []
        self.answer: Answer = lambda plan: {}
        self.patch = patch

        def rewrite(choice: SparkChoice, plan: Mapping[str, Any], **how: Any) -> dict[str, Any]:
            self.plans.append(plan)
            return self.answer(plan)

        patch.setattr(SparkChoice, "rewrite", rewrite)

    def run(self, kind: type[StateOperator | VerifySavepointOperator], **arguments: Any) -> Any:
        params = arguments.pop("params", {})
        with DAG(
            "own",
            schedule=None,
            params=params,
            render_template_as_native_obj=True,
            default_args={"retries": 0},
        ) as dag:
            kind(**{"task_id": "task", "job": "orders", "jobs_file": str(self.jobs_file), **arguments})
        return run_dag(dag)


@pytest.fixture
def orders(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orders:
    return Orders(tmp_path, monkeypatch)


@pytest.mark.storm
def test_an_erasure_looks_everywhere_and_says_who_holds_the_key(
    orders: Orders, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what others leave in /tmp is theirs
    orders.answer = lambda plan: ERASED

    run = orders.run(EraseStateOperator, key="c-17", replicas=["s3://more/replica"], note="asked by c-17")

    (plan,) = orders.plans
    assert plan["order"] == {
        "operation": "erase", "key": "c-17", "operator": None, "dry_run": False, "note": "asked by c-17",
    }  # fmt: skip
    assert plan["search"]["replicas"] == ["s3://more/replica", f"file://{tmp_path}/replica"]
    assert plan["search"]["live"][0]["location"] == f"file://{tmp_path}/checkpoint"
    result = xcom(run, "task")
    assert (result["savepoint"], result["searched"], result["savepoints"]) == ("b2", True, 4)
    assert (result["holding"], result["unknown"], result["live"], result["left"]) == (1, 1, 1, 1)
    assert plan["search"]["left"] == {"directories": [], "unread": []}
    assert not [value for value in result.values() if isinstance(value, dict | list)]
    said = capfd.readouterr().out
    assert "Savepoint b0 in file:///r may hold the key: pinned, yes." in said
    assert "Repository file:///x may hold the key: unknown: it is gone." in said
    assert "Left behind (generation): file:///c1 may hold the key: yes. It is needed by: nothing." in said
    assert "file:///c2" not in said
    assert "Not searched: file:///c3: It is closed." in said


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "key",
    ["1_000", "0x10", "007", '"quoted"', "[1]", "None", " c 17 ", '{"id": "1_0", "at": 1.50}', "it\\'s"],
)
def test_a_key_from_a_form_is_taken_as_it_is_written(key: str, native: bool) -> None:
    def asked(given: Any) -> Any:
        with DAG("own", schedule=None, render_template_as_native_obj=native):
            operator: Any = "{{ params.operator }}"
            task = EraseStateOperator(task_id="task", job="orders", key=given, operator=operator)
        task.render_template_fields({"params": {"key": key, "operator": 3}})
        assert task.request()["operator"] == 3
        return task.request()["key"]

    assert asked(key) == asked("{{ params.key }}") == key
    assert json.loads(asked({"id": "{{ params.key }}", "n": 2})) == {"id": key, "n": 2}


def test_a_search_that_could_not_be_made_fails_the_task_and_names_the_new_savepoint(
    orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = {"searched": False, "why": "The repository is gone.", "holding": None}
    orders.answer = lambda plan: {**ERASED, **lost}
    assert task_states(orders.run(EraseStateOperator, key="c")) == {"task": "failed"}
    said = capfd.readouterr().out
    assert "Other savepoints of job orders were not searched: The repository is gone. Savepoint b2" in said

    assert task_states(orders.run(EraseStateOperator, key="c", search=False)) == {"task": "success"}
    assert "search" not in orders.plans[-1]


def test_rules_that_are_broken_fail_the_task_unless_it_reports_or_repairs(
    orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    orders.answer = lambda plan: VALID
    assert task_states(orders.run(ValidateStateOperator, rules="value.n > 0")) == {"task": "failed"}
    said = capfd.readouterr().out
    assert "3 of 50 rows of operator 0, default, break value.n > 0. Hint: give repairs" in said

    report = orders.run(ValidateStateOperator, rules="value.n > 0", fail_on_broken=False)
    result = xcom(report, "task")
    assert (result["ok"], result["rules"], result["rows"], result["broken"]) == (False, 1, 50, 3)
    assert (result["savepoint"], result["repaired"]) == (None, 0)

    mended = {"operator": 0, "part": "default", "rows": 3, "samples": []}
    orders.answer = lambda plan: {**VALID, "repairs": [mended], "savepoint": "b2"}
    repaired = orders.run(
        ValidateStateOperator,
        rules="{{ params.rules }}",
        repairs=["0: value.n = 1"],
        samples="2",
        params={"rules": ["value.n > 0", "0/default: value.n < 9"]},
    )
    assert orders.plans[-1]["order"] == {
        "operation": "validate", "rules": ["value.n > 0", "0/default: value.n < 9"],
        "repairs": ["0: value.n = 1"], "operator": None, "part": None, "samples": 2, "dry_run": False,
        "note": "",
    }  # fmt: skip
    result = xcom(repaired, "task")
    assert (result["savepoint"], result["repaired"], result["ok"]) == ("b2", 3, False)
    assert not [value for value in result.values() if isinstance(value, dict | list)]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"rules": []}, "[usage]"),
        ({"rules": "0:"}, "[bad-expression]"),
        ({"rules": "true", "repairs": "key.k = 1"}, "remove the key: run EraseStateOperator"),
        ({"rules": "true", "samples": "some"}, "[bad-option]"),
    ],
)
def test_what_cannot_be_a_rule_or_a_repair_is_refused_before_spark_is_started(
    orders: Orders, capfd: pytest.CaptureFixture[str], asked: dict[str, Any], code: str
) -> None:
    assert task_states(orders.run(ValidateStateOperator, **asked)) == {"task": "failed"}
    assert code in capfd.readouterr().out and not orders.plans


CHANGED: dict[str, Any] = {
    "operation": "transform", "dry_run": False, "of": "orders/b1", "batch": 3, "savepoint": "b2",
    "stores": [], "operators": [],
    "changes": [{"operator": 0, "part": "default", "rows": 7, "samples": [{"after": {"n": 1}}]}],
}  # fmt: skip
MADE: dict[str, Any] = {
    "operation": "bootstrap", "dry_run": True, "of": "orders/b1", "batch": 3, "savepoint": None, "stores": [],
    "operator": 0, "part": "default", "rows": 4, "table_rows": 5, "table_digest": "5:0123",
    "existing_rows": 9, "samples": [],
}  # fmt: skip


def test_a_change_is_asked_for_with_what_the_arguments_and_templates_say(
    orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    orders.answer = lambda plan: CHANGED
    run = orders.run(
        TransformStateOperator,
        sets="{{ params.sets }}",
        where="key.k = 'a'",
        operator="0",
        note="cents",
        params={"sets": ["value.n = 1", " "]},
    )
    (plan,) = orders.plans
    assert plan["order"] == {
        "operation": "transform", "sets": ["value.n = 1"], "where": "key.k = 'a'", "delete_where": None,
        "operator": 0, "part": None, "samples": 10, "dry_run": False, "note": "cents",
    }  # fmt: skip
    result = xcom(run, "task")
    assert (result["changed"], result["keys"], result["savepoint"], result["rehearsed"]) == (
        7,
        0,
        "b2",
        False,
    )
    assert not [value for value in result.values() if isinstance(value, dict | list)]
    assert "Restore b2 to use it, by RestoreSavepointOperator or orders.restore" in capfd.readouterr().out


def test_state_is_made_of_a_table_with_what_is_asked_for(
    orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    orders.answer = lambda plan: MADE
    run = orders.run(
        BootstrapStateOperator,
        table="s3://b/t",
        keys="k = a",
        existing="replace",
        plan_only=True,
        rehearse=True,
    )
    assert orders.plans[-1]["order"] == {
        "operation": "bootstrap", "table": "s3://b/t", "format": None, "query": None, "keys": ["k = a"],
        "values": [], "existing": "replace", "operator": None, "part": None, "samples": 10, "dry_run": True,
        "note": "",
    }  # fmt: skip
    result = xcom(run, "task")
    assert (result["rows"], result["table_rows"], result["existing_rows"]) == (4, 5, 9)
    assert (result["rehearsed"], result["savepoint"], "keys" in result) == (False, None, False)
    assert result["table_digest"] == "5:0123"
    orders.run(BootstrapStateOperator, table="s3://b/t", planned_table=result["table_digest"])
    assert orders.plans.pop()["order"]["table_digest"] == "5:0123"
    orders.run(BootstrapStateOperator, table="s3://b/t", planned_table="None")
    assert "table_digest" not in orders.plans.pop()["order"]

    refused = orders.run(BootstrapStateOperator, table="s3://b/t", sql="SELECT 1")
    assert task_states(refused) == {"task": "failed"} and len(orders.plans) == 1
    assert "[expression-not-declared]" in capfd.readouterr().out
    with orders.jobs_file.open("a") as declared:
        declared.write('bootstrap = {tables = ["s3://b/t"], sql = "SELECT 2", format = "csv"}\n')
    orders.run(BootstrapStateOperator, table="s3://b/t", sql=True, plan_only=True)
    assert (orders.plans[-1]["order"]["query"], orders.plans[-1]["order"]["format"]) == ("SELECT 2", "csv")


def test_nothing_else_is_done_than_a_plan_has_shown(
    orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    orders.answer = lambda plan: CHANGED
    plain, jobs = {"sets": ["value.n = 1"]}, orders.jobs_file.read_text()
    for asked in (plain, {"from_form": True}):
        operator = TransformStateOperator(
            task_id="plan", job="orders", jobs_file=str(orders.jobs_file), **asked
        )
        orders.jobs_file.write_text(jobs + 'transform = {sets = ["value.n = 1"]}\n')
        planned = digest_of(operator.request())
        assert task_states(orders.run(TransformStateOperator, planned=planned, **asked)) == {
            "task": "success"
        }
    assert task_states(orders.run(TransformStateOperator, planned="None", **plain)) == {"task": "success"}
    assert "rehearse" not in orders.plans[-1]["order"]
    done = len(orders.plans)
    orders.jobs_file.write_text(jobs + 'transform = {sets = ["value.n = 100"]}\n')
    refused = orders.run(TransformStateOperator, planned=planned, from_form=True)
    assert task_states(refused) == {"task": "failed"} and len(orders.plans) == done
    assert "[approval-outdated]" in capfd.readouterr().out


def test_a_rehearsal_that_cannot_run_the_application_is_refused_before_a_savepoint_is_made(
    orders: Orders, capfd: pytest.CaptureFixture[str]
) -> None:
    control = load_jobs(orders.jobs_file).job("orders").records()
    generation = control.generations().ensure_first("file:///checkpoint", by={"user": "test"})
    control.record_query(None, {"generation": generation.number, "output": {"kind": "foreachBatch"}})
    asked: dict[str, Any] = {"sets": "value.n = 1", "rehearse": True}
    for more in ({}, {"plan_only": True, "before_stop": True}):
        run = orders.run(TransformStateOperator, **asked, **more)
        assert task_states(run) == {"task": "failed"} and not orders.plans
        said = capfd.readouterr().out
        assert "[rehearsal-not-run]" in said and "only the function of foreachBatch knows" in said
    orders.answer = lambda plan: CHANGED
    assert task_states(orders.run(TransformStateOperator, sets="value.n = 1")) == {"task": "success"}


def test_a_rehearsal_that_could_not_run_the_application_is_none(
    orders: Orders, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.answer = lambda plan: CHANGED
    unrun = DrillReport(
        job="orders",
        repository="file:///savepoints",
        not_run="Its sink cannot be redirected.",
        scratch="file:///scratch",
        started_at=utc_now(),
        seconds=1.0,
    )
    assert unrun.passed
    monkeypatch.setattr(StateVerbs, "rehearse", lambda *args, **more: unrun)
    run = orders.run(TransformStateOperator, sets="value.n = 1", rehearse=True)
    said = capfd.readouterr().out
    assert orders.plans[-1]["order"]["rehearse"] is True, "it is rejected before it is listed"
    assert task_states(run) == {"task": "failed"} and "[rehearsal-not-run]" in said
    assert "could not run the job's application" in said and "Do not restore b2" in said


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, "transform needs something to set, or keys to delete"),
        ({"where": "key.k = 1", "delete_where": "key.k = 2"}, "nothing is set"),
        ({"sets": "key.k = 1"}, "[repair-key]"),
        ({"sets": "value.n"}, "[bad-expression]"),
        ({"sets": "value.n = 1", "batches": 2}, "batches says how much a rehearsal executes"),
        ({"sets": "value.n = 1", "rehearse": "perhaps"}, "[bad-option]"),
    ],
)
def test_what_cannot_be_a_change_is_refused_before_spark_is_started(
    orders: Orders, capfd: pytest.CaptureFixture[str], asked: dict[str, Any], code: str
) -> None:
    assert task_states(orders.run(TransformStateOperator, **asked)) == {"task": "failed"}
    assert code in capfd.readouterr().out and not orders.plans


def test_a_deep_verification_has_spark_open_the_state_and_records_what_it_found(
    orders: Orders, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    uncounted = {"code": "rows-not-counted", "severity": "info", "file": "state/0", "cause": "Not counted.",
                 "effect": "So it is.", "hint": ""}  # fmt: skip
    orders.answer = lambda plan: {"findings": [uncounted]}
    result = xcom(orders.run(VerifySavepointOperator, level="deep"), "task")
    assert (result["level"], result["ok"], result["findings"]) == ("deep", True, 0)
    assert orders.plans[-1]["order"] == {"operation": "verify"}
    assert "state/0: Not counted. So it is." in caplog.text

    broken = {**uncounted, "code": "rows-differ", "severity": "error", "cause": "Rows differ."}
    orders.answer = lambda plan: {"findings": [broken]}
    assert task_states(orders.run(VerifySavepointOperator, level="deep")) == {"task": "failed"}
    assert "damaged: state/0: Rows differ." in capfd.readouterr().out
    (only,) = orders.repository.manifests("orders")
    assert only.verified_ok is False

    def refuse(plan: Mapping[str, Any]) -> dict[str, Any]:
        raise RefusedError("No.", code="no-state-schema", hint="Wait.")

    orders.answer = refuse
    assert task_states(orders.run(VerifySavepointOperator, level="deep")) == {"task": "failed"}


REAL = """
repository = "savepoints"
[defaults]
master = "local[1]"
[jobs.sums]
application = "app.py"
checkpoint = "sums/checkpoint"
[jobs.chain]
application = "app.py"
checkpoint = "chain/checkpoint"
replicate.to = ["replica"]
"""


@pytest.mark.spark
@pytest.mark.storm
@pytest.mark.timeout(1800)
def test_a_real_spark_verifies_judges_repairs_and_erases(
    airflow_database: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(REAL, encoding="utf-8")
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    sums = open_store(unpack("4.3.0/rocksdb-window", tmp_path / "sums") / "checkpoint")
    chain = open_store(unpack("4.3.0/hdfs-chain", tmp_path / "chain") / "checkpoint")
    taken = take(TakeRequest(sums, repository, "sums"))
    for batch in (7, 8):
        last = take(TakeRequest(chain, repository, "chain", batch=batch))
    replicate_to(repository, open_store, str(tmp_path / "replica"), newest_first(repository, "chain"))
    rules: dict[str, Any] = {"rules": ["value.sum <= 90"], "jobs_file": str(jobs), "job": "sums"}
    with DAG(
        "own", schedule=None, render_template_as_native_obj=True, params={"key": '{"k": "k1"}'},
        default_args={"retries": 0},
    ) as dag:  # fmt: skip
        deep = VerifySavepointOperator(task_id="deep", level="deep", job="sums", jobs_file=str(jobs))
        judge = ValidateStateOperator(task_id="judge", fail_on_broken=False, **rules)
        repair = ValidateStateOperator(
            task_id="repair", repairs=("value.sum = least(value.sum, 90)",), **rules
        )
        again = ValidateStateOperator(
            task_id="again", savepoint="{{ ti.xcom_pull('repair')['savepoint'] }}", **rules
        )
        erase = EraseStateOperator(task_id="erase", key="{{ params.key }}", job="chain", jobs_file=str(jobs))
        deep >> judge >> repair >> again >> erase

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    assert xcom(run, "deep")["level"] == "deep" and xcom(run, "deep")["ok"] is True
    judged, mended = xcom(run, "judge"), xcom(run, "repair")
    assert judged["of"] == f"sums/{taken.savepoint}" and judged["broken"] > 0 and judged["savepoint"] is None
    assert mended["repaired"] == judged["broken"]
    assert repository.load("sums", mended["savepoint"]).derived_from == taken.savepoint
    assert (xcom(run, "again")["of"], xcom(run, "again")["ok"]) == (f"sums/{mended['savepoint']}", True)
    erased = xcom(run, "erase")
    assert erased["of"] == f"chain/{last.savepoint}" and erased["keys"] > 0 and erased["rows"] > 0
    assert (erased["searched"], erased["savepoints"], erased["holding"]) == (True, 5, 4)
    assert f"Checkpoint file://{tmp_path}/chain/checkpoint may hold the key" in capfd.readouterr().out
