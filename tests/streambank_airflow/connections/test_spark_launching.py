"""A connection of the Spark provider says where a job runs, and the link leads there."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.xcom import XCom

from streambank.core.errors import InputError
from streambank.declaration.launch import LaunchPolicy
from streambank.driver.installed import find_installation
from streambank.driver.launchers.choose import launcher_for, placed
from streambank.driver.launchers.local import LocalLauncher
from streambank.job.start import StartResult
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.driver import DRIVER_LOG_KEY, DriverLogLink
from streambank_airflow.operators.job import StartStreamingJobOperator
from tests.support.jobs.declared import write_jobs
from tests.support.refuses import refuses

pytestmark = pytest.mark.airflow


def launch_of(hook: StreambankHook, ref: str) -> LaunchPolicy:
    """Where a job runs, as a verb of the hook sees it."""
    with hook.declared.access():
        return placed(hook.declared.job(ref)).launch


def hook(folder: Path, patch: pytest.MonkeyPatch, more: str = "", **connection: Any) -> StreambankHook:
    patch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", **connection}))
    return StreambankHook(jobs_file=str(write_jobs(folder, more=f'launch.connection = "cluster"\n{more}')))


def test_the_connection_says_what_is_not_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"deploy-mode": "cluster", "queue": "etl", "namespace": "x", "spark-binary": "spark3-submit"}
    one = hook(tmp_path, monkeypatch, 'launch.queue = "mine"', host="yarn", extra=extra)
    found = launch_of(one, "flights")
    assert (found.on, found.deploy_mode, found.master, found.queue) == ("yarn", "cluster", "yarn", "mine")
    assert (found.namespace, found.connection) == (None, None)


def test_the_spark_that_a_connection_names_is_that_of_a_job_that_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "jars").mkdir()
    for name in ("spark-submit", "spark3-submit"):
        (home / "bin" / name).write_text("#!/bin/sh\n")
        (home / "bin" / name).chmod(0o755)
    (tmp_path / "alternatives").mkdir()
    (tmp_path / "alternatives" / "spark3-submit").symlink_to(home / "bin" / "spark3-submit")
    monkeypatch.setenv("PATH", str(tmp_path / "alternatives"))

    def home_of(binary: str | None, more: str = "") -> str | None:
        one = hook(tmp_path, monkeypatch, more, host="yarn", extra={"spark-binary": binary})
        with one.declared.access():
            return placed(one.declared.job("flights")).spark_home

    assert home_of("spark3-submit") == str(home)
    assert home_of("spark3-submit", 'spark_home = "/opt/mine"') == "/opt/mine"
    assert home_of("spark3-submit", 'python = "/opt/venv/bin/python"') is None
    assert home_of("spark-submit") is None, "the form fills that in by itself"
    assert home_of(None) is None
    # What leads to no distribution: the job can still be looked at and stopped; only a start refuses it.
    for name in ("/tmp/evil/spark-submit", "spark2-submit"):
        given = home_of(name)
        with refuses(InputError, "no-pyspark") as missing:
            find_installation(spark_home=given)
        assert f"spark-binary {name!r} of the connection cluster" in missing.value.message
    (home / "jars").rmdir()
    assert str(home_of("spark3-submit")).startswith("spark-binary "), "a script outside of a distribution"


def test_a_name_that_is_too_long_for_the_cluster_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "yarn"}))
    jobs = write_jobs(tmp_path, name="n" * 90, more='launch.connection = "cluster"')
    with refuses(InputError, "bad-connection", match="89 characters"):
        launch_of(StreambankHook(jobs_file=str(jobs)), "n" * 90)


def test_a_standalone_master_is_host_and_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"deploy-mode": "cluster", "rest-port": 6067}
    one = hook(tmp_path, monkeypatch, host="spark://127.0.0.1", port=7077, extra=extra)
    found = launch_of(one, "flights")
    assert (found.on, found.master, found.rest) == (
        "standalone",
        "spark://127.0.0.1:7077",
        "http://127.0.0.1:6067",
    )


def test_in_client_mode_a_driver_is_started_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = hook(tmp_path, monkeypatch, host="spark://127.0.0.1", port=7077)
    assert launch_of(one, "flights").deploy_mode == "client"
    with one.declared.access():
        assert isinstance(launcher_for(one.declared.job("flights")), LocalLauncher)


def test_a_master_that_is_declared_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = hook(tmp_path, monkeypatch, 'master = "local[1]"', host="yarn", extra={"queue": "etl"})
    assert launch_of(one, "flights").master == "local[1]"


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        ({"host": "yarn", "extra": {"keytab": "c2VjcmV0"}}, "keytab"),
        ({"host": "yarn", "extra": {"deploy-mode": "both"}}, "'both'"),
        ({"host": "yarn", "extra": {"queue": 7}}, "must be text"),
        ({"host": "yarn", "extra": {"principal": "etl"}}, "go together"),
    ],
)
def test_what_a_connection_cannot_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], said: str
) -> None:
    with refuses(InputError, "bad-connection") as caught:
        launch_of(hook(tmp_path, monkeypatch, **connection), "flights")
    assert said in caught.value.message and "c2VjcmV0" not in f"{caught.value.message}{caught.value.hint}"


def test_a_connection_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = hook(tmp_path, monkeypatch)
    monkeypatch.delenv("AIRFLOW_CONN_CLUSTER")
    monkeypatch.setattr("streambank_airflow.hooks.connection.find_connection", lambda conn_id: None)
    with refuses(InputError, "no-connection"):
        launch_of(one, "flights")


def test_a_job_without_connection_asks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = StreambankHook(jobs_file=str(write_jobs(tmp_path)))
    monkeypatch.setattr(
        "streambank_airflow.hooks.declared.launch_policy", lambda job: pytest.fail("it was asked")
    )
    assert launch_of(one, "flights") == LaunchPolicy()


def test_the_link_leads_to_the_drivers_page_and_nowhere_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = StartStreamingJobOperator(task_id="start", job="flights")
    pushed: dict[str, str] = {}
    monkeypatch.setattr(XCom, "get_value", lambda *, ti_key, key: pushed.get(key))
    key: Any = SimpleNamespace(
        log_url="http://airflow/log", xcom_push=lambda key, value: pushed.update({key: value})
    )
    context: Any = {"ti": key}
    operator.link_to(context, StartResult("flights", "started"))
    assert (pushed, DriverLogLink().get_link(operator, ti_key=key)) == ({}, "")
    operator.link_to(context, StartResult("flights", "started", tracking="http://rm/app"))
    assert pushed == {DRIVER_LOG_KEY: "http://rm/app"}
    assert DriverLogLink().get_link(operator, ti_key=key) == "http://rm/app"
    resumed = StartStreamingJobOperator(task_id="start", job="flights")
    assert DriverLogLink().get_link(resumed, ti_key=key) == "http://rm/app"
