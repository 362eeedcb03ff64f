"""Operators, sensors and the hook on a job that no jobs file declares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.serialization.serialized_objects import DagSerialization

from streambank.control.marker import renew_marker
from streambank.core.errors import InputError
from streambank.declaration.fields import merge
from streambank.declaration.given import plain
from streambank.declaration.streaming_job import StreamingJob
from streambank_airflow.assets import batch_asset
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed
from tests.support.paths import ROOT
from tests.support.refuses import refuses

pytestmark = pytest.mark.usefixtures("airflow_database")


ELSEWHERE = """
import asyncio, json, sys
from streambank_airflow.triggers.job import JobStatusTrigger

async def main():
    trigger = JobStatusTrigger(**{**json.loads(sys.argv[1]), "states": ["stopped"]})
    event = await anext(aiter(trigger.run()))
    job = (await trigger.aopen_hook()).declared.job("flights")
    print(json.dumps([event.payload["job"], event.payload["state"], job.description]))

asyncio.run(main())
"""


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """What a program in another process says."""
    paths = os.pathsep.join((str(ROOT / "provider"), str(ROOT)))
    connection = {"AIRFLOW_CONN_STREAMBANK_DEFAULT": '{"conn_type": "streambank"}'}
    known = {**os.environ, **connection, "PYTHONPATH": paths, **environment}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=known, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def given(managed: Managed, **more: Any) -> dict[str, Any]:
    """What the jobs file declares, as data."""
    data = tomllib.loads(managed.jobs_file.read_text(encoding="utf-8"))
    declared = plain(merge(data["jobs"]["flights"], more))
    return {"name": "flights", "repository": data["repository"], "folder": str(managed.folder), **declared}


def said(capfd: pytest.CaptureFixture[str]) -> str:
    captured = capfd.readouterr()
    return captured.out + captured.err


def test_a_job_is_started_saved_stopped_and_restored_without_a_file(managed: Managed) -> None:
    fields = given(managed)
    job = StreamingJob(**fields)
    with DAG("own", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", job=job)
        committed = BatchCommittedSensor(task_id="committed", job=job, poke_interval=0.2)
        take = CreateSavepointOperator(task_id="take", job="flights", declaration=fields, name="before")
        verify = VerifySavepointOperator(task_id="verify", job=job, savepoint="before", level="quick")
        stop = StopStreamingJobOperator(task_id="stop", job=job, savepoint=False)
        restore = RestoreSavepointOperator(task_id="restore", job=job, savepoint="before", sink="accept")
        start >> committed >> take >> verify >> stop >> restore

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    assert xcom(run, "start", "state") == "started"
    assert managed.generation.number == 2
    assert managed.desired.state == "stopped"


def test_a_wait_in_the_triggerer_gets_the_declaration_and_no_value_of_it(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_NOTE", "a value of the environment")
    job = StreamingJob(**given(managed, description="${ORDERS_NOTE}"))
    with DAG("own", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", job=job, deferrable=True)
        running = StreamingJobStatusSensor(task_id="running", job=job, deferrable=True, poke_interval=0.2)
        stop = StopStreamingJobOperator(task_id="stop", job=job, savepoint=False, deferrable=True)
        start >> running >> stop

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    operator: Any = dag.get_task("running")
    kind, arguments = operator.make_trigger().serialize()
    row = json.dumps(arguments)
    assert kind.endswith(".JobStatusTrigger") and "a value of the environment" not in row
    managed.jobs_file.rename(managed.folder / "elsewhere.toml")
    try:
        told = run_python(ELSEWHERE, row, ORDERS_NOTE="another value")
    finally:
        (managed.folder / "elsewhere.toml").rename(managed.jobs_file)
    assert json.loads(told.splitlines()[-1]) == ["flights", "stopped", "another value"]


def test_templates_within_it_are_rendered_and_a_task_may_make_it(managed: Managed) -> None:
    fields = given(managed)
    templated = {**fields, "description": "of {{ params.day }}", "tags": ["{{ params.day }}"]}
    with DAG("own", schedule=None, params={"day": "monday"}) as dag:

        @task
        def declared() -> dict[str, Any]:
            return fields

        made = StreamingJobStatusSensor(
            task_id="made", job="flights", declaration=declared(), states=["never-started"], poke_interval=0.2
        )
        rendered = StreamingJobStatusSensor(
            task_id="rendered", job="flights", declaration=templated, states=["never-started"]
        )
        text = StreamingJobStatusSensor(
            task_id="text",
            job="flights",
            declaration="{{ ti.xcom_pull(task_ids='declared') | tojson }}",
            states=["never-started"],
        )
        made >> rendered >> text
    DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    operator: Any = dag.get_task("rendered")
    operator.render_template_fields({"params": {"day": "monday"}})
    job = StreambankHook(declaration=operator.declaration).declared.job("flights")
    assert (job.description, job.tags) == ("of monday", ("monday",))


def test_a_mapped_task_takes_a_declaration_each(managed: Managed, tmp_path: Path) -> None:
    fields = given(managed)
    others = [
        {**fields, "name": name, "checkpoint": str(tmp_path / name), "control": str(tmp_path / "control")}
        for name in ("a", "b")
    ]
    with DAG("own", schedule=None) as dag:
        StreamingJobStatusSensor.partial(
            task_id="seen", states=["never-started"], poke_interval=0.2
        ).expand_kwargs([{"job": one["name"], "declaration": one} for one in others])
        StreamingJobStatusSensor.partial(
            task_id="waited", job=StreamingJob(**others[0]), poke_interval=0.2, states=["never-started"]
        ).expand(failed_states=[["failed"], ["stopped"]])
    DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}


def test_a_file_and_a_declaration_are_refused_together(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    with refuses(InputError, "bad-option", hint="Leave one of them out"):
        StreambankHook(jobs_file=managed.jobs_file, declaration=given(managed))
    with DAG("own", schedule=None, params={"file": str(managed.jobs_file)}) as dag:
        StartStreamingJobOperator(
            task_id="start", job="flights", jobs_file="{{ params.file }}", declaration=given(managed)
        )

    assert task_states(run_dag(dag)) == {"start": "failed"}
    assert "Both jobs_file and declaration are given" in said(capfd)
    assert managed.control.lease.view() is None


def test_they_are_refused_when_the_dag_is_read_where_both_are_known(managed: Managed) -> None:
    """As where `default_args` names the file of all others."""
    fields = given(managed)
    usual = {"jobs_file": managed.jobs_file}
    both: list[dict[str, Any]] = [
        {"job": "flights", "declaration": fields},
        {"job": StreamingJob(**fields)},
    ]
    for one in both:
        with (
            DAG("own", schedule=None, default_args=usual),
            refuses(InputError, "bad-option", hint="Leave one of them out"),
        ):
            StartStreamingJobOperator(task_id="start", **one)
    with refuses(InputError, "bad-option", match="Both job and declaration"):
        StartStreamingJobOperator(
            task_id="start", job=StreamingJob(**fields), declaration={**fields, "name": "b"}
        )


def test_a_declaration_may_name_the_job(managed: Managed) -> None:
    more: dict[str, Any] = {"declaration": given(managed)}
    assert StartStreamingJobOperator(task_id="start", **more).job == "flights"
    assert StreamingJobStatusSensor(task_id="seen", **more).job == "flights"
    without: list[dict[str, Any]] = [{}, {"declaration": {"application": "/a.py"}}]
    for nameless in without:
        with refuses(InputError, "bad-option", match="job must not be empty"):
            StartStreamingJobOperator(task_id="start", **nameless)


SECRETS: dict[str, dict[str, Any]] = {
    "spark.spark.hadoop.fs.s3a.secret.key": {"spark": {"spark.hadoop.fs.s3a.secret.key": "planted-1"}},
    "state.spark.a.password": {"state": {"spark": {"a": {"password": "planted-1"}}}},
    "launch.settings.a.token": {"launch": {"settings": {"a.token": "planted-1"}}},
    "kafka.config.sasl.password": {"kafka": {"config": {"sasl.password": "planted-1"}}},
    "sinks.url": {"sinks": [{"kind": "ledger", "url": "postgresql://me:planted-1@host/db"}]},
    "sinks.catalog.token": {"sinks": [{"kind": "iceberg", "catalog": {"token": "planted-1"}}]},
}


@pytest.mark.parametrize("field", SECRETS)
def test_a_secret_in_it_is_refused_before_airflow_stores_it(managed: Managed, field: str) -> None:
    fields = given(managed, **SECRETS[field])
    makers: list[Any] = [
        lambda: StartStreamingJobOperator(task_id="a", job="flights", declaration=fields),
        lambda: StreamingJobStatusSensor(task_id="a", job="flights", declaration=fields),
        lambda: StreamingJob(**fields),  # mapped, it would be stored by its repr
        lambda: batch_asset("flights", declaration=fields),
        lambda: build_dags(jobs=[fields]),
    ]
    for make in makers:
        with DAG("own", schedule=None):
            with refuses(InputError, "bad-declaration", match=f"flights: {field}: it ") as caught:
                make()
            assert "planted-1" not in f"{caught.value} {caught.value.hint}"


def test_what_only_names_a_secret_is_none(managed: Managed) -> None:
    config = {"sasl.password": "${KAFKA_PASSWORD}", "ssl.ca.location": "/etc/ca.pem"}
    fields = given(managed, kafka={"config": config}, sinks=[{"kind": "ledger", "url": "${URL}"}])
    with DAG("own", schedule=None):
        StartStreamingJobOperator(task_id="a", job=StreamingJob(**fields))


def test_a_mistake_in_it_fails_the_task_before_anything_is_begun(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    with DAG("own", schedule=None) as dag:

        @task
        def declared() -> dict[str, Any]:
            return given(managed, spark={"spark.hadoop.fs.s3a.secret.key": "planted-1"})

        made: Any = declared()
        StartStreamingJobOperator(task_id="start", job="flights", declaration=made)
        StreamingJobStatusSensor(task_id="seen", job="flights", declaration=made, deferrable=True)

    assert task_states(run_dag(dag)) == {"declared": "success", "start": "failed", "seen": "failed"}
    output = said(capfd)
    assert "Declaration of job flights: spark.spark.hadoop.fs.s3a.secret.key: it is a credential" in output
    assert managed.control.lease.view() is None


def test_code_is_found_beside_the_dag_file_and_nothing_is_kept_there(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {
        "repository": managed.folder / "repository",
        "checkpoint": managed.folder / "checkpoints/flights",
    }
    fields = {name: one for name, one in {**given(managed), **plain(places)}.items() if name != "folder"}
    code = Path(managed.job.application)
    with DAG("own", schedule=None) as dag:
        dag.fileloc = str(code.with_name("dag.py"))
        relative = StartStreamingJobOperator(
            task_id="relative", job="flights", declaration={**fields, "checkpoint": "checkpoint"}
        )
        beside = StartStreamingJobOperator(
            task_id="beside",
            job="flights",
            declaration={**fields, "application": code.name},
            trigger_rule="all_done",
        )
        relative >> beside

    assert task_states(run_dag(dag)) == {"relative": "failed", "beside": "success"}
    assert "the folder of a DAG file may change with its version" in said(capfd)
    assert managed.driver_lives(), "the records are where the jobs file has them"


def test_the_asset_of_a_stream_takes_one(managed: Managed) -> None:
    job = StreamingJob(**given(managed))
    asset = batch_asset("flights", declaration=job)
    with DAG("own", schedule=[asset]) as dag:
        pass
    DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))

    trigger: Any = asset.watchers[0].trigger
    _, arguments = trigger.serialize()
    assert (arguments["declaration"], arguments["jobs_file"]) == (job.to_dict(), None)
    assert trigger.memory_key == batch_asset("flights").watchers[0].trigger.memory_key  # type: ignore[attr-defined]


def test_another_declaration_of_the_job_never_makes_a_second_driver(
    managed: Managed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = given(managed)
    others = {
        "args": {**one, "args": ["--period-s", "0.2"]},
        "control": {**one, "control": str(tmp_path / "other-control")},
        "repository": {**one, "repository": str(tmp_path / "other-repository")},
    }
    assert task_states(run_dag(one_task(StartStreamingJobOperator, managed))) == {"task": "success"}
    job = managed.job
    # As the runner does once Spark has started the query, which the stand-in does not.
    not_written = renew_marker(
        job.checkpoint,
        job="flights",
        query="main",
        generation=managed.generation,
        control=managed.control,
        by=BY,
        repository=job.repository,
        facts={"query_id": "1"},
    )
    assert not_written is None
    with DAG("own", schedule=None) as dag:
        for name, other in others.items():
            StartStreamingJobOperator(task_id=name, job="flights", declaration=other)

    run = run_dag(dag)

    assert task_states(run) == {"args": "success", "control": "failed", "repository": "failed"}
    assert xcom(run, "args", "state") == "already-running"
    assert said(capfd).count("checkpoint-of-another-job") >= 2
