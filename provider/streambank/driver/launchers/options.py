"""What spark-submit is told about the place where a job runs, beside master, name and the job's settings."""

from __future__ import annotations

from streambank.declaration.declaration import Job
from streambank.declaration.launch import IMAGE, TAG_PREFIX

_TAGS = "spark.yarn.tags"
JOB_LABEL = "streambank-job"
LAUNCH_LABEL = "streambank-launch"


def client_options(job: Job, launch_id: str) -> list[str]:
    """Of a driver on this machine; none where its executors are its own threads or a standalone cluster's."""
    if job.launch.on == "yarn":
        return ["--deploy-mode", "client", *yarn_options(job, launch_id)]
    if job.launch.on == "kubernetes":
        return ["--deploy-mode", "client", *kubernetes_options(job)]
    return []


def yarn_options(job: Job, launch_id: str) -> list[str]:
    """Queue, Kerberos and the tags by which the resource manager finds the application."""
    found: list[str] = []
    for name, value in (
        ("queue", job.launch.queue),
        ("principal", job.launch.principal),
        ("keytab", job.launch.keytab),
    ):
        if value is not None:
            found += [f"--{name}", value]
    tags = [tag for tag in job.spark.get(_TAGS, "").split(",") if tag]
    return [*found, "--conf", f"{_TAGS}={','.join([*tags, job_tag(job.name), launch_id])}"]


def job_tag(name: str) -> str:
    """The tag, or label, of all drivers of a job; YARN makes it lower case."""
    return f"{TAG_PREFIX}{name}".lower()


def kubernetes_options(job: Job) -> list[str]:
    """Namespace, image and context."""
    given = {
        "spark.kubernetes.namespace": job.launch.namespace,
        IMAGE: job.launch.image,
        "spark.kubernetes.context": job.launch.context,
    }
    return [part for name, value in given.items() if value for part in ("--conf", f"{name}={value}")]


def own_settings(job: Job) -> dict[str, str]:
    """The job's settings, but for those that the options above have taken in."""
    return {name: value for name, value in job.spark.items() if name != _TAGS or job.launch.on != "yarn"}
