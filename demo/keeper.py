"""The keeper: starts parts one after the other, and ends them and their descendants on request.

It is a separate process, so that Ctrl-C at the terminal reaches only the storyteller, and so that `make up`
and `make stack` can leave everything running. It ends on TERM, and (unless it was told to stay) as soon as
the storyteller is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from demo import parts as parts_of
from demo import processes
from demo.parts import Part
from demo.places import PROCESS_MARK, ROOT, Places
from demo.ready import is_ready

GRACE_S = 6.0  # the triggerer does not always end on TERM
LOOK_EVERY_S = 0.2
AGAIN_AFTER_S = 4.0
"""How long it takes until a part that ended by itself is started again."""
AGAIN_AT_MOST = 6
"""How often one part is started again: after that, something is wrong with it."""
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class KeeperState:
    """What the keeper reports about itself, as a JSON file.

    Attributes:
        pid: The keeper's.
        started: Its start time in clock ticks since boot.
        phase: starting, running, ended, or failed.
        detail: Why it failed.
        url: Where Airflow listens.
        services: The parts that run: name -> pid.
        ready: The parts that became ready, or are done, in that order.
        again: How often each part that ended by itself was started again.
        left_behind: What could not be ended (pid and command); empty, or a bug.
    """

    pid: int
    started: int
    phase: str
    detail: str
    url: str
    services: dict[str, int]
    ready: list[str] = field(default_factory=list)
    again: dict[str, int] = field(default_factory=dict)
    left_behind: list[str] = field(default_factory=list)


def read_state(places: Places) -> KeeperState | None:
    """The keeper's newest report, or None if there is none."""
    try:
        return KeeperState(**json.loads(places.keeper.read_text()))
    except FileNotFoundError:
        return None


def is_running(places: Places) -> bool:
    """Whether a keeper holds this folder now."""
    state = read_state(places)
    if state is None:
        return False
    process = processes.look_at(state.pid)
    return process is not None and process.started == state.started and not process.is_zombie


