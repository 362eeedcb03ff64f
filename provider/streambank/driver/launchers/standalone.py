"""Drivers in a standalone cluster, on whichever worker has room: through the master's REST server.

spark-submit refuses Python programs there; the REST server takes them, as the JVM class that spark-submit
itself would run. Nobody reads spark-defaults.conf for such a driver, so every property is sent.

Sources: org.apache.spark.deploy.rest (StandaloneRestServer, SubmitRestProtocolRequest), deploy.PythonRunner,
deploy.worker.DriverRunner; tried with 4.3.0.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from streambank.control.control import JobControl
from streambank.core.errors import InputError, StorageError
from streambank.declaration.credentials import is_credential
from streambank.declaration.declaration import Job
from streambank.declaration.launch import LaunchPolicy
from streambank.driver.bundle import NAME, ship
from streambank.driver.environment import cluster_variables, is_airflows
from streambank.driver.launcher import NOT_ITS_DRIVER, ClusterLauncher, DriverState, Handle, not_its_driver
from streambank.driver.launchers.http import UNANSWERED, get_json, misshapen, send_json
from streambank.driver.launchers.local import launch_arguments, launch_prefix
from streambank.driver.launchers.standalone_pages import NOT_ALIVE, ClusterDriver, MasterPage, nobody_leads
from streambank.driver.location import launched_handle
from streambank.driver.spark_properties import read_properties
from streambank.driver.spec import LaunchSpec
from streambank.storage import scheme_of

PYTHON_RUNNER = "org.apache.spark.deploy.PythonRunner"
GONE = frozenset({"FINISHED", "KILLED", "FAILED", "ERROR", "NOT_FOUND"})
"""States in which nobody runs a driver, or will run it again."""
RELAUNCHING = "RELAUNCHING"
"""The state, for good, of a driver whose worker was lost: the master runs its launch under another id."""
SEARCH_S = 20.0
"""How long a driver is looked for whose submission was not answered."""
_LOOK_S = 0.5
_PATIENCE_S = 60.0
"""For the answer to what changes something: a lost one costs more than a late one."""
_REST_PORT, _WEB_PORT = 6066, 8080
_DRIVER = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*")
_HOST = re.compile(r"(?:spark://)?(\[[^\]]+\]|[^:,]+)(?::\d+)?")


class StandaloneLauncher(ClusterLauncher):
    """Drivers that a standalone cluster runs, with settings of an environment, or of this process's."""

    def __init__(
        self,
        policy: LaunchPolicy,
        environment: Mapping[str, str] | None = None,
        *,
        search_s: float = SEARCH_S,
    ) -> None:
        hosts = [match[1] for match in _HOST.finditer(policy.master or "")]
        rest = policy.rest or ",".join(f"http://{host}:{_REST_PORT}" for host in hosts)
        web = policy.web or ",".join(f"http://{host}:{_WEB_PORT}" for host in hosts)
        self._rest = rest.split(",")
        self._page = MasterPage(web.split(","))
        self._environment = os.environ if environment is None else environment
        self._search_s = search_s

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        """See `Launcher.submit`. A submission that was not answered is looked for, and never repeated."""
        body = submission(job, control, spec, ship(control), self._environment)
        try:
            answer = self._ask_master("/v1/submissions/create", body)
            if answer["success"] and not isinstance(answer.get("submissionId"), str):
                raise misshapen(self._rest[0], UNANSWERED)
        except StorageError as error:
            if error.code != UNANSWERED:
                raise
            return self._search(control, spec.launch_id, error)
        if not answer["success"]:
            raise StorageError(
                f"The master did not accept the driver of job {job.name}: {_said(answer)}.",
                code="not-started",
                hint=f"Look at {', '.join(self._page.addresses)}.",
            )
        return Handle(spec.launch_id, (), None, str(answer["submissionId"]))

    def _search(self, control: JobControl, launch_id: str, error: StorageError) -> Handle:
        deadline = time.monotonic() + self._search_s
        while True:
            # Where it cannot even be looked for, it is not known either: the next master may be taking over.
            with contextlib.suppress(StorageError):
                for handle in self.find(control):
                    if handle.launch_id == launch_id:
                        return handle
            if time.monotonic() >= deadline:
                raise StorageError(
                    f"It is not known whether the master has accepted the driver of job {control.name}: "
                    f"{error.message}",
                    code="submit-unanswered",
                    hint="Start it again. If the first driver was accepted, it is found, or ends because the "
                    "other has the lease.",
                ) from error
            time.sleep(_LOOK_S)

    def find(self, control: JobControl) -> list[Handle]:
        """See `Launcher.find`: by the records, and by the arguments with which a worker has launched it.

        A driver that waits for a worker with room shows no arguments; it is known only to whoever got the
        answer to its submission. Where that answer was lost, the lease decides. Where one that is known has
        lost its worker, it may be any that waits, and counts as there until it is certain that it is not.
        """
        active = self._page.active()
        last = control.last_event("launched") or {}
        found: dict[str, Handle] = {}
        driver = active.get(str(last.get("submission")))
        if driver is not None:
            launch_id = str(last.get("launch_id"))
            handle = replace(launched_handle(control, launch_id), submission=driver.id)
            if self._why_not(handle, driver) is None:
                found[launch_id] = handle
        pattern = re.compile(re.escape(launch_prefix(control)) + r"(launch-[0-9a-f]+)\.json")
        known = {handle.submission for handle in found.values()}
        for driver in active.values():
            if driver.id not in known and (match := pattern.search(self._page.command(driver))):
                found[match[1]] = Handle(match[1], (), driver.log, driver.id, driver.log)
        lost = str(last.get("submission") or "")
        if (
            lost
            and last.get("launch_id") not in found
            and any(self._may_be(driver, lost) for driver in active.values())
        ):
            before = self._page.driver(lost)
            if before is not None and before.state == RELAUNCHING:
                launch_id = str(last.get("launch_id"))
                found[launch_id] = replace(launched_handle(control, launch_id), submission=lost)
        return list(found.values())

    def _may_be(self, driver: ClusterDriver, lost: str) -> bool:
        """Whether a driver that shows nothing yet is younger than a lost one: it may be what that became."""
        return driver.id > lost and not self._page.command(driver)

    def _successor(self, handle: Handle) -> ClusterDriver | None:
        """The driver as which the master runs a launch again; None where none shows that it is."""
        for driver in self._page.active().values():
            if driver.id != handle.submission and _names(self._page.command(driver), handle):
                return driver
        return None

    def _why_not(self, handle: Handle, driver: ClusterDriver, *, proven: bool = False) -> str | None:
        """Why a driver is not the one of a launch; None where it is, or may be.

        One that waits for a worker shows no arguments, and has run nothing: it may be any of our program.

        Args:
            proven: One that runs where nobody tells its arguments does not count.
        """
        command = self._page.command(driver)
        if command:
            return None if _names(command, handle) else "its arguments name another launch, or none"
        if driver.main != PYTHON_RUNNER:
            return f"it runs {driver.main}"
        silent = proven and driver.worker is not None
        return f"its worker's page {driver.worker} does not tell its arguments here" if silent else None

    def _check(self, handle: Handle, submission: str, *, proven: bool = False) -> ClusterDriver | None:
        """A driver as the page has it; None where it is not there. One that a record names is looked at."""
        driver = self._page.driver(submission)
        if handle.job is None:
            return driver
        if driver is not None:
            why = self._why_not(handle, driver, proven=proven)
        else:
            why = "the master's page does not show it" if proven else None
        if why is not None:
            raise not_its_driver(handle, why)
        return driver

    def status(self, handle: Handle) -> DriverState:
        """See `Launcher.status`. Of a launch that lost its worker it is that of the driver it has become.

        Raises:
            StorageError: No master that leads can be asked.
        """
        if handle.submission is None:
            return DriverState("ended", why="nothing was submitted")
        if not _DRIVER.fullmatch(handle.submission):
            raise not_its_driver(handle, "that is no driver's id")
        answer = self._ask_master(f"/v1/submissions/status/{handle.submission}", None)
        state = str(answer.get("driverState") or "NOT_FOUND")
        if state in (RELAUNCHING, "NOT_FOUND"):
            return self._status_elsewhere(handle, handle.submission, state)
        log, over = None, state in GONE
        try:
            driver = self._check(handle, handle.submission)
            log = driver.log if driver is not None else None
            if over and handle.job is not None and (driver is None or not self._page.command(driver)):
                return self._status_elsewhere(handle, handle.submission, state)  # it may be another one's
        except StorageError as error:  # else the page says more than has to be known
            if error.code == NOT_ITS_DRIVER:
                raise
        return DriverState("ended" if over else "running", log=log, tracking=log, why=state)

    def _status_elsewhere(self, handle: Handle, lost: str, state: str) -> DriverState:
        now = self._successor(handle)
        if now is not None:
            why = f"{now.state} as {now.id}"
            return DriverState("running", log=now.log, tracking=now.log, why=why, submission=now.id)
        waits = state == RELAUNCHING and any(
            self._may_be(driver, lost) for driver in self._page.active().values()
        )
        return DriverState("running" if waits else "ended", why=state)

    def _read_log(self, handle: Handle, submission: str, count: int) -> list[str]:
        """From the worker's page, first what Spark says, then what Python says."""
        self._check(handle, submission)
        return self._page.log_lines(submission, count)

    def kill(self, handle: Handle) -> None:
        """See `Launcher.kill`. The worker sends TERM, and SIGKILL after 10 s; supervision ends with it."""
        state = self.status(handle)
        if state.state == "ended":
            return
        submission = state.submission or handle.submission or ""
        if handle.job is not None:
            self._check(handle, submission, proven=True)
        answer = self._ask_master(f"/v1/submissions/kill/{submission}", {}, repeatable=True)
        if answer["success"] or self.status(handle).state == "ended":
            return
        raise StorageError(
            f"The master did not end {handle.submission}: {_said(answer)}.",
            code="not-killed",
            hint=f"Look at {', '.join(self._page.addresses)}.",
        )

    def _ask_master(
        self, path: str, body: Mapping[str, Any] | None, *, repeatable: bool = False
    ) -> Mapping[str, Any]:
        """Ask the masters, one after the other, until one leads: what the others say is no answer.

        Args:
            body: What is sent; None for a question.
            repeatable: Whether it may be sent to the next one where one may have done it already. A question
                may.

        Raises:
            StorageError: None of them leads, or can be asked; or one may have done it, and has not said so
                (code `cluster-unanswered`).
        """
        silent: StorageError | None = None
        waiting: list[str] = []
        for address in self._rest:
            url = address + path
            try:
                answer = get_json(url) if body is None else send_json(url, body, timeout_s=_PATIENCE_S)
                if not isinstance(answer.get("success"), bool):
                    raise misshapen(url, UNANSWERED)
            except StorageError as error:
                if error.code == UNANSWERED and body is not None and not repeatable:
                    raise
                if silent is None or error.code == UNANSWERED:
                    silent = error
                continue
            if NOT_ALIVE not in str(answer.get("message")):
                return answer
            waiting.append(f"{address} says: {_said(answer)}")
        if silent is not None and silent.code == UNANSWERED and body is not None:
            raise silent  # that one may have done it
        raise nobody_leads(waiting, silent)


