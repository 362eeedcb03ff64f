"""A record of where a driver is names what is not that driver: another's pod, application or driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.records import encode_json
from streambank.core.errors import StorageError
from streambank.core.signing import new_key
from streambank.declaration.declaration import Job
from streambank.drills import left
from streambank.drills.copy_of_job import copy_of, scratch_of
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.launchers.kubernetes import KubernetesLauncher
from streambank.driver.launchers.standalone import StandaloneLauncher
from streambank.driver.launchers.standalone_pages import MasterPage
from streambank.driver.launchers.yarn import YarnLauncher
from streambank.driver.location import find_driver, launched_handle
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import LaunchSpec, write_launch
from streambank.storage import open_store
from tests.streambank.driver.launchers.test_kubernetes import STATUS, in_kubernetes
from tests.streambank.driver.launchers.test_standalone import in_cluster
from tests.streambank.driver.launchers.test_yarn import (
    APPLICATION,
    FakeManager,
    app_of,
    manager,
    on_yarn,
    submit_with,
)
from tests.support.jobs.declared import BY, ELSEWHERE, launched
from tests.support.refuses import refuses
from tests.support.spark.fake_master import FakeMaster, fake_master

__all__ = ["manager"]

OTHER = "application_1760000000000_0099"
THEIRS = "launch-0123456789abcdef0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


def located(control: JobControl, launch_id: str, submission: str) -> None:
    """What who can write among the records leaves there."""
    control.store.write(f"located/{launch_id}.json", encode_json({"submission": submission}))


def assert_is_not_its_driver(launcher: Launcher, control: JobControl, launch_id: str) -> None:
    known = launched_handle(control, launch_id)
    for ask in (launcher.kill, launcher.status):
        with refuses(StorageError, "not-its-driver"):
            ask(known)
    (line,) = launcher.log_lines(known, 7)
    assert "cannot be read" in line and "is not seen to be the driver" in line


# Kubernetes.


def pods(folder: Path, labels: str = "") -> tuple[Job, JobControl, LaunchSpec, KubernetesLauncher]:
    """A job in Kubernetes; spark-submit and kubectl write down what they are told."""
    job = in_kubernetes(folder)
    control, spec = launched(job)
    (folder / "answer").write_text(labels + STATUS.format(phase="Running", state="running"))
    script = f"""printf '%s ' "$@" >> {folder}/seen; echo >> {folder}/seen
case "$*" in *--kill*) echo 'Application not found.' > {folder}/answer;; esac
cat {folder}/answer"""
    installation = submit_with(folder, script)
    kubectl = folder / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "kubectl $*" >> {folder}/seen\necho of the pod\n')
    kubectl.chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return job, control, spec, KubernetesLauncher(job.launch, environment, installation)


def seen(folder: Path) -> str:
    return (folder / "seen").read_text() if (folder / "seen").exists() else ""


@pytest.mark.parametrize(
    "submission",
    [
        "payments:payments-driver*",
        "kube-system:-lcomponent=kube-apiserver",
        f"streams:streambank-{THEIRS}",
        "streams:streambank-launch-*",
        "Payments:streambank-{launch}",
        "-lapp=x:streambank-{launch}",
        "streams:streambank-{launch}*",
        "streams:streambank-{launch}\n",
        "streambank-{launch}",
        "",
    ],
)
def test_no_pod_but_that_of_the_launch_is_asked_about(folder: Path, submission: str) -> None:
    _, control, spec, launcher = pods(folder)
    located(control, spec.launch_id, submission.replace("{launch}", spec.launch_id))
    assert_is_not_its_driver(launcher, control, spec.launch_id)
    assert seen(folder) == ""


@pytest.mark.parametrize("phase", ["Running", "Succeeded", None])
def test_a_pod_in_another_namespace_is_neither_ended_nor_read(folder: Path, phase: str | None) -> None:
    """It may be that of a test of the same name; and may be the job's, if that was declared there before."""
    job, control, spec, _ = pods(folder)
    own = f"streams:streambank-{spec.launch_id}"
    there = own.replace("streams", "payments")
    said = "echo Application not found." if phase is None else f"cat {folder}/there"
    (folder / "there").write_text(STATUS.format(phase=phase, state="x"))
    script = f"""echo "$*" >> {folder}/seen
case "$*" in *payments*) {said};; *) cat {folder}/answer;; esac"""
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    launcher = KubernetesLauncher(job.launch, environment, submit_with(folder, script))
    located(control, spec.launch_id, there)
    known = launched_handle(control, spec.launch_id)
    found, state = find_driver(launcher, control, known, spec)
    assert (found.submission, state.state) == (there if phase == "Running" else own, "running")
    with pytest.raises(StorageError) as caught:
        launcher.kill(known)
    assert caught.value.code == "not-its-driver" and "--kill" not in seen(folder)
    assert launcher.log_lines(known, 7) != ["of the pod"] and "kubectl" not in seen(folder)


