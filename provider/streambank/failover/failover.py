"""A fail-over to the other site of a job, and the way back, which is the same.

1. *plan*: which site is active, whether the other one answers, what there is to go on from.
2. *fence*: the site that was active is stopped (fence.py), its operation lock held until step 4 is over.
3. *save*: a last savepoint is taken there and brought to the site; where that is not possible, the newest
   one that is there counts.
4. *begin*: what speaks against the restore is raised; then the record `failing-over` is written to both
   sites, that of the primary first. No site may start the job from here on.
5. *restore*: each query, into the next generation of the job at the site.
6. *activate*: the record `active` is written to both sites, that of the primary first.
7. *start*: the job is started at the site, and each query has committed a batch or found no input.

A site that does not answer is left out of 2, 3, 4 and 6 only where a person says that it is down. It learns
of the fail-over from the first process that reaches both sites: a start, a driver at either of them, or
`failover --fence`. Until then its driver may run and write, and the report and the status say so.

What a crash leaves, and what a second run does:

| after | who may start, by all records | a second run |
|---|---|---|
| plan | the old site | the same |
| fence, save | the old site, which is stopped | the same |
| begin, in one site | no site, where both answer | writes it to both |
| begin | no site | restores |
| a restore, unrecorded | no site | restores again, into another generation |
| restore | no site | activates |
| activate, in one site | the new site, where both answer | writes it to both, and starts |
| activate | the new site | starts |
| start | the new site | finds it running |
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from streambank.control.operation import Operation
from streambank.control.processes import is_same_run
from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.core.names import PRIMARY, SITES
from streambank.core.units import utc_now
from streambank.driver.launcher import Launcher
from streambank.failover.approval import Approved
from streambank.failover.decide import DONE, Known, check_not_rolled_back_there
from streambank.failover.fence import fence_site
from streambank.failover.report import FailoverPlan, FailoverReport, FailoverRequest, SavepointAtSite
from streambank.job.savepoint import savepoint_job
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import last_batches
from streambank.kafka.settings import Brokers
from streambank.procedure.procedure import Say, quiet
from streambank.recovery.approval import newest_of
from streambank.recovery.choosing.resolve import Chosen, choose
from streambank.recovery.plan import RestorePlan
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.recovery.sinks.readers import restored_too
from streambank.recovery.together import check_sinks_named
from streambank.replicas.replicate import replicate_to
from streambank.repository.catalog import LATEST_GOOD
from streambank.sites.forks import QueryLines
from streambank.sites.records import SiteRecord, SiteState, note_fenced
from streambank.storage import normalize_location, open_store
from streambank.work.executor import DEFAULT_PACE, Pace

_PATIENCE_S = 60.0


def plan_failover(request: FailoverRequest, *, pace: Pace = DEFAULT_PACE) -> FailoverPlan:
    """What `failover` would do. Writes nothing.

    Raises:
        InputError: The job has no standby (code `no-standby`), or no such site (`no-such-site`).
    """
    return _Failover(request, None, None, quiet, pace).plan()


def failover(
    request: FailoverRequest,
    *,
    launcher: Launcher | None = None,
    other_launcher: Launcher | None = None,
    say: Say = quiet,
    pace: Pace = DEFAULT_PACE,
    approved: Approved | None = None,
) -> FailoverReport:
    """Let a job go on at its other site. A second run finishes what a first one began.

    Args:
        approved: What a person has seen and approved; None where no person was asked. It is not asked again
            by a run of a DAG that has begun the fail-over.

    Raises:
        InputError: The job has no standby (code `no-standby`), or no such site (`no-such-site`).
        RefusedError: The other site does not answer, and no person says that it is down (code
            `site-not-fenced`); it gave no last savepoint (`final-savepoint-failed`); things have changed
            since the plan was approved (`approval-outdated`); or what a restore or a start refuses.
        NotFoundError: There is no savepoint at the site (`no-such-job`, `no-good-savepoint`).
        ConflictError: Another fail-over, or another operation, works on the job (`site-moved`,
            `operation-in-progress`).
        StorageError: The site does not answer, or its driver was not ready in time.
    """
    return _Failover(request, launcher, other_launcher, say, pace).run(approved)


class _Failover(Known):
    def __init__(
        self,
        request: FailoverRequest,
        launcher: Launcher | None,
        other_launcher: Launcher | None,
        say: Say,
        pace: Pace,
    ) -> None:
        super().__init__(request, say, pace)
        self.launcher, self.other_launcher = launcher, other_launcher
        self.final: dict[str, str] = {}
        self.chosen: dict[str, Chosen] = {}
        self.fenced = False
        self.job, self.old = self.jobs[self.site], self.jobs[self.other]
        self.sites[self.site].control.check_site = self._check_begun
        self.begun: SiteRecord | None = None
        self.approved: Approved | None = None

    # The plan.

    def plan(self) -> FailoverPlan:
        refusals: list[StreambankError] = []
        as_it_stands: list[StreambankError] = []
        savepoints: dict[str, SavepointAtSite] = {}
        plans: dict[str, RestorePlan] = {}
        answers = self.other not in self.silent
        if not answers and not self.is_active and self.request.is_down is None:
            refusals.append(self._not_fenced())
        if self.restores:
            try:
                self._choose(record=False)
                savepoints = self._savepoints()
                for name in self.job.queries:
                    plans[name] = plan_restore(self._request(name), pace=self.pace)
                    as_it_stands += plans[name].refusals
                self._check_named(plans)
            except StreambankError as error:
                as_it_stands.append(error)
        could_save = answers and self.request.final_savepoint
        return FailoverPlan(
            self.job.name,
            self.site,
            self.was,
            self.number,
            answers,
            "" if answers else self.silent[self.other].message,
            self._driver() if answers else None,
            self.resumes,
            savepoints,
            max((one.age_s for one in savepoints.values()), default=None),
            plans,
            self._behind(savepoints),
            (*refusals, *(() if could_save else as_it_stands)),
            tuple(as_it_stands) if could_save else (),
            committed=self._committed() if self.restores else {},
            saves=answers and self.restores and not self._all_restored(),
            needs_final=self.request.final_savepoint and not self.resumes,
            disagree=self.disagree,
            gives_up=self.gives_up,
        )

    def _driver(self) -> str | None:
        try:
            records = self.sites[self.other].control
            return job_status(self.old, control=records, launcher=self.other_launcher, follow=False).state
        except StreambankError:
            return None

    def _not_fenced(self) -> RefusedError:
        why = self.silent[self.other].message
        return RefusedError(
            f"The {self.other} of job {self.job.name} does not answer, so it cannot be fenced: {why}",
            code="site-not-fenced",
            hint=f"If you know that it is down: --is-down {self.other}. If its driver runs on all the same, "
            "two drivers write to every sink that both sites share, until the site answers again.",
        )

    # The work.

    def run(self, approved: Approved | None = None) -> FailoverReport:
        if approved is not None and not (self.newest and is_same_run(self.newest.by, self.request.by)):
            approved.check(self.plan())
            self.approved = approved
        fence: str | None = None
        answers = self.other not in self.silent
        if self.is_active:
            fence = self._complete()
        else:
            if not answers and self.request.is_down is None:
                raise self._not_fenced()
            with self._old_held() as operation:
                if operation is not None and (self.restores or self.disagree):
                    fence = self._stop_old(operation)
                if self.gives_up:
                    self._check_given_up()
                with self.step("begin", f"recording that job {self.job.name} fails over to the {self.site}"):
                    self._check_restore()
                    self._record("failing-over", self.number)
            self._restore()
            with self.step("activate", f"recording that the {self.site} is the active site"):
                self.number += 1
                self._record("active", self.number)
        with self.step("start", f"starting job {self.job.name} at the {self.site}"):
            started = start_job(
                self.job,
                by=self.request.by,
                why=self._why(),
                timeout_s=self.request.timeout_s,
                launcher=self.launcher,
                control=self.sites[self.site].control,
            )
        report = self._report(started, fence, self.seconds)
        self._leave(report)
        return report

    @property
    def gives_up(self) -> bool:
        """Whether the site goes on in its own checkpoint, from which a fail-over had begun."""
        newest = self.newest
        return newest is not None and newest.active is None and self.was == self.site and not self.disagree

    def _check_given_up(self) -> None:
        """Make sure that no sink was rolled back for the other site: this one's checkpoint is further."""
        if self.other in self.silent:
            self.warnings.append(
                f"The {self.other} does not answer, so it is not known whether a restore there rolled sinks "
                "back. If it did, rows are missing between its savepoint and the checkpoint of the "
                f"{self.site}."
            )
            return
        assert self.newest is not None, "it gives up what has begun"
        check_not_rolled_back_there(self.old, self.sites[self.other].control, self.newest)

    def _why(self) -> str:
        return self.request.why or f"failover to the {self.site}"

    def _old_held(self) -> AbstractContextManager[Operation | None]:
        """The operation lock of the other site, where it answers: no start gets in between."""
        if self.other in self.silent:
            return nullcontext(None)
        records = self.sites[self.other].control
        return records.operation("failover", by=self.request.by, wait_s=_PATIENCE_S, any_site=True)

    def _complete(self) -> str | None:
        """The site is active already: let the other one know, where it answers, and fence it if need be."""
        if self.other in self.silent or self.newest is None:
            return None
        with self.step("activate", f"recording that the {self.site} is the active site"):
            for site in SITES:
                self.sites[site].write(self.newest)
        how: str | None = None
        if self.newest.unfenced:
            with self._old_held() as operation:
                assert operation is not None, "it answers"
                how = self._fence(operation)
            note_fenced(self.sites[self.site], self.newest)
        self.fenced = True
        return how

    def _fence(self, operation: Operation) -> str:
        records, by, why = self.sites[self.other].control, self.request.by, self._why()
        with self.step("fence", f"stopping job {self.job.name} at the {self.other}"):
            fence, reason = fence_site(
                self.old, records, operation, by=by, why=why, launcher=self.other_launcher
            )
            if reason:
                self.warnings.append(
                    f"The driver at the {self.other} could not be stopped ({reason.rstrip('.')}): its lease "
                    "was ended, by which it ends itself."
                )
        return fence

    def _stop_old(self, operation: Operation) -> str:
        records, by, why = self.sites[self.other].control, self.request.by, self._why()
        fence = self._fence(operation)
        if not self.restores:
            return fence  # what it has is not what the job goes on from
        if self._all_restored():
            return fence
        with self.step("save", f"taking a last savepoint at the {self.other}"):
            try:
                taken = savepoint_job(self.old, by=by, why=why, control=records, pace=self.pace)
                self._bring({name: one.savepoint for name, one in taken.savepoints.items()})
                self.final = {name: one.savepoint for name, one in taken.savepoints.items()}
            except StreambankError as error:
                if self.request.final_savepoint and not self.resumes:
                    raise RefusedError(
                        f"The {self.other} of job {self.job.name} is stopped, and gave no last savepoint: "
                        f"{error.message}",
                        code="final-savepoint-failed",
                        hint="To go on from the newest savepoint that there is: --no-final-savepoint. To run "
                        f"it where it was: `streambank job start {self.job.name}@{self.other}`.",
                    ) from error
                self.warnings.append(f"No last savepoint was taken: {error.message}")
                self._bring_newest()
        return fence

    def _bring(self, savepoints: Mapping[str, str]) -> None:
        source = self.old.open_repository()
        which = [(self.old.savepoint_name(name), one) for name, one in savepoints.items()]
        report = replicate_to(
            source, open_store, self.job.repository, which, pace=self.pace, by=self.request.by,
            lock=self.old.replicate.lock,
        )  # fmt: skip
        if report.error is not None:
            raise report.error
        for one in report.savepoints:
            for _, error in one.errors:
                raise error

    def _bring_newest(self) -> None:
        """The newest savepoint of the other site may not have been brought here yet."""
        try:
            repository = self.old.open_repository()
            for name in self.old.queries:
                newest = choose(
                    repository,
                    LATEST_GOOD,
                    self.old.savepoint_name(name),
                    record=False,
                    lines=self._lines(name),
                )
                self._bring({name: newest.manifest.savepoint})
        except StreambankError as error:
            self.warnings.append(f"Savepoints of the {self.other} could not be brought: {error.message}")

    def _choose(self, *, record: bool) -> None:
        repository = self.job.open_repository()
        for name in self.job.queries:
            reference = self.final.get(name) or self.request.savepoint or LATEST_GOOD
            reference = self._restored(name) or reference
            called = self.job.savepoint_name(name)
            self.chosen[name] = choose(
                repository, reference, called, record=record, by=self.request.by, lines=self._lines(name)
            )

    def _lines(self, query: str) -> QueryLines:
        """Which savepoints are of the line of a query, by the records of the site."""
        return QueryLines.of(self.sites[self.site].control, query)

    def _savepoints(self) -> dict[str, SavepointAtSite]:
        found = {}
        for name, chosen in self.chosen.items():
            manifest = chosen.manifest
            age_s = (self.started_at - manifest.taken_at).total_seconds()
            found[name] = SavepointAtSite(
                manifest.savepoint, manifest.batch, manifest.taken_at, max(0.0, age_s)
            )
        return found

    def _request(self, name: str) -> RestoreRequest:
        manifest = self.chosen[name].manifest
        standby = self.jobs[PRIMARY].standby
        declared = standby.outputs if standby is not None else {}
        if self.site == PRIMARY:
            declared = {new: old for old, new in declared.items()}
        named = self.request.file_sinks.get(name, ())
        own = self._outputs(name)
        outputs = {old: new for old, new in declared.items() if old in own}
        together = len(self.job.queries) > 1
        begun = {
            old: new
            for old, new in self.request.new_outputs.items()
            if not together or normalize_location(old) in own
        }
        return RestoreRequest(
            self.job.open_repository(),
            manifest.savepoint,
            job=self.job.savepoint_name(name),
            generation=self.sites[self.site].control,
            checkpoint=self.job.queries[name],
            sink=self.request.sink,
            sink_of=self.request.sink_of,
            source=self.request.source,
            kafka=Brokers(self.job.kafka),
            declared_sinks=self.job.sinks,
            jobs_file=self.job.source,
            restored_too=restored_too((one.manifest for one in self.chosen.values()), manifest),
            file_sinks=named,
            new_sinks={**outputs, **begun},
            together=together,
            by=self.request.by,
        )

    def _outputs(self, name: str) -> set[str]:
        """The directories of a query's file sinks: those of its savepoint, and those that were named."""
        kept = (one for one in self.chosen[name].manifest.sinks if one.get("guarded") is True)
        named = map(normalize_location, self.request.file_sinks.get(name, ()))
        return {*(str(one.get("path")) for one in kept), *named}

    def _check_named(self, plans: Mapping[str, RestorePlan]) -> None:
        """Make sure that each sink that is named is one of a query of the job."""
        sinks = {str(one.get("path")) for plan in plans.values() for one in plan.sinks}
        check_sinks_named(self.job, self.request.sink_of, sinks)
        outputs = set().union(*map(self._outputs, plans))
        check_sinks_named(self.job, map(normalize_location, self.request.new_outputs), outputs)

    def _check_restore(self) -> None:
        """Raise what speaks against the restore, while the site that was active may still start again."""
        if not self.restores:
            return
        try:
            self._choose(record=True)
            there = self._committed()
            plans = {
                name: plan_restore(self._request(name), pace=self.pace)
                for name in self.job.queries
                if not self._restored(name)
            }
            if len(plans) == len(self.job.queries):  # else an earlier run has restored some, and asked this
                self._check_named(plans)
            for name, plan in plans.items():
                plan.check()
                if self.approved is not None and name not in self.final:
                    newest = max(newest_of(plan), there.get(name, -1))
                    self.approved.check_lost(self.job.name, name, newest, plan.batch)
        except StreambankError as error:
            if not self.resumes and self.other not in self.silent:
                error.add_note(
                    f"The {self.other} is still the active site, and stopped. To run the job there: "
                    f"`streambank job start {self.job.name}@{self.other}`.",
                )
            raise

    def _record(self, state: SiteState, number: int) -> None:
        """Write one record to each site that answers, that of the primary first: of two at once one loses."""
        begun = self.newest if self.resumes and state == "failing-over" else None
        record = begun or SiteRecord(
            number,
            state,
            self.site,
            self.was,
            self.other in self.silent,
            self.request.by,
            self._why(),
            utc_now(),
            {name: one.manifest.savepoint for name, one in self.chosen.items()} if state == "active" else {},
            self._generations() if state == "failing-over" else {},
            {name: one.manifest.checkpoint for name, one in self.chosen.items()} if state == "active" else {},
        )
        self.begun = record if state == "failing-over" else self.begun
        for site in SITES:
            if site in self.silent:
                continue
            try:
                written = self.sites[site].write(record)
            except StorageError as error:
                if site == self.site:
                    raise
                self.silent[site] = error
                if state == "failing-over" and self.request.is_down is None:
                    raise self._not_fenced() from error
                self.warnings.append(f"The {site} does not answer any more: {error.message}")
                continue
            if not written:
                raise self._moved(f"number {number} is taken")
            self.fenced |= site == self.other

    def _restored(self, name: str) -> str:
        """The savepoint that an earlier run of this fail-over has restored a query from; empty for none."""
        current, begun = self.sites[self.site].control.generation(name), self.newest
        if not self.resumes or begun is None or current is None or current.from_savepoint is None:
            return ""
        if begun.unfenced and self.other not in self.silent:
            return ""  # the other site may have written since: the sinks are asked again
        return current.from_savepoint if current.number > begun.generations.get(name, 0) else ""

    def _all_restored(self) -> bool:
        return all(self._restored(name) for name in self.job.queries)

    def _generations(self) -> dict[str, int]:
        """The generation of each query at the site; 0 for none."""
        control = self.sites[self.site].control
        current = {name: control.generation(name) for name in self.job.queries}
        return {name: 0 if one is None else one.number for name, one in current.items()}

    def _check_begun(self) -> tuple[str, ...]:
        """Make sure that this fail-over is still the one under way: called with the site's job held."""
        if self.begun is None:
            return ()  # a plan, before it has begun
        newest = self.sites[self.site].newest()
        if newest is None or newest.to_dict() != self.begun.to_dict():
            raise self._moved("" if newest is None else f"{newest.describe()}")
        return ()

    def _moved(self, what: str) -> ConflictError:
        return ConflictError(
            f"Another fail-over of job {self.job.name} was faster: {what}.",
            code="site-moved",
            hint=f"Look at what it does: `streambank failover {self.job.name} --dry-run`.",
        )

    def _restore(self) -> None:
        if not self.restores:
            return
        with self.step("restore", f"restoring at the {self.site}"):
            for name in self.job.queries:
                if not self._restored(name):
                    self.warnings += restore(self._request(name), pace=self.pace).warnings

    def _report(self, started: StartResult, fence: str | None, seconds: float) -> FailoverReport:
        savepoints = self._savepoints()
        lost = [one.age_s for name, one in savepoints.items() if name not in self.final]
        warnings = [*self.warnings, *started.warnings]
        if not self.fenced:
            warnings.append(
                f"The {self.other} was not fenced. When it answers again: `streambank failover "
                f"{self.job.name} --fence`. The job's driver at the {self.site} does that, too."
            )
        return FailoverReport(
            job=self.job.name,
            site=self.site,
            was=self.was,
            number=self.number,
            fenced=self.fenced,
            fence=fence,
            resumed=self.resumes,
            savepoints=savepoints,
            rpo_s=max(lost, default=0.0) if savepoints else None,
            batches_behind=self._behind(savepoints),
            rto_s=seconds if started.is_ready else None,
            steps=dict(self.steps),
            batches=started.batches,
            warnings=tuple(dict.fromkeys(warnings)),
            started_at=self.started_at,
            by=dict(self.request.by),
            why=self.request.why,
        )

    def _committed(self) -> dict[str, int]:
        """The newest committed batch of each query at the other site, where that is known."""
        if self.other in self.silent:
            return {}
        try:
            there = last_batches(self.sites[self.other].control, self.old)
        except StreambankError:
            return {}
        return {name: one.committed for name, one in there.items() if one.committed is not None}

    def _behind(self, savepoints: Mapping[str, SavepointAtSite]) -> int | None:
        there = self._committed() if savepoints else {}
        behind = [there[name] - one.batch for name, one in savepoints.items() if name in there]
        return max(0, *behind) if savepoints and len(behind) == len(savepoints) else None

    def _leave(self, report: FailoverReport) -> None:
        """Leave the report behind in both sites; where the other one fails now, the site's own has to do."""
        self.sites[self.site].control.record_event(DONE, **report.to_dict())
        if self.other in self.silent:
            return
        try:
            self.sites[self.other].control.record_event(DONE, **report.to_dict())
        except StorageError as error:
            self.say(f"The {self.other} could not keep the report: {error.message}")


__all__ = ["FailoverRequest", "failover", "plan_failover"]