def submission(
    job: Job, control: JobControl, spec: LaunchSpec, program: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The request for a driver.

    The program is fetched into the driver's working directory, so its name alone is enough there.

    Args:
        program: URI of the program (`shipping.ship`).
        environment: From which the variables are taken that the job's `env` names.
    """
    properties = {**_defaults(environment), **job.spark}
    python_files = _list(properties.get("spark.submit.pyFiles"), NAME)
    # Executors get what is in spark.files alone, and Spark takes nothing over into it here.
    properties["spark.files"] = ",".join(_list(properties.get("spark.files"), *python_files))
    properties["spark.submit.pyFiles"] = ",".join(python_files)
    # What is here is importable from the first line on; Spark's PythonRunner takes no remote files.
    imported = ",".join(
        python_file for python_file in python_files if scheme_of(python_file) in ("file", "local")
    )
    python = properties.get("spark.pyspark.python") or job.python
    always = {
        "spark.app.name": job.name,
        "spark.master": job.master,
        "spark.submit.deployMode": "cluster",
        "spark.driver.supervise": "true" if spec.supervised else "false",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": properties.get("spark.pyspark.driver.python") or python,
    }
    passed = {name: environment[name] for name in job.env if name in environment and not is_airflows(name)}
    return {
        "action": "CreateSubmissionRequest",
        "appResource": program,
        "appArgs": [NAME, imported, *launch_arguments(control, spec)],
        "clientSparkVersion": _spark_version(),
        "environmentVariables": {"SPARK_ENV_LOADED": "1", "PYTHONUNBUFFERED": "1"}
        | cluster_variables(environment)
        | passed,
        "mainClass": PYTHON_RUNNER,
        "sparkProperties": properties | always,
    }


def _names(command: str, handle: Handle) -> bool:
    of = "" if handle.job is None else f"/{handle.job}"
    return f"{of}/launches/{handle.launch_id}.json" in command


def _list(given: str | None, *more: str) -> list[str]:
    return list(
        dict.fromkeys([*(option.strip() for option in (given or "").split(",") if option.strip()), *more])
    )


def _defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """What spark-defaults.conf says here, which spark-submit would have read; without credentials.

    Raises:
        InputError: It cannot be read (code `no-spark-defaults`).
    """
    folder = environment.get("SPARK_CONF_DIR")
    if folder is None and "SPARK_HOME" in environment:
        folder = str(Path(environment["SPARK_HOME"]) / "conf")
    file = Path(folder) / "spark-defaults.conf" if folder else None
    if file is None:
        return {}
    try:
        # Spark itself takes what is no UTF-8 for a character that cannot be shown, in comments mostly.
        text = file.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror or error}.",
            code="no-spark-defaults",
            hint="Let this user read it, or name another folder in SPARK_CONF_DIR.",
        ) from error
    found = read_properties(text)
    own = {name: one for name, one in found.items() if name.startswith("spark.")}
    return {name: one for name, one in own.items() if not is_credential(name, one)}


def _spark_version() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "4.3.0"  # the master asks for one, and compares it with nothing


def _said(answer: Mapping[str, Any]) -> str:
    return str(answer.get("message") or answer.get("driverState") or "it said nothing")[:500]
