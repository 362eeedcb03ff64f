"""The keeper: starts Airflow's four processes, and ends them and all that came of them when it is told to.

It is a process of its own, so that Ctrl-C at the terminal reaches the storyteller alone, and that `make up`
can leave Airflow running. It ends on TERM, and (unless told to stay) the moment the storyteller is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from demo import processes, stack
from demo.places import ROOT, Places

GRACE_S = 6.0  # the triggerer does not always end on TERM
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class KeeperState:
    """What the keeper tells others, as JSON beside what it keeps.

    Attributes:
        pid: The keeper's.
        started: Its start time in clock ticks since boot.
        phase: starting, running, ended, or failed.
        detail: Why it failed.
        url: Where Airflow listens.
        services: Airflow's processes: name -> pid.
        left_behind: What could not be ended (pid and command); empty, or a bug.
    """

    pid: int
    started: int
    phase: str
    detail: str
    url: str
    services: dict[str, int]
    left_behind: list[str]


def read_state(places: Places) -> KeeperState | None:
    """What the keeper last said, or None where there is none."""
    try:
        return KeeperState(**json.loads(places.keeper.read_text()))
    except FileNotFoundError:
        return None


def is_running(places: Places) -> bool:
    """Whether a keeper holds this demo folder now."""
    state = read_state(places)
    if state is None:
        return False
    process = processes.look_at(state.pid)
    return process is not None and process.started == state.started and not process.is_zombie


class Keeper:
    """Starts, watches and ends; one per demo folder."""

    def __init__(self, places: Places, url: str, environment: dict[str, str]) -> None:
        self.places = places
        self.url = url
        self.environment = environment
        self.services: dict[str, int] = {}
        self.asked_to_end = False

    def run(self) -> int:
        """Keep Airflow until told to end; 0 when everything that was started is gone."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._end)
        self._say("starting")
        problem = self._migrate()
        if not problem and not self.asked_to_end:
            for name, arguments in stack.SERVICES.items():
                self.services[name] = self._start(name, arguments)
            self._say("running")
            problem = self._watch()
        if problem:
            self._say("failed", problem)
        left = processes.end(
            lambda: processes.descendants(os.getpid()),
            grace_s=GRACE_S,
            on_poll=lambda: _ignore(processes.reap()),
        )
        left_behind = [f"{process.pid} {process.command}" for process in left]
        self._say("failed" if problem else "ended", problem, left_behind)
        return 1 if problem or left_behind else 0

    def _migrate(self) -> str:
        pid = self._start("migrate", ("db", "migrate"))
        while not self.asked_to_end:
            ended = processes.reap()
            if pid in ended:
                return (
                    ""
                    if ended[pid] == 0
                    else f"airflow db migrate ended with {ended[pid]}: see {self._log('migrate')}"
                )
            time.sleep(LOOK_EVERY_S)
        return ""

    def _watch(self) -> str:
        names = {pid: name for name, pid in self.services.items()}
        while not self.asked_to_end:
            for pid, code in processes.reap().items():
                if pid in names:
                    name = names[pid]
                    return f"airflow {name} ended by itself with {code}: see {self._log(name)}"
            time.sleep(LOOK_EVERY_S)
        return ""

    def _start(self, name: str, arguments: tuple[str, ...]) -> int:
        with self._log(name).open("ab") as log:
            started = subprocess.Popen(
                stack.airflow_command(*arguments),
                cwd=self.places.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=processes.die_with_parent,
            )
        started.returncode = 0  # `reap` collects it; Popen must not
        return started.pid

    def _log(self, name: str) -> Path:
        return self.places.logs / f"{name}.log"

    def _end(self, number: int, frame: object) -> None:
        self.asked_to_end = True

    def _say(self, phase: str, detail: str = "", left_behind: list[str] | None = None) -> None:
        me = processes.look_at(os.getpid())
        assert me is not None
        state = KeeperState(
            pid=me.pid,
            started=me.started,
            phase=phase,
            detail=detail,
            url=self.url,
            services=self.services,
            left_behind=left_behind or [],
        )
        temporary = self.places.keeper.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(state), indent=2))
        temporary.replace(self.places.keeper)


def _ignore(_: object) -> None:
    """Children that end while everything ends are no news."""


def start(places: Places, url: str, environment: dict[str, str], *, stay: bool) -> subprocess.Popen[bytes]:
    """Start a keeper.

    Args:
        places: The demo's folders; `places.logs` exists.
        url: Where its Airflow will listen.
        environment: Airflow's, with its secrets: handed over by the environment, never by the command line.
        stay: Whether it outlives us.
    """
    command = [sys.executable, "-m", "demo.keeper", "--home", str(places.home), "--url", url]
    if not stay:
        command += ["--parent", str(os.getpid())]
    with (places.logs / "keeper.log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def main() -> int:
    """Run a keeper; only `start` calls this."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--parent", type=int)
    options = parser.parse_args()
    processes.adopt_orphans()
    if options.parent is not None:
        processes.die_with_parent()
        if os.getppid() != options.parent:
            return 1
    return Keeper(Places(options.home), options.url, dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