@pytest.mark.parametrize("launch_id", ["*", "launch-*", "", "launch-1 -x"])
def test_a_launch_that_is_a_pattern_has_no_pod(folder: Path, launch_id: str) -> None:
    _, control, _, launcher = pods(folder)
    located(control, "x", f"streams:streambank-{launch_id}")
    known = replace(launched_handle(control, "x"), launch_id=launch_id)
    with pytest.raises(StorageError) as caught:
        launcher.kill(known)
    assert (caught.value.code, seen(folder)) == ("not-its-driver", "")


def test_the_pod_of_another_job_is_not_ended_by_a_launch_that_was_copied(folder: Path) -> None:
    labels = "\t labels: spark-role -> driver, streambank-job -> streambank-payments\n"
    _, control, spec, launcher = pods(folder, labels)
    located(control, spec.launch_id, f"streams:streambank-{spec.launch_id}")
    with pytest.raises(StorageError) as caught:
        launcher.kill(launched_handle(control, spec.launch_id))
    assert (caught.value.code, launcher.find(control)) == ("not-its-driver", [])
    assert "--status" in seen(folder) and "--kill" not in seen(folder)


def test_the_log_of_another_jobs_pod_is_not_read_by_a_launch_that_was_copied(folder: Path) -> None:
    _, control, _, launcher = pods(folder)
    located(control, THEIRS, f"streams:streambank-{THEIRS}")
    launcher.log_lines(launched_handle(control, THEIRS), 7)
    said = f"--selector=streambank-launch={THEIRS},streambank-job=streambank-flights\n"
    assert seen(folder) == f"kubectl --context=blue logs --namespace=streams --tail=7 {said}"


def test_the_pod_of_the_launch_is_found_again_read_and_ended(folder: Path) -> None:
    labels = "\t labels: spark-role -> driver, streambank-job -> streambank-flights\n"
    _, control, spec, launcher = pods(folder, labels)
    own = f"streams:streambank-{spec.launch_id}"
    located(control, spec.launch_id, "payments:payments-driver*")
    found, state = find_driver(launcher, control, launched_handle(control, spec.launch_id), spec)
    assert (found.submission, state.state) == (own, "running")
    known = launched_handle(control, spec.launch_id)
    assert known.submission == own, "the record is mended"
    assert launcher.log_lines(known, 7) == ["of the pod"]
    launcher.kill(known)
    assert f"--kill {own}" in seen(folder) and "payments" not in seen(folder)
    assert launcher.status(known).state == "ended"


# YARN.


@pytest.mark.parametrize(
    "submission",
    [
        OTHER,
        "../../../ws/v1/cluster/apps/" + OTHER,
        f"{APPLICATION}/state?x=",
        "application_\u0661_\u0661",
        "",
        "x y",
    ],
)
def test_no_application_but_that_of_the_launch_is_ended(
    folder: Path, manager: FakeManager, submission: str
) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    manager.apps.append(app_of(job, spec.launch_id, manager))
    manager.apps.append(app_of(job, THEIRS, manager, id=OTHER))
    located(control, spec.launch_id, submission)
    launcher = YarnLauncher(job.launch, {})
    assert_is_not_its_driver(launcher, control, spec.launch_id)
    assert [app["state"] for app in manager.apps] == ["RUNNING", "RUNNING"]
    assert all(path.endswith(f"/apps/{OTHER}") for path in manager.asked)
    found, _ = find_driver(launcher, control, launched_handle(control, spec.launch_id), spec)
    assert found.submission == APPLICATION
    launcher.kill(found)
    assert [app["state"] for app in manager.apps] == ["KILLED", "RUNNING"]


