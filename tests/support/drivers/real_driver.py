"""Real drivers for tests: spark-submit of run_query.py, in a separate process group."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streambank.control.control import JobControl
from streambank.control.progress import ProgressRecord
from streambank.core.names import MAIN
from streambank.core.units import to_json_time, utc_now
from streambank.driver.spec import LaunchSpec, QuerySpec, new_launch_id, write_launch
from tests.support.paths import ROOT
from tests.support.sla.progress_scan import ProgressScan
from tests.support.spark.sessions import BUILD_CONF
from tests.support.waiting import DEADLINE_S, wait_for

APPLICATIONS = ROOT / "tests/data/applications"
CONF = {**BUILD_CONF, "spark.driver.memory": "700m"}


@dataclass
class Driver:
    """A driver that was started: its JVM is the child, the Python process is the JVM's."""

    spec: LaunchSpec
    control: JobControl
    log: Path
    child: subprocess.Popen[bytes]

    @property
    def epoch(self) -> int:
        """Its epoch of the lease, once it has one."""
        return int(self.event("driver-started")["epoch"])

    @property
    def python(self) -> int:
        return int(self.event("driver-started")["pid"])

    @property
    def jvm(self) -> int:
        return self.child.pid

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        mine = (e.data for e in self.control.events() if e.data.get("launch_id") == self.spec.launch_id)
        return [data for data in mine if kind in (None, data["kind"])]

    def event(self, kind: str, within_s: float = DEADLINE_S) -> dict[str, Any]:
        """The first event of a kind, waiting for it; fails at once where the driver ends without it."""

        def look() -> list[dict[str, Any]]:
            over = self.child.poll() is not None
            found = self.events(kind)
            assert found or not over, (
                f"driver ended with {self.child.returncode} without {kind}:\n{self.tail()}"
            )
            return found

        found: dict[str, Any] = wait_for(f"event {kind}", look, within_s)[0]
        return found

    def checkpoint(self, query: str = MAIN) -> Path:
        return Path(self.spec.queries[query].checkpoint.removeprefix("file://"))

    def batches(self, log: str, query: str = MAIN) -> list[int]:
        """Batches in the offset log (`offsets`) or the commit log (`commits`)."""
        folder = self.checkpoint(query) / log
        return sorted(int(p.name) for p in folder.glob("[0-9]*")) if folder.is_dir() else []

    def wait_committed(self, batch: int, query: str = MAIN) -> None:
        def look() -> bool:
            assert self.child.poll() is None, f"driver ended with {self.child.returncode}:\n{self.tail()}"
            return batch in self.batches("commits", query)

        wait_for(f"commit of batch {batch}", look)

    def wait_in_batch(self, query: str = MAIN) -> int:
        """Return when a batch is planned and not yet committed: which one."""

        def look() -> list[int]:
            return sorted(set(self.batches("offsets", query)) - set(self.batches("commits", query)))

        planned: list[int] = wait_for("a batch under way", look)
        return planned[-1]

    def wait(self, within_s: float = DEADLINE_S) -> int:
        try:
            return self.child.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver did not end:\n{self.tail()}") from None

    def progress(self, query: str | None = None) -> list[ProgressRecord]:
        """Its progress records; none may be lost, torn or there twice."""
        scan = ProgressScan(self.control.store, query)
        records = list(scan)
        assert (scan.lost, scan.torn, scan.damaged) == (0, 0, 0)
        return records

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """SIGKILL both processes; for clean-up and for crash tests."""
        started = self.events("driver-started")
        for pid in [self.child.pid, *(int(one["pid"]) for one in started)]:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break
        self.child.wait(30)


@dataclass
class Job:
    """A job under a temporary folder, as the engine would have declared it."""

    folder: Path
    name: str = "job"
    queries: Sequence[str] = (MAIN,)
    spark_names: Mapping[str, str] = field(default_factory=dict)
    force_after_s: float = 60.0
    conf: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def control(self) -> JobControl:
        return JobControl.open(str(self.folder / "control"), self.name)

    def spec(self, application: str | Path, *args: str) -> LaunchSpec:
        """A launch spec of an application in tests/data/applications (or elsewhere)."""
        control = self.control
        specs = {}
        for query in self.queries:
            location = f"file://{self.folder}/checkpoint" + ("" if query == MAIN else f"/{query}")
            generations = control.generations(query)
            current = generations.ensure_first(location, by={"user": "test"})
            specs[query] = QuerySpec(current.location, current.number, spark_name=self.spark_names.get(query))
        return LaunchSpec(
            job=self.name,
            launch_id=new_launch_id(),
            application=str(APPLICATIONS / application),
            args=args,
            control=str(self.folder / "control"),
            queries=specs,
            launched_at=to_json_time(utc_now()),
            by={"user": "test"},
            force_after_s=self.force_after_s,
            beat_s=0.5,
            ttl_s=10.0,
        )

    @contextmanager
    def driver(self, application: str | Path, *args: str, **changes: Any) -> Iterator[Driver]:
        """Start a driver; whatever is left of it at the end is killed."""
        spec = replace(self.spec(application, *args), **changes)
        control = self.control
        write_launch(control, spec)
        path = f"{self.folder}/control/{self.name}/{spec.key}"
        log = self.folder / f"{spec.launch_id}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                submit(ROOT / "spark_jobs/run_query.py", "--launch", path, conf=self.conf),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env=environment(**self.variables),
                start_new_session=True,
            )
        driver = Driver(spec, control, log, child)
        try:
            yield driver
        finally:
            driver.kill()


def submit(script: Path, *args: str, conf: Mapping[str, str] | None = None) -> list[str]:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.submodule_search_locations
    home = Path(found.submodule_search_locations[0])
    settings = [x for k, v in {**CONF, **(conf or {})}.items() for x in ("--conf", f"{k}={v}")]
    return [str(home / "bin/spark-submit"), "--master", "local[2]", *settings, str(script), *args]


def environment(**more: str) -> dict[str, str]:
    """What a driver gets from this process: next to nothing."""
    kept = ("PATH", "HOME", "JAVA_HOME", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_DIRS", "TZ")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **more,
    }


def printed(driver: Driver) -> dict[str, Any]:
    """The last JSON object that the application printed on a separate line."""
    lines = [line for line in driver.log.read_text(errors="replace").splitlines() if line.startswith("{")]
    # The JVM writes into the same log: its own warning may follow within the line.
    found: dict[str, Any] = json.JSONDecoder().raw_decode(lines[-1])[0]
    return found
