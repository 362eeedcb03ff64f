"""Drivers in YARN: what spark-submit is told, and what is read from a resource manager's web service."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, NotFoundError, StorageError
from streambank.declaration.declaration import Job
from streambank.driver.installed import Installation
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.launchers.yarn import YarnLauncher
from tests.support.jobs.declared import declare, launched
from tests.support.refuses import refuses
from tests.support.serving import Quiet, serving
from tests.support.storage.s3_servers import free_ports
from tests.support.waiting import poll

APPLICATION = "application_1760000000000_0001"


class FakeManager:
    """A resource manager that knows these applications, and is a node manager, too."""

    def __init__(self) -> None:
        self.apps: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.refuses = False
        self.url = ""

    def answer(self, path: str) -> Any:
        self.asked.append(path)
        if path.startswith("/ws/v1/cluster/apps?"):
            return {"apps": {"app": self.apps} if self.apps else None}
        found = [app for app in self.apps if path.startswith(f"/ws/v1/cluster/apps/{app['id']}")]
        return {"app": found[0]} if found else None


@contextmanager
def fake_manager() -> Iterator[FakeManager]:
    manager = FakeManager()

    class Handler(Quiet):
        def do_GET(self) -> None:
            if self.path.startswith("/ws/v1/node/containers/"):
                kind = self.path.partition("?")[0].rpartition("/")[2]
                content = f"LogContents:\nof {kind}\nEnd of LogType:{kind}\n"
                self._send(f"Container: c\nLogType:{kind}\n{content}".encode())
                return
            answer = manager.answer(self.path)
            if answer is None:
                said = {"RemoteException": {"message": "app is unknown"}}
                self._send(json.dumps(said).encode(), 404)
            else:
                self._send(json.dumps(answer).encode())

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if manager.refuses:
                self._send(b'{"RemoteException": {"message": "not yours"}}', 403)
                return
            manager.answer(self.path)["app"]["state"] = body["state"]
            self._send(json.dumps(body).encode(), 202)

        def _send(self, data: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server) as manager.url:
        yield manager


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with fake_manager() as found:
        yield found


def on_yarn(folder: Path, manager: FakeManager, mode: str = "cluster", more: str = "") -> Job:
    launch = f'deploy_mode = "{mode}", queue = "streams", resource_manager = "{manager.url}"'
    kerberos = 'principal = "etl@X", keytab = "etl.keytab"'
    return declare(folder, more=f'master = "yarn"\nlaunch = {{{launch}, {kerberos}}}\n{more}')


def submit_with(folder: Path, script: str) -> Installation:
    submit = folder / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True, exist_ok=True)
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    return Installation(sys.executable, folder / "spark", Path("/entry.py"), ())


def app_of(job: Job, launch_id: str, manager: FakeManager, **more: Any) -> dict[str, Any]:
    return {
        "id": APPLICATION,
        "state": "RUNNING",
        "finalStatus": "UNDEFINED",
        "applicationTags": f"mine,streambank-{job.name},{launch_id}",
        "trackingUrl": "http://rm/proxy/app",
        "amContainerLogs": f"{manager.url}/node/containerlogs/container_1_1/ann",
        **more,
    }


def test_what_spark_submit_is_told(folder: Path, manager: FakeManager) -> None:
    more = 'env = ["TOKEN"]\n[jobs.flights.spark]\nspark.yarn.tags = "mine"\nspark.a = "b c"'
    job = on_yarn(folder, manager, more=more)
    control, spec = launched(job)
    seen = folder / "seen"
    script = f"""printf '%s\\n' "$@" > {seen}
