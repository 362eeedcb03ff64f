"""Which launcher a job has."""

from __future__ import annotations

from streambank.declaration.declaration import Job
from streambank.driver.connections import placed, using_connections
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.local import LocalLauncher

__all__ = ["check_registered", "launcher_for", "placed", "using_connections"]


def launcher_for(job: Job) -> Launcher:
    """The launcher of a job, as it is declared.

    Raises:
        InputError: See `placed`; or the addresses of its cluster are nowhere (code `no-resource-manager`); or
            it names a launcher that is not installed here, or cannot be used (registered.py).
    """
    policy = placed(job).launch
    if not policy.in_cluster:
        return LocalLauncher()
    # A cluster's launcher is loaded where one is needed.
    if policy.is_registered:
        from streambank.driver.launchers.registered import registered_launcher

        return registered_launcher(policy)
    if policy.on == "standalone":
        from streambank.driver.launchers.standalone import StandaloneLauncher

        return StandaloneLauncher(policy)
    if policy.on == "yarn":
        from streambank.driver.launchers.yarn import YarnLauncher

        return YarnLauncher(policy)
    from streambank.driver.launchers.kubernetes import KubernetesLauncher

    return KubernetesLauncher(policy)


def check_registered(job: Job) -> None:
    """Make sure, before a driver is touched, that a launcher that a package has is installed here."""
    if job.launch.is_registered:
        launcher_for(job)
