"""The verbs that bring a job back, to a savepoint or to an earlier generation, and the one that rehearses it.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, RefusedError
from streambank.core.names import ASKER, MAIN, QueryRef
from streambank.core.options import values_of
from streambank.core.shape import JsonObject
from streambank.core.verb_options import (
    DrillOptions,
    FailoverOptions,
    RefreshOptions,
    RestoreOptions,
    SingleSinkOptions,
    UpgradeOptions,
)
from streambank.storage import open_store
from streambank.upgrade.watch import Leave, Wait
from streambank.work.executor import Executor, Pace
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.jobs import STOP_RUNNING
from streambank_airflow.hooks.verbs import CALLER, Asked, AskedToSay, asking, connected

if TYPE_CHECKING:
    from streambank.copies.report import RefreshReport
    from streambank.drills.each import RoundReport
    from streambank.drills.report import DrillReport
    from streambank.failover.report import FailoverPlan, FailoverReport, FailoverRequest
    from streambank.recovery.reinstate import Reinstated
    from streambank.recovery.request import TogetherRequest
    from streambank.recovery.together import TogetherPlan
    from streambank.repository.repository import Repository
    from streambank.upgrade.record import Upgrade


@dataclass(kw_only=True)
class JobRestore(RestoreOptions, Asked):
    """How a restore of a job is asked for.

    Attributes:
        savepoint: A reference; or the id of the savepoint of each query by its name.
        all_queries: Of all queries of the job, as one, to savepoints that belong together.
        unmoved: Refuse where the query has gone on since the savepoint, or has begun a batch.
        executor: Who hashes and copies; threads of this process by default.
        skipped: What the plan has passed over before it came to the savepoint; of all queries by their names.
    """

    savepoint: Any = "latest-good"
    all_queries: bool = False
    unmoved: bool = False
    executor: Executor | None = None
    skipped: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]] = ()


@dataclass(kw_only=True)
class PlannedRestore(JobRestore):
    """How the plan of a restore is asked for.

    Attributes:
        may_stop: A driver that lives is no obstacle, since the caller will stop it first.
        offer: Raise only what no choice resolves: the caller lets a person choose (approval.py).
        whole: Read every byte of the savepoints, and look who reads what is taken back: a person who decides
            by the plan counts on it.
    """

    may_stop: bool = False
    offer: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Restored(JsonObject):
    """A restore that has been done.

    Attributes:
        skew_s: Seconds between the oldest and the newest savepoint.
        queries: The report of each query, by its name.
        already_restored: Those that an earlier restore had restored already.
    """

    job: str
    skew_s: float
    queries: Mapping[str, Mapping[str, Any]]
    already_restored: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(kw_only=True)
class AskedRefresh(RefreshOptions, Asked):
    """How a refresh is asked for.

    Attributes:
        copy: Which of the job's copies.
    """

    copy: str


@dataclass(kw_only=True)
class AskedDrill(DrillOptions, AskedToSay):
    """How a drill is asked for."""


@dataclass(kw_only=True)
class AskedUpgrade(UpgradeOptions, AskedToSay):
    """How an upgrade is asked for.

    Attributes:
        leave: Leaves a wait to somebody else.
        wait: The wait that is over, for who goes on after it.
    """

    leave: Leave | None = None
    wait: Wait | None = None


@dataclass(kw_only=True)
class AskedFailover(SingleSinkOptions, FailoverOptions, AskedToSay):
    """How a fail-over is asked for.

    Attributes:
        approved: What a person has approved: `approval` of a plan.
    """

    approved: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RecoveryVerbs:
    """Restores, and generations that count again: `hook.recovery`."""

    declared: DeclaredJobs

    @asking(PlannedRestore)
    def plan(self, ref: str, asked: PlannedRestore) -> TogetherPlan:
        """What a restore would do; changes nothing.

        Raises:
            InputError: A choice is not valid (code `bad-choice`), or `nearest` is asked for, and the job is
                not declared (`bad-option`).
            RefusedError: A driver lives (code `job-running`), or output would be lost or repeated.
        """
        from streambank.recovery.approval import HELD, obstacles
        from streambank.recovery.together import plan_together

        pace = Pace(executor=asked.executor)
        request = self._request(ref, asked, pace, by={}, record=False)
        plan = plan_together(replace(request, whole=asked.whole, looks_for_readers=asked.whole), pace=pace)
        for refusal in obstacles(plan) if asked.offer else plan.refusals:
            if refusal.code != HELD or asked.offer:
                raise refusal
            if not asked.may_stop:
                raise RefusedError(refusal.message, code="job-running", hint=STOP_RUNNING)
        return plan

    @asking(JobRestore, tries=True)
    def restore(self, ref: str, asked: JobRestore) -> Restored:
        """Restore; see `plan` and `streambank.recovery.together.restore_together`."""
        from streambank.recovery.together import restore_together

        before = self.restored_before(ref, asked, by=asked.by) if ASKER in asked.by else None
        if before is not None:
            return before
        pace = Pace(executor=asked.executor)
        asked_by = {**asked.by, "reason": asked.note} if asked.note else asked.by
        request = self._request(ref, asked, pace, by=asked_by, record=True)
        done = restore_together(request, pace=pace)
        reports = {name: report.to_dict() for name, report in done.reports.items()}
        return Restored(
            done.plan.job, round(done.plan.skew_s, 1), reports, done.plan.done, round(done.seconds, 3)
        )

    @connected
    def restored_before(
        self, ref: str, options: JobRestore, *, by: Mapping[str, str] = CALLER
    ) -> Restored | None:
        """What an earlier try of the task that asks has restored; None unless it is all that is asked for.

        See `streambank.recovery.retried`.
        """
        from streambank.core.units import from_json_time
        from streambank.recovery.retried import restored_before
        from streambank.recovery.together import skew_s

        def meant() -> str:
            request = self._request(ref, options, Pace(), by=by, record=False)
            if request.chosen is not None:
                return next(iter(request.chosen.values())).manifest.savepoint
            return request.each.repository.find(request.each.reference, ref)[1]

        if options.into is not None:
            job, into = QueryRef.parse(ref).job, options.into
            found = {MAIN: restored_before(by, control=None, query=None, into=into, meant=meant)}
        else:
            declared, query = self.declared.find(ref)
            job, records = declared.name, declared.records()
            names = declared.queries if options.all_queries else [declared.only_query(query)]
            found = {name: restored_before(by, control=records, query=name) for name in names}
        reports = {name: one for name, one in found.items() if one is not None}
        if len(reports) < len(found):
            return None
        moments = [from_json_time(str(one["taken_at"])) for one in reports.values()]
        return Restored(job, round(skew_s(moments), 1), reports, tuple(reports))

    @asking(AskedRefresh)
    def refresh(self, ref: str, asked: AskedRefresh) -> RefreshReport:
        """Make a copy of a job's state again."""
        from streambank.copies.refresh import RefreshRequest, refresh

        how = {"by": asked.by, "why": asked.note, **values_of(asked, RefreshOptions)}
        return refresh(RefreshRequest(self.declared.whole(ref, "A copy"), asked.copy, **how))

    @asking(AskedDrill)
    def drill(self, ref: str, asked: AskedDrill) -> DrillReport | RoundReport:
        """Rehearse a restore of all queries of a job.

        Returns:
            The report of the drill; of `each` that of the round.
        """
        from streambank.drills.drill import drill
        from streambank.drills.each import drill_each
        from streambank.drills.request import DrillRequest

        how = {"by": asked.by, "why": asked.note, **values_of(asked, DrillOptions)}
        request = DrillRequest(self.declared.whole(ref, "A drill"), **how)
        return drill_each(request, say=asked.say) if request.of_each else drill(request, say=asked.say)

    @asking(AskedUpgrade)
    def upgrade(self, ref: str, asked: AskedUpgrade) -> Upgrade:
        """Upgrade a running job, or finish an upgrade: `streambank.upgrade.upgrade.upgrade`."""
        from streambank.upgrade.plan import UpgradeRequest
        from streambank.upgrade.upgrade import upgrade

        how = {"by": asked.by, "why": asked.note, **values_of(asked, UpgradeOptions)}
        request = UpgradeRequest(self.declared.whole(ref, "An upgrade"), **how)
        return upgrade(request, say=asked.say, leave=asked.leave, wait=asked.wait)

    @asking(AskedFailover)
    def failover(self, ref: str, asked: AskedFailover) -> FailoverReport:
        """Let a job go on at its other site."""
        from streambank.failover.approval import Approved
        from streambank.failover.failover import failover

        approved = None if asked.approved is None else Approved.read(asked.approved)
        return failover(self._failover(ref, asked), say=asked.say, approved=approved)

    @asking(AskedFailover)
    def plan_failover(self, ref: str, asked: AskedFailover) -> FailoverPlan:
        """What a fail-over would do; changes nothing."""
        from streambank.failover.failover import plan_failover

        return plan_failover(self._failover(ref, asked))

    def _failover(self, ref: str, asked: AskedFailover) -> FailoverRequest:
        from streambank.core.restore_choices import parse_file_sinks
        from streambank.failover.report import FailoverRequest

        job = self.declared.at_either_site(ref)
        return FailoverRequest(
            job,
            sink_of=asked.sink_of,
            new_outputs=asked.new_sinks,
            file_sinks=parse_file_sinks(asked.file_sinks, job.queries),
            by=asked.by,
            why=asked.note,
            **values_of(asked, FailoverOptions),
        )

    @connected
    def restored_by(self, ref: str, since: datetime) -> str | None:
        """Who has made a savepoint the job's next generation since a moment: a DAG run, or a user.

        Returns:
            The id of the DAG run, or the user; None where nobody has.
        """
        job, query = self.declared.find(ref)
        records = job.records()
        for name in (query,) if query is not None else job.query_names:
            current = records.generation(name)
            if current is not None and current.from_savepoint is not None and current.made_at >= since:
                return current.by.get("run_id") or current.by.get("user") or "somebody"
        return None

    @connected
    def has_moved(self, ref: str, generation: int) -> bool:
        """Whether another generation than this one counts, in another directory."""
        job, query = self.declared.find(ref)
        current = job.records().generation(query)
        return current is not None and generation not in (current.number, current.again)

    @connected
    def shown_generations(self, ref: str) -> dict[str, int]:
        """What a plan is of, a job's queries or one: `streambank.recovery.shown.shown_generations`."""
        from streambank.recovery.shown import shown_generations

        return shown_generations(*self.declared.find(ref))

    @connected
    def check_generations(
        self, ref: str, shown: Mapping[str, int], *, by: Mapping[str, str] = CALLER
    ) -> None:
        """Make sure that what a plan was of, as `shown_generations` gave it, still counts.

        Raises:
            RefusedError: It does not (code `approval-outdated`).
        """
        from streambank.recovery.shown import check_generations

        job, _ = self.declared.find(ref)
        check_generations(job, shown, by=by)

    @connected
    def check_not_gone_on(self, ref: str, savepoint: str) -> None:
        """Make sure that a job has committed no batch since a savepoint.

        Raises:
            RefusedError: It has (code `query-went-on`).
        """
        from streambank.recovery.reinstate import check_not_gone_on

        check_not_gone_on(
            self.declared.open_repository(ref), ref, savepoint, self.declared.job(ref).records()
        )

    @connected
    def reinstate(
        self, ref: str, savepoint: str, generation: int, *, note: str = "", by: Mapping[str, str] = CALLER
    ) -> Reinstated:
        """Let an earlier generation count again: `streambank.recovery.reinstate.reinstate`.

        Args:
            ref: `job` or `job/query`.
            savepoint: A savepoint that was taken in that generation at its last batch.
        """
        from streambank.recovery.reinstate import reinstate

        return reinstate(
            self.declared.open_repository(ref),
            ref,
            savepoint,
            generation=generation,
            control=self.declared.job(ref).records(),
            by=by,
            why=note,
        )

    def _request(
        self, ref: str, options: JobRestore, pace: Pace, *, by: Mapping[str, str], record: bool
    ) -> TogetherRequest:
        """What a plan and a restore ask for alike; what `nearest` chose is written down if `record`."""
        from streambank.core.restore_choices import parse_file_sinks
        from streambank.kafka.settings import Brokers, KafkaConnection
        from streambank.recovery.choosing.resolve import Skipped
        from streambank.recovery.choosing.together import from_place
        from streambank.recovery.request import RestoreRequest, TogetherRequest

        into = None if options.into is None else open_store(options.into)
        asked = options.savepoint
        reference, named = (asked, {}) if isinstance(asked, str) else ("latest-good", asked)
        query: str | None
        if into is not None:
            job, query = self.declared.get(ref), QueryRef.parse(ref).name
        else:
            job, query = self.declared.find(ref)
            if options.all_queries and query is not None:
                raise InputError(
                    f"All queries of a job are restored, and {ref} names one.",
                    code="bad-option",
                    hint=f"Name {job.name}/* for all of them, or {ref} for that one.",
                )
            query = None if options.all_queries else job.only_query(query)
        records, chosen = None if job is None else job.records(), None
        if job is None or records is None:
            place = self._undeclared_place(ref, options.repository)
        else:
            place, chosen = from_place(
                job,
                options.repository,
                reference,
                control=records,
                target=job.queries[query or next(iter(job.queries))] if into is None else into.uri,
                record=record,
                query=query,
                savepoints=named,
                by=by,
                pace=pace,
            )
        each = RestoreRequest(
            place,
            reference,
            job=None if query is None else ref,
            into=into,
            generation=records if into is None else None,
            control=None if into is None else records,
            mode=options.mode,
            sink=options.sink,
            sink_of=options.sink_of,
            source=options.source,
            kafka=Brokers((KafkaConnection() if job is None else job.kafka).at(options.kafka)),
            new_sinks=options.new_sinks,
            link=options.link,
            unmoved=options.unmoved,
            by=by,
        )
        queries = tuple(job.queries) if job is not None and query is None else (query or MAIN,)
        passed = options.skipped
        if not isinstance(passed, Mapping):
            passed = dict.fromkeys(queries, passed)
        return TogetherRequest(
            each,
            job,
            query,
            savepoints=named,
            chosen=chosen,
            file_sinks=parse_file_sinks(options.file_sinks, queries),
            skipped={name: Skipped.all_of(skipped) for name, skipped in passed.items()},
        )

    def _undeclared_place(self, ref: str, repository: str | None) -> Repository:
        """The repository, or a replica, of a job that is not declared."""
        from streambank.recovery.choosing.nearest import NEAREST
        from streambank.repository.repository import Repository

        if repository is None:
            return self.declared.open_repository(ref)
        if repository == NEAREST:
            raise InputError(
                f"The replicas of {ref} are not known: it is not declared.",
                code="bad-option",
                hint="Declare the job, or name the replica.",
            )
        return Repository.open(open_store(repository))