while [ "$1" != --properties-file ]; do shift; done
stat -c %a "$2" > {folder}/mode; cp "$2" {folder}/properties; env > {folder}/environment
echo "INFO Client: Submitted application {APPLICATION}" >&2"""
    environment = {
        "PATH": "/usr/bin:/bin",
        "TOKEN": "of the job",
        "STREAMBANK_S3_PROFILES": "west=west",
        "HADOOP_CONF_DIR": "/etc/hadoop",
        "AIRFLOW_X": "of Airflow",
    }
    launcher = YarnLauncher(job.launch, environment, submit_with(folder, script))
    handle = launcher.submit(job, control, spec)
    page = f"{manager.url}/cluster/app/{APPLICATION}"
    assert handle == Handle(spec.launch_id, (), None, APPLICATION, page)
    said = seen.read_text().splitlines()
    assert said[:6] == ["--master", "yarn", "--deploy-mode", "cluster", "--name", "flights"]
    for pair in (("--queue", "streams"), ("--principal", "etl@X"), ("--keytab", str(folder / "etl.keytab"))):
        assert said[said.index(pair[0]) + 1] == pair[1]
    assert f"spark.yarn.tags=mine,streambank-flights,{spec.launch_id}" in said
    assert said[said.index("--files") + 1] == str(folder / "app.py")
    assert said[said.index("--py-files") + 1].endswith("/streambank.zip")
    assert said[-5].endswith("run_query.py")
    assert said[-4:-1] == ["--digest", spec.digest, "--launch"]
    assert "of the job" not in seen.read_text(), "values are no arguments"
    properties = dict(line.split("=", 1) for line in (folder / "properties").read_text().splitlines())
    assert properties == {
        "spark.a": "b c",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.yarn.appMasterEnv.PYTHONUNBUFFERED": "1",
        "spark.yarn.appMasterEnv.STREAMBANK_S3_PROFILES": "west=west",
        "spark.yarn.appMasterEnv.TOKEN": "of the job",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.submit.waitAppCompletion": "false",
    }
    assert (folder / "mode").read_text().strip() == "600"
    passed = (folder / "environment").read_text()
    assert "HADOOP_CONF_DIR=/etc/hadoop" in passed and "AIRFLOW_X" not in passed and "TOKEN" not in passed
    assert not Path(said[said.index("--properties-file") + 1]).exists(), "nothing of it stays"


def test_a_driver_here_tells_yarn_its_tags(folder: Path, manager: FakeManager) -> None:
    job = on_yarn(folder, manager, "client")
    control, spec = launched(job)
    launcher = LocalLauncher(submit_with(folder, 'printf "%s\\n" "$@"'))
    handle = launcher.submit(job, control, spec)
    poll(lambda: launcher.status(handle).state == "ended")
    said = launcher.log_lines(handle, 40)
    assert said[:6] == ["--master", "yarn", "--name", "flights", "--deploy-mode", "client"]
    assert f"spark.yarn.tags=streambank-flights,{spec.launch_id}" in said
    assert said[said.index("--queue") + 1] == "streams"


def test_an_application_is_found_watched_and_killed(folder: Path, manager: FakeManager) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    launcher = YarnLauncher(job.launch, {})
    assert launcher.find(control) == []
    manager.apps.append(app_of(job, spec.launch_id, manager))
    (handle,) = launcher.find(control)
    assert (handle.launch_id, handle.submission) == (spec.launch_id, APPLICATION)
    assert "applicationTags=streambank-flights" in manager.asked[-1]
    state = launcher.status(handle)
    assert (state.state, state.exit_code, state.tracking) == ("running", None, "http://rm/proxy/app")
    assert launcher.log_lines(handle, 20) == ["of stderr", "of stdout"]
    launcher.kill(handle)
    assert (manager.apps[0]["state"], launcher.status(handle).state) == ("KILLED", "ended")
    launcher.kill(handle)


def test_an_application_of_the_same_name_elsewhere_is_not_ours(folder: Path, manager: FakeManager) -> None:
    job = on_yarn(folder, manager)
    control, _ = launched(job)
    manager.apps.append(app_of(job, "launch-of-another-repository", manager))
    assert YarnLauncher(job.launch, {}).find(control) == []


def test_a_submission_that_says_nothing_is_looked_for(folder: Path, manager: FakeManager) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    launcher = YarnLauncher(job.launch, {}, submit_with(folder, "exit 0"))
    with refuses(StorageError, "submit-unanswered"):
        launcher.submit(job, control, spec)
    manager.apps.append(app_of(job, spec.launch_id, manager))
    assert launcher.submit(job, control, spec).submission == APPLICATION


def test_what_spark_submit_says_of_a_failure_is_told_without_secrets(
    folder: Path, manager: FakeManager
) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    script = "echo 'Exception: no such queue, password=hunter2'; exit 3"
    with pytest.raises(StorageError) as caught:
        YarnLauncher(job.launch, {}, submit_with(folder, script)).submit(job, control, spec)
    assert (caught.value.code, "ended with 3" in caught.value.message) == ("not-started", True)
    assert "no such queue" in caught.value.hint and "hunter2" not in caught.value.hint
    Path(spec.application).unlink()
    with pytest.raises(NotFoundError):
        YarnLauncher(job.launch, {}, submit_with(folder, script)).check(job)


def test_a_manager_that_refuses_or_is_down_is_told(folder: Path, manager: FakeManager) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    manager.apps.append(app_of(job, spec.launch_id, manager))
    manager.refuses = True
    launcher = YarnLauncher(job.launch, {})
    with pytest.raises(StorageError) as caught:
        launcher.kill(launcher.find(control)[0])
    assert (caught.value.code, "not yours" in caught.value.message) == ("cluster-refused", True)
    (port,) = free_ports(1)
    down = declare(
        folder,
        more=f'master = "yarn"\nlaunch = {{deploy_mode = "cluster", resource_manager = "http://127.0.0.1:{port}"}}',
    )
    with refuses(StorageError, "cluster-unreachable"):
        YarnLauncher(down.launch, {}).find(control)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        7,
        {"a": 1},
        {"apps": [1]},
        {"apps": {"app": {"id": "x"}}},
        {"apps": {"app": [{"applicationTags": "launch"}]}},
        {"app": {"id": APPLICATION}},
        {"app": [APPLICATION]},
    ],
)
def test_what_is_no_manager_is_told(folder: Path, manager: FakeManager, answer: Any) -> None:
    job = on_yarn(folder, manager)
    control, spec = launched(job)
    answer = json.loads(json.dumps(answer).replace('"launch"', f'"{spec.launch_id}"'))
    manager.answer = lambda path: answer  # type: ignore[method-assign]
    launcher = YarnLauncher(job.launch, {})
    for ask in (lambda: launcher.find(control), lambda: launcher.status(Handle("l", (), None, APPLICATION))):
        with refuses(StorageError, "cluster-refused"):
            ask()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (
            "<property><name>yarn.resourcemanager.hostname</name><value>rm</value></property>",
            "http://rm:8088",
        ),
        (
            "<property><name>yarn.resourcemanager.hostname</name><value>rm</value></property>"
            "<property><name>yarn.resourcemanager.webapp.address</name>"
            "<value>${yarn.resourcemanager.hostname}:9</value></property>",
            "http://rm:9",
        ),
    ],
)
def test_hadoops_configuration_says_where_the_manager_is(folder: Path, text: str, address: str) -> None:
    (folder / "yarn-site.xml").write_text(f"<configuration>{text}</configuration>")
    job = declare(folder, more='master = "yarn"\nlaunch.deploy_mode = "cluster"')
    launcher = YarnLauncher(job.launch, {"HADOOP_CONF_DIR": str(folder)})
    assert launcher._page_of("a") == f"{address}/cluster/app/a"


@pytest.mark.parametrize("text", ["", "<configuration/>", "<configuration"])
def test_a_manager_that_nobody_names(folder: Path, text: str) -> None:
    (folder / "yarn-site.xml").write_text(text or "<configuration/>")
    job = declare(folder, more='master = "yarn"\nlaunch.deploy_mode = "cluster"')
    with refuses(InputError, "no-resource-manager"):
        YarnLauncher(job.launch, {"HADOOP_CONF_DIR": str(folder)} if text else {})
