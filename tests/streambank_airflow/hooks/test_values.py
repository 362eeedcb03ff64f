"""`${var:NAME}` and `${conn:ID.FIELD}` in a declaration are values of Airflow's, and never a secret."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.declaration.load import load_jobs
from streambank_airflow.hooks import values
from streambank_airflow.hooks.declared import remembered_jobs
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.hooks.values import AirflowValues
from tests.support.jobs.declared import write_jobs
from tests.support.refuses import refuses

pytestmark = pytest.mark.usefixtures("airflow_database")
PASSWORD = "planted-4711"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {
        "conn_type": "postgres",
        "host": "db.example.com",
        "port": 5432,
        "login": "reader",
        "password": PASSWORD,
        "extra": {"region": "eu", "api_key": PASSWORD, "url": f"https://me:{PASSWORD}@host/"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_VAR_STAGE", "prod")


def declared(**more: Any) -> dict[str, Any]:
    return {"name": "a", "application": "/a.py", "checkpoint": "/ck", "repository": "/r", **more}


def test_values_of_airflow_are_filled_in_beside_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "worker")
    texts = ["${HERE}", "${var:stage}/x", "${conn:lake.host}:${conn:lake.port}", "${conn:lake.extra.region}"]
    hook = StreambankHook(
        declaration=declared(args=[*texts, "${var:no-such:-none}", "${var:-env}", "$${var:x}"])
    )

    assert hook.declared.job("a").args == (
        "worker", "prod/x", "db.example.com:5432", "eu", "none", "env", "${var:x}",
    )  # fmt: skip


def test_they_count_in_a_jobs_file_and_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(write_jobs(tmp_path, "${var:stage}"))
    now = [1000.0]
    monkeypatch.setattr("streambank_airflow.hooks.declared.time.monotonic", lambda: now[0])
    assert remembered_jobs(file).job("flights").args == ("prod",)
    with StreambankHook(jobs_file=file).declared.access():
        assert load_jobs(file).job("flights").args == ("prod",), "as a restore looks who reads an output"

    monkeypatch.setattr(AirflowValues, "_variable", lambda self, key: "test")
    assert remembered_jobs(file).job("flights").args == ("prod",)
    now[0] += values.COUNT_S + 1
    assert remembered_jobs(file).job("flights").args == ("test",)


@pytest.mark.parametrize(
    "text",
    [
        "${conn:lake.password}",
        "${conn:lake.password:-x}",
        "${conn:lake.extra.api_key}",
        "${conn:lake.extra.url}",
        "${var:db_password}",
    ],
)
def test_a_secret_is_refused_with_a_way_out(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_DB_PASSWORD", PASSWORD)
    with refuses(InputError, "bad-declaration", hint="environment of the driver") as caught:
        StreambankHook(declaration=declared(args=[text])).declared.job("a")

    assert "is a credential" in caught.value.message and PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {"private_key": PASSWORD},
        json.dumps({"private_key": PASSWORD}),
        [PASSWORD],
        f"user:\n  token: {PASSWORD}",
    ],
)
@pytest.mark.parametrize("name", ["keyfile_dict", "kube_config", "headers", "service_config"])
def test_what_is_no_single_value_may_hold_a_secret(
    name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = {
        "conn_type": "google_cloud_platform",
        "extra": {name: value, "project": "p", "pattern": "[a-z]+"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_CLOUD", json.dumps(cloud))
    values = AirflowValues()

    with refuses(InputError, "bad-declaration", hint="environment of the driver") as caught:
        values.look_up(f"conn:cloud.extra.{name}")

    assert PASSWORD not in str(caught.value)
    assert [values.look_up(f"conn:cloud.extra.{one}") for one in ("project", "pattern")] == ["p", "[a-z]+"]


def test_the_login_of_an_aws_connection_is_the_id_of_an_access_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUD", json.dumps({"conn_type": "aws", "login": "AKIAPLANTED"}))

    with refuses(InputError, "bad-declaration", hint="environment of the driver") as caught:
        AirflowValues().look_up("conn:cloud.login")
    assert "AKIAPLANTED" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("${var:nothing}", "args: var:nothing of Airflow is not set"),
        ("${conn:nowhere.host}", "args: conn:nowhere.host of Airflow is not set"),
        ("${conn:lake}", "args: conn:lake names no field of a connection"),
        ("${conn:lake.uri}", "args: conn:lake.uri names no field of a connection"),
    ],
)
def test_what_is_not_there_is_a_mistake_that_names_the_field(text: str, what: str) -> None:
    with refuses(InputError, "bad-declaration") as caught:
        StreambankHook(declaration=declared(args=[text])).declared.job("a")
    assert what in caught.value.message


def test_secrets_that_are_read_later_come_from_the_environment_alone() -> None:
    kafka = {"config": {"sasl.username": "${conn:lake.login}"}}
    with refuses(InputError, "bad-declaration") as caught:
        StreambankHook(declaration=declared(kafka=kafka)).declared.job("a")
    assert "conn:lake.login is a value of Airflow, and only Airflow can read it" in caught.value.message


def test_an_airflow_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(conn_id: str) -> Any:
        raise ConnectionError("no API server")

    monkeypatch.setattr(values, "find_connection", fail)
    with refuses(StorageError, "airflow-not-reached"):
        StreambankHook(declaration=declared(args=["${conn:lake.host}"])).declared.job("a")


def test_in_the_triggerer_airflow_is_asked_in_its_own_loop() -> None:
    async def look() -> tuple[str, ...]:
        hook = await StreambankHook.aopen("streambank_default", None, declared(args=["${conn:lake.host}"]))
        job = await asyncio.to_thread(hook.declared.job, "a")
        return job.args

    assert asyncio.run(look()) == ("db.example.com",)
