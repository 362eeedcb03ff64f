"""The queries of a job restored as one, to savepoints that belong together as far as they can.

A restore is of a set of queries: of all, or of one alone, which is restored as restore.py does it.

No two queries of a driver are ever at the same point of the world, so there is no savepoint of a whole job.
What comes closest is one savepoint of each query, chosen around one moment: the newest that all queries reach
back to. The time between the oldest and the newest of them is the *skew*; what the report says of it is for
people who join the outputs of the queries.

The order of steps, of several queries:

1. The job is held: its operation lock, and its lease, so that no driver lives and none can start.
2. A savepoint of each query is chosen and verified, and each restore is planned. What speaks against one of
   them is raised here, before anything is changed.
3. A note names the queries, their savepoints and the generations that they will have.
4. Each query is restored into its next generation (`restore.py`), one after the other.

A note is over once each query has a generation of the number that it names, or a higher one. Until then no
driver of the job starts (`restore-unfinished`): some queries would go on from the savepoint and others not.
The same restore again restores those that are left. To restore each of those alone ends it, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from streambank.control.control import JobControl
from streambank.control.together import Noted, left_together, note_together, noted_together
from streambank.core.errors import InputError, StreambankError
from streambank.core.names import QueryRef
from streambank.declaration.declaration import Job
from streambank.recovery.choosing.resolve import Chosen, hinting_refresh
from streambank.recovery.choosing.together import check_each_named, choose_together
from streambank.recovery.plan import RestorePlan
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest, TogetherRequest
from streambank.recovery.restore import hold_job, plan_restore, restore
from streambank.recovery.sinks.readers import restored_too
from streambank.work.executor import DEFAULT_PACE, Pace


@dataclass(frozen=True, slots=True)
class TogetherPlan:
    """What a restore of the queries of a job would do.

    Attributes:
        done: Queries that an unfinished restore of the same savepoints has restored already.
    """

    plans: Mapping[str, RestorePlan]
    done: tuple[str, ...] = ()
    chosen: Mapping[str, Chosen] = field(default_factory=dict)

    @property
    def job(self) -> str:
        return QueryRef.parse(next(iter(self.plans.values())).job).job

    @property
    def skew_s(self) -> float:
        """Seconds between the oldest and the newest savepoint."""
        return skew_s([plan.taken_at for plan in self.plans.values()])

    @property
    def refusals(self) -> tuple[StreambankError, ...]:
        """What speaks against it, each once."""
        found = {(one.code, one.message): one for plan in self.plans.values() for one in plan.refusals}
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "skew_s": round(self.skew_s, 1),
            "queries": {name: plan.to_dict() for name, plan in self.plans.items()},
            "already_restored": list(self.done),
        }


@dataclass(frozen=True, slots=True)
class TogetherReport:
    """A restore of the queries of a job that has been done.

    Attributes:
        plan: What was planned, with the queries that the restore before this one had restored already.
    """

    plan: TogetherPlan
    reports: Mapping[str, RestoreReport]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        reports = {name: report.to_dict() for name, report in self.reports.items()}
        return {**self.plan.to_dict(), "queries": reports, "seconds": round(self.seconds, 3)}


def skew_s(moments: Sequence[datetime]) -> float:
    """Seconds between the oldest and the newest of some moments; 0 for one."""
    return (max(moments) - min(moments)).total_seconds() if moments else 0.0


def plan_together(request: TogetherRequest, *, pace: Pace = DEFAULT_PACE) -> TogetherPlan:
    """What `restore_together` would do with the same request. Writes nothing.

    Raises:
        InputError, NotFoundError, IntegrityError, FormatError, StorageError: As `restore_together`.
    """
    if request.only is None:
        return _planned(request, pace, held=False)
    with hinting_refresh(request.job):
        plan = plan_restore(_of_query(request, request.only), pace=pace, whole=request.whole)
    return TogetherPlan({request.only: plan})


def restore_together(request: TogetherRequest, *, pace: Pace = DEFAULT_PACE) -> TogetherReport:
    """Restore the queries of a job: one as `restore` does, several each into its next generation.

    Raises:
        InputError: The reference is of one query (code `names-one-query`).
        NotFoundError: A query has no such savepoint, or none that verifies.
        RefusedError: The job has another site that is the active one (codes `failed-over`, `failing-over`,
            `sites-disagree`), a live owner holds the job, or a sink or source speaks against one of the
            restores.
        StreambankError: What a restore raises. Those of other queries may be done: see the module.
    """
    began = time.monotonic()
    if request.only is not None:
        with hinting_refresh(request.job):
            report = restore(_of_query(request, request.only), pace=pace)
        plan, reports = TogetherPlan({request.only: report.plan}), {request.only: report}
        return TogetherReport(plan, reports, time.monotonic() - began)
    _, records = _several(request)
    with hold_job(records, by=request.each.by) as held:
        plan = _planned(request, pace, held=True)
        for refusal in plan.refusals:
            raise refusal
        if not plan.done:
            noted = {name: Noted(one.savepoint, one.generation or 0) for name, one in plan.plans.items()}
            held.check()
            note_together(records, noted, by=request.each.by)
        reports = {}
        for name, planned in plan.plans.items():
            if name not in plan.done:
                held.check()
                exact = _of_query(request, name, plan.chosen)
                reports[name] = restore(exact, pace=pace, held=held, readers=planned.readers)
    return TogetherReport(plan, reports, time.monotonic() - began)


def _several(request: TogetherRequest) -> tuple[Job, JobControl]:
    """The job whose queries are restored as one, and its records."""
    assert request.job is not None and request.each.generation is not None, "as who asks has seen to"
    return request.job, request.each.generation


def _planned(request: TogetherRequest, pace: Pace, *, held: bool) -> TogetherPlan:
    job, records = _several(request)
    chosen = request.chosen
    if chosen is None:
        chosen = choose_together(
            job,
            request.each.repository,
            request.each.reference,
            control=records,
            record=held,
            savepoints=request.savepoints,
            whole=request.whole,
            by=request.each.by,
            pace=pace,
        ).queries
    noted = noted_together(records) if left_together(records, job.queries) else {}
    done: list[str] = []
    if {name: one.savepoint for name, one in noted.items()} == {
        name: one.manifest.savepoint for name, one in chosen.items()
    }:
        done = [name for name, one in noted.items() if _is_done(records, name, one)]
    plans = {
        name: plan_restore(_of_query(request, name, chosen), pace=pace, held=held or name in done)
        for name in chosen
    }
    found = [str(sink.get("path")) for plan in plans.values() for sink in plan.sinks]
    check_sinks_named(job, request.each.sink_of, found)
    return TogetherPlan(
        {name: _without_refusals(plan) if name in done else plan for name, plan in plans.items()},
        tuple(done),
        chosen,
    )


def _without_refusals(plan: RestorePlan) -> RestorePlan:
    """The plan of a query that is restored already: nothing of it is asked any more."""
    return replace(
        plan,
        mixed_sinks={},
        refusals=(),
        other_refusals=(),
        sink_refusals=dict.fromkeys(plan.sink_refusals, ()),
        source_refusals=dict.fromkeys(plan.source_refusals, ()),
    )


def check_sinks_named(job: Job, named: Iterable[str], known: Collection[str]) -> None:
    """Make sure that each sink that is named is one of a query of a job with several.

    Args:
        job: The job. One with a single query has this checked by its restore.

    Raises:
        InputError: One is of no query (code `unknown-sink`).
    """
    for path in named:
        if path not in known and len(job.queries) > 1:
            raise InputError(
                f"No query of {job.name} has a sink {path}.",
                code="unknown-sink",
                hint=f"Their sinks: {', '.join(dict.fromkeys(known)) or 'none'}.",
            )


def _is_done(records: JobControl, query: str, noted: Noted) -> bool:
    current = records.generation(query)
    return (
        current is not None
        and current.number >= noted.generation
        and (current.from_savepoint == noted.savepoint)
    )


def _of_query(
    request: TogetherRequest, query: str, chosen: Mapping[str, Chosen] | None = None
) -> RestoreRequest:
    each, job, chosen = request.each, request.job, chosen or request.chosen or {}
    if job is not None and request.query is None:
        check_each_named(job, request.savepoints)
    own = chosen.get(query)
    others = restored_too((one.manifest for one in chosen.values()), own.manifest) if own is not None else ()
    asked = replace(
        each,
        reference=request.savepoints.get(query, each.reference) if own is None else own.manifest.savepoint,
        chosen=own,
        restored_too=frozenset(others).union(request.restored_with),
        file_sinks=request.file_sinks.get(query, each.file_sinks),
        together=request.only is None,
        skipped=request.skipped.get(query, each.skipped),
    )
    if job is None:
        return asked
    return replace(
        asked,
        job=each.job or job.savepoint_name(query),
        checkpoint=job.queries.get(query) if each.generation is not None else None,
        application=job.application,
        declared_sinks=job.sinks,
        jobs_file=job.source if request.looks_for_readers else "",
    )
