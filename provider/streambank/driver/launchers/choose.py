"""Which launcher a job has."""

from __future__ import annotations

from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.prepare import placed, using_connections

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
        from streambank.driver.launchers.standalone import StandaloneLauncher

        return StandaloneLauncher(policy)
    if policy.on == "yarn":
        from streambank.driver.launchers.yarn import YarnLauncher

        return YarnLauncher(policy)
    from streambank.driver.launchers.kubernetes import KubernetesLauncher

    return KubernetesLauncher(policy)
