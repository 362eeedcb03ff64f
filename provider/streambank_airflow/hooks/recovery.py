"""The verbs that bring a job back, to a savepoint or to an earlier generation, and the one that rehearses it.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, RefusedError
from streambank.core.names import MAIN, QueryRef
from streambank.core.verb_options import RestoreOptions
from streambank.storage import open_store
from streambank_airflow.hooks.declared import DeclaredJobs, connected
from streambank_airflow.hooks.jobs import STOP_RUNNING

if TYPE_CHECKING:
    from streambank.copies.refresh import RefreshRequest
    from streambank.copies.report import RefreshReport
    from streambank.drills.each import RoundReport
    from streambank.drills.report import DrillReport
    from streambank.drills.request import DrillRequest
    from streambank.failover.report import FailoverPlan, FailoverReport, FailoverRequest
    from streambank.recovery.reinstate import Reinstated
    from streambank.recovery.request import TogetherRequest
    from streambank.recovery.together import TogetherPlan
    from streambank.repository.repository import Repository
    from streambank.upgrade.plan import UpgradeRequest
    from streambank.upgrade.record import Upgrade
    from streambank.upgrade.watch import Leave, Wait
    from streambank.work.executor import Executor, Pace


@dataclass(kw_only=True)
class JobRestore(RestoreOptions):
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


@dataclass(frozen=True, slots=True)
class RecoveryVerbs:
    """Restores, and generations that count again: `hook.recovery`."""

    declared: DeclaredJobs

    @connected
    def plan(
        self, ref: str, options: JobRestore, *, may_stop: bool, offer: bool = False, whole: bool = True
    ) -> TogetherPlan:
        """What a restore would do; changes nothing.

        Args:
            may_stop: A driver that lives is no obstacle, since the caller will stop it first.
            offer: Raise only what no choice resolves: the caller lets a person choose (approval.py).
            whole: Read every byte of the savepoints, and look who reads what is taken back: a person who
                decides by the plan counts on it.

        Raises:
            InputError: A choice is not valid (code `bad-choice`), or `nearest` is asked for, and the job is
                not declared (`bad-option`).
            RefusedError: A driver lives (code `job-running`), or output would be lost or repeated.
        """
        from streambank.recovery.approval import HELD, obstacles
        from streambank.recovery.together import plan_together
        from streambank.work.executor import Pace

        pace = Pace(executor=options.executor)
        request = self._request(ref, options, pace, by={}, record=False)
        plan = plan_together(replace(request, whole=whole, looks_for_readers=whole), pace=pace)
        for refusal in obstacles(plan) if offer else plan.refusals:
            if refusal.code != HELD or offer:
                raise refusal
            if not may_stop:
                raise RefusedError(refusal.message, code="job-running", hint=STOP_RUNNING)
        return plan

    @connected
    def restore(self, ref: str, options: JobRestore, *, note: str, by: Mapping[str, str]) -> dict[str, Any]:
        """Restore; see `plan` and `streambank.recovery.together.restore_together`."""
        from streambank.recovery.together import restore_together
        from streambank.work.executor import Pace

        pace = Pace(executor=options.executor)
        asked_by = {**by, "reason": note} if note else by
        request = self._request(ref, options, pace, by=asked_by, record=True)
        return restore_together(request, pace=pace).to_dict()

    @connected
    def restored_before(
        self, ref: str, options: JobRestore, *, by: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """What an earlier try of the task that asks has restored; None unless it is all that is asked for.

        See `streambank.recovery.retried`.
        """
        from streambank.core.units import from_json_time
        from streambank.recovery.retried import restored_before
        from streambank.recovery.together import skew_s
        from streambank.work.executor import Pace

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
        return {
            "job": job,
            "skew_s": round(skew_s(moments), 1),
            "queries": reports,
            "already_restored": list(reports),
            "seconds": 0.0,
        }

    @connected
    def refresh(self, request: RefreshRequest) -> RefreshReport:
        """Make a copy of a job's state again; its job is one that `hook.declared.whole` finds."""
        from streambank.copies.refresh import refresh

        return refresh(request)

    @connected
    def drill(self, request: DrillRequest, *, say: Callable[[str], None]) -> DrillReport | RoundReport:
        """Rehearse a restore of all queries of a job, which `hook.declared.whole` finds.

        Args:
            say: Hears when a step begins, in words.

        Returns:
            The report of the drill; of `each` that of the round.
        """
        from streambank.drills.drill import drill
        from streambank.drills.each import drill_each

        return drill_each(request, say=say) if request.of_each else drill(request, say=say)

    @connected
    def upgrade(
        self,
        request: UpgradeRequest,
        *,
        say: Callable[[str], None],
        leave: Leave | None = None,
        wait: Wait | None = None,
    ) -> Upgrade:
        """Upgrade a running job, which `hook.declared.whole` finds, or finish an upgrade.

        See `drill`, and `streambank.upgrade.upgrade.upgrade`.
        """
        from streambank.upgrade.upgrade import upgrade

        return upgrade(request, say=say, leave=leave, wait=wait)

    @connected
    def failover(
        self,
        request: FailoverRequest,
        *,
        say: Callable[[str], None],
        approved: Mapping[str, Any] | None = None,
    ) -> FailoverReport:
        """Let a job, which `hook.declared.at_either_site` finds, go on at its other site; see `drill`.

        Args:
            approved: What a person has approved: `approval` of a plan.
        """
        from streambank.failover.approval import Approved
        from streambank.failover.failover import failover

        return failover(request, say=say, approved=None if approved is None else Approved.read(approved))

    @connected
    def plan_failover(self, request: FailoverRequest) -> FailoverPlan:
        from streambank.failover.failover import plan_failover

        return plan_failover(request)

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
    def check_generations(self, ref: str, shown: Mapping[str, int], *, by: Mapping[str, str]) -> None:
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
        self, ref: str, savepoint: str, generation: int, *, note: str, by: Mapping[str, str]
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
