"""Airflow's REST API, as the demo uses it: log in, trigger, approve, wait, read a task's log."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

FINISHED_STATES = {"success", "failed"}
_NOT_SERVED = "Could not read served logs: "
"""How Airflow says that no server of logs answers at the host's name; the log itself is on the disk."""
UNFINISHED_TASK_STATES = {
    None,
    "scheduled",
    "queued",
    "running",
    "deferred",
    "awaiting_input",
    "up_for_retry",
}

WAITS = ("awaiting_input", "deferred")
"""States of a task that waits for an answer: the second one before Airflow 3.3."""


class RestError(Exception):
    """Airflow refused or could not be reached."""


class RunFailedError(Exception):
    """A DAG run ended in failure; the message carries the last lines of the task that failed."""


class LateRunError(RunFailedError):
    """A DAG run has not ended in time; it may still succeed."""


@dataclass(slots=True)
class Airflow:
    """A logged-in client of one Airflow."""

    url: str
    user: str
    password: str
    token: str = field(default="", repr=False)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call; a token is fetched at first, and again when it has run out.

        Raises:
            RestError: The answer was an error, or there was none within 30 seconds.
        """
        for _attempt in range(2):
            if not self.token:
                credentials = {"username": self.user, "password": self.password}
                self.token = self._send("POST", "/auth/token", credentials)["access_token"]
            try:
                return self._send(method, path, body)
            except _UnauthorizedError:
                self.token = ""
        raise RestError(f"{method} {path}: Airflow does not accept the login")

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")[:500]
            if error.code == 401 and self.token:
                raise _UnauthorizedError(detail) from error
            raise RestError(f"{method} {path}: {error.code} {detail}") from error
        except (OSError, TimeoutError) as error:
            raise RestError(f"{method} {path}: {error}") from error
        return json.loads(text) if text else None

    def is_healthy(self) -> bool:
        """Whether database, scheduler, triggerer and DAG processor all say that they are."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:
                parts = json.loads(answer.read())
        except (OSError, ValueError):
            return False
        wanted = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all((parts.get(part) or {}).get("status") == "healthy" for part in wanted)

    def dags(self) -> dict[str, bool]:
        """The DAGs that have been parsed: id -> paused."""
        return {dag["dag_id"]: dag["is_paused"] for dag in self.call("GET", "/api/v2/dags?limit=100")["dags"]}

    def import_errors(self) -> list[str]:
        """Why files of the DAGs folder could not be loaded."""
        found = self.call("GET", "/api/v2/importErrors")["import_errors"]
        return [f"{error['filename']}: {error['stack_trace']}" for error in found]

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs go."""
        self.call("PATCH", f"/api/v2/dags/{_quoted(dag_id)}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run, as the Trigger button does; its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        run = self.call("POST", f"/api/v2/dags/{_quoted(dag_id)}/dagRuns", body)
        return str(run["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Where a run is: queued, running, success or failed."""
        return str(self.call("GET", _run(dag_id, run_id))["state"])

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The run's tasks with their states and tries."""
        found = self.call("GET", f"{_run(dag_id, run_id)}/taskInstances")["task_instances"]
        return list(found)

    def result(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """What a task returned (its XCom)."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/xcomEntries/return_value"
        return self.call("GET", path)["value"]

    def log_lines(self, dag_id: str, run_id: str, task_id: str, tries: int) -> list[str]:
        """The lines of a task's log, as the UI shows them, without those on where it is not."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/logs/{tries}?full_content=true"
        content = self.call("GET", path)["content"]
        return [text for line in content for text in _texts(line) if not text.startswith(_NOT_SERVED)]

    def open_questions(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """What waits for a person's answer in a run (human-in-the-loop tasks).

        The question is there some time before its task waits. An answer in between can be lost.
        """
        path = f"{_run(dag_id, run_id)}/hitlDetails?response_received=false"
        asked = self.call("GET", path)["hitl_details"]
        return [one for one in asked if one["task_instance"]["state"] in WAITS]

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Give a person's answer."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_quoted(task_id)}/-1/hitlDetails"
        self.call("PATCH", path, {"chosen_options": [option], "params_input": {}})

    def wait(
        self, dag_id: str, run_id: str, *, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until a run has succeeded.

        Args:
            dag_id: The DAG.
            run_id: Its run.
            timeout_s: How long it may take.
            meanwhile: Called twice a second; raises to stop waiting.

        Raises:
            RunFailedError: It failed, or a task of it failed.
            LateRunError: It took too long.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            meanwhile()
            state = self.run_state(dag_id, run_id)
            if state == "success":
                return
            if state == "failed":
                raise RunFailedError(f"{dag_id} failed.\n{self.why(dag_id, run_id)}")
            if time.monotonic() > deadline:
                raise LateRunError(
                    f"{dag_id} is still {state} after {timeout_s:.0f} s.\n{self.why(dag_id, run_id)}"
                )
            time.sleep(0.5)

    def wait_for_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *,
        timeout_s: float,
        states: frozenset[str] = frozenset({"success"}),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until one task of a run is in one of these states, while the run itself may go on.

        Raises:
            RunFailedError: It failed or was skipped instead, or it took too long.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            meanwhile()
            found = {task["task_id"]: task["state"] for task in self.tasks(dag_id, run_id)}
            state = found.get(task_id)
            if state in states:
                return
            if state in {"failed", "upstream_failed", "skipped"} or time.monotonic() > deadline:
                raise RunFailedError(f"{dag_id}: task {task_id} is {state}.\n{self.why(dag_id, run_id)}")
            time.sleep(0.5)

    def why(self, dag_id: str, run_id: str, lines: int = 25) -> str:
        """The last log lines of each task that failed or has not finished."""
        parts: list[str] = []
        for task in self.tasks(dag_id, run_id):
            state = task["state"]
            if state == "failed" or state in UNFINISHED_TASK_STATES:
                parts.append(f"{task['task_id']}: {state}")
                if task["try_number"]:
                    try:
                        parts += self.log_lines(dag_id, run_id, task["task_id"], task["try_number"])[-lines:]
                    except RestError as error:
                        parts.append(f"(its log cannot be read: {error})")
        return "\n".join(parts)


def _texts(line: Any) -> list[str]:
    """A structured log line as text: what happened, and which exceptions it carries."""
    if not isinstance(line, dict):
        return [str(line)]
    event = str(line.get("event", ""))
    if event.startswith(("::group::", "::endgroup::")):
        return []
    causes = line.get("error_detail") or ()
    return [event, *(f"{cause.get('exc_type')}: {cause.get('exc_value')}" for cause in causes)]


class _UnauthorizedError(Exception):
    pass


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"
