"""The operator that keeps a job running, and getting on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from streambank.control.watch import SIGN_EVERY_S, Watcher, WatcherState
from streambank.core.errors import ConflictError, InputError, RefusedError, StorageError, StreambankError
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank_airflow.arguments import Seconds, Templated, argument
from streambank_airflow.failures import airflow_failures, describe, said
from streambank_airflow.hints import is_own_dag
from streambank_airflow.operators.base import asked_by
from streambank_airflow.operators.driver import DIED, HOPELESS, UNSTARTABLE, LaunchesDriver, Waits

if TYPE_CHECKING:
    from airflow.sdk import Context

    from streambank.control.watch import WatchEnd
    from streambank.declaration.health import HealthPolicy

SHORT_PAUSE_S = 10.0
"""A pause before a start of no more seconds is made in the task, a longer one in the triggerer."""
DECLARED_AGAIN_S = 30.0
"""After so long a declaration that has a mistake is read again."""
_LONGEST = 300
_PATIENCE = ("max_failures", "backoff_s", "max_backoff_s")


@dataclass(frozen=True, slots=True)
class Course(Waits):
    """What is remembered from one start to the next.

    Attributes:
        failures: How many drivers in a row came to their end, or to a standstill, without a new batch.
        restarts: How many drivers were started in place of another one.
        recent: When the last of them were, ISO-8601.
        watch: The number under which signs are left that the job is watched; None before the first.
        site: The site of the job whose records have that number; None for a copy.
        watch_id: What tells its record from another one with that number; None for one that the version
            before has begun.
    """

    failures: int = 0
    restarts: int = 0
    recent: tuple[str, ...] = ()
    watch: int | None = None
    site: str | None = None
    watch_id: str | None = None

    @property
    def watcher(self) -> Watcher | None:
        """Which watcher the task is; None before it has begun to watch."""
        return None if self.watch is None else Watcher(self.watch, self.watch_id)

    def watched_by(self, watcher: Watcher | None, site: str | None) -> Course:
        """The same as that of a watcher of a site."""
        number, identity = (None, None) if watcher is None else (watcher.number, watcher.identity)
        return replace(self, watch=number, site=site, watch_id=identity)

    def after(self, *, got_on: bool, within_s: float) -> Course:
        """What is remembered once another driver has to be started, after one that `got_on` or not.

        Args:
            within_s: For how long a start is remembered as a recent one.
        """
        now = utc_now()
        recent = [one for one in self.recent if 0 <= (now - from_json_time(one)).total_seconds() < within_s]
        failures = 0 if got_on else self.failures + 1
        known = self.rid_of_waits() if got_on else self
        return replace(
            known, failures=failures, restarts=self.restarts + 1, recent=(*recent, to_json_time(now))
        )

    def rid_of_waits(self) -> Course:
        """The same once a driver has committed a batch: the next lack of something is another one."""
        return replace(self, waits=0, alerted=None)


class KeepStreamingJobRunningOperator(LaunchesDriver):
    """Keeps a job running for as long as it is meant to run; waits in the triggerer, for days if need be.

    It obeys: what somebody stops stays stopped, and while a restore or another operation has the job nothing
    is done. When the driver is gone although the job is meant to run, it is started again from its
    checkpoint, later each time as long as no driver commits a batch. A driver that lives and makes no
    progress, as `[jobs.NAME.health]` says it, makes room for another one. A job that starts again and again
    and gets nowhere is given up: the task fails for good, and says why; at once where its checkpoint is
    damaged or cannot be loaded by Spark, and with the savepoint to restore. All that is remembered between
    two starts travels with the trigger, so a triggerer or scheduler that is restarted changes nothing.

    A full disk, or a storage or cluster that is not reached, is no driver's failure: it counts for nothing,
    is alerted (`cannot-start`) at once and then hourly, and is waited for without an end.

    While it watches it leaves a sign of that in the job's records, once a minute, so that others can tell a
    job that nothing would restart. There is one watcher: a newer one takes over, and the older one ends well
    once it has seen the newer one's signs. If those do not come, it watches on, and alerts (`not-watched`).
    Do not pause the DAG: a paused one starts nothing any more. A task that is marked or cleared stops no
    driver, unless `stop_on_kill` says so; then a worker that is shut down while the task is on it has the job
    stopped, too, and another try of the task leaves it so.

    Args:
        max_failures: How many drivers in a row may end, or make no progress, without a new batch before the
            task fails; None for what the job declares, and so are the others.
        backoff_s: Seconds before the second start in a row; doubled for each one after it, up to
            `max_backoff_s`.
        application_args: The application's arguments for each driver that it starts, instead of the declared
            ones: give it those of the start before it.

    Returns:
        `job`, `state` (`stopped`, `finished`, or `replaced` by another watcher), `why`, `batch`, `restarts`.
    """

    alert_kinds = ("giving-up",)
    deferrable = True

    max_failures: Templated[int | None] = argument(None)
    backoff_s: Seconds[float | None] = argument(None)
    max_backoff_s: Seconds[float | None] = argument(None)
    application_args: Templated[Sequence[str] | None] = argument(None)
    poll_interval_s: Seconds[float] = argument(5.0)

    def execute(self, context: Context) -> dict[str, Any]:
        """Make sure that it runs, then watch; see the class."""
        with airflow_failures():
            self.check_deferrable()
        with self._watching(context, Course()):
            return self._start(context, Course())

    def start_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the pause before a start."""
        self._wait_for_declaration(context, event)
        remember = event["remember"]
        course = self._resumed(context, event)
        with self._watching(context, course):
            if self._is_beside_a_newer(course):
                with airflow_failures():
                    batch = self.hook.watchers.job(self.job).look().batch
                self._watch(course, batch)
            if "unhealthy" in remember:
                return self._heal(context, remember, course)
            return self._start(context, course)

    def _wait_for_declaration(self, context: Context, event: dict[str, Any]) -> None:
        """Wait in the triggerer while the job's declaration has a mistake: without it nothing can be done.

        Each mistake is alerted once, to those who can be read of the job.
        """
        try:
            self.hook.declared.read().around(self.job)
        except InputError as error:
            mistake = f"{error.message} {error.hint}".strip()
            self.log.error("The declaration is read again in %g s: %s", DECLARED_AGAIN_S, mistake)
            if event.get("mistake") != mistake:
                message = (
                    f"Nothing is done for job {self.job}, which needs it: {mistake} Correct the jobs file: "
                    "the job goes on by itself then."
                )
                self.send_alert(context, message, "giving-up", "restart")
            until = utc_now() + timedelta(seconds=DECLARED_AGAIN_S)
            self.pause(until, {**event, "mistake": mistake}, "declared_again")

    def declared_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on with what was to be done, if the declaration is right now."""
        held = event["remember"]
        if held["status"] == "over":
            return self.start_again(context, held)
        if held["status"] == "error":  # it may be the mistake that has been repaired: the trigger looks again
            held = {**held, "status": "unsigned"}
        return self.execute_complete(context, held)

    def _policy(self) -> HealthPolicy:
        """What the job declares, but for what this task says itself."""
        own = {name: getattr(self, name) for name in _PATIENCE if getattr(self, name) is not None}
        return replace(self.hook.declared.job(self.job).health, **own)

    @contextmanager
    def _watching(self, context: Context, course: Course) -> Iterator[None]:
        """Where the task fails, leave behind that this watcher is no more; another try begins another one.

        It does not fail for a storage that cannot be used now, and waits for that.
        """
        try:
            with self.waiting_for_storage(context, course):
                yield
        except AirflowException as error:
            # The first end that is recorded counts: one that gives up has said so, and why.
            self._end(course, "failed", str(error).splitlines()[0][:_LONGEST])
            raise

    def _watched(self, context: Context, course: Course, event: Mapping[str, Any] | None = None) -> Course:
        """The course of the job's newest watcher, which this task becomes unless it is one already.

        Where no watcher acts it begins again: its record is lost, or the newest one's signs have ended.
        """
        if course.watcher is None:
            return course.watched_by(*self.hook.health.begin_watch(self.job, by=asked_by(context)))
        found = event or {}
        gone = Watcher(**found["watch_gone"]) if found.get("watch_gone") else None
        standing = self._standing(course.watcher, course.site)
        if not (standing.lost or gone is not None):
            return course
        again = self.hook.health.watch_again(
            self.job, course.watcher, course.site, by=asked_by(context), gone=gone
        )
        if again is None:
            return course
        why = standing.why or str(found.get("watch_why") or "")
        if gone == course.watcher:
            self.log.warning("Job %s has two watchers that are one run. %s", self.job, why)
        elif why:
            self._alert_of_gap(context, why)
        return course.watched_by(again, course.site)

    def _standing(self, watcher: Watcher, site: str | None) -> WatcherState:
        """How this watcher stands; as the one that acts where that cannot be seen: it ends nothing."""
        try:
            return self.hook.health.watch_standing(self.job, watcher, site)
        except StreambankError as error:
            self.log.warning("The record of this watch could not be read: %s", describe(error))
            return WatcherState()

    def _at_active_site(self, course: Course) -> Course:
        """The course without the number of a site that is not the active one any more."""
        if course.site in (None, self.hook.declared.job(self.job).site):
            return course
        self._end(course, "replaced", "the job runs at its other site")
        return course.watched_by(None, None)

    def _resumed(self, context: Context, event: Mapping[str, Any]) -> Course:
        """What was remembered while the task was deferred; a version that left no signs has deferred none."""
        course = Course.of(event["remember"])
        with self.waiting_for_storage(context, course), airflow_failures():
            return self._watched(context, course, event)

    def _is_beside_a_newer(self, course: Course) -> bool:
        """Whether another watcher has the newest record, so that this one does nothing.

        Whether that one lives is for the trigger to see: it takes several looks.
        """
        return self._sign(course, None, "starting").other is not None

    def _sign(self, course: Course, next_s: float | None, doing: str) -> WatcherState:
        """Leave a sign; how this watcher stands. A sign that cannot be left ends nothing."""
        if course.watcher is None:
            return WatcherState()
        try:
            return self.hook.health.watch_on(
                self.job, course.watcher, course.site, next_s=next_s, doing=doing
            )
        except StreambankError as error:
            self.log.warning("The sign that the job is watched could not be written: %s", describe(error))
            return WatcherState()

    def _end(self, course: Course, how: WatchEnd, why: str) -> None:
        if course.watcher is None:
            return
        try:
            self.hook.health.end_watch(self.job, course.watcher, course.site, how, why)
        except StreambankError as error:
            self.log.warning("The end of the watch could not be recorded: %s", describe(error))

    def _start(self, context: Context, course: Course) -> dict[str, Any]:
        """Start the job, unless it is not meant to run any more, and watch it."""
        self.begins()
        with airflow_failures():
            try:
                result = self.hook.jobs.start(
                    self.job,
                    obey_desired=True,
                    wait=False,
                    note=self.why,
                    by=asked_by(context),
                    application_args=self.application_args,
                )
            except RefusedError as error:
                self._give_up_unstartable(context, error, course)
                raise
            except StorageError as error:
                return self._not_started(context, error, course)
            if result.state == "not-desired":
                return self._over("stopped", self.hook.watchers.job(self.job).look().to_dict(), course)
            self.link_to(context, result)
            self._watch(self._watched(context, self._at_active_site(course)), result.batch)

    def _not_started(self, context: Context, error: StorageError, course: Course) -> dict[str, Any]:
        """Go on after a start that its environment failed: only where it came to a driver, one died."""
        if error.code in DIED:
            # It did not even get as far as the lease: one more of the drivers that did not get on.
            cause = self.show_driver_failure()
            if not self.died_for_room():
                return self._pause(context, error.message, self._watched(context, course), got_on=False)
            self.wait_for_storage(
                context, f"{error.message.rstrip('.')}{cause}.", self._watched(context, course)
            )
        try:
            course = self._watched(context, course)
        except StreambankError as other:  # a watcher's record may need what is lacking
            self.log.warning("It could not be recorded who watches the job: %s", describe(other))
        self.wait_for_storage(context, said(error), course)

    def wait_for_storage(self, context: Context, why: str, known: Waits) -> NoReturn:
        """See `DriverOperator`; and leave a sign that the job is watched meanwhile."""
        if isinstance(known, Course):
            self._sign(known, known.pause_s + SIGN_EVERY_S, "pausing")
        super().wait_for_storage(context, why, known)

    def _watch(self, course: Course, batch: int | None) -> NoReturn:
        """Wait until the job needs somebody.

        Args:
            batch: The newest batch when the driver was started: it gets on with the next one.
        """
        from streambank_airflow.triggers.job import JobEndTrigger

        self.defer(
            trigger=JobEndTrigger(
                **self.trigger_arguments,
                stop_by=self.stop_by,
                heal=self._policy().restart,
                failures=course.failures,
                watch=course.watch,
                watch_id=course.watch_id,
                site=course.site,
                own_dag=is_own_dag(self.get_dag()),
                remember={"batch": batch, **course.to_dict()},
            ),
            method_name="execute_complete",
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on when the job runs no more, or does not get on; see the class."""
        self._wait_for_declaration(context, event)
        course = self._resumed(context, event)
        with self._watching(context, course):
            return self._go_on(context, event, course)

    def _go_on(self, context: Context, event: dict[str, Any], course: Course) -> dict[str, Any]:
        if event["status"] == "error" and event["retryable"]:
            self.wait_for_storage(context, self.said_of(event).replace("\nHint: ", " Hint: "), course)
        self.raise_for_error(event)
        before, cause = event["remember"], ""
        if event["status"] == "unsigned":
            self._watch(course, before["batch"])
        if event["status"] == "replaced":
            return self._over("replaced", event, course, event["replaced_by"])
        if event["status"] in ("gone", "unhealthy"):
            if self._is_beside_a_newer(course):
                self._watch(course, before["batch"])
            cause = self.show_driver_failure()
        got_on = event["batch"] is not None and (before["batch"] is None or event["batch"] > before["batch"])
        if event["status"] == "unhealthy":
            with airflow_failures():
                # This task may have waited in the queue for long: nothing is given up for what was once so.
                if not self.hook.health.is_still_unhealthy(self.job, event["unhealthy"]):
                    self._watch(course, before["batch"])
            found = {"unhealthy": event["unhealthy"], "before": before}
            return self._pause(context, event["health_why"], course, got_on=got_on, found=found)
        if event["status"] != "gone":
            return self._over(event["status"], event, course)
        with airflow_failures():
            hopeless = self.hook.health.hopeless_death(self.job)
        if hopeless is not None:
            self._give_up(context, hopeless, course)
        if event["exit_code"] in HOPELESS:
            self.raise_gone(f"The driver of job {self.job} gave up", event, cause)
        if self.died_for_room():
            known = course.rid_of_waits() if got_on else course
            self.wait_for_storage(context, f"its last driver is gone ({event['why']}{cause}).", known)
        return self._pause(context, f"{event['why']}{cause}", course, got_on=got_on)

    def _heal(self, context: Context, remember: Mapping[str, Any], course: Course) -> dict[str, Any]:
        """Let another driver take over, if that is still needed, and watch on."""
        batch = remember["before"]["batch"]
        before = Course.of(remember["before"]).watched_by(course.watcher, course.site)
        with airflow_failures():
            if not self._policy().restart:
                self._watch(before, batch)
            try:
                result = self.hook.health.heal(
                    self.job,
                    remember["unhealthy"],
                    note=self.why,
                    by=asked_by(context),
                    application_args=self.application_args,
                )
            except ConflictError as error:
                self.log.info("Nothing is done: %s", describe(error))
                self._watch(before, batch)
            except RefusedError as error:
                self._give_up_unstartable(context, error, course)
                raise
            except StorageError as error:
                # Unless another driver died nothing was launched in its place, and it counts for nothing.
                return self._not_started(context, error, course if error.code in DIED else before)
            if result.state == "not-needed":
                self.log.info("Nothing is done: the driver makes progress again.")
                self._watch(before, batch)
            if result.state in ("not-desired", "finished"):
                state: WatchEnd = "finished" if result.state == "finished" else "stopped"
                return self._over(state, self.hook.watchers.job(self.job).look().to_dict(), course)
            self._watch(course, result.start.batch)

    def _pause(
        self,
        context: Context,
        why: str,
        course: Course,
        *,
        got_on: bool,
        found: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Wait a while before the next start, the longer the more drivers have failed in a row.

        A short wait is in the task itself. Airflow's scheduler takes a task for a failed one if it is back
        from the triggerer before the scheduler has seen that its process ended, which takes a busy one
        seconds; and each such failure uses up a try.

        Args:
            course: What was remembered when the last driver was started.
            got_on: Whether it has committed a batch.
            found: Of one that lives and makes no progress: what was seen, and what is to be remembered where
                nothing is to be done after all.

        Raises:
            AirflowFailException: It has come to nothing too often.
        """
        with airflow_failures():
            policy = self._policy()
        after = course.after(got_on=got_on, within_s=policy.restarts_within_s)
        what = "made no progress" if found is not None else "ended"
        if after.failures >= policy.max_failures:
            self._give_up(
                context,
                f"{after.failures} drivers of job {self.job} in a row {what} without a new batch; the last "
                f"one: {why}",
                after,
            )
        if len(after.recent) > policy.max_restarts:
            self._give_up(
                context,
                f"{len(after.recent)} drivers of job {self.job} {what} within "
                f"{policy.restarts_within_s:g} s; the last one: {why}",
                after,
            )
        pause_s = policy.pause_s(after.failures)
        self._sign(after, pause_s + SIGN_EVERY_S, "pausing")
        said = "makes no progress" if found is not None else "is gone"
        then = f"After a pause of {pause_s:g} s another one is launched."
        if found is not None:
            then = f"If it still makes none in {pause_s:g} s, it is ended, and then another one is launched."
        self.log.warning("The driver %s (%s). %s", said, why, then)
        until = utc_now() + timedelta(seconds=pause_s)
        self._alert_of_restart(context, f"{said} ({why.rstrip('.')}). {then}", after)
        remember = {**after.to_dict(), **(found or {})}
        if pause_s <= SHORT_PAUSE_S:
            time.sleep(pause_s)
            return self.start_again(context, {"status": "over", "remember": remember})
        self.pause(until, remember, "start_again")

    def _give_up_unstartable(self, context: Context, error: RefusedError, course: Course) -> None:
        """Give up where the checkpoint is damaged or cannot be loaded: the next driver would end so, too.

        Raises:
            AirflowFailException: It is so.
        """
        if error.code in UNSTARTABLE:
            self.show_driver_failure()
            self._give_up(context, describe(error), course)

    def _alert_of_restart(self, context: Context, said: str, course: Course) -> None:
        message = (
            f"The driver of job {self.job} {said} It is restart "
            f"{course.restarts} of this run, and {course.failures} drivers in a row committed no batch."
        )
        self.send_alert(context, message, "restart")

    def _alert_of_gap(self, context: Context, why: str) -> None:
        from streambank_airflow.notify.alerts import NOT_WATCHED

        message = (
            f"Nothing watched job {self.job}. {why} This run watches it now: a driver that is gone is "
            "started again. Airflow may have lost or repeated runs: its database came back from a backup, or "
            "runs were deleted or cleared."
        )
        self.log.warning("%s", message)
        self.send_alert(context, message, NOT_WATCHED, "giving-up", subject=why)

    def _give_up(self, context: Context, why: str, course: Course) -> NoReturn:
        """Start nothing any more, and say so.

        Raises:
            AirflowFailException: Always: another try would begin the same again.
        """
        try:
            message = self.hook.health.give_up(
                self.job,
                why=why,
                by=asked_by(context),
                failures=course.failures,
                restarts=course.restarts,
            )
        except StreambankError as error:
            message = f"{why}. The details could not be read, and nothing was recorded: {describe(error)}"
        self._end(course, "gave-up", why)
        raise AirflowFailException(message)

    def _over(
        self, state: WatchEnd, view: Mapping[str, Any], course: Course, other: str | None = None
    ) -> dict[str, Any]:
        """End well: the job was stopped or has finished, or another watcher has taken over."""
        who = view["desired_by"] or "somebody"
        why = f"{who}: {view['desired_why']}" if view["desired_why"] else who
        said = {"stopped": f"stopped by {why}", "replaced": f"replaced by {other}"}.get(state, view["why"])
        self._end(course, state, said)
        if state == "replaced":
            self.log.info("Job %s is watched by another run now: %s.", self.job, other)
        else:
            self.log.info("Job %s no longer runs: %s.", self.job, said)
        return {
            "job": self.job,
            "state": state,
            "why": said,
            "batch": view["batch"],
            "restarts": course.restarts,
        }
