"""Drivers in YARN: submitted by spark-submit, then found, watched and ended through the resource manager.

An application carries two tags, its job's and its launch's, so that it is found by them however its start
ended. Kerberos guards the web services of a secure cluster, which nothing here speaks: there no start gets as
far as submitting anything, since whether a driver is coming up already cannot be asked.

Sources: Hadoop's ResourceManager and NodeManager REST APIs (3.5.0); Spark's "Running on YARN".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from streambank.control.control import JobControl
from streambank.core.errors import InputError, StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import ATTEMPTS
from streambank.driver.application import check_application, check_queries
from streambank.driver.launcher import DriverState, Handle, not_its_driver
from streambank.driver.launchers.http import ask, entries, get_json, misshapen, send_json
from streambank.driver.launchers.local import job_tag, yarn_options
from streambank.driver.launchers.submit import ClusterSubmit, Submitter
from streambank.driver.spec import LaunchSpec, launch_key

GONE = frozenset({"FINISHED", "FAILED", "KILLED"})
LIVING = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
_APPLICATION = re.compile(r"\bapplication_[0-9]+_[0-9]+\b")
_CONTAINER = re.compile(r"(https?://[^/]+)/node/containerlogs/(container_\w+)")
_LINE_BYTES = 400
_PORT = 8088


class YarnLauncher(Submitter):
    """Drivers that YARN runs."""

    def _look_up(self) -> None:
        """Where the resource manager is.

        Raises:
            InputError: Nobody says so (code `no-resource-manager`).
        """
        self._address = (self._policy.resource_manager or _configured(self._environment)).split(",")

    def check(self, job: Job) -> str | None:
        """See `ClusterLauncher.check`; the program is sent along, so it is read here, too."""
        check_queries(job.name, check_application(job.application), job.queries)
        return None

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """See `Launcher.submit`. The application is sent along; what it imports from beside it is not."""
        said = self.submission(job, spec).run(job, control, spec, self._environment, self._installation)
        match = _APPLICATION.search(said)
        if match is None:
            found = [one for one in self.find(control) if one.launch_id == spec.launch_id]
            if found:
                return found[0]
            raise StorageError(
                f"spark-submit did not report the application id of the driver of job {job.name}.",
                code="submit-unanswered",
                hint=f"Look at {self._address[0]}/cluster, and start the job again.",
            )
        return Handle(spec.launch_id, (), None, match[0], self._page_of(match[0]))

    def submission(self, job: Job, spec: LaunchSpec) -> ClusterSubmit:
        """What spark-submit is told."""
        return ClusterSubmit(
            options=yarn_options(job, spec.launch_id),
            settings={"spark.yarn.submit.waitAppCompletion": "false"},
            defaults={
                ATTEMPTS: "1",
                "spark.yarn.appMasterEnv.PYSPARK_PYTHON": job.python,
                "spark.yarn.appMasterEnv.PYTHONUNBUFFERED": "1",
            },
            entry=None,
            files=(spec.application,),
            variable="spark.yarn.appMasterEnv.{}",
        )

    def find(self, control: JobControl) -> list[Handle]:
        """See `Launcher.find`: by the job's tag, and its launches, since names are used again elsewhere."""
        tag = quote(job_tag(control.name))
        answer = self._get(f"/ws/v1/cluster/apps?states={LIVING}&applicationTags={tag}")
        apps = answer.get("apps") or {}
        # Without any it says {"apps": null}.
        if "apps" not in answer or not isinstance(apps, dict):
            raise misshapen(self._address[0])
        found = []
        for app in entries(apps.get("app"), self._address[0]):
            launch_id = next((tag for tag in _tags(app) if tag.startswith("launch-")), None)
            if launch_id is not None and control.store.exists(launch_key(launch_id)):
                application = app.get("id")
                if not isinstance(application, str):
                    raise misshapen(self._address[0])
                found.append(Handle(launch_id, (), _log_of(app), application, self._page_of(application)))
        return found

    def status(self, handle: Handle) -> DriverState:
        if handle.submission is None:
            return DriverState("ended", why="nothing was submitted")
        app = self._app(handle)
        state = str(app.get("state"))
        final = str(app.get("finalStatus") or "")
        why = state if final in ("", "UNDEFINED") else f"{state} ({final})"
        page = str(app.get("trackingUrl") or "") or self._page_of(handle.submission)
        return DriverState("ended" if state in GONE else "running", None, _log_of(app), page, why)

    def _read_log(self, handle: Handle, submission: str, count: int) -> list[str]:
        """From the node's web service, Spark's words first, then Python's."""
        app = self._app(handle)
        where = _CONTAINER.match(str(app.get("amContainerLogs") or ""))
        found = str(app.get("diagnostics") or "").strip().splitlines()[-max(1, count // 4) :]
        for kind in ("stderr", "stdout") if where else ():
            assert where is not None
            url = f"{where[1]}/ws/v1/node/containers/{where[2]}/logs/{kind}?size=-{count * _LINE_BYTES}"
            found += _content(ask(url).decode("utf-8", "replace"))[-max(1, count // 2) :]
        return found

    def kill(self, handle: Handle) -> None:
        if handle.submission is None or self.status(handle).state == "ended":
            return
        path = f"/ws/v1/cluster/apps/{handle.submission}/state"
        self._of_leader(lambda address: send_json(address + path, {"state": "KILLED"}, method="PUT"))

    def _app(self, handle: Handle) -> Mapping[str, Any]:
        """An application, which has to have the tags of its launch, and of its job."""
        if handle.submission is None or not _APPLICATION.fullmatch(handle.submission):
            raise not_its_driver(handle, "that is no application's id")
        found = self._get(f"/ws/v1/cluster/apps/{handle.submission}").get("app")
        if not isinstance(found, dict) or not isinstance(found.get("state"), str):
            raise misshapen(self._address[0])
        tags = _tags(found)
        if handle.launch_id not in tags or (handle.job is not None and job_tag(handle.job) not in tags):
            raise not_its_driver(handle, "YARN does not have it by these tags")
        return found

    def _get(self, path: str) -> Mapping[str, Any]:
        return self._of_leader(lambda address: get_json(address + path))

    def _of_leader(self, ask_one: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Ask the resource managers, one after the other; one that waits refers to the one that leads."""
        for number, address in enumerate(self._address, 1):
            try:
                return ask_one(address)
            except StorageError:
                if number == len(self._address):
                    raise
        raise AssertionError("there is at least one address")

    def _page_of(self, application: str) -> str:
        return f"{self._address[0]}/cluster/app/{application}"


def _tags(app: Mapping[str, Any]) -> list[str]:
    return [one.strip() for one in str(app.get("applicationTags") or "").lower().split(",")]


def _log_of(app: Mapping[str, Any]) -> str | None:
    return str(app["amContainerLogs"]) if app.get("amContainerLogs") else None


def _content(text: str) -> list[str]:
    """The lines of a log, without what the node says about it."""
    _, found, content = text.partition("LogContents:\n")
    lines = (content if found else text).splitlines()
    return [line for line in lines if line and not line.startswith("End of LogType:")]


def _configured(environment: Mapping[str, str]) -> str:
    """The resource manager's web address, as Hadoop's configuration has it."""
    folder = environment.get("YARN_CONF_DIR") or environment.get("HADOOP_CONF_DIR")
    file = Path(folder) / "yarn-site.xml" if folder else None
    values: dict[str, str] = {}
    if file is not None and file.is_file():
        try:
            for one in ElementTree.parse(file).getroot().iter("property"):
                values[one.findtext("name", "")] = one.findtext("value", "")
        except ElementTree.ParseError as error:
            raise InputError(
                f"{file} cannot be read: {error}.",
                code="no-resource-manager",
                hint="Repair it, or declare launch.resource_manager.",
            ) from error
    web = values.get("yarn.resourcemanager.webapp.address")
    host = values.get("yarn.resourcemanager.hostname")
    # Hadoop replaces ${...} in a value by another value.
    if web and host:
        web = web.replace("${yarn.resourcemanager.hostname}", host)
    if web and "$" not in web:
        return f"http://{web}"
    if host:
        return f"http://{host}:{_PORT}"
    raise InputError(
        "The address of YARN's resource manager is not known.",
        code="no-resource-manager",
        hint="Declare launch.resource_manager, such as http://host:8088, or set HADOOP_CONF_DIR.",
    )