def test_the_application_of_another_job_is_not_ended_by_a_launch_that_was_copied(
    folder: Path, manager: FakeManager
) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    manager.apps.append(app_of(replace(job, name="payments"), spec.launch_id, manager))
    located(control, spec.launch_id, APPLICATION)
    assert_is_not_its_driver(YarnLauncher(job.launch, {}), control, spec.launch_id)
    assert manager.apps[0]["state"] == "RUNNING"


# Standalone.


def submitted(
    folder: Path, master: FakeMaster
) -> tuple[Job, JobControl, LaunchSpec, StandaloneLauncher, str, str]:
    """A job with a driver in a standalone cluster, and another one's driver there."""
    job = in_cluster(folder, master)
    control, spec = launched(job)
    launcher = StandaloneLauncher(job.launch, {})
    theirs = master.submit({"appArgs": ["--launch", f"/of/payments/launches/{spec.launch_id}.json"]})
    own = launcher.submit(job, control, spec).submission
    assert own is not None
    return job, control, spec, launcher, own, theirs


def test_no_driver_but_that_of_the_launch_is_ended(folder: Path, master: FakeMaster) -> None:
    _, control, spec, launcher, own, theirs = submitted(folder, master)
    located(control, spec.launch_id, theirs)
    assert_is_not_its_driver(launcher, control, spec.launch_id)
    assert master.killed == []
    found, _ = find_driver(launcher, control, launched_handle(control, spec.launch_id), spec)
    assert found.submission == own
    assert launcher.log_lines(launched_handle(control, spec.launch_id), 10)[-1] == "of Python"
    launcher.kill(launched_handle(control, spec.launch_id))
    assert master.killed == [own]


