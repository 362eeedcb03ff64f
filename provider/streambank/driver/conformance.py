"""What every launcher must do, as tests that the author of one runs with pytest.

    from streambank.driver.conformance import LauncherConformance, Trial, rate_job

    class TestEmr(LauncherConformance):
        @pytest.fixture
        def trial(self, tmp_path: Path) -> Trial:
            return Trial(rate_job(tmp_path, "emr", settings={"cluster": "j-1"}))

They start real drivers in the launcher's place, some at a time, and end them. Whether a driver runs is judged
by the job's records, into which the driver itself writes, and never by what the launcher says: so a launcher
that says "ended" of a driver that runs is found out, as is one that starts two, or does not kill.

Each question goes to a new launcher, as in another process, so none can rely on what it remembers.
This module does not need pytest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.processes import who
from streambank.control.requests import STOP
from streambank.core.errors import StorageError, StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import is_of, launched_handle, record_location
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, new_launch_id, write_launch

_APPLICATION = '''"""Rows of a clock, until it is stopped."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").load()
rows.writeStream.format("noop").trigger(processingTime="1 second").start().awaitTermination()
'''
_LOOK_S = 0.2
_LINES = 50


@dataclass(frozen=True, slots=True)
class Trial:
    """What the suite runs with.

    Attributes:
        job: A declared job that nobody has started, and that runs until it is stopped; its records must be
            reachable from here and from the driver.
        make: Makes a launcher of it; the one that the job declares when left out.
        patience_s: How long a driver may take to come up, or to be gone, in seconds.
        second_s: For how long a driver that must not be there is looked out for, in seconds: longer than the
            place takes to start one.
    """

    job: Job
    make: Callable[[], Launcher] | None = None
    patience_s: float = 180.0
    second_s: float = 30.0

    def launcher(self) -> Launcher:
        """A new launcher."""
        return self.make() if self.make is not None else launcher_for(self.job)


def rate_job(
    folder: Path,
    on: str,
    *,
    settings: Mapping[str, str] | None = None,
    repository: str = "repository",
    checkpoint: str = "checkpoint",
    more: str = "",
) -> Job:
    """A job for the suite, that reads a clock and writes nothing.

    Args:
        folder: Where its jobs file and its application are written.
        on: The launcher, as `launch.on` names it.
        settings: What it is told: `launch.settings`.
        repository: Where its savepoints, and beside them its records, are. A relative path is in the folder.
        checkpoint: Where its checkpoint is.
        more: More fields of the job, as TOML.

    Raises:
        InputError: The declaration is wrong (code `bad-declaration`).
    """
    (folder / "application.py").write_text(_APPLICATION, encoding="utf-8")
    told = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in (settings or {}).items())
    file = folder / "streaming_jobs.toml"
    file.write_text(
        f"""repository = {json.dumps(repository)}

[jobs.conformance]
application = "application.py"
checkpoint = {json.dumps(checkpoint)}
{more}
[jobs.conformance.lease]
beat = "500ms"
ttl = "5s"
[jobs.conformance.launch]
on = {json.dumps(on)}
"""
        + (f"[jobs.conformance.launch.settings]\n{told}" if told else ""),
        encoding="utf-8",
    )
    return load_jobs(file).job("conformance")


class LauncherConformance:
    """The tests: inherit them in a class of your own, with a fixture `trial` that gives a `Trial`."""

    def test_a_job_that_was_never_started_has_no_driver(self, trial: Trial) -> None:
        """It finds none, and does not call one running of which it has never heard."""
        control = trial.job.records()
        found = list(trial.launcher().find(control))
        _require(found == [], "it finds a driver of a job that was never started")
        stranger = Handle(
            new_launch_id(), (), None, "no-such-driver" if trial.job.launch.in_cluster else None
        )
        with suppress(StorageError):  # who cannot tell says so
            state = trial.launcher().status(stranger).state
            _require(state == "ended", "it calls a driver running that was never submitted")

    def test_what_cannot_be_launched_is_refused_before_anything_is_recorded(self, trial: Trial) -> None:
        """A jar is no PySpark program; and what can be launched may name its Spark."""
        version = trial.launcher().check(trial.job)
        _require(version is None or isinstance(version, str), "check gives a version, or None")
        try:
            trial.launcher().check(replace(trial.job, application="/no/such/application.jar"))
        except StreambankError:
            return
        raise AssertionError("check lets a job pass whose application is a jar")

    def test_a_driver_is_found_watched_and_killed(self, trial: Trial) -> None:
        """From the submission to the kill, by launchers that know nothing but the job's records."""
        with _launched(trial) as driver:
            driver.wait_for_lease()
            control = driver.control
            driver.require_found()
            other = JobControl.open(control.store.uri.rpartition("/")[0], f"{control.name}-other")
            _require(list(trial.launcher().find(other)) == [], "it finds the driver for another job, too")
            record_location(control, driver.handle)
            known = launched_handle(control, driver.spec.launch_id, driver.handle.processes)
            state = trial.launcher().status(known).state
            _require(state == "running", f"it calls the driver {state} that the records name, and it runs")
            lines = trial.launcher().log_lines(driver.handle, _LINES)
            _require(len(lines) <= _LINES, f"it gives {len(lines)} lines of a log, not at most {_LINES}")
            _require(all(isinstance(line, str) for line in lines), "lines of a log are strings")
            forged = Handle(new_launch_id(), (), None, driver.handle.submission, job=control.name)
            with suppress(StorageError):  # who writes records may give another launch this driver's name
                trial.launcher().kill(forged)
            driver.watch_that_it_is_alone()
            driver.kill()
            driver.require_gone()
            trial.launcher().kill(driver.handle)  # of what is gone: nothing to do, and no error
            _require(trial.launcher().status(driver.handle).state == "ended", "a dead driver came back")

    def test_a_driver_that_stops_by_itself_is_gone(self, trial: Trial) -> None:
        """A stop asks the driver by the job's records; the launcher only says that it has ended."""
        with _launched(trial) as driver:
            epoch = driver.wait_for_lease().epoch
            # With the lease in hand it still asks whether it is wanted: a stop before that is a refusal.
            driver.wait_for_start()
            driver.control.set_desired("stopped", by=who("conformance"), why="")
            driver.control.requests.post(
                STOP,
                epoch=epoch,
                by=who("conformance"),
                drain=False,
                force_after_s=trial.patience_s,
                drain_timeout_s=0.0,
            )
            _until("the driver gave its lease back", lambda: _is_free(driver.control), trial.patience_s)
            driver.require_gone()
            code = trial.launcher().status(driver.handle).exit_code
            _require(code in (None, 0), f"it gives the exit code {code} of a driver that ended well")


class _Driver:
    def __init__(self, trial: Trial, control: JobControl, spec: LaunchSpec, handle: Handle) -> None:
        self.trial, self.control, self.spec, self.handle = trial, control, spec, handle

    def wait_for_lease(self) -> ClaimView:
        """Until it has the lease: at no moment before may it look as if it had ended."""
        deadline = time.monotonic() + self.trial.patience_s
        while True:
            state = self.trial.launcher().status(self.handle)
            view = self.control.lease.view()
            if view is not None and is_of(view, self.spec.launch_id) and not view.free:
                return view
            if state.state == "ended" or time.monotonic() >= deadline:
                said = "\n".join(self.trial.launcher().log_lines(self.handle, _LINES))
                raise AssertionError(
                    f"the driver has not taken the lease, and its launcher calls it {state.state} "
                    f"({state.why}); its log:\n{said}"
                )
            time.sleep(_LOOK_S)

    def wait_for_start(self) -> None:
        """Until it has recorded that it was let run."""

        def started() -> bool:
            return self.control.last_event("driver-started", launch_id=self.spec.launch_id) is not None

        _until("a driver that has the lease records that it has started", started, self.trial.patience_s)

    def require_found(self) -> None:
        """By its launch, once."""
        found = [handle.launch_id for handle in self.trial.launcher().find(self.control)]
        _require(
            found == [self.spec.launch_id], f"it finds {found}, and the driver of {self.spec.launch_id} runs"
        )

    def watch_that_it_is_alone(self) -> None:
        """For a while it runs, is called running, and no other driver of the launch comes up."""
        deadline = time.monotonic() + self.trial.second_s
        while time.monotonic() < deadline:
            state = self.trial.launcher().status(self.handle).state
            self._require_no_other()
            _require(not self._is_dead(), "its driver died by itself")
            _require(state == "running", "it calls a driver ended whose heartbeat goes on")
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        """And see by its heartbeat that it is gone, and that nobody brings it back."""
        self.trial.launcher().kill(self.handle)
        _until("a killed driver has no heartbeat", self._is_dead, self.trial.patience_s)
        deadline = time.monotonic() + self.trial.second_s
        while time.monotonic() < deadline:
            _require(self._is_dead(), "a driver came back that was killed")
            time.sleep(_LOOK_S)

    def require_gone(self) -> None:
        """It is called ended, and found no more."""

        def ended() -> bool:
            return self.trial.launcher().status(self.handle).state == "ended"

        _until("its launcher calls it ended", ended, self.trial.patience_s)
        _until(
            "its launcher finds it no more",
            lambda: not self.trial.launcher().find(self.control),
            self.trial.patience_s,
        )
        self._require_no_other()

    def _is_dead(self) -> bool:
        return _is_free(self.control)

    def _require_no_other(self) -> None:
        """A second driver of a launch is refused the lease, and leaves that behind.

        A refusal with another code is that of a driver that had the lease: its epoch counts it.
        """
        events = [event.data for event in self.control.events()]
        of_drivers = [event for event in events if event.get("kind") == "driver-refused"]
        refused = [event for event in of_drivers if event.get("code") == "lease-held"]
        _require(refused == [], f"it starts more than one driver: {refused}")
        epochs = [record.number for record in self.control.lease.claims.records.history()]
        _require(len(epochs) == 1, f"drivers of one launch have had the epochs {epochs}")


@contextmanager
def _launched(trial: Trial) -> Iterator[_Driver]:
    """A driver, as a start submits it; ended afterwards."""
    job, control, launcher = trial.job, trial.job.records(), trial.launcher()
    by = who("conformance")
    launcher.check(job)
    desired = control.set_desired("running", by=by, why="")
    launch_id = new_launch_id()
    log = launcher.log_path(control, launch_id)
    spec = prepare_launch(job, control, by=by, launch_id=launch_id, log=log, desired=desired.number)
    write_launch(control, spec)
    handle = launcher.submit(job, control, spec)
    driver = _Driver(trial, control, spec, handle)
    try:
        _require(handle.launch_id == launch_id, f"it submitted {handle.launch_id}, not {launch_id}")
        if job.launch.in_cluster:
            _require(
                isinstance(handle.submission, str), "submit does not say what its place calls the driver"
            )
        yield driver
    finally:
        with suppress(StreambankError):
            trial.launcher().kill(handle)


def _is_free(control: JobControl) -> bool:
    view = control.lease.settle()
    return view is None or view.free


def _until(what: str, look: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not look():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(_LOOK_S)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
