"""Drivers in Kubernetes: what spark-submit and kubectl are told, and how their answers are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Handle
from streambank.driver.launchers.kubernetes import KubernetesLauncher
from streambank.driver.location import launched_handle, record_location
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import write_launch
from streambank.job.stop import stop_job
from tests.streambank.driver.launchers.test_yarn import submit_with
from tests.support.jobs.declared import BY, declare, launched
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import FaultyStore

STATUS = """26/11/22 INFO ShutdownHookManager: Shutdown hook called
Application status (driver):
\t pod name: streambank-launch-1
\t phase: {phase}
\t container status:
\t\t container state: {state}
"""


def in_kubernetes(folder: Path, more: str = "") -> Job:
    launch = (
        'namespace = "streams", image = "spark:4.3", context = "blue", entry = "local:///opt/run_query.py"'
    )
    return declare(
        folder,
        more=f'master = "k8s://https://api:6443"\nlaunch = {{deploy_mode = "cluster", {launch}}}\n{more}',
    )


def test_what_spark_submit_is_told(folder: Path) -> None:
    own = "[jobs.flights.spark]\n'spark.kubernetes.driverEnv.STREAMBANK_S3_PROFILES' = 'west=of-the-job'"
    job = in_kubernetes(folder, f'env = ["TOKEN"]\n{own}')
    control, spec = launched(job)
    script = f"""printf '%s\\n' "$@" > {folder}/seen
while [ "$1" != --properties-file ]; do shift; done; cp "$2" {folder}/properties"""
    environment = {"PATH": os.environ["PATH"], "TOKEN": "secret", "KUBECONFIG": "/k"}
    environment["STREAMBANK_S3_PROFILES"] = "west=of-the-process"
    launcher = KubernetesLauncher(job.launch, environment, submit_with(folder, script))
    handle = launcher.submit(job, control, spec)
    assert handle == Handle(spec.launch_id, (), None, f"streams:streambank-{spec.launch_id}")
    said = (folder / "seen").read_text().splitlines()
    assert said[:6] == ["--master", "k8s://https://api:6443", "--deploy-mode", "cluster", "--name", "flights"]
    assert {
        "spark.kubernetes.namespace=streams",
        "spark.kubernetes.container.image=spark:4.3",
        "spark.kubernetes.context=blue",
    } <= set(said)
    assert said[-5:-1] == ["local:///opt/run_query.py", "--digest", spec.digest, "--launch"]
    properties = (folder / "properties").read_text().splitlines()
    assert f"spark.kubernetes.driver.pod.name=streambank-{spec.launch_id}" in properties
    assert f"spark.kubernetes.driver.label.streambank-launch={spec.launch_id}" in properties
    assert "spark.kubernetes.driver.label.streambank-job=streambank-flights" in properties
    assert "spark.kubernetes.submission.waitAppCompletion=false" in properties
    assert "spark.kubernetes.driverEnv.STREAMBANK_S3_PROFILES=west=of-the-job" in properties
    assert "spark.kubernetes.driverEnv.TOKEN=secret" in properties and "secret" not in " ".join(said)


def test_our_code_is_uploaded_where_the_image_does_not_have_it(folder: Path) -> None:
    more = '[jobs.flights.spark]\nspark.kubernetes.file.upload.path = "s3a://b/up"'
    launch = 'launch = {deploy_mode = "cluster", image = "i"}'
    job = declare(folder, more=f'master = "k8s://https://api:6443"\n{launch}\n{more}')
    control, spec = launched(job)
    script = f"""printf '%s\\n' "$@" > {folder}/seen"""
    KubernetesLauncher(job.launch, {}, submit_with(folder, script)).submit(job, control, spec)
    said = (folder / "seen").read_text().splitlines()
    assert said[said.index("--py-files") + 1].endswith("/streambank.zip")
    assert said[-5].endswith("/run_query.py")


@pytest.mark.parametrize(
    ("phase", "container", "state", "exit_code"),
    [
        ("Pending", "waiting", "running", None),
        ("Running", "running", "running", None),
        ("Succeeded", "terminated\n\t\t exit code: 0", "ended", 0),
        ("Failed", "terminated\n\t\t exit code: 8", "ended", 8),
    ],
)
def test_a_pods_phase_says_how_its_driver_is(
    folder: Path, phase: str, container: str, state: str, exit_code: int | None
) -> None:
    job = in_kubernetes(folder)
    (folder / "answer").write_text(STATUS.format(phase=phase, state=container))
    script = f"""printf '%s ' "$@" > {folder}/seen; cat {folder}/answer >&2"""
    launcher = KubernetesLauncher(job.launch, {"PATH": os.environ["PATH"]}, submit_with(folder, script))
    found = launcher.status(Handle("launch-1", (), None, "streams:streambank-launch-1"))
    assert (found.state, found.exit_code, found.why) == (state, exit_code, phase)
    said = (folder / "seen").read_text()
    assert "--status streams:streambank-launch-1" in said and "spark.kubernetes.context=blue" in said


# What Spark 4.3.0 prints of a pod by its name, and of one by a name with a wildcard.
@pytest.mark.parametrize("said", ["Application not found.", "No applications found."])
def test_no_pod_and_no_answer_are_two_things(folder: Path, said: str) -> None:
    job = in_kubernetes(folder)
    handle = Handle("launch-1", (), None, "streams:streambank-launch-1")
    nothing = submit_with(folder, f"echo 'INFO of Spark'; echo '{said}'; exit 255")
    assert KubernetesLauncher(job.launch, {}, nothing).status(handle).state == "ended"
    broken = submit_with(folder, "echo 'connection refused'; exit 1")
    with refuses(StorageError, "cluster-refused"):
        KubernetesLauncher(job.launch, {}, broken).status(handle)


def test_a_pod_that_is_gone_keeps_nobody_from_starting_or_stopping(folder: Path) -> None:
    job = in_kubernetes(folder)
    control, _ = launched(job)
    gone = submit_with(folder, "echo 'Application not found.' >&2; exit 255")
    launcher = KubernetesLauncher(job.launch, {}, gone)
    assert launcher.find(control) == []
    assert stop_job(job, by=BY, launcher=launcher).state == "already-stopped"


def test_launches_without_a_lease_are_looked_for(folder: Path) -> None:
    job = in_kubernetes(folder)
    control, spec = launched(job)
    (folder / "answer").write_text(STATUS.format(phase="Running", state="running"))
    script = f"""printf '%s ' "$@" >> {folder}/seen; cat {folder}/answer"""
    installation = submit_with(folder, script)
    launcher = KubernetesLauncher(job.launch, {"PATH": os.environ["PATH"]}, installation)
    (found,) = launcher.find(control)
    assert (found.launch_id, found.submission) == (
        spec.launch_id,
        f"streams:streambank-{spec.launch_id}",
    )
    launcher.kill(found)
    assert f"--kill {found.submission}" in (folder / "seen").read_text()
    control.record_event("driver-died", launch_id=spec.launch_id)
    assert launcher.find(control) == []
    other = prepare_launch(declare(folder), control, by=BY)
    write_launch(control, other)
    assert launcher.find(control) == [], "a launch in another place is not looked for here"


def test_how_far_back_events_are_read_for_launches_without_a_lease_is_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.driver.launchers.kubernetes.RECENT_EVENTS", 50)
    job = in_kubernetes(folder)
    control, _ = launched(job)
    for _ in range(300):
        control.record_event("savepoint-taken")
    store = FaultyStore(control.store)
    gone = submit_with(folder, "echo 'Application not found.' >&2; exit 255")
    assert KubernetesLauncher(job.launch, {}, gone).find(JobControl(store, "flights")) == []
    assert 0 < sum(call.key.startswith("events/") for call in store.calls) <= 50


def test_a_driver_that_took_the_lease_after_its_start_was_killed_is_found_and_ended(folder: Path) -> None:
    """Nobody has left behind where it is; its heartbeat stands still, and its pod is there."""
    job = in_kubernetes(folder)
    control, spec = launched(job)
    (folder / "answer").write_text(STATUS.format(phase="Running", state="running"))
    script = f"""printf '%s ' "$@" >> {folder}/seen