@pytest.mark.parametrize("what", ["forgotten", "silent"])
def test_another_drivers_end_is_not_that_of_the_launch(
    folder: Path, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its worker is gone by now, and tells nothing of it."""
    _, control, spec, launcher, own, theirs = submitted(folder, master)
    told = master.log
    master.log = lambda driver, kind: "" if driver == theirs else told(driver, kind)  # type: ignore[method-assign]
    master.states[theirs] = "FINISHED"
    if what == "forgotten":
        page = MasterPage.driver
        monkeypatch.setattr(
            MasterPage, "driver", lambda self, one: None if one == theirs else page(self, one)
        )
    located(control, spec.launch_id, theirs)
    found, state = find_driver(launcher, control, launched_handle(control, spec.launch_id), spec)
    assert (found.submission, state.state) == (own, "running")
    master.states[own] = "FINISHED"
    located(control, spec.launch_id, own)
    assert launcher.status(launched_handle(control, spec.launch_id)).why == "FINISHED"


@pytest.mark.parametrize(
    "submission", ["../../kill/driver-0001", "..", "driver-0001?x=", "", "driver-\u0660"]
)
def test_what_is_no_name_of_a_driver_reaches_no_address(
    folder: Path, master: FakeMaster, submission: str
) -> None:
    _, control, spec, launcher, *_ = submitted(folder, master)
    located(control, spec.launch_id, submission)
    for ask in (launcher.kill, launcher.status):
        with refuses(StorageError, "not-its-driver"):
            ask(launched_handle(control, spec.launch_id))
    assert master.killed == []


def test_an_event_names_no_driver_of_others(folder: Path, master: FakeMaster) -> None:
    _, control, spec, launcher, own, theirs = submitted(folder, master)
    control.record_event("launched", launch_id=spec.launch_id, submission=theirs)
    assert [one.submission for one in launcher.find(control)] == [own]
    control.record_event("launched", submission=theirs)
    assert [one.submission for one in launcher.find(control)] == [own]


@pytest.mark.parametrize("silent", ["worker", "page"])
def test_a_driver_of_which_the_cluster_tells_nothing_is_not_ended(
    folder: Path, master: FakeMaster, silent: str
) -> None:
    _, control, spec, launcher, own, _ = submitted(folder, master)
    located(control, spec.launch_id, own)
    if silent == "worker":
        master.log = lambda driver, kind: ""  # type: ignore[method-assign]
    else:
        master.page = '{"status": "ALIVE", "workers": [], "activedrivers": [], "completeddrivers": []}'
    known = launched_handle(control, spec.launch_id)
    assert launcher.status(known).state == "running"
    with pytest.raises(StorageError) as caught:
        launcher.kill(known)
    assert (caught.value.code, master.killed) == ("not-its-driver", [])
    assert master.url in caught.value.message or silent == "page", "who may reach it is asked to"


def test_what_was_just_submitted_is_ended_also_where_the_masters_page_does_not_answer(
    folder: Path, master: FakeMaster
) -> None:
    """The master itself has named it, and no record."""
    _, _, spec, launcher, own, _ = submitted(folder, master)
    master.page = "<html>"
    launcher.kill(Handle(spec.launch_id, (), None, own))
    assert master.killed == [own]


@pytest.mark.parametrize("main", ["org.apache.spark.deploy.PythonRunner", "com.example.Payments"])
def test_what_waits_for_a_worker_is_ended_only_where_it_runs_our_program(
    folder: Path, master: FakeMaster, main: str
) -> None:
    _, control, spec, launcher, own, _ = submitted(folder, master)
    located(control, spec.launch_id, own)
    master.workerless, master.main = True, main
    known = launched_handle(control, spec.launch_id)
    if main.endswith("PythonRunner"):
        launcher.kill(known)
        assert master.killed == [own]
        return
    with pytest.raises(StorageError) as caught:
        launcher.kill(known)
    assert (caught.value.code, master.killed) == ("not-its-driver", [])


# What a drill has left.


def forged_drill(job: Job, control: JobControl, live: LaunchSpec) -> tuple[str, JobControl]:
    """Records of a drill that names the live driver of the job itself as its own."""
    scratch = f"{scratch_of(job, '').rstrip('/')}/drill-20260101T000000Z-0000aa"
    copy = copy_of(job, scratch, {})
    left.mark(scratch, control)
    there = JobControl(copy.records().store, copy.name, here=ELSEWHERE)
    write_launch(there, replace(prepare_launch(job, there, by=BY), launch_id=live.launch_id))
    there.lease.acquire([], details={"launch_id": live.launch_id, "purpose": "run"})
    located(there, live.launch_id, f"streams:streambank-{live.launch_id}")
    return scratch, there


@pytest.mark.parametrize(("keys", "desired"), [(False, False), (True, False), (True, True)])
def test_a_drill_that_no_start_has_begun_is_asked_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, keys: bool, desired: bool
) -> None:
    job, control, live, launcher = pods(folder)
    scratch, there = forged_drill(job, control, live)
    if desired:
        there.set_desired("running", by=BY)
    if keys:
        new_key(folder / "keys")
        monkeypatch.setenv("STREAMBANK_SIGNING_KEYS", str(folder / "keys"))
    stopped: list[str] = []
    monkeypatch.setattr(left, "stop_job", lambda copy, **_: stopped.append(copy.name))
    drills = scratch.rpartition("/")[0]
    assert left.clean_up(job, drills, timeout_s=10, by=BY, launcher=launcher) == []
    assert (stopped, seen(folder), open_store(scratch).exists(left.MARKER)) == ([], "", True)


def test_a_drill_does_not_end_the_live_driver(folder: Path) -> None:
    label = "\t labels: spark-role -> driver, streambank-job -> streambank-flights\n"
    job, control, live, launcher = pods(folder, label)
    _, there = forged_drill(job, control, live)
    assert launcher.find(there) == []
    with pytest.raises(StorageError) as caught:
        launcher.kill(launched_handle(there, live.launch_id))
    assert caught.value.code == "not-its-driver" and "--kill" not in seen(folder)


def test_a_drill_that_a_start_has_begun_is_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_key(folder / "keys")
    monkeypatch.setenv("STREAMBANK_SIGNING_KEYS", str(folder / "keys"))
    job = in_kubernetes(folder)
    copy = copy_of(job, f"{scratch_of(job, '').rstrip('/')}/drill-20260101T000000Z-0000aa", {})
    copy.records().set_desired("running", by=BY)
    left.check_was_started(copy)
