"""The demo's client of Airflow's API, against a small server that answers as Airflow does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from demo.places import Places
from demo.rest import Airflow, LateRunError, RestError, RunFailedError
from demo.screen import Screen
from demo.story import Story
from tests.support.serving import Quiet, serving

Answers = dict[tuple[str, str], list[tuple[int, Any]]]
RUN = "/api/v2/dags/flights.run/dagRuns/r1"


class FakeAirflow(ThreadingHTTPServer):
    """Gives each request its next answer (the last one again and again) and remembers what was asked."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.asked: list[tuple[str, str, Any, str]] = []


class Handler(Quiet):
    server: FakeAirflow

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path = self.path
        self.server.asked.append((self.command, path, body, self.headers.get("Authorization", "")))
        waiting = self.server.answers.get((self.command, path), [(404, {"detail": "nothing here"})])
        code, data = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        raw = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PATCH = answer


@pytest.fixture
def server() -> Iterator[FakeAirflow]:
    tokens = [(201, {"access_token": "t1"}), (201, {"access_token": "t2"})]
    server = FakeAirflow({("POST", "/auth/token"): tokens})
    with serving(server):
        yield server


@pytest.fixture
def airflow(server: FakeAirflow) -> Airflow:
    return Airflow(f"http://127.0.0.1:{server.server_port}", "admin", "secret")


def test_it_logs_in_once_and_again_when_the_token_has_run_out(server: FakeAirflow, airflow: Airflow) -> None:
    server.answers["GET", RUN] = [(200, {"state": "running"}), (401, {}), (200, {"state": "success"})]
    assert airflow.run_state("flights.run", "r1") == "running"
    assert airflow.run_state("flights.run", "r1") == "success"
    assert [asked[3] for asked in server.asked if asked[1] == RUN] == ["Bearer t1", "Bearer t1", "Bearer t2"]


def test_a_refusal_carries_what_airflow_said(airflow: Airflow) -> None:
    with pytest.raises(RestError, match=r"404.*nothing here"):
        airflow.unpause("flights.run")


def test_an_airflow_that_is_not_there_is_not_healthy() -> None:
    assert not Airflow("http://127.0.0.1:9", "admin", "secret").is_healthy()


def test_all_four_parts_have_to_be_healthy(server: FakeAirflow, airflow: Airflow) -> None:
    parts = {
        name: {"status": "healthy"} for name in ("metadatabase", "scheduler", "triggerer", "dag_processor")
    }
    server.answers["GET", "/api/v2/monitor/health"] = [
        (200, parts | {"triggerer": {"status": None}}),
        (200, parts | {"dag_processor": None}),
        (200, parts),
    ]
    assert [airflow.is_healthy() for _ in range(3)] == [False, False, True]


def test_a_failed_run_says_why(server: FakeAirflow, airflow: Airflow) -> None:
    task = {"task_id": "start", "state": "failed", "try_number": 2}
    log = [
        {"event": "Could not read served logs: HTTPConnectionPool(host='vm', port=8793): no such host"},
        {"event": "::group::Pre Execute"},
        {
            "event": "Task failed",
            "error_detail": [{"exc_type": "RefusedError", "exc_value": "held by pid 7"}],
        },
    ]
    server.answers["GET", RUN] = [(200, {"state": "running"}), (200, {"state": "failed"})]
    server.answers["GET", f"{RUN}/taskInstances"] = [(200, {"task_instances": [task]})]
    server.answers["GET", f"{RUN}/taskInstances/start/logs/2?full_content=true"] = [(200, {"content": log})]
    with pytest.raises(RunFailedError) as caught:
        airflow.wait("flights.run", "r1", timeout_s=20)
    assert str(caught.value).splitlines() == [
        "flights.run failed.",
        "start: failed",
        "Task failed",
        "RefusedError: held by pid 7",
    ]


def test_a_late_run_is_no_failed_one(server: FakeAirflow, airflow: Airflow) -> None:
    server.answers["GET", RUN] = [(200, {"state": "running"})]
    server.answers["GET", f"{RUN}/taskInstances"] = [(200, {"task_instances": []})]
    with pytest.raises(LateRunError, match="is still running after 0 s"):
        airflow.wait("flights.run", "r1", timeout_s=0)


@pytest.mark.parametrize("stay", [True, False])
def test_airflow_stays_up_where_the_drill_is_late(
    server: FakeAirflow,
    airflow: Airflow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stay: bool,
) -> None:
    runs = "/api/v2/dags/flights.drill/dagRuns"
    server.answers["POST", runs] = [(200, {"dag_run_id": "r1"})]
    server.answers["GET", f"{runs}/r1"] = [(200, {"state": "running"})]
    server.answers["GET", f"{runs}/r1/taskInstances"] = [(200, {"task_instances": []})]
    monkeypatch.setattr("demo.story.DRILL_S", 0.0)
    story = Story(Places(tmp_path), airflow, Screen())
    if not stay:
        with pytest.raises(LateRunError):
            story.rehearse(late_is_fine=stay)
        return
    story.rehearse(late_is_fine=stay)
    assert f"still runs after 0 s; its result: {airflow.url}/dags/flights.drill" in capsys.readouterr().out
    assert story.report.drill_batches == 0, "the report has no line of it"


def test_a_wait_can_be_ended_from_outside(server: FakeAirflow, airflow: Airflow) -> None:
    server.answers["GET", RUN] = [(200, {"state": "running"})]

    def gone() -> None:
        raise RuntimeError("Airflow is gone")

    with pytest.raises(RuntimeError, match="Airflow is gone"):
        airflow.wait("flights.run", "r1", timeout_s=20, meanwhile=gone)


def test_a_trigger_carries_the_form(server: FakeAirflow, airflow: Airflow) -> None:
    server.answers["POST", "/api/v2/dags/flights.restore/dagRuns"] = [(200, {"dag_run_id": "r9"})]
    assert airflow.trigger("flights.restore", {"sink": "rollback"}) == "r9"
    assert server.asked[-1][2] == {"logical_date": None, "conf": {"sink": "rollback"}}
