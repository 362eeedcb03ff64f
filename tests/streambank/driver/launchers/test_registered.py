"""Launchers of other packages: which one a name stands for, and what it may not do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.records import encode_json
from streambank.core.errors import InputError, RefusedError, StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.doctor.checks.installation import check_launchers, facts
from streambank.doctor.spark_conf import conf_of
from streambank.driver.launcher import Handle
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.launchers.registered import CheckedLauncher, registered
from streambank.driver.location import check_launched_here
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import read_launch, write_launch
from streambank.job.restart import ask_to_restart, restart_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.support.drivers.installed_launcher import install
from tests.support.jobs.declared import BY, ELSEWHERE, declare, fake_launcher, write_jobs
from tests.support.refuses import refuses

GOOD = """
from streambank.driver.launcher import DriverState, Handle
class Launcher:
    def __init__(self, policy):
        self.policy = policy
    def log_path(self, control, launch_id): return None
    def check(self, job): return None
    def submit(self, job, control, spec): return Handle(spec.launch_id, (), None, "s-1")
    def find(self, control): return []
    def status(self, handle): return DriverState("ended")
    def log_lines(self, handle, count): return []
    def kill(self, handle): pass
def nothing(policy): return object()
def fails(policy): raise KeyError("cluster")
"""


def on(folder: Path, name: str, more: str = "") -> Job:
    return declare(folder, more=f'launch.on = "{name}"\n{more}')


@pytest.fixture
def site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("theirs", "others", "broken"):
        sys.modules.pop(name, None)
    place = folder / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    return place


def refused(job: Job) -> InputError:
    with pytest.raises(InputError) as caught:
        launcher_for(job)
    return caught.value


def test_a_package_adds_a_place_with_settings_of_its_own(folder: Path, site: Path) -> None:
    install(site, "theirs", GOOD, emr="Launcher")
    settings = '[jobs.flights.launch.settings]\ncluster = "j-1"\nretries = 3\n"a.b" = true'
    job = on(folder, "emr", settings)
    launcher = launcher_for(job)
    assert isinstance(launcher, CheckedLauncher)
    policy = vars(launcher.launcher)["policy"]
    assert policy == job.launch and policy.in_cluster and policy.master is None
    assert policy.settings == {"cluster": "j-1", "retries": "3", "a.b": "true"}
    spec = prepare_launch(job, job.records(), by=BY)
    assert (spec.on, spec.deploy_mode, spec.supervised) == ("emr", "cluster", False)
    assert b"j-1" not in spec.encoded(), "settings are not recorded"
    assert conf_of(job).master == "emr" and not conf_of(job).is_local
    with_master = on(folder, "emr", 'master = "yarn"')
    assert conf_of(with_master).master == "yarn" and with_master.launch.on == "emr"
    in_one_line = declare(folder, more='master = "yarn"\nlaunch = {on = "emr", settings = {a = "b"}}')
    assert (in_one_line.launch.on, in_one_line.launch.settings) == ("emr", {"a": "b"})
    assert on(folder, "emr", "launch.supervise = true").launch.comes_back({})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('launch.on = "Emr!"', "the name of an installed launcher"),
        ('launch.on = "emr"\nlaunch.deploy_mode = "client"', "decides where its drivers run"),
        ('launch.on = "emr"\nlaunch.queue = "q"', "it is for yarn, and this job runs on emr"),
        ('launch.on = "yarn"\nlaunch.settings = {a = "b"}', "it is for a registered launcher"),
        ('launch.on = "emr"\nlaunch.connection = "c"', "does not get a Spark connection"),
        ('launch.on = "emr"\nlaunch.settings = {api_token = "x"}', "it is a credential"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(folder: Path, lines: str, said: str) -> None:
    with refuses(InputError, "bad-declaration") as caught:
        load_jobs(write_jobs(folder, more=lines))
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_settings_of_all_jobs_do_not_hurt_one_that_runs_elsewhere(folder: Path) -> None:
    file = write_jobs(folder, more='launch.on = "local"')
    text = 'launch = {on = "emr", settings = {cluster = "j"}}'
    file.write_text(file.read_text().replace("\n[jobs", f"\n[defaults]\n{text}\n[jobs", 1))
    assert load_jobs(file).job("flights").launch.settings == {}


def test_a_name_that_nobody_registers_is_named_with_those_that_are(folder: Path, site: Path) -> None:
    install(site, "theirs", GOOD, emr="Launcher")
    error = refused(on(folder, "emrr"))
    assert error.code == "no-such-launcher"
    assert "Did you mean emr?" in error.hint and "local, standalone, yarn, kubernetes, emr" in error.hint
    assert "Did you mean yarn?" in refused(on(folder, "yran")).hint


def test_a_name_that_two_packages_register_is_neither_ones(folder: Path, site: Path) -> None:
    install(site, "theirs", GOOD, emr="Launcher")
    install(site, "others", GOOD, emr="Launcher")
    error = refused(on(folder, "emr"))
    assert error.code == "ambiguous-launcher"
    assert "theirs (theirs:Launcher)" in error.message and "others (others:Launcher)" in error.message


def test_a_package_that_is_on_the_path_twice_is_one(
    folder: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "theirs", GOOD, emr="Launcher")
    monkeypatch.syspath_prepend(str(install(folder / "again", "theirs", GOOD, emr="Launcher")))
    assert isinstance(launcher_for(on(folder, "emr")), CheckedLauncher)


def test_a_name_of_ours_is_not_taken_over(folder: Path, site: Path) -> None:
    install(site, "theirs", "raise AssertionError('it was loaded')", local="Launcher", yarn="Launcher")
    for place in ("local", "yarn"):
        assert type(launcher_for(on(folder, place))).__module__.startswith("streambank.")
    (finding, _) = check_launchers()
    assert finding.code == "launcher-not-usable" and "one of Streambank's own" in finding.cause


@pytest.mark.parametrize(
    ("code", "what", "said"),
    [
        ("import no_such_module", "Launcher", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "Launcher", "ZeroDivisionError"),
        (GOOD, "Lancher", "does not load: AttributeError"),
        (GOOD, "__name__", "neither a class nor a function"),
        (GOOD, "nothing", "it has no log_path, check, submit, find, status, log_lines, kill"),
        (GOOD, "fails", "KeyError: 'cluster'"),
    ],
)
def test_a_launcher_that_does_not_load_says_why(
    folder: Path, site: Path, code: str, what: str, said: str
) -> None:
    install(site, "theirs", code, emr=what)
    error = refused(on(folder, "emr"))
    assert error.code == "bad-launcher" and said in error.message


def answers(folder: Path, site: Path, method: str, body: str) -> CheckedLauncher:
    code = f"{GOOD}\nclass Other(Launcher):\n    def {method}: {body}\n"
    install(site, "theirs", code, emr="Other")
    found = launcher_for(on(folder, "emr"))
    assert isinstance(found, CheckedLauncher)
    return found


@pytest.mark.parametrize(
    ("method", "body", "said"),
    [
        ("status(self, handle)", "return None", "status answered a NoneType"),
        ("status(self, handle)", "return DriverState('gone')", "status answered 'gone'"),
        ("status(self, handle)", "raise ConnectionError('reset')", "status raised ConnectionError: reset"),
        ("find(self, control)", "return None", "find answered a NoneType"),
        ("find(self, control)", "return ['s-1']", "find answered a str"),
        ("find(self, control)", "return [Handle('l', (), None)]", "without a submission"),
        ("kill(self, handle)", "raise OSError('no route')", "kill raised OSError: no route"),
    ],
)
def test_what_a_launcher_gets_wrong_is_an_error_and_no_driver_that_is_gone(
    folder: Path, site: Path, method: str, body: str, said: str
) -> None:
    launcher = answers(folder, site, method, body)
    control, handle = on(folder, "emr").records(), Handle("launch-1", (), None, "s-1")
    with refuses(StorageError, "launcher-failed") as caught:
        launcher.status(handle)
        launcher.find(control)
        launcher.kill(handle)
    assert said in caught.value.message


@pytest.mark.parametrize(
    "body", ["raise TimeoutError('60 s')", "return None", "return Handle('x', (), None, 's')"]
)
def test_whether_a_driver_was_submitted_is_then_not_known(folder: Path, site: Path, body: str) -> None:
    launcher = answers(folder, site, "submit(self, job, control, spec)", body)
    job = on(folder, "emr")
    with refuses(StorageError, "submit-unanswered"):
        launcher.submit(job, job.records(), prepare_launch(job, job.records(), by=BY))


def leased(job: Job, *, on: str = "emr") -> JobControl:
    """Records in which a driver elsewhere has the lease, and its heartbeat stands still."""
    control = job.records()
    spec = replace(prepare_launch(job, control, by=BY), on=on, deploy_mode="cluster")
    write_launch(control, spec)
    there = JobControl.open(control.store.uri.rpartition("/")[0], job.name, here=ELSEWHERE)
    details = {"launch_id": spec.launch_id, "in_cluster": True}
    there.lease.acquire([], beat_s=0.05, ttl_s=0.3, details=details)
    return control


def test_without_its_launcher_nothing_is_done_to_a_job_and_nothing_is_said_of_its_driver(
    folder: Path,
) -> None:
    job = on(folder, "emr")
    control = leased(job)
    events = len(list(control.events()))
    for change in (start_job, stop_job, restart_job, ask_to_restart):
        with pytest.raises(InputError) as caught:
            change(job, by=BY)
        assert caught.value.code == "no-such-launcher", change
    assert len(list(control.events())) == events and control.desired() is None
    assert len(list(control.lease.claims.records.history())) == 1
    control.lease.settle()
    status = job_status(job, control=control)
    assert status.state == "unknown" and "may still run" in status.why
    assert "No installed package registers a launcher 'emr'" in status.why
    doubt = control.lease.doubt(control.lease.settle())
    assert doubt is not None and doubt.code == "lease-held", "a restore is refused, too"


def test_a_driver_of_another_place_is_not_gone_because_this_one_does_not_know_it(folder: Path) -> None:
    """A record that names a launcher loads none: the declaration decides, and the operator is asked."""
    leased(on(folder, "emr"), on="os")
    job = declare(folder)
    control = job.records()
    for change in (start_job, stop_job):
        with refuses(RefusedError, "launched-elsewhere") as caught:
            change(job, by=BY, launcher=fake_launcher(folder), control=control)
        assert "'os'" in caught.value.message
    assert job_status(job, control=control).state == "unknown"
    assert [one.data for one in control.events() if one.data.get("kind") == "launched"] == []
    control.lease.break_off(by=BY, why="that place is gone", even_live=False)
    check_launched_here(job, control, control.lease.settle())
    started = start_job(job, by=BY, launcher=fake_launcher(folder), control=control)
    assert started.state == "started"
    stop_job(job, by=BY, launcher=fake_launcher(folder), control=control)


def test_a_record_loads_no_code(folder: Path, site: Path) -> None:
    install(site, "theirs", "raise AssertionError('it was loaded')", emr="Launcher")
    job = declare(folder)
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    data = spec.to_dict() | {"on": "theirs:Launcher", "deploy_mode": "cluster", "settings": {"x": "y"}}
    control.store.write(spec.key, encode_json(data))
    assert read_launch(control, spec.launch_id).on == "theirs:Launcher"
    assert job_status(job).state == "never-started"
    with pytest.raises(InputError):
        load_jobs(write_jobs(folder, more='launch.on = "theirs:Launcher"'))
    assert "theirs" not in sys.modules


def test_doctor_lists_them_and_says_what_is_wrong(folder: Path, site: Path) -> None:
    assert facts()["launchers"] == "local, standalone, yarn, kubernetes" and check_launchers() == []
    install(site, "theirs", GOOD, emr="Launcher")
    install(site, "broken", "import no_such_module", glue="Launcher")
    assert facts()["launchers"] == "local, standalone, yarn, kubernetes, emr, glue"
    (finding,) = check_launchers()
    assert (finding.code, finding.severity, finding.file) == ("launcher-not-usable", "warning", "glue")
    assert [*registered()] == ["emr", "glue"]


def test_the_command_line_says_it_in_one_line(folder: Path) -> None:
    write_jobs(folder, more='launch.on = "emr"')
    command = [sys.executable, "-m", "streambank", "job", "start", "flights", "--jobs", "streaming_jobs.toml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == InputError.exit_code
    assert "No installed package registers a launcher 'emr'" in done.stderr and "Traceback" not in done.stderr