class Keeper:
    """Starts, watches and ends; one per folder."""

    def __init__(self, places: Places, url: str, parts: Sequence[Part]) -> None:
        self.places = places
        self.url = url
        self.parts = {part.name: part for part in parts}
        self.services: dict[str, int] = {}
        self.ready: list[str] = []
        self.again: dict[str, int] = {}
        self.due: dict[str, float] = {}  # what ended, and when it is started again
        self.phase = "starting"
        self.asked_to_end = False

    def run(self) -> int:
        """Keep all parts until told to end; 0 when everything that was started is gone."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._end)
        self._say()
        problem = self._start_all() or self._watch()
        if problem:
            self.phase = "failed"
            self._say(problem)
        left_behind = [f"{process.pid} {process.command}" for process in self._end_all()]
        self.phase = self.phase if problem else "ended"
        self._say(problem, left_behind)
        return 1 if problem or left_behind else 0

    def _start_all(self) -> str:
        """Start every part once the one before is ready, or done; what went wrong, or nothing."""
        for part in self.parts.values():
            if self.asked_to_end:
                return ""
            problem = self._do(part) if part.once else self._begin(part)
            if problem:
                return problem
            if not self.asked_to_end:
                self.ready.append(part.name)
                self._say()
        self.phase = "running"
        self._say()
        return ""

    def _do(self, part: Part) -> str:
        pid = self._start(part)
        deadline = time.monotonic() + part.start_timeout_s
        while not self.asked_to_end:
            ended = processes.reap()
            if pid in ended:
                return "" if ended[pid] == 0 else self._ended_with(part.name, ended[pid])
            problem = self._look_after(ended)
            if problem or time.monotonic() > deadline:
                return problem or self._too_late(part)
            time.sleep(LOOK_EVERY_S)
        return ""

    def _begin(self, part: Part) -> str:
        self.services[part.name] = self._start(part)
        self._say()
        deadline = time.monotonic() + part.start_timeout_s
        while not self.asked_to_end:
            problem = self._look_after(processes.reap())
            if problem:
                return problem
            if not part.ready or is_ready(part.ready):
                return ""
            if time.monotonic() > deadline:
                return self._too_late(part)
            time.sleep(LOOK_EVERY_S)
        return ""

    def _watch(self) -> str:
        while not self.asked_to_end:
            problem = self._look_after(processes.reap())
            if problem:
                return problem
            time.sleep(LOOK_EVERY_S)
        return ""

    def _look_after(self, ended: Mapping[int, int]) -> str:
        """Start again what ended and may be, after a while; why one may not, or nothing."""
        names = {pid: name for name, pid in self.services.items()}
        for pid, code in ended.items():
            if pid not in names:
                continue
            name = names[pid]
            del self.services[name]
            if not self.parts[name].again or name not in self.ready:
                return self._ended_with(name, code)
            if self.again.get(name, 0) >= AGAIN_AT_MOST:
                return f"{self._ended_with(name, code)}\nIt was started again {AGAIN_AT_MOST} times before."
            # Not at once: what it leaves, such as its port, may need a moment to be free again.
            self.due[name] = time.monotonic() + AGAIN_AFTER_S
            self._say()
        for name in [name for name, moment in self.due.items() if time.monotonic() >= moment]:
            del self.due[name]
            self.again[name] = self.again.get(name, 0) + 1
            self.services[name] = self._start(self.parts[name])
            self._say()
        return ""

    def _end_all(self) -> list[processes.Process]:
        """End all but the parts that others need to end well, then those; what could not be ended."""
        last = [pid for name, pid in self.services.items() if self.parts[name].ends_last]

        def others() -> list[processes.Process]:
            kept = {*last, *(child.pid for pid in last for child in processes.descendants(pid))}
            return [one for one in processes.descendants(os.getpid()) if one.pid not in kept]

        def everything() -> list[processes.Process]:
            return processes.descendants(os.getpid())

        left: list[processes.Process] = []
        for select in (others, everything):
            left = processes.end(select, grace_s=GRACE_S, on_poll=_reap)
        return left

    def _too_late(self, part: Part) -> str:
        return f"{part.name} is not ready after {part.start_timeout_s:.0f} s{self._tail(part.name)}"

    def _ended_with(self, name: str, code: int) -> str:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
        return f"{name} ended {how}{self._tail(name)}"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "".join([f"; the end of {self._log(name)}:", *(f"\n  {line}" for line in lines)])

    def _start(self, part: Part) -> int:
        # By the main thread only: the kernel takes the end of the thread that started it for the parent's.
        with self._log(part.name).open("ab") as log:
            started = subprocess.Popen(
                part.command,
                cwd=part.folder,
                env=dict(part.environment),
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

    def _say(self, detail: str = "", left_behind: Sequence[str] = ()) -> None:
        me = processes.look_at(os.getpid())
        assert me is not None
        state = KeeperState(
            pid=me.pid,
            started=me.started,
            phase=self.phase,
            detail=detail,
            url=self.url,
            services=self.services,
            ready=self.ready,
            again=self.again,
            left_behind=list(left_behind),
        )
        temporary = self.places.keeper.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(state), indent=2))
        temporary.replace(self.places.keeper)


def _reap() -> None:
    """Children that end while everything ends are no news."""
    processes.reap()


def start(places: Places, url: str, parts: Sequence[Part], *, stay: bool) -> subprocess.Popen[bytes]:
    """Start a keeper.

    Args:
        places: The folders; `places.logs` exists.
        url: Where its Airflow will listen.
        parts: What it keeps, in the order in which it is started. They are handed over by a pipe, since their
            environments hold secrets: a command line and a file could be read by others.
        stay: Whether it goes on when this process has ended.
    """
    places.keeper.unlink(missing_ok=True)  # what an earlier one said
    command = [sys.executable, "-m", "demo.keeper", "--home", str(places.home), "--url", url]
    if not stay:
        command += ["--parent", str(os.getpid())]
    with (places.logs / "keeper.log").open("ab") as log:
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, PROCESS_MARK: str(places.home)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert running.stdin is not None
    running.stdin.write(parts_of.write(parts))
    running.stdin.close()
    return running


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
    return Keeper(Places(options.home), options.url, parts_of.read(sys.stdin.buffer.read())).run()


if __name__ == "__main__":
    sys.exit(main())
