"""The page on a real Airflow of four processes, with a real driver: what is kept, and who sees it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from demo.rest import Airflow, RestError
from tests.support.airflow_face.live_airflow import QUICK, LiveAirflow, live_airflow
from tests.support.waiting import poll

pytestmark = [pytest.mark.spark, pytest.mark.airflow, pytest.mark.storm, pytest.mark.timeout(1800)]

JOB = "flights"
USERS = "admin:admin,looker:viewer"


def looker(airflow: LiveAirflow) -> Airflow:
    """The client of a user who may only look."""
    file = airflow.places.airflow / "simple_auth_manager_passwords.json.generated"
    password = json.loads(file.read_text(encoding="utf-8"))["looker"]
    return Airflow(airflow.client.url, "looker", password)


def shown(client: Airflow) -> dict[str, Any]:
    answer: dict[str, Any] = client.call("GET", f"/streambank/jobs/{JOB}")
    return answer


def line(client: Airflow) -> dict[str, Any]:
    return shown(client)["line"] or {}


def nothing() -> None:
    return None


def test_the_page_follows_a_job_from_its_start_to_its_stop(tmp_path: Path) -> None:
    settings = {**QUICK, "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS}
    with live_airflow(tmp_path / "demo", settings) as airflow:
        client = looker(airflow)
        (airflow.places.data / "input").mkdir(exist_ok=True)
        before = shown(client)
        assert before["line"] is None and {one["may"]["trigger"] for one in before["dags"]} == {False}
        assert all(one["may"]["trigger"] for one in shown(airflow.client)["dags"])
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{airflow.client.url}/streambank/jobs", timeout=30)
        with pytest.raises(RestError, match="403"):
            client.trigger(f"{JOB}.run", {})

        run = airflow.client.trigger(f"{JOB}.run", {})
        assert airflow.wait_for(f"{JOB}.run", run, "keep_running", "deferred", nothing)
        poll(lambda: line(client).get("state") == "running", timeout_s=120)
        # The triggerer makes the line with its first look and all parts within a minute: a task has made them
        # at the end of the start, too, before the watch began.
        poll(lambda: (line(client).get("watch") or {}).get("watched") is True, timeout_s=180)
        first = line(client)["at"]
        poll(lambda: line(client)["at"] > first, timeout_s=180)
        for part in line(client)["parts"]:
            assert client.call("GET", f"/streambank/jobs/{JOB}/{part}")["error"] is None, part
        assert [one["job"] for one in client.call("GET", "/streambank/jobs")["jobs"]].count(JOB) == 1
        writers = airflow.rows(
            "SELECT DISTINCT last_updated_by_kind FROM asset_state_store WHERE key LIKE 'part/%'"
        )
        assert ("watcher",) in writers

        stop = airflow.client.trigger(f"{JOB}.stop", {"savepoint": False})
        assert airflow.wait_for_end(f"{JOB}.stop", stop, nothing) == "success"
        assert airflow.wait_for_end(f"{JOB}.run", run, nothing) == "success"
        poll(lambda: line(client).get("state") == "stopped", timeout_s=120)
        logs = "".join(file.read_text(errors="replace") for file in airflow.places.logs.glob("*.log"))
        assert "could not be kept" not in logs and "was not kept" not in logs
