"""Airflow as four processes of its own, each of which can be killed and started again, and what it says.

States are read from its database, since the API server may be what was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo import airflow_parts, ports, processes
from demo.places import PROCESS_MARK, Places
from demo.rest import Airflow, RestError

QUICK: Mapping[str, str] = {
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}
"""Who is gone is noticed within seconds; by default it is five minutes."""
ENDED = frozenset({"success", "failed"})
WAITS = ("awaiting_input", "deferred")
"""The states of a task that waits for a person, in Airflow 3.3 and before."""
NOTED_S = 3.0
"""How long a task has waited before it is answered."""
DRIVER = "--launch"
"""What is in the arguments of a driver's processes, and of nobody else's."""


@dataclass
class LiveAirflow:
    """One Airflow.

    Attributes:
        sessions: Of all that were ever started: who lost its parent is found by it, and by nothing else where
            it has overwritten its environment with a title.
        waiting: Since when a try of a task was seen to wait for a person, by a monotonic clock.
    """

    places: Places
    environment: dict[str, str]
    client: Airflow
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)
    waiting: dict[tuple[str, int], float] = field(default_factory=dict)

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of Airflow's commands, in a separate session; its log has the command's name."""
        with (self.places.logs / f"{arguments[0]}.log").open("ab") as log:
            started = subprocess.Popen(
                airflow_parts.airflow_command(*arguments),
                cwd=self.places.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.sessions.add(started.pid)
        return started

    def left(self) -> list[processes.Process]:
        """All that came of it and lives."""
        own = [one for one in processes.everything().values() if one.session in self.sessions]
        return own + processes.marked(PROCESS_MARK, str(self.places.home))

    def start(self, name: str) -> None:
        self.running[name] = self.command(*airflow_parts.SERVICES[name])

    def kill(self, name: str, *, with_children: bool = False) -> list[int]:
        """Kill one of the four with SIGKILL, or it and all below it but drivers, as a lost container is."""
        process = self.running[name]
        assert process.poll() is None, f"{name} had ended by itself"
        below = [one for one in processes.descendants(process.pid) if DRIVER not in one.command]
        victims = [process.pid, *(one.pid for one in below if with_children)]
        for pid in victims:
            _kill(pid)
        process.wait(30)
        return victims

    def kill_worker(self, task_id: str) -> list[int]:
        """Kill what works on a task below the scheduler, not the scheduler; the pids, none where none did."""
        below = processes.descendants(self.running["scheduler"].pid)
        working = [one for one in below if DRIVER not in one.command and _has_children(one.pid, below)]
        for one in working:
            for child in [each for each in processes.descendants(one.pid) if DRIVER not in each.command]:
                _kill(child.pid)
            _kill(one.pid)
        return [one.pid for one in working]

    def back_up(self, copy: Path) -> None:
        """Copy its database while it works."""
        with closing(sqlite3.connect(self._database)) as database, closing(sqlite3.connect(copy)) as to:
            database.backup(to)

    def put_back(self, copy: Path) -> None:
        """Kill all of it but the drivers, and start it again on a copy of its database."""
        for name in self.running:
            self.kill(name, with_children=True)
        for suffix in ("-wal", "-shm", "-journal"):
            self._database.with_name(self._database.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(copy, self._database)
        for name in airflow_parts.SERVICES:
            self.start(name)
        self.wait_until_healthy()

    @property
    def _database(self) -> Path:
        return self.places.airflow / "airflow.db"

    def wait_until_healthy(self) -> None:
        self._poll(self.client.is_healthy, "is not healthy", 180)

    def dags(self) -> set[str]:
        return {str(dag_id) for (dag_id,) in self.rows("SELECT dag_id FROM dag")}

    def states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        rows = self.rows(
            "SELECT task_id, state FROM task_instance WHERE dag_id = ? AND run_id = ?", dag_id, run_id
        )
        return {str(task): state for task, state in rows}

    def run_state(self, dag_id: str, run_id: str) -> str:
        ((state,),) = self.rows("SELECT state FROM dag_run WHERE dag_id = ? AND run_id = ?", dag_id, run_id)
        return str(state)

    def wait_for(
        self, dag_id: str, run_id: str, task_id: str, state: str, meanwhile: Callable[[], None]
    ) -> bool:
        """Wait until a task is in a state; False where it was already past it when it was looked at."""

        def there() -> bool:
            meanwhile()
            now = self.states(dag_id, run_id).get(task_id)
            return now == state or now in ENDED or self.run_state(dag_id, run_id) in ENDED

        self._poll(there, f"{dag_id}.{task_id} is not {state}", 180, every_s=0.05)
        return self.states(dag_id, run_id).get(task_id) == state

    def wait_for_end(
        self, dag_id: str, run_id: str, meanwhile: Callable[[], None], timeout_s: float = 420
    ) -> str:
        def ended() -> bool:
            meanwhile()
            return self.run_state(dag_id, run_id) in ENDED

        self._poll(ended, f"{dag_id} does not end: {self.states(dag_id, run_id)}", timeout_s)
        return self.run_state(dag_id, run_id)

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Clear some tasks of a run, or what has failed, as a person does."""
        which: dict[str, Any] = {"task_ids": list(task_ids)} if task_ids else {}
        body = {"dag_run_id": run_id, "only_failed": not task_ids, "dry_run": False, "reset_dag_runs": True}
        body |= which
        self.client.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", body)

    def approve(self, dag_id: str, run_id: str, option: str = "Approve") -> None:
        """Answer whatever is asked, where anybody listens.

        Airflow 3.3 loses an answer that comes before the task waits, and tries the task again if one comes
        before its scheduler has heard that the worker is done. A person takes longer than that, and so does
        this: call it until the run has ended.
        """
        if not {*self.states(dag_id, run_id).values()} & {*WAITS}:
            return
        try:
            for question in self.client.open_questions(dag_id, run_id):
                task = question["task_instance"]
                if task["state"] not in WAITS:
                    continue
                since = self.waiting.setdefault((task["id"], task["try_number"]), time.monotonic())
                if time.monotonic() - since >= NOTED_S:
                    self.client.answer(dag_id, run_id, task["task_id"], option)
        except RestError:
            return

    def rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        path = f"file:{self._database}?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=30)) as database:
            return database.execute(query, values).fetchall()

    def _poll(self, look: Callable[[], bool], what: str, timeout_s: float, every_s: float = 0.3) -> None:
        deadline = time.monotonic() + timeout_s
        while not look():
            assert time.monotonic() < deadline, f"{what} after {timeout_s:.0f} s"
            time.sleep(every_s)


@contextmanager
def live_airflow(
    home: Path, settings: Mapping[str, str] = QUICK, jobs: Sequence[str] = ("flights",)
) -> Iterator[LiveAirflow]:
    """An Airflow with DAGs that are healthy and unpaused, until the end of the `with`.

    Args:
        home: Where everything of it goes; whatever has this in its environment is ended.
        settings: Beside those of a demo, whose jobs file it has where they name no other.
    """
    places = Places(home)
    for folder in (places.logs, places.data):
        folder.mkdir(parents=True)
    port = ports.any_free()  # not a well-known one: others of these may start meanwhile
    client = Airflow(f"http://{ports.HOST}:{port}", airflow_parts.USER, airflow_parts.write_password(places))
    environment = airflow_parts.environment(places, port) | airflow_parts.streambank_settings(places)
    airflow = LiveAirflow(places, {**environment, **settings}, client)
    try:
        assert airflow.command("db", "migrate").wait(300) == 0
        for name in airflow_parts.SERVICES:
            airflow.start(name)
        airflow.wait_until_healthy()
        wanted = {f"{job}.{verb}" for job in jobs for verb in ("run", "stop", "savepoint", "restore")}
        airflow._poll(lambda: wanted <= airflow.dags(), "the DAGs are not parsed", 300)
        for dag_id in wanted:
            client.unpause(dag_id)
        yield airflow
    finally:
        for process in airflow.running.values():
            if process.poll() is None:
                process.terminate()
        for process in airflow.running.values():
            with suppress(subprocess.TimeoutExpired):  # the triggerer does not always end on TERM
                process.wait(8)
        left = processes.end(lambda: [one for one in airflow.left() if not one.is_zombie], grace_s=8)
        for process in airflow.running.values():
            process.wait(30)
        assert not left, left


def _has_children(pid: int, among: list[processes.Process]) -> bool:
    return any(one.parent == pid for one in among)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
