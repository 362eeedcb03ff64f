"""`python -m bench.many_jobs`: many managed jobs on one Airflow; writes bench/JOBS.md.

Real drivers, one real Airflow of four processes on SQLite. All jobs declare the same schedules, of savepoints
and of verdicts. Measured over `--minutes`, once all of them run: seconds of a processor and memory of each of
Airflow's processes with all below it, but the drivers; how long the file of the DAGs takes to be parsed; when
savepoints were taken. For a look: `python -m bench.many_jobs --jobs 3 --minutes 2`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.report import machine, paragraph
from demo import processes
from demo.places import PROCESS_MARK
from demo.rest import RestError
from streambank.declaration.load import load_jobs
from streambank.job.stop import ask_to_stop
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.airflow_face.live_airflow import DRIVER, LiveAirflow, live_airflow

RESULTS = Path(__file__).resolve().parent / "JOBS.md"
EVERY = "10 seconds"
LOOK_EVERY_S = 2.0
START_TIMEOUT_S = 1800
TRIGGER_TIMEOUT_S = 120
PARSE_TIMEOUT_S = 300
PARSES = 3

DECLARED = """
[jobs.{name}]
application = "{application}"
args = ["{every}"]
checkpoint = "{folder}/checkpoints/{name}"
master = "local[1]"
env = ["{mark}"]
savepoint = {{ schedule = "*/5 * * * *", stagger = "5m" }}
sla = {{ schedule = "*/5 * * * *" }}
start = {{ timeout = "20m" }}
spark."spark.driver.bindAddress" = "127.0.0.1"
spark."spark.driver.host" = "127.0.0.1"
spark."spark.driver.memory" = "512m"
spark."spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark."spark.sql.shuffle.partitions" = 1
spark."spark.ui.enabled" = false
"""


@dataclass(frozen=True, slots=True)
class Used:
    """What a process and all below it, drivers left out, used.

    Attributes:
        cpu_s: Seconds of a processor, of those that have ended and were waited for, too.
        memory_bytes: Proportional share of what they hold (`smaps_rollup`).
        processes: How many there are.
    """

    cpu_s: float
    memory_bytes: int
    processes: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.many_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="streambank-bench-") as name:
        found = measure(Path(name), options.jobs, options.minutes * 60)
    arguments = f" --jobs {options.jobs} --minutes {options.minutes:g}"
    made = (
        f"Made by `python -m bench.many_jobs{arguments}` on {datetime.now(UTC):%Y-%m-%d}, on {machine()}. "
        f"The load average was {load:.1f} before it."
    )
    text = page(made, found)
    options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def measure(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Start so many jobs by their DAGs, and look at Airflow for so long."""
    home, declared = folder / "airflow", folder / "streaming_jobs.toml"
    names = [f"job{number:02}" for number in range(1, count + 1)]
    application = Path(__file__).with_name("many_jobs_query.py")
    declared.write_text(
        f'repository = "{folder}/repository"\n'
        + "".join(
            DECLARED.format(name=name, application=application, every=EVERY, folder=folder, mark=PROCESS_MARK)
            for name in names
        ),
        encoding="utf-8",
    )
    connection = {"repository": f"{folder}/repository", "jobs_file": str(declared)}
    settings = {
        "AIRFLOW_CONN_STREAMBANK_DEFAULT": json.dumps({"conn_type": "streambank", "extra": connection}),
        "STREAMBANK_JOBS": str(declared),
    }
    with live_airflow(home, settings, names) as airflow:
        try:
            quiet_s = _parse_in_quiet(airflow)
            began = time.monotonic()
            runs = {name: _trigger(airflow, f"{name}.run") for name in names}
            _wait_until_started(airflow, runs)
            started_s = time.monotonic() - began
            for name in names:
                airflow.client.unpause(f"{name}.sla")
            return {
                "jobs": count,
                "started_s": started_s,
                "parse_s": _last_parse(airflow)[1],
                "quiet_parse_s": quiet_s,
                "dags": len(airflow.dags()),
                **_look(airflow, seconds),
                **_runs(airflow),
                **_savepoints(folder / "repository", names),
            }
        finally:
            for job in load_jobs(declared).jobs.values():
                ask_to_stop(job, by={"user": "bench"})


def _trigger(airflow: LiveAirflow, dag_id: str) -> str:
    """Trigger a DAG; SQLite takes one writer at a time, and the API answers 500 where it waited in vain."""
    deadline = time.monotonic() + TRIGGER_TIMEOUT_S
    while True:
        try:
            return airflow.client.trigger(dag_id)
        except RestError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_S)


def _parse_in_quiet(airflow: LiveAirflow) -> list[float]:
    """How long the file that makes all DAGs takes, some times in a row, before any job was started."""
    found: list[float] = []
    deadline = time.monotonic() + PARSE_TIMEOUT_S
    before, _ = _last_parse(airflow)
    while len(found) < PARSES:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the DAGs were not parsed {PARSES} times in {PARSE_TIMEOUT_S} s")
        time.sleep(LOOK_EVERY_S)
        now, seconds = _last_parse(airflow)
        if now != before:
            before = now
            found.append(seconds)
    return found


