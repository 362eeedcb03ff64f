"""An upgrade of a running job, step by step.

1. *plan*: what is new (plan.py). The old code is chosen until the new one takes its place (code/chosen.py):
   a driver that dies meanwhile comes back with it, although the job may declare the new one already.
2. *rehearse*: the new code runs on a copy of a fresh savepoint, while the old one runs on (rehearsal.py).
   Then its driver is launched, and waits at its first query (warm.py).
3. *stop*: the old code is stopped at a batch boundary, and a savepoint is taken.
4. *start*: the new code is chosen, and its driver released on the same checkpoint. Both are one operation,
   during which the job is meant to run.
5. *watch*: batches have to go on, and what the job promises has to be kept (watch.py).
6. *undo*, where they do not (undo.py). Only what the new code did is a reason: where a record cannot be read,
   or another operation is in the way, the upgrade is left as it is.

Each step leaves a record first (record.py). Who finds that of an upgrade that was interrupted finishes it:
before step 4 from the stop on, since what was rehearsed is still what is asked for; after it, by watching;
and a way back that was begun is gone to its end. The choice of the code is what counts: before it the old
code runs, after it the new one. What was interrupted long ago is not undone by itself, since the output of
all the time since would be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from streambank.code.chosen import choose_code
from streambank.code.code import Code
from streambank.code.kept import why_not_here
from streambank.code.vouched import vouch
from streambank.control.operation import Operation
from streambank.core.choices import SinkChoice
from streambank.core.errors import NotFoundError, RefusedError, StorageError, StreambankError
from streambank.core.units import utc_now
from streambank.drills.report import why_unproven
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import Waiting, end_drivers
from streambank.driver.stops import mark_late_drivers
from streambank.job.start import StartResult, start_job
from streambank.job.stop import stop_job
from streambank.procedure.procedure import Say, quiet
from streambank.upgrade.plan import UpgradePlan, UpgradeRequest, last_code, launched_code, plan_upgrade
from streambank.upgrade.record import State, Upgrade, newest_upgrade, upgrade_named, upgrading
from streambank.upgrade.rehearsal import rehearse
from streambank.upgrade.undo import OPERATION, go_back, why_undone
from streambank.upgrade.warm import NotWarmError, end_held, launch_held
from streambank.upgrade.watch import (
    FAILED,
    Leave,
    Ready,
    Wait,
    Watch,
    broken_objectives,
    committed_at,
    first_commit_after,
)
from streambank.upgrade.work import UpgradeWork

LATE_S = 1800.0
"""How much later than a start and a watch take, what was interrupted is still undone by itself."""
_OF_ITS_DRIVER = frozenset(
    {FAILED, "driver-died", "driver-refused", "start-timeout", "state-not-loadable", "checkpoint-damaged"}
)
"""Codes of errors that say something of the new code, by its driver."""
_OF_ITS_RELEASE = frozenset({"exists", "changed-launch", "damaged-record", "unknown-format"})
"""Codes of errors where somebody else has written the release of a driver that waits."""
_OF_ITS_PROCESS = frozenset({"driver-died", "driver-refused", "start-timeout"}) | _OF_ITS_RELEASE
"""Codes of errors after which a driver that waited is replaced by one that is launched."""
_RELEASED_S = 60.0
"""How long a released driver may take for the lease; it needs a second."""
_CAN_BE_UNDONE: frozenset[State] = frozenset(
    {"swapped", "undoing", "restored", "upgraded", "not-undone", "stopped"}
)


def upgrade(
    request: UpgradeRequest,
    *,
    launcher: Launcher | None = None,
    say: Say = quiet,
    leave: Leave | None = None,
    wait: Wait | None = None,
) -> Upgrade:
    """Upgrade a running job, or finish an upgrade that was interrupted.

    That new code fails, in the rehearsal or afterwards, stands in what is returned. Raised is what keeps an
    upgrade from being begun, or its records from being written.

    Args:
        leave: May leave the waits for the first batch, and for the end of the watch; but not those of an
            upgrade that was interrupted.
        wait: One that was left and is over, or that something has ended: no upgrade but that one is finished.

    Raises:
        ConflictError: Another upgrade, or another operation, works on the job (codes `upgrade-in-progress`,
            `operation-in-progress`).
        RefusedError: No driver runs (`nothing-to-upgrade`); the upgrade could not be undone by itself
            (`no-way-back`); the rehearsal could not run the new code (`not-rehearsed`); or the new code
            cannot be launched on this checkpoint.
    """
    control = request.job.records()
    work = _Upgrading(request, control, launcher or launcher_for(request.job), say)
    if request.plan_only:
        plan = plan_upgrade(request, control, work.launcher)
        return replace(work.of_plan(plan), state="planned" if plan.changes else "nothing-to-do")
    work.leave_wait = leave
    with upgrading(control, request.by) as claim:
        return work.run(claim.epoch) if wait is None else work.finish(wait, claim.epoch)


def undo_upgrade(request: UpgradeRequest, *, sink: SinkChoice | None = None, say: Say = quiet) -> Upgrade:
    """Go back to the code before the newest upgrade, and to the savepoint at which it was stopped.

    Args:
        sink: What becomes of later output; None for `rollback` where it is needed and proven.

    Raises:
        NotFoundError: The newest upgrade has not started new code (code `no-upgrade`).
        RefusedError: The old code is not there any more (`code-not-kept`), or rows would be lost or repeated.
    """
    control = request.job.records()
    work = _Upgrading(request, control, launcher_for(request.job), say)
    with upgrading(control, request.by):
        last = newest_upgrade(control)
        if last is None or last.state not in _CAN_BE_UNDONE:
            raise NotFoundError(
                f"Job {request.job.name} has no upgrade that could be undone.",
                code="no-upgrade",
                hint=f"`streambank upgrade {request.job.name} --history` shows its upgrades.",
            )
        work.begin(replace(last, resumed=last.is_unfinished))
        error = request.why or last.error or "it was asked for"
        if last.is_unfinished and work.is_back():
            return work.start_again(error)
        if work.runs_other_code():
            raise RefusedError(
                f"The new code of {last.name} is not what job {last.job} ran last. What other code has done "
                "since would be taken back, too.",
                code="other-code-ran",
                hint="Restore the savepoint that you want, and start the job with the code that you want.",
            )
        return work.undo(error, sink=sink, asked=True)


class _Upgrading(UpgradeWork):
    leave_wait: Leave | None = None

    def run(self, claim: int) -> Upgrade:
        """Finish an upgrade that was interrupted, or do a new one.

        Args:
            claim: The number of the claim by which no other upgrade is under way.
        """
        last = newest_upgrade(self.control)
        if last is not None and last.is_unfinished and last.state != "rehearsing":
            found = self.resume(last)
            if found is not None:
                return found
        plan = plan_upgrade(self.request, self.control, self.launcher)
        self.begin(self.of_plan(plan))
        vouch(self.control, "code", plan.after.to_dict())
        if not plan.changes:
            # What runs is what is asked for: let each later start run it, too.
            self.choose(plan.after, plan.after, "it runs already")
            return replace(self.upgrade, state="nothing-to-do")
        if plan.no_way_back and not self.request.no_way_back:
            raise RefusedError(
                f"The upgrade of job {self.job.name} could not be undone by itself: {plan.no_way_back}.",
                code="no-way-back",
                hint="Restart the job once with the old code, which keeps a copy of it; or go on with "
                "`--no-way-back`: if the new code fails, a person has to bring the old one back.",
            )
        if plan.before is not None and not plan.no_way_back:
            self.choose(plan.before, plan.before, "an upgrade has not come to its new code yet")
        self.record()
        if not self.rehearse(plan):
            return self.refuse()
        waiting = self.warm(plan, claim) if not self.request.cold else None
        try:
            return self.swap(waiting)
        finally:
            if waiting is not None:
                end_held(self.launcher, self.control, waiting)

    def resume(self, last: Upgrade) -> Upgrade | None:
        """Finish what was interrupted; None where something else is asked for since, or runs."""
        asked = self.request.new_code()
        if (wanted := asked.identity) == last.after.identity:
            # What is asked for now is started, not what a record calls the same.
            vouch(self.control, "code", asked.to_dict())
            last = replace(last, after=asked)
        self.begin(replace(last, resumed=True))
        self.say(f"finishing {last.name}, which was interrupted ({last.state})")
        counts = self.counts()
        late = (utc_now() - last.at).total_seconds() > self._patience_s()
        if last.state in ("undoing", "restored"):
            if self.is_back():
                return self.start_again(last.error)
            if self.runs_other_code() or late:
                since = "too long ago" if late else "and other code was started since"
                return self._not_undone(last.error, last.code, f"it was interrupted, {since}")
            return self.undo(last.error)
        if last.state == "swapped" and counts == last.after.identity:
            self.prove(asked if wanted == counts else None)
            found = self._took_place() if late else self.start_and_watch()
            other = found.state == "upgraded" and wanted != last.after.identity
            return None if other or found.state == "given-up" else found
        # The new code was never started: that is chosen first.
        if not late and not self.has_moved_on() and wanted == last.after.identity:
            return self.swap()
        self.end(
            "upgrade-refused",
            state="given-up",
            error="It was interrupted, and other code is asked for since."
            if wanted != last.after.identity
            else "It was interrupted too long ago, or other code ran since, so it begins again.",
        )
        # It may have stopped the job, which is meant to run all the same: with what ran last.
        ran = last_code(self.control)
        if ran is not None and why_not_here(ran, self.job, self.control) is None:
            self.choose(ran, ran, f"{last.name} was interrupted")
        self.start(wait=True)
        return None

    def finish(self, wait: Wait, claim: int) -> Upgrade:
        """Go on where a wait was left, unless somebody else has finished the upgrade meanwhile."""
        last = upgrade_named(self.control, wait.upgrade)
        if not last.is_unfinished:
            return last
        if last.state != "swapped":  # whoever went on before was interrupted
            return self.run(claim)
        waited_s = (utc_now() - last.at).total_seconds()
        steps = {**last.steps, wait.step: last.steps.get(wait.step, 0.0) + waited_s}
        self.begin(replace(last, steps=steps, seconds=last.seconds + waited_s))
        if utc_now() > wait.until + timedelta(seconds=LATE_S):
            return self._took_place()
        return self.start_and_watch(wait)

    def _patience_s(self) -> float:
        """After what time what was interrupted is not undone by itself any more."""
        return self.job.start.timeout_s + self.request.watch_s + LATE_S

    # Beside the old code.

    def rehearse(self, plan: UpgradePlan) -> bool:
        """Run the new code on a copy; whether it may take the old one's place."""
        with self.step("rehearse", "rehearsing the new code on a copy"):
            try:
                report = rehearse(
                    self.request, self.upgrade.name, plan.runs, self.control, self.launcher, self.say
                )
            except StreambankError as error:
                self.record(code=error.code, error=error.message, hint=error.hint)
                return False
        self.record(rehearsal=report.to_dict())
        if not report.passed:
            failed = f"The step {report.failed_step} failed: {report.error}"
            self.record(code=report.code, error=failed, hint=report.hint)
            return False
        unproven = why_unproven(report)
        if unproven and not self.request.unrehearsed:
            refusal = RefusedError(
                f"The rehearsal could not run the new code: {unproven}",
                code="not-rehearsed",
                hint="Go on with `--unrehearsed`: then whether the new code goes on with the job's state "
                "shows only when it has taken the place of the old one.",
            )
            self.record(code=refusal.code, error=f"{refusal.message} {refusal.hint}", hint=refusal.hint)
            return False
        return True

    def refuse(self, **why: str | None) -> Upgrade:
        """End it before the new code was started: the old code runs on, or is stopped by a person."""
        return self.end("upgrade-refused", state="refused", **why)

    # The swap.

    def warm(self, plan: UpgradePlan, claim: int) -> Waiting | None:
        """Launch the new driver, which waits; None where it does not, and is launched after the stop."""
        with self.step("launch", "launching the new driver, which waits"):
            try:
                return launch_held(
                    plan.runs,
                    self.control,
                    self.launcher,
                    plan.after,
                    claim,
                    by=self.request.by,
                    why=self.upgrade.name,
                )
            except NotWarmError as error:
                self.note(f"the new driver was launched after the stop only: {error}")
                return None

    def swap(self, waiting: Waiting | None = None) -> Upgrade:
        """Stop the old code with a savepoint, and start the new code in its place."""
        by, why = self.request.by, f"{self.upgrade.name}: {self.request.why}".rstrip(": ")
        common: dict[str, Any] = {
            "by": by,
            "why": why,
            "launcher": self.launcher,
            "control": self.control,
        }
        wait_s = 2 * self.job.stop.force_after_s
        with self.control.operation(OPERATION, by=by, wait_s=wait_s) as held:
            desired = self.control.desired()
            if desired is not None and desired.state == "stopped":
                return self.refuse(error="The job was stopped meanwhile, so the new code was not started.")
            if self.has_moved_on():
                why_not = "Other code of the job was started meanwhile. Nothing was stopped."
                return self.refuse(code="other-code-ran", error=why_not)
            self.record(state="stopping", broken_before=broken_objectives(self.job))
            mark_late_drivers(self.control, by=by, why=why)
            self.control.record_event("upgrading", upgrade=self.upgrade.name, by=dict(by), why=why)
            try:
                with self.step("stop", "stopping the old code with a savepoint"):
                    stopped = stop_job(
                        self.job,
                        savepoint=True,
                        note=f"before {self.upgrade.name}",
                        operation=held,
                        lasting=False,
                        **common,
                    )
            except StreambankError as error:
                if error.code == "stop-timeout":
                    raise StorageError(
                        f"{error.message} It ends as soon as it obeys the stop. The same upgrade asked for "
                        "again goes on then.",
                        code=error.code,
                        hint=error.hint,
                    ) from error
                self._old_goes_on(held, error, common)
                why_not = f"The old code could not be stopped with a savepoint: {error.message}"
                return self.refuse(code=error.code, error=why_not, hint=error.hint)
            batches = {name: one for name, one in stopped.batches.items() if one is not None}
            held.check()
            self.record(
                state="swapped",
                savepoints=dict(stopped.savepoints),
                batches=batches,
                how=stopped.how,
                committed_at={name: at for name, batch in batches.items() if (at := self._at(name, batch))},
            )
            choose_code(self.control, Code.declared(self.job), self.upgrade.after, by=by, why=why)
            failed: StreambankError | None = None
            with self.step("start", "starting the new code"):
                try:
                    start = self._start_new(held, waiting, common)
                    self.record(launch_id=start.launch_id)
                except StreambankError as error:
                    if error.retryable and error.code not in _OF_ITS_DRIVER:
                        raise  # it is chosen: the next start runs it
                    failed = error
        if failed is not None:
            self.upgrade = replace(self.upgrade, hint=failed.hint)
            return self.undo(failed.message, failed.code)
        return self.start_and_watch()

    def _start_new(self, held: Operation, waiting: Waiting | None, common: Mapping[str, Any]) -> StartResult:
        """Release the driver that waits; launch another one where that does not take the lease."""
        options: dict[str, Any] = {"obey_desired": True, "wait": False, "operation": held, **common}
        if waiting is None:
            return start_job(self.job, **options)
        patience_s = min(_RELEASED_S, self.job.start.timeout_s)
        why = "it had ended, or was launched for something else"
        try:
            start = start_job(self.job, held=waiting, timeout_s=patience_s, **options)
        except StreambankError as error:
            if error.code not in _OF_ITS_PROCESS:
                raise
            why = error.message
            end_drivers(self.launcher, self.control, [waiting.handle])
            start = start_job(self.job, **options)
        if start.launch_id == waiting.spec.launch_id:
            self.record(warm=True)
        else:
            self.note(f"the driver that waited was not the one that runs: {why}")
        return start

    def _old_goes_on(self, held: Operation, error: StreambankError, common: dict[str, Any]) -> None:
        """The old code goes on where no savepoint of it could be taken."""
        self.say(f"the old code goes on: {error.message}")
        start_job(self.job, obey_desired=True, wait=False, operation=held, **common)

    def _at(self, query: str, batch: int) -> float | None:
        generation = self.control.generation(query)
        return None if generation is None else committed_at(generation.location, batch)

    def start_and_watch(self, wait: Wait | None = None) -> Upgrade:
        """See that the new code runs, and gets on.

        Args:
            wait: The wait with which this goes on; None to begin.

        Raises:
            StreambankError: Whether it does is not known, since records could not be read, or another
                operation was in the way: the next call watches it.
        """
        try:
            ready = self._watched(wait)
        except StreambankError as error:
            if error.code not in _OF_ITS_DRIVER:
                raise
            return self.undo(error.message, error.code)
        if self.upgrade.without_processing_s is None:  # there was nothing to read at first
            self.record(without_processing_s=self._without_processing_s())
        if ready == "other":
            return self.end(
                "upgraded",
                state="given-up",
                code="other-code-ran",
                error="Other code of the job was started, so the new code was not watched to the end.",
            )
        if ready == "stopped":
            return self.end("upgraded", state="stopped", error="The job was stopped meanwhile.")
        return self.end("upgraded", state="upgraded")

    def _watched(self, wait: Wait | None) -> Ready:
        if wait is None or wait.step == "first-batch":
            ready = self._see_first_batch(wait)
            if ready != "ready":
                return ready
            wait = None
        watch, seconds = self._watch(), self.request.watch_s
        if watch is None:
            return "other"
        with self.step("watch", f"watching the new code for {seconds:.0f} s"):
            ready = watch.go_on(self._left_s("watch", seconds, wait))
            unknown = watch.promises(self.upgrade.broken_before) if ready == "ready" else ""
        if unknown:
            self.say(unknown)
        notes = (unknown,) if unknown else ()
        self.record(launch_id=watch.launch_id, notes=(*self.upgrade.notes, *notes))
        return ready

    def _see_first_batch(self, wait: Wait | None) -> Ready:
        with self.step("first-batch", "waiting for the first batch of the new code"):
            if wait is None and (self.upgrade.launch_id is None or self.upgrade.resumed):
                # Whichever driver runs by now, or the first of all.
                start = self.start(wait=False)
                if start.state in ("not-desired", "finished"):
                    return "stopped" if start.state == "not-desired" else "finished"
                self.record(launch_id=start.launch_id)
            watch = self._watch()
            if watch is None:
                return "other"
            ready = watch.first_batch(self._left_s("first-batch", self.job.start.timeout_s, wait))
        self.record(launch_id=watch.launch_id, without_processing_s=self._without_processing_s())
        return ready

    def _watch(self) -> Watch | None:
        """A watch over the driver of the new code; None where other code was launched."""
        launch_id = self.upgrade.launch_id
        assert launch_id is not None, "a driver runs"
        launched = launched_code(self.control, launch_id)
        if launched is None or launched.identity != self.upgrade.after.identity:
            return None
        return Watch(self.job, self.control, self.launcher, self.upgrade.after, launch_id)

    def _left_s(self, step: Literal["first-batch", "watch"], seconds: float, wait: Wait | None) -> float:
        """How long is waited here; a wait that begins may be left."""
        if wait is not None:
            return max(0.0, (wait.until - utc_now()).total_seconds())
        # Where one that was interrupted is finished, another one may have to follow: that is known only here.
        if self.leave_wait is None or self.upgrade.resumed:
            return seconds
        if not self.control.signer.keys:
            self.say("waiting here: without signing keys no other host may start the old code again")
        else:
            until = utc_now() + timedelta(seconds=seconds)
            self.record()
            self.leave_wait(Wait(self.upgrade.name, step, str(self.upgrade.launch_id), until))
        return seconds

    def _took_place(self) -> Upgrade:
        """The new code runs since long ago, although it was not watched to the end."""
        note = "the watch was interrupted, and too long ago to go on with it"
        return self.end("upgraded", state="upgraded", notes=(*self.upgrade.notes, note))

    def _without_processing_s(self) -> float | None:
        """The longest time that a query committed nothing in; only while both commits are there."""
        found = []
        for name, batch in self.upgrade.batches.items():
            generation, before = self.control.generation(name), self.upgrade.committed_at.get(name)
            after = None if generation is None else first_commit_after(generation.location, batch)
            if before is not None and after is not None:
                found.append(after - before)
        return round(max(found), 3) if found else None

    # The way back.

    def undo(
        self, error: str, code: str | None = None, *, sink: SinkChoice | None = None, asked: bool = False
    ) -> Upgrade:
        """Go back to the old code and the savepoint at which it was stopped.

        Args:
            asked: A person asks for it, and knows what has become of Spark.
        """
        upgrade = self.upgrade
        code = code or upgrade.code
        why_not = upgrade.no_way_back if upgrade.for_good and not asked else ""
        if upgrade.before is not None and not why_not:  # it may be there again
            why_not = why_not_here(upgrade.before, self.job, self.control) or ""
        if not upgrade.savepoints or upgrade.before is None or why_not:
            unknown = upgrade.no_way_back or "there is no savepoint of it"
            return self._not_undone(error, code, why_not or unknown)
        self.record(state="undoing", error=error, code=code)
        self.control.record_event(
            "upgrade-undoing", upgrade=upgrade.name, error=error, by=dict(self.request.by)
        )
        with self.step("undo", "going back to the old code"):
            refusal = go_back(
                self.job,
                self.control,
                upgrade.savepoints,
                upgrade.before,
                launcher=self.launcher,
                sink=sink,
                by=self.request.by,
                why=why_undone(upgrade.name, error),
                say=self.say,
            )
        if refusal is not None:
            return self._not_undone(error, code, f"{refusal.message} {refusal.hint}".rstrip(" ."))
        self.record(state="restored")
        return self.start_again(error)

    def start_again(self, error: str) -> Upgrade:
        """Start the old code, which is chosen on the savepoint at which it was stopped."""
        with self.step("undo", "starting the old code"):
            self.prove(self.upgrade.before)
            start = self.start(wait=True)
        stopped = start.state == "not-desired"
        more = " The job was stopped meanwhile, and stays so." if stopped else ""
        return self.end("upgrade-undone", state="undone", error=f"{error}{more}")

    def _not_undone(self, error: str, code: str | None, why_not: str) -> Upgrade:
        return self.end(
            "upgrade-not-undone",
            state="not-undone",
            code=code,
            error=f"{error.rstrip('.')}. And the way back is not open: {why_not}.",
        )
