"""One upgrade under way: its record, its steps, and what the job's records say of it."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any

from streambank.code.chosen import CHOSEN, choose_code, code_that_counts, newest_choice
from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, StreambankError
from streambank.core.units import utc_now
from streambank.driver.connections import placed
from streambank.driver.launcher import Launcher
from streambank.job.start import StartResult, start_job
from streambank.procedure.procedure import Procedure, Say
from streambank.upgrade.plan import UpgradePlan, UpgradeRequest, last_code, proven_here_only
from streambank.upgrade.record import Upgrade, remember
from streambank.upgrade.undo import OPERATION, why_undone


class UpgradeWork(Procedure[UpgradeRequest]):
    """An upgrade that is worked on, with its claim in hand."""

    def __init__(self, request: UpgradeRequest, control: JobControl, launcher: Launcher, say: Say) -> None:
        super().__init__(replace(request, job=placed(request.job)), say)
        self.control = control
        self.launcher = launcher
        self.upgrade: Upgrade

    # What it is about.

    def of_plan(self, plan: UpgradePlan) -> Upgrade:
        """A new upgrade."""
        started = utc_now()
        return Upgrade(
            name=f"upgrade-{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
            job=self.job.name,
            state="rehearsing",
            before=plan.before,
            after=plan.after,
            changes=plan.changes,
            notes=plan.notes,
            no_way_back=plan.no_way_back,
            for_good=plan.for_good,
            by=dict(self.request.by),
            why=self.request.why,
            started_at=started,
        )

    def begin(self, upgrade: Upgrade) -> None:
        """Go on with an upgrade."""
        self.upgrade = upgrade
        self.go_on(upgrade.steps, upgrade.seconds)

    def record(self, **changes: Any) -> Upgrade:
        """Record how far it has come."""
        self.upgrade = remember(
            self.control, self.upgrade, steps=dict(self.steps), seconds=self.seconds, **changes
        )
        return self.upgrade

    def note(self, text: str) -> None:
        """Record what else a person should know of it."""
        self.record(notes=(*self.upgrade.notes, text))

    def end(self, kind: str, **changes: Any) -> Upgrade:
        """Record the report, and an event that says so."""
        notes = changes.pop("notes", self.upgrade.notes)
        with suppress(StreambankError):  # it ends all the same
            here = proven_here_only(self.counts(), Code.declared(self.job), self.control)
            notes = tuple(dict.fromkeys((*notes, *here)))
        done = self.record(notes=notes, **changes)
        self.leave(
            self.control,
            kind,
            upgrade=done.name,
            state=done.state,
            launch_id=done.launch_id,
            savepoints=dict(done.savepoints),
            without_processing_s=done.without_processing_s,
            seconds=round(done.seconds, 1),
            code=done.code,
            error=done.error,
        )
        return done

    def counts(self) -> str:
        """The identity of the code that the next start runs."""
        return code_that_counts(self.job, self.control).identity

    def is_back(self) -> bool:
        """Whether a way back has come to the choice of the old code, so that it is complete.

        What counts does not tell: a job that declares its old code again has not gone back.
        """
        begun = why_undone(self.upgrade.name, "")
        return self.upgrade.state == "restored" or any(
            str(record.data.get("why")).startswith(begun)
            for record in self.control.signed(CHOSEN).newest_first(vouched=True)
        )

    def runs_other_code(self) -> bool:
        """Whether another code than the new one has run last."""
        ran = last_code(self.control)
        return ran is not None and ran.identity != self.upgrade.after.identity

    def has_moved_on(self) -> bool:
        """Whether other code has run, or counts, than that with which the upgrade began."""
        before = self.upgrade.before
        if before is None:  # then it is not known, and there is no way back to it
            return False
        ran = last_code(self.control)
        # Where there is no way back, the old code was never chosen.
        moved = not self.upgrade.no_way_back and self.counts() != before.identity
        return moved or ran is None or ran.identity != before.identity

    def choose(self, wanted: Code, ran: Code, why: str) -> None:
        """Choose a code for each later start, unless other code ran meanwhile.

        Raises:
            ConflictError: It did (code `other-code-ran`), or another operation works on the job.
        """
        with self.control.operation(
            OPERATION, by=self.request.by, wait_s=2 * self.job.stop.force_after_s
        ) as held:
            last = last_code(self.control)
            if last is None or last.identity != ran.identity:
                raise ConflictError(
                    f"Other code of job {self.job.name} was started while its upgrade was planned.",
                    code="other-code-ran",
                    hint="Upgrade it again: then what runs now is compared.",
                )
            held.check()
            newest = newest_choice(self.control)
            if self.counts() != wanted.identity or not (newest is None or newest.proven):
                choose_code(self.control, Code.declared(self.job), wanted, by=self.request.by, why=why)

    def prove(self, code: Code | None) -> None:
        """Choose again what only a record of another user or host has chosen: this one may run it, too.

        Raises:
            ConflictError: Another operation works on the job.
            RefusedError: This user may not (code `code-not-proven`).
        """
        newest = newest_choice(self.control)
        if code is None or newest is None or newest.code is None or newest.proven:
            return
        wait_s = 2 * self.job.stop.force_after_s
        with self.control.operation(OPERATION, by=self.request.by, wait_s=wait_s) as held:
            if self.counts() == code.identity:
                held.check()
                declared = Code.declared(self.job)
                choose_code(self.control, declared, code, by=self.request.by, why=newest.why)

    def start(self, *, wait: bool) -> StartResult:
        """Start the job with the code that counts, unless a person has stopped it."""
        return start_job(
            self.job,
            by=self.request.by,
            why=self.upgrade.name,
            obey_desired=True,
            wait=wait,
            launcher=self.launcher,
            control=self.control,
        )