def _last_parse(airflow: LiveAirflow) -> tuple[str, float]:
    """When the file was parsed last, and how long that took."""
    rows = airflow.rows("SELECT last_parsed_time, last_parse_duration FROM dag")
    at, seconds = max((str(at), float(seconds or 0.0)) for at, seconds in rows)
    return at, seconds


def _wait_until_started(airflow: LiveAirflow, runs: Mapping[str, str]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        states = {name: airflow.states(f"{name}.run", run).get("start") for name, run in runs.items()}
        if set(states.values()) == {"success"}:
            return
        failed = [name for name, state in states.items() if state == "failed"]
        if failed or time.monotonic() > deadline:
            name = (failed or list(states))[0]
            why = airflow.client.why(f"{name}.run", runs[name])
            raise RuntimeError(f"not all jobs have started: {states}\n{why}")
        time.sleep(LOOK_EVERY_S)


def _look(airflow: LiveAirflow, seconds: float) -> dict[str, Any]:
    """What each process used in that time, and the most memory that was seen of it."""
    began, first = time.monotonic(), {name: used(one.pid) for name, one in airflow.running.items()}
    most = {name: one.memory_bytes for name, one in first.items()}
    last = first
    while time.monotonic() - began < seconds:
        time.sleep(LOOK_EVERY_S)
        last = {name: used(one.pid) for name, one in airflow.running.items()}
        most = {name: max(most[name], one.memory_bytes) for name, one in last.items()}
    took = time.monotonic() - began
    shares = {name: (last[name].cpu_s - first[name].cpu_s) / took for name in first}
    return {"seconds": took, "share": shares, "most_bytes": most}


def used(pid: int) -> Used:
    """What a process and all below it, drivers left out, have used so far."""
    members = [pid]
    waiting = [pid]
    seen = processes.everything()
    while waiting:
        parent = waiting.pop()
        for one in seen.values():
            if one.parent == parent and not one.is_zombie and DRIVER not in one.command:
                members.append(one.pid)
                waiting.append(one.pid)
    ticks, memory = 0, 0
    for member in members:
        with suppress(OSError):
            text = Path(f"/proc/{member}/stat").read_text(errors="replace")
            ticks += sum(map(int, text[text.rindex(")") + 2 :].split()[11:15]))
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            memory += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return Used(ticks / os.sysconf("SC_CLK_TCK"), memory, len(members))


def _runs(airflow: LiveAirflow) -> dict[str, Any]:
    """How many runs ended how, of each kind of DAG; those that wait for their job still run."""
    rows = airflow.rows("SELECT dag_id, state FROM dag_run")
    return {"runs": Counter(f"{str(dag_id).rpartition('.')[2]}: {state}" for dag_id, state in rows)}


def _savepoints(repository: Path, names: Sequence[str]) -> dict[str, Any]:
    opened = Repository.open(open_store(repository), create=True)  # none may have been taken
    taken = [one.taken_at for name in names for one in opened.manifests(name) if one.taken_at is not None]
    return {"savepoints": len(taken), "at": Counter(moment.minute % 5 for moment in taken)}


def page(made: str, found: Mapping[str, Any]) -> str:
    """The page, as Markdown."""
    return "\n".join(_lines(made, found)) + "\n"


def _lines(made: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield "# Figures of many jobs on one Airflow"
    yield from paragraph(made)
    yield from paragraph(
        f"{found['jobs']} jobs, each a real driver with a batch every {EVERY}, each with a savepoint and a "
        f"verdict every five minutes, on one Airflow of four processes on SQLite: {found['dags']} DAGs. They "
        f"were started by their DAGs all at once, which took {found['started_s']:.0f} s on these cores."
    )
    quiet = ", ".join(f"{one:.1f}" for one in found["quiet_parse_s"])
    yield from paragraph(
        f"To parse the file that makes all DAGs took {quiet} s before any job was started, and "
        f"{found['parse_s']:.1f} s at the end of that start, beside it."
    )
    yield from ("", "| process | share of one processor | memory at most |", "|---|---:|---:|")
    for name, share in found["share"].items():
        yield f"| {name} | {100 * share:.1f} % | {found['most_bytes'][name] / 1e6:.0f} MB |"
    yield from paragraph(
        f"Over {found['seconds']:.0f} s; the scheduler's include the tasks, which it starts; memory is each "
        "process's fair share (PSS)."
    )
    minutes = ", ".join(f"{minute}: {found['at'].get(minute, 0)}" for minute in range(5))
    yield from paragraph(
        f"{found['savepoints']} savepoints were taken; by their minute after the one that is declared (all "
        f"declare the same) {minutes}."
    )
    yield from paragraph("Runs: " + ", ".join(f"{n} x {what}" for what, n in sorted(found["runs"].items())))


if __name__ == "__main__":
    sys.exit(main())
