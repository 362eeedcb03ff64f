"""The suite for launchers: ours and an installed one pass it, and one that lies does not."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.driver.conformance import LauncherConformance, Trial, rate_job
from streambank.driver.launcher import DriverState, Handle
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.launchers.registered import CheckedLauncher
from streambank.driver.spec import LaunchSpec, new_launch_id
from tests.support.drivers.installed_launcher import fake_ssh, install_example
from tests.support.drivers.real_driver import CONF
from tests.support.jobs.declared import declare, end_drivers, fake_installation, fake_launcher
from tests.support.jobs.lifecycle import end_all, live_through_everything
from tests.support.jobs.lines_job import lines_job
from tests.support.processes import child

SPARK = "[jobs.conformance.spark]\n" + "\n".join(
    f"{json.dumps(name)} = {json.dumps(value)}" for name, value in CONF.items() if name != "spark.master"
)
REAL = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example(tmp_path_factory.mktemp("example"))


@pytest.fixture
def site(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(built))
    monkeypatch.setenv("PYTHONPATH", str(built))
    return built


def spark_submit() -> str:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations
    return str(Path(found.submodule_search_locations[0]) / "bin" / "spark-submit")


def told(folder: Path, submit: str) -> dict[str, str]:
    return {
        "host": "edge-node",
        "ssh": str(fake_ssh(folder)),
        "folder": str(folder / "runs"),
        "spark_submit": submit,
    }


def fake_submit(folder: Path) -> str:
    """A spark-submit that runs the fake driver, whatever program it is given."""
    fake = fake_installation(folder)
    submit = folder / "submit"
    submit.write_text(
        "#!/bin/sh\n"
        f"export PYTHONPATH={':'.join(fake.python_path)}\n"
        'while [ "${1%.py}" = "$1" ]; do shift; done; shift\n'
        f'exec {sys.executable} {fake.entry} "$@"\n'
    )
    submit.chmod(0o755)
    return str(submit)


@pytest.fixture
def ended(folder: Path) -> Iterator[None]:
    """Whatever a lying launcher leaves behind is gone afterwards."""
    yield
    for job in ("flights", "conformance"):
        if (folder / "repository.control" / job).is_dir():
            end_drivers(JobControl.open(str(folder / "repository.control"), job))


class TestLocal(LauncherConformance):
    @pytest.fixture
    def trial(self, folder: Path) -> Trial:
        return Trial(declare(folder), lambda: fake_launcher(folder), patience_s=30, second_s=1)


class TestLocalWithSpark(LauncherConformance):
    pytestmark = REAL

    @pytest.fixture
    def trial(self, folder: Path) -> Trial:
        return Trial(rate_job(folder, "local", more=f'master = "local[2]"\n{SPARK}'), second_s=10)


class TestInstalled(LauncherConformance):
    @pytest.fixture
    def trial(self, folder: Path, site: Path) -> Trial:
        # Slow between its lease and its look whether it is wanted: a stop has to wait for that.
        more = 'args = ["--ponder-s", "1"]'
        job = rate_job(folder, "ssh", settings=told(folder, fake_submit(folder)), more=more)
        return Trial(
            replace(job, limits=replace(job.limits, beat_s=0.1, ttl_s=2.0)), patience_s=30, second_s=2
        )


class TestInstalledWithSpark(LauncherConformance):
    pytestmark = REAL

    @pytest.fixture
    def trial(self, folder: Path, site: Path) -> Trial:
        more = f'master = "local[2]"\n{SPARK}'
        return Trial(rate_job(folder, "ssh", settings=told(folder, spark_submit()), more=more), second_s=15)


@pytest.mark.spark
@pytest.mark.storm
@pytest.mark.timeout(900)
def test_a_job_on_an_installed_launcher_lives_through_everything(folder: Path, site: Path) -> None:
    rest = ", ".join(f"{name} = {json.dumps(value)}" for name, value in told(folder, spark_submit()).items())
    more = f'master = "local[2]"\nlaunch = {{on = "ssh", settings = {{{rest}}}}}'
    lines = lines_job(folder, more, {name: value for name, value in CONF.items() if name != "spark.master"})
    try:
        live_through_everything(lines, submitted=True)
    finally:
        end_all(lines)


def test_a_place_that_does_not_answer_never_says_that_a_driver_ended(folder: Path, site: Path) -> None:
    job = rate_job(folder, "ssh", settings=told(folder, fake_submit(folder)))
    launcher, handle = launcher_for(job), Handle(new_launch_id(), (), None, "edge-node:x")
    assert isinstance(launcher, CheckedLauncher)
    assert launcher.status(handle).state == "ended", "it answers, and has none"
    (folder / "down").touch()
    for ask in (lambda: launcher.status(handle), lambda: launcher.find(job.records())):
        with pytest.raises(StorageError):
            ask()
    with pytest.raises(StorageError, match="no launch"):
        launcher.kill(replace(handle, launch_id=".*"))


class Liar(LocalLauncher):
    """A place that is this machine, and has names for its drivers; what it lies about is below."""

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        return replace(super().submit(job, control, spec), submission=spec.launch_id)


class SaysEnded(Liar):
    """Once its driver has been there for a while."""

    def status(self, handle: Handle) -> DriverState:
        log = Path(handle.log or "/nowhere")
        is_up = log.exists() and "fake driver" in log.read_text()
        return DriverState("ended") if is_up else super().status(handle)


class StartsTwo(Liar):
    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        super().submit(job, control, spec)
        return super().submit(job, control, spec)


class KillsNothing(Liar):
    def kill(self, handle: Handle) -> None:
        pass


class FindsNothing(Liar):
    def find(self, control: JobControl) -> list[Handle]:
        return []


class FindsAll(Liar):
    def find(self, control: JobControl) -> list[Handle]:
        return [Handle(new_launch_id(), (), None, "somebody")]


class TakesAll(Liar):
    def check(self, job: Job) -> None:
        pass


KILL = "test_a_driver_is_found_watched_and_killed"


@pytest.mark.parametrize(
    ("liar", "test", "said"),
    [
        (SaysEnded, KILL, "calls it ended|calls a driver ended|calls the driver ended|it calls the driver"),
        (StartsTwo, KILL, "starts more than one driver|calls the driver ended"),
        pytest.param(KillsNothing, KILL, "a killed driver has no heartbeat", marks=pytest.mark.storm),
        (FindsNothing, KILL, "it finds \\[\\]"),
        (FindsAll, "test_a_job_that_was_never_started_has_no_driver", "a job that was never started"),
        (TakesAll, "test_what_cannot_be_launched_is_refused_before_anything_is_recorded", "is a jar"),
    ],
)
def test_a_launcher_that_lies_fails(
    folder: Path, ended: None, liar: type[LocalLauncher], test: str, said: str
) -> None:
    job = declare(folder, more='launch.on = "liar"')
    trial = Trial(job, lambda: liar(fake_installation(folder)), patience_s=6, second_s=2)
    with pytest.raises(AssertionError, match=said):
        getattr(LauncherConformance(), test)(trial)


def test_the_suite_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None\nimport streambank.driver.conformance"
    with child(code) as process:
        assert process.wait() == 0
