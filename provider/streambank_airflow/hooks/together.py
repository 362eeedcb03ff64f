"""The verbs that restore all queries of a job as one.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streambank.core.choices import SINK_CHOICES, SOURCE_CHOICES, SinkChoice
from streambank.core.errors import InputError, RefusedError, check_choice
from streambank_airflow.hooks.declared import DeclaredJobs, connected
from streambank_airflow.hooks.jobs import STOP_RUNNING

if TYPE_CHECKING:
    from streambank.recovery.request import TogetherRequest
    from streambank.recovery.together import TogetherPlan
    from streambank.work.executor import Executor, Pace


@dataclass(frozen=True, slots=True)
class AskedTogether:
    """What a restore of all queries of a job is asked for; see `recovery.together.TogetherRequest`.

    Attributes:
        savepoint: A reference to a savepoint of each query, or the id of each one by the query's name.
        repository: Where they come from: a replica, or `nearest`; None for the job's repository.
        sink: `refuse`, `rollback`, `rollback-accept` or `accept`.
        sink_of: The same for single sinks, by the paths that a plan shows.
        source: `refuse` or `accept`.
        file_sinks: Output directories of file sinks that savepoints do not name: `QUERY=DIR`, or `DIR` for a
            job with one query.
        kafka: Kafka's servers, where they are not those that the savepoints or the declaration name.
        executor: Who hashes and copies; threads of this process by default.
        skipped: What the plan has passed over of each query before it came to those ids.
    """

    savepoint: str | Mapping[str, str] = "latest-good"
    repository: str | None = None
    sink: str = "refuse"
    sink_of: Mapping[str, SinkChoice] = field(default_factory=dict)
    source: str = "refuse"
    file_sinks: Sequence[str] = ()
    kafka: str | None = None
    executor: Executor | None = None
    skipped: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TogetherVerbs:
    """Restores of all queries of a job as one: `hook.together`."""

    declared: DeclaredJobs

    @connected
    def plan(
        self, ref: str, asked: AskedTogether, *, may_stop: bool, offer: bool = False, whole: bool = True
    ) -> TogetherPlan:
        """What a restore would do; changes nothing.

        Args:
            may_stop: A driver that lives is no obstacle, since the caller will stop it first.
            offer: Raise only what no choice resolves: the caller lets a person choose.
            whole: Read every byte of the savepoints; with `nearest` that is always done.

        Raises:
            InputError: A query is named (code `bad-option`), or a choice is not valid (`bad-choice`).
            RefusedError: A driver lives (code `job-running`), or output would be lost or repeated.
        """
        from streambank.recovery.approval import HELD, as_one, obstacles
        from streambank.recovery.together import plan_together
        from streambank.work.executor import Pace

        pace = Pace(executor=asked.executor)
        request = replace(self._request(ref, asked, pace, by={}, record=False), whole=whole)
        plan = plan_together(request, pace=pace)
        for refusal in obstacles(as_one(plan.plans)) if offer else plan.refusals:
            if refusal.code != HELD or offer:
                raise refusal
            if not may_stop:
                raise RefusedError(refusal.message, code="job-running", hint=STOP_RUNNING)
        return plan

    @connected
    def restore(self, ref: str, asked: AskedTogether, *, note: str, by: Mapping[str, str]) -> dict[str, Any]:
        """Restore all queries of a stopped job; see `streambank.recovery.together.restore_together`.

        Raises:
            InputError: As `plan`.
        """
        from streambank.recovery.together import restore_together
        from streambank.work.executor import Pace

        pace = Pace(executor=asked.executor)
        asked_by = {**by, "reason": note} if note else by
        return restore_together(
            self._request(ref, asked, pace, by=asked_by, record=True), pace=pace
        ).to_dict()

    @connected
    def restored_before(self, ref: str, by: Mapping[str, str]) -> dict[str, Any] | None:
        """What an earlier try of the task that asks has restored; None unless it is all queries."""
        from streambank.core.units import from_json_time
        from streambank.recovery.retried import restored_before
        from streambank.recovery.together import skew_s

        job, _ = self.declared.find(ref)
        records = job.records()
        found = {name: restored_before(by, control=records, query=name) for name in job.queries}
        reports = {name: one for name, one in found.items() if one is not None}
        if len(reports) < len(found):
            return None
        moments = [from_json_time(str(one["taken_at"])) for one in reports.values()]
        return {
            "job": job.name,
            "skew_s": round(skew_s(moments), 1),
            "queries": reports,
            "already_restored": list(reports),
            "seconds": 0.0,
        }

    def _request(
        self, ref: str, asked: AskedTogether, pace: Pace, *, by: Mapping[str, str], record: bool
    ) -> TogetherRequest:
        """What a plan and a restore ask for alike; what `nearest` chose is written down if `record`."""
        from streambank.kafka.settings import Brokers
        from streambank.recovery.choices import parse_file_sinks
        from streambank.recovery.choosing.resolve import Skipped
        from streambank.recovery.choosing.together import from_place
        from streambank.recovery.request import TogetherRequest

        job, query = self.declared.find(ref)
        if query is not None:
            raise InputError(
                f"All queries of a job are restored, and {ref} names one.",
                code="bad-option",
                hint=f"Name the job alone, {job.name}; RestoreSavepointOperator restores one query.",
            )
        records = job.records()
        reference, named = (
            (asked.savepoint, {}) if isinstance(asked.savepoint, str) else ("latest-good", asked.savepoint)
        )
        place, chosen = from_place(
            job,
            asked.repository,
            reference,
            control=records,
            target=next(iter(job.queries.values())),
            record=record,
            savepoints=named,
            by=by,
            pace=pace,
        )
        return TogetherRequest(
            job,
            place,
            reference,
            savepoints=named,
            chosen=chosen,
            control=records,
            sink=check_choice(asked.sink, "sink", SINK_CHOICES),
            sink_of=asked.sink_of,
            source=check_choice(asked.source, "source", SOURCE_CHOICES),
            file_sinks=parse_file_sinks(asked.file_sinks, job.queries),
            kafka=Brokers(job.kafka.at(asked.kafka)),
            skipped={name: Skipped.all_of(one) for name, one in asked.skipped.items()},
            by=by,
        )
