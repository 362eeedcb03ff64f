"""Which launcher a job has."""

from __future__ import annotations

from streambank.job.declaration import Job
from streambank.job.launch_connections import placed, using_connections
from streambank.job.launcher import Launcher, LocalLauncher

__all__ = ["launcher_for", "placed", "using_connections"]


def launcher_for(job: Job) -> Launcher:
    """The launcher of a job, as it is declared.

    Raises:
        InputError: See `placed`; or the addresses of its cluster are nowhere (code `no-resource-manager`).
    """
    policy = placed(job).launch
    if not policy.in_cluster:
        return LocalLauncher()
    # A cluster's launcher is loaded where one is needed.
    if policy.on == "standalone":
        from streambank.job.launchers.standalone import StandaloneLauncher

        return StandaloneLauncher(policy)
    if policy.on == "yarn":
        from streambank.job.launchers.yarn import YarnLauncher

        return YarnLauncher(policy)
    from streambank.job.launchers.kubernetes import KubernetesLauncher

    return KubernetesLauncher(policy)
