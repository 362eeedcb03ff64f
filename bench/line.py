"""What it costs to keep the line of a job on the page, and to watch it: one line of JSON comes out.

    python -m bench.line [--declared 1000] [--jobs 20] [--events 2000] [--against REVISION]

A job with a driver that works, savepoints, a week of progress and many events is made, without Spark, and so
many copies of its records; the jobs file declares more jobs. Their lines are kept as a triggerer keeps them,
by `WatchedPage`, but into memory: of each line the seconds of a processor, the files and folders that are
opened, and the values that are read and written in Airflow's database. The same of a look of the watch,
which is made every 5 seconds. With `--against` the code of another revision does the same work on the same
jobs, and `ratio` says how many times the processor time it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AT_LEAST_S = 5.0
"""How long each thing is measured."""
BATCH_EVERY_S = 5
MORE = """
[jobs.{name}.retention]
keep_last = 20
[jobs.{name}.savepoint]
schedule = "*/10 * * * *"
[jobs.{name}.sla]
schedule = "*/10 * * * *"
state_bytes = {{warn = "1GB", breach = "1TB"}}
[jobs.{name}.spark]
"spark.sql.shuffle.partitions" = 64
"spark.executor.memory" = "4g"
"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled" = true
[jobs.{name}.replicate]
to = ["replica"]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.line", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--declared", type=int, default=1000, help="jobs in the jobs file")
    parser.add_argument("--jobs", type=int, default=20, help="jobs with records, of those")
    parser.add_argument("--events", type=int, default=2000, help="records of events of each job")
    parser.add_argument("--against", metavar="REVISION", help="measure the code of that revision, too")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the work of one revision
    options = parser.parse_args(argv)
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return 0
    with TemporaryDirectory(prefix="streambank-bench-") as name:
        folder = Path(name)
        end = make_jobs(folder, options.declared, options.jobs, options.events)
        try:
            answer: dict[str, Any] = {"declared": options.declared, "events": options.events}
            answer["now"] = _measured(folder, ROOT)
            if options.against is not None:
                with TemporaryDirectory(prefix="streambank-bench-") as tree:
                    _unpack(options.against, Path(tree))
                    answer["before"] = _measured(folder, Path(tree))
                answer["ratio"] = {
                    what: round(answer["before"][what]["cpu_s"] / answer["now"][what]["cpu_s"], 1)
                    for what in ("line", "look", "all_parts")
                }
        finally:
            end()
    print(json.dumps(answer))
    return 0


def make_jobs(folder: Path, declared: int, jobs: int, events: int) -> Callable[[], None]:
    """Jobs as `measure` needs them; what ends the driver of the first."""
    from streambank.declaration.load import load_jobs
    from streambank.job.start import start_job
    from streambank.job.stop import stop_job
    from tests.support.jobs.declared import BY, end_drivers, fake_launcher
    from tests.support.overview.shown_job import shown_job

    job = shown_job(folder, more=MORE.format(name="flights"))
    launcher = fake_launcher(folder)
    stop_job(job, by=BY, why="a pause", launcher=launcher)
    file = folder / "streaming_jobs.toml"
    text = file.read_text(encoding="utf-8").replace("'0.05'", f"'{BATCH_EVERY_S}'")
    file.write_text(text, encoding="utf-8")
    job = load_jobs(file).job("flights")
    records = job.records()
    for _ in range(10):  # drivers that came and went
        start_job(job, by=BY, why="again", launcher=launcher)
        stop_job(job, by=BY, why="a pause", launcher=launcher)
    start_job(job, by=BY, why="at last", launcher=launcher)
    number = records.watches.begin(by={"dag_id": "flights.run", "run_id": "bench"}, desired=None)
    desired = records.desired()
    records.watches.sign(number, desired=None if desired is None else desired.number)
    control = Path(records.store.uri.removeprefix("file://"))
    _more_events(control / "events", events)
    own = text.partition("[jobs.flights]")[2]
    names = [f"job-{one:04d}" for one in range(1, declared)]
    for name in names[: jobs - 1]:
        shutil.copytree(control, control.with_name(name), copy_function=os.link)
        checkpoint = folder / "checkpoints"
        shutil.copytree(checkpoint / "flights", checkpoint / name, copy_function=os.link)
    more = "".join(f"[jobs.{one}]{own.replace('flights', one)}" for one in names)
    file.write_text(f"{text}\n{more}", encoding="utf-8")
    (folder / "measured.json").write_text(json.dumps(["flights", *names[: jobs - 1]]), encoding="utf-8")
    return lambda: end_drivers(records)


