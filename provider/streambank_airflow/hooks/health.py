"""The verbs on a job that makes no progress: let another driver take over, or give up and say why.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streambank.control.watch import SIGN_EVERY_S
from streambank.core.options import as_texts
from streambank.core.shape import decode
from streambank_airflow.failures import describe
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.verbs import CALLER, connected

if TYPE_CHECKING:
    from streambank.control.watch import WatchEnd, Watcher, WatcherState
    from streambank.job.restart import RestartResult


@dataclass(frozen=True, slots=True)
class HealthVerbs:
    """What is done about a job's health, and who watches it: `hook.health`."""

    declared: DeclaredJobs

    @connected
    def is_still_unhealthy(self, ref: str, found: Mapping[str, Any]) -> bool:
        """Whether what was found some time ago still is so: `streambank.job.heal.is_still_unhealthy`."""
        from streambank.job.heal import is_still_unhealthy
        from streambank.job.health import Unhealthy

        return is_still_unhealthy(self.declared.job(ref), decode(Unhealthy, found, "request"))

    @connected
    def heal(
        self,
        ref: str,
        found: Mapping[str, Any],
        *,
        note: str = "",
        by: Mapping[str, str] = CALLER,
        application_args: Sequence[str] | None = None,
    ) -> RestartResult:
        """Let another driver take over from an unhealthy one, `found` as `Unhealthy.to_dict` gave it."""
        from streambank.job.heal import heal_job
        from streambank.job.health import Unhealthy

        job, args = self.declared.job(ref), None if application_args is None else as_texts(application_args)
        return heal_job(job, decode(Unhealthy, found, "request"), by=by, why=note, args=args)

    @connected
    def hopeless_death(self, ref: str) -> str | None:
        """Why no start helps after the death of a job's newest driver: `streambank.job.hopeless`.

        Returns:
            The sentence with its code and the way out; None where another start may help.
        """
        from streambank.job.hopeless import hopeless_death

        error = hopeless_death(self.declared.job(ref))
        return None if error is None else describe(error)

    @connected
    def died_alike(self, ref: str, *, by: Mapping[str, str] = CALLER) -> str | None:
        """The error by which the two newest drivers of the DAG run that asks died."""
        from streambank.job.hopeless import died_alike

        return died_alike(self.declared.job(ref), by)

    @connected
    def give_up(
        self, ref: str, *, why: str, failures: int = 0, restarts: int = 0, by: Mapping[str, str] = CALLER
    ) -> str:
        """Record that a job is not started any more, and say what a person needs to know.

        Args:
            failures: How many drivers in a row made no batch.
        """
        from streambank.job.crash_loop import record_crash_loop

        job = self.declared.job(ref)
        return record_crash_loop(job, why=why, by=by, failures=failures, restarts=restarts).message

    @connected
    def begin_watch(self, ref: str, *, by: Mapping[str, str] = CALLER) -> tuple[Watcher, str | None]:
        """Become the one that keeps a job running.

        Returns:
            As which watcher signs of that are left, and the site whose records have it; None for a copy,
            which has one set of records. The other site has the same numbers for other watchers.
        """
        job = self.declared.job(ref)
        records = job.records()
        desired = records.desired()
        watcher = records.watches.begin(by=by, desired=None if desired is None else desired.number)
        return watcher, None if job.original is not None else job.site

    @connected
    def watch_again(
        self,
        ref: str,
        watcher: Watcher,
        site: str | None,
        *,
        by: Mapping[str, str] = CALLER,
        gone: Watcher | None = None,
    ) -> Watcher | None:
        """Become the one that keeps a job running again, where no watcher acts.

        Returns:
            As which watcher; None where another one watches by now, or all records of the job are lost.
        """
        records = self.declared.job(ref, site).records()
        desired = records.desired()
        if desired is None:
            return None
        return records.watches.begin_again(watcher, by=by, desired=desired.number, gone=gone)

    @connected
    def watch_standing(self, ref: str, watcher: Watcher, site: str | None) -> WatcherState:
        """How a watcher stands, by the records alone."""
        return self.declared.job(ref, site).records().watches.standing(watcher)

    @connected
    def watch_on(
        self, ref: str, watcher: Watcher, site: str | None, *, next_s: float | None, doing: str
    ) -> WatcherState:
        """Leave a sign that a job is watched; how its watcher stands.

        Args:
            next_s: When the next sign is due; None for as long as a start may take.
        """
        job = self.declared.job(ref, site)
        if next_s is None:
            # A restart may have to stop the driver before: by force, and then by SIGKILL.
            next_s = job.start.timeout_s + 2 * job.stop.force_after_s + SIGN_EVERY_S
        records = job.records()
        desired = records.desired()
        now = None if desired is None else desired.number
        return records.watches.sign(watcher, desired=now, next_s=next_s, doing=doing)

    @connected
    def end_watch(self, ref: str, watcher: Watcher, site: str | None, how: WatchEnd, why: str = "") -> None:
        """Record that a job is watched no more by a watcher of a site, and why."""
        self.declared.job(ref, site).records().watches.end(watcher, how, why)
