"""Drivers in Kubernetes: submitted, watched and ended by spark-submit.

A driver's pod is called after its launch, so it is known before it is there, and no second one can be made of
one launch. Logs are read with kubectl, where that is installed.

Source: Spark's "Running on Kubernetes" (4.3.0). No cluster was at hand: what is tested is what is said to
spark-submit and kubectl, and how their answers are read.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

from streambank.control.control import RECENT_EVENTS, JobControl
from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.launch import UPLOAD_PATH
from streambank.driver.environment import driver_environment
from streambank.driver.installed import find_installation
from streambank.driver.launcher import DriverState, Handle, not_its_driver
from streambank.driver.launchers.local import JOB_LABEL, LAUNCH_LABEL, job_tag, kubernetes_options
from streambank.driver.launchers.submit import KUBECONFIG, ClusterSubmit, Submitter, run_for_output
from streambank.driver.location import known_state, launched_handle
from streambank.driver.spec import LaunchSpec, read_launch

GONE = frozenset({"Succeeded", "Failed"})
TIMEOUT_S = 60.0
CANDIDATES = 3
"""How many of the newest launches that have not had the lease are asked for: each question starts a JVM."""
_LABEL = "spark.kubernetes.driver.label."
_PHASE = re.compile(r"^\s*phase: (\w+)", re.MULTILINE)
_EXIT_CODE = re.compile(r"^\s*exit code: (\d+)", re.MULTILINE)
_JOB = re.compile(rf"\b{JOB_LABEL}\W+([\w.-]+)")
_LAUNCH_ID = re.compile(r"launch-[0-9a-z-]+")
_NAMESPACE = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,61}[0-9a-z])?")
_NOTHING = re.compile(r"(?:^|\s)(?:Application not found|No applications found)\.\s*$", re.MULTILINE)
"""What spark-submit says of a pod that is not there; the second of a name with a wildcard."""


class KubernetesLauncher(Submitter):
    """Drivers that Kubernetes runs."""

    def submit(self, job: Job, control: JobControl, spec: LaunchSpec) -> Handle:
        handle = self._handle(spec.launch_id)
        try:
            self.submission(job, spec).run(job, control, spec, self._environment, self._installation)
        except StorageError as error:
            # It may have been made all the same: its name tells.
            if error.code != "submit-unanswered" or self.status(handle).state == "ended":
                raise
        return handle

    def submission(self, job: Job, spec: LaunchSpec) -> ClusterSubmit:
        """What spark-submit is told."""
        return ClusterSubmit(
            options=kubernetes_options(job),
            settings={
                "spark.kubernetes.driver.pod.name": pod_name(spec.launch_id),
                "spark.kubernetes.submission.waitAppCompletion": "false",
                _LABEL + JOB_LABEL: job_tag(job.name),
                _LABEL + LAUNCH_LABEL: spec.launch_id,
            },
            defaults={"spark.kubernetes.driverEnv.PYTHONUNBUFFERED": "1"},
            entry=job.launch.entry,
            files=(),
            variable="spark.kubernetes.driverEnv.{}",
            uploads=tuple(job.spark[one] for one in (UPLOAD_PATH,) if one in job.spark),
        )

    def find(self, control: JobControl) -> list[Handle]:
        """See `Launcher.find`: by the pods that launches would have.

        Asked for are the newest launches that have not had the lease, and the newest that has, where nobody
        has left behind where its driver is: its start was killed.
        """
        been = control.lease.recent_launches()
        launches = sorted(control.store.list("launches"), key=lambda info: info.mtime_ns, reverse=True)
        names = [info.path.rpartition("/")[2].removesuffix(".json") for info in launches]
        asked = [name for name in names if name not in been][:CANDIDATES]
        last = [name for name in names if name in been][:1]
        asked += [name for name in last if not self._is_its_pod(launched_handle(control, name))]
        found = []
        for launch_id in asked:
            spec = read_launch(control, launch_id)
            if spec.on != "kubernetes" or spec.deploy_mode != "cluster":
                continue
            # Where that is not among these the cluster says so.
            if control.last_event("driver-died", launch_id=launch_id, newest=RECENT_EVENTS) is None:
                handle = replace(self._handle(launch_id), job=control.name)
                state = known_state(self, handle)
                if state is not None and state.state == "running":
                    found.append(handle)
        return found

    def status(self, handle: Handle) -> DriverState:
        """See `Launcher.status`: by the phase of its pod.

        One that runs in another namespace than the declared one counts as there: it was declared when the job
        was started. So no second one is launched; but it is neither ended nor read.

        Raises:
            StorageError: spark-submit told nothing (code `cluster-refused`); or it is not this launch's pod
                (`not-its-driver`).
        """
        elsewhere = self._is_elsewhere(handle)
        if not elsewhere:
            self._check_pod(handle)
        said = self._spark_submit("--status", handle.submission)
        phase = _PHASE.search(said)
        if elsewhere and (phase is None or phase[1] in GONE):
            self._check_pod(handle)
        if phase is None:
            if _NOTHING.search(said):
                return DriverState("ended", why="there is no such pod")
            raise StorageError(
                f"spark-submit did not report the state of {handle.submission}.",
                code="cluster-refused",
                hint="Check whether the cluster is up, and check the Kubernetes configuration of this user.",
            )
        of = _JOB.search(said)
        if handle.job is not None and of is not None and of[1] != job_tag(handle.job):
            raise not_its_driver(handle, f"it has the label {of[1]}")
        code = _EXIT_CODE.search(said)
        over = phase[1] in GONE
        return DriverState(
            "ended" if over else "running", int(code[1]) if over and code else None, why=phase[1]
        )

    def _read_log(self, handle: Handle, submission: str, count: int) -> list[str]:
        """By kubectl, where that is installed."""
        self._check_pod(handle)
        namespace, labels = submission.partition(":")[0], f"{LAUNCH_LABEL}={handle.launch_id}"
        if handle.job is not None:  # another job's launch may have been copied among its records
            labels += f",{JOB_LABEL}={job_tag(handle.job)}"
        command = ["kubectl", "logs", f"--namespace={namespace}", f"--tail={count}", f"--selector={labels}"]
        if self._policy.context is not None:
            command.insert(1, f"--context={self._policy.context}")
        program = shutil.which("kubectl", path=self._environment.get("PATH"))
        if program is None:
            return [f"(To read the driver's log: {' '.join(command)})"]
        return run_for_output([program, *command[1:]], self._driver_environment(), TIMEOUT_S).splitlines()

    def kill(self, handle: Handle) -> None:
        """See `Launcher.kill`: its pod is deleted, after the grace that the cluster gives."""
        if handle.submission is not None and self.status(handle).state == "running":
            self._check_pod(handle)
            self._spark_submit("--kill", handle.submission)

    def _is_its_pod(self, handle: Handle, namespace: str | None = None) -> bool:
        """Whether a handle names the pod of its launch. spark-submit takes a name for a pattern."""
        own = self._handle(handle.launch_id, namespace).submission
        return bool(_LAUNCH_ID.fullmatch(handle.launch_id)) and handle.submission == own

    def _is_elsewhere(self, handle: Handle) -> bool:
        """Whether a handle names the pod that its launch would have in a namespace that is not declared."""
        namespace = (handle.submission or "").partition(":")[0]
        is_other = bool(_NAMESPACE.fullmatch(namespace)) and namespace != self._policy.namespace
        return is_other and self._is_its_pod(handle, namespace)

    def _check_pod(self, handle: Handle) -> None:
        if not self._is_its_pod(handle):
            own = self._handle(handle.launch_id).submission
            raise not_its_driver(handle, f"by the declared namespace its pod is {own!r}")

    def _spark_submit(self, verb: str, submission: str | None) -> str:
        found = self._installation or find_installation()
        command = [str(found.spark_submit), "--master", self._policy.master or "", verb, submission or ""]
        if self._policy.context is not None:
            command += ["--conf", f"spark.kubernetes.context={self._policy.context}"]
        return run_for_output(command, self._driver_environment(str(found.spark_home)), TIMEOUT_S)

    def _driver_environment(self, spark_home: str | None = None) -> dict[str, str]:
        settings = {} if spark_home is None else {"SPARK_HOME": spark_home}
        return driver_environment(self._environment, extra=(KUBECONFIG,), settings=settings)

    def _handle(self, launch_id: str, namespace: str | None = None) -> Handle:
        return Handle(launch_id, (), None, f"{namespace or self._policy.namespace}:{pod_name(launch_id)}")


def pod_name(launch_id: str) -> str:
    """The driver's pod of a launch."""
    return f"streambank-{launch_id}"