def _unpack(revision: str, folder: Path) -> None:
    """The code of a revision."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", revision, "provider"], check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")


def _more_events(folder: Path, count: int) -> None:
    """As if the job had saved and verified itself for months."""
    there = sorted(folder.glob("*.json"))
    first, last = int(there[0].stem), int(there[-1].stem)
    for number in range(last, 0, -1):  # the newest events stay the newest
        (folder / f"{number:010d}.json").rename(folder / f"{number + count:010d}.json")
    event = json.dumps({"kind": "savepoint-taken", "at": "2026-11-01T00:00:00.000Z", "savepoint": "b000001"})
    for number in range(first, first + count):
        (folder / f"{number:010d}.json").write_text(event + "\n", encoding="utf-8")


def _measured(folder: Path, tree: Path) -> dict[str, Any]:
    """What the code of a tree makes of it, in a separate process."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tree / "provider"), str(ROOT))),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "bench.line", "--measure", str(folder)]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Memory:
    """Values of one job, counted."""

    def __init__(self, counted: Counter[str]) -> None:
        self.texts: dict[str, str] = {}
        self._counted = counted

    def get(self, key: str) -> Any:
        """See `Values.get`."""
        self._counted["database_reads"] += 1
        return json.loads(self.texts[key]) if key in self.texts else None

    def set(self, key: str, value: Any) -> None:
        """See `Values.set`."""
        self._counted["database_writes"] += 1
        self.texts[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        """See `Values.delete`."""
        self._counted["database_writes"] += 1
        self.texts.pop(key, None)


def measure(folder: Path) -> dict[str, Any]:
    """Of a line, of all parts, and of a look of the watch: what each costs, on average over all jobs."""
    from streambank_airflow.connections.settings import Settings
    from streambank_airflow.hooks.streambank import StreambankHook
    from streambank_airflow.page import keep

    counted: Counter[str] = Counter()
    names: list[str] = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    values = {name: Memory(counted) for name in names}
    setattr(keep, "values_of", values.__getitem__)  # noqa: B010 - so that no Airflow has to run
    file = str(folder / "streaming_jobs.toml")
    clock = _Clock()
    hooks = {name: StreambankHook(jobs_file=file, settings=Settings()) for name in names}
    pages = {name: keep.WatchedPage(hooks[name], name, clock) for name in names}
    watchers = {name: hooks[name].watchers.job(name) for name in names}

    async def kept(name: str, all_at: float) -> None:
        page = pages[name]
        clock.now += 10_000.0  # its line is due
        page._all_at = all_at
        page.after_look("one")
        if page._work is not None:
            await page._work

    def line(name: str) -> None:
        loop.run_until_complete(kept(name, math.inf))

    sys.addaudithook(lambda event, arguments: counted.update((event,)) if event in _COUNTED else None)
    loop = asyncio.new_event_loop()
    try:
        for name in names:
            loop.run_until_complete(kept(name, -math.inf))
        assert all(json.loads(one.texts["line"])["state"] == "running" for one in values.values())
        return {
            "line": _cost(names, line, counted),
            "look": _cost(names, lambda name: watchers[name].look(), counted),
            "all_parts": _cost(names, lambda name: loop.run_until_complete(kept(name, -math.inf)), counted),
        }
    finally:
        loop.close()


_COUNTED = frozenset(("open", "os.listdir"))
"""Audit events of Python: a file or folder that is opened, names that are listed."""


class _Clock:
    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        return self.now


def _cost(names: Sequence[str], act: Callable[[str], object], counted: Counter[str]) -> dict[str, float]:
    for name in names:
        act(name)
    counted.clear()
    times, began, used = 0, time.monotonic(), time.process_time()
    while time.monotonic() - began < AT_LEAST_S:
        for name in names:
            act(name)
            times += 1
            if time.monotonic() - began > AT_LEAST_S:
                break
    used = time.process_time() - used
    each = {name.removeprefix("os."): round(count / times, 1) for name, count in counted.items()}
    return {"times": times, "cpu_s": round(used / times, 5), **each}


if __name__ == "__main__":
    sys.exit(main())