case "$*" in *--kill*) echo 'Application not found.' > {folder}/answer;; esac
cat {folder}/answer"""
    installation = submit_with(folder, script)
    launcher = KubernetesLauncher(job.launch, {"PATH": os.environ["PATH"]}, installation)
    claim = control.lease.acquire([this_process("python")], details={"launch_id": spec.launch_id})
    (found,) = launcher.find(control)
    assert found.submission == f"streams:streambank-{spec.launch_id}"
    assert launched_handle(control, spec.launch_id).submission is None
    control.lease.claims.end(claim.epoch, "broken", by=BY, why="its node is gone")
    assert stop_job(job, by=BY, launcher=launcher).state != "already-stopped"
    assert f"--kill {found.submission}" in (folder / "seen").read_text()
    record_location(control, found)
    (folder / "seen").unlink()
    assert launcher.find(control) == [], "where a driver is located, nobody looks for it"
    assert not (folder / "seen").exists()


def test_logs_are_read_by_kubectl(folder: Path) -> None:
    job = in_kubernetes(folder)
    handle = Handle("launch-1", (), None, "streams:streambank-launch-1")
    (line,) = KubernetesLauncher(job.launch, {"PATH": str(folder)}).log_lines(handle, 7)
    command = "kubectl --context=blue logs --namespace=streams --tail=7 --selector=streambank-launch=launch-1"
    assert line == f"(To read the driver's log: {command})"
    kubectl = folder / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "kubectl $*"\n')
    kubectl.chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    assert KubernetesLauncher(job.launch, environment).log_lines(handle, 7) == [command]
