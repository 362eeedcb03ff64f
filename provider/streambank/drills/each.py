"""A round of drills: each savepoint that is kept, the newest first, one drill after the other.

Of a job with several queries, savepoints that were taken most closely together are drilled as one set. The
first set is the one that a restore of all queries chooses where all verify (recovery/together.py). Each
savepoint of each query is in one set at least.

A drill that fails does not end the round, unless the application fails alike on three in a row (`alike`). A
savepoint that expires before it is drilled is skipped, and no failure; while it is drilled it is held. Each
drill leaves its report; the round leaves one record once it is over. A round that a task of Airflow began and
that was killed is finished by the retry of that task: savepoints that were drilled are not drilled again.

Once the time limit of a round is over it ends after the drill that runs. The next round with a limit goes on
with the savepoints that are left, then with those that were taken meanwhile. Once each has been drilled the
round after that begins again with the newest.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any

from streambank.control.drills import (
    called,
    drills_of,
    failure_of,
    failures,
    record_round,
    round_id,
    round_over,
    rounds_over,
    savepoints_of,
)
from streambank.control.records import JsonDict
from streambank.core.errors import StorageError, StreambankError
from streambank.core.shape import HIDDEN, MILLIS, JsonName, JsonObject, encode
from streambank.core.units import from_json_time, say_duration, to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.drills.drill import as_drilled, leave_report, rehearse
from streambank.drills.report import DrillReport
from streambank.drills.request import DrillRequest
from streambank.procedure.procedure import Procedure, Say, quiet
from streambank.procedure.rows import Rows, said_s, titled
from streambank.repository.catalog import batch_of_id, glimpse, is_rejected, listed, manifest_key, none_of
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank.storage.store import Store

_TASK = ("dag_id", "run_id", "task_id")
"""What of those who ask names one task of one DAG run, whose retry goes on."""
_IN_A_ROW = 3
"""After how many drills in a row that failed alike a round ends."""
_ROUNDS_BACK = 20
"""How many rounds back those that were left are searched."""
_LOOKED_BACK = timedelta(days=7)
"""A round of which no drill has ended since then is over for good."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A savepoint that is kept.

    Attributes:
        taken_at: When it was taken; None where its manifest cannot be read.
        order_at: The same, or that of the next newer savepoint of the query.
    """

    query: str
    savepoint: str
    taken_at: datetime | None
    order_at: datetime


@dataclass(frozen=True, slots=True)
class SkippedSavepoints(JsonObject):
    """Savepoints that were not drilled, and are no failure."""

    savepoints: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A round that is over.

    Attributes:
        drills: The report of each drill as JSON, in their order.
        skipped: Savepoints that expired before they were drilled.
        ended: Why it ended before each savepoint was drilled, and how many were not; empty where it did not.
        left: The savepoints that were not drilled then, together as they would have been: by query.
        resumed: How many of the drills an earlier try of the same task had done.
        seconds: How long it took, since it was resumed if it was.
    """

    id: Annotated[str, JsonName("round")]
    job: str
    repository: str
    drills: tuple[JsonDict, ...]
    skipped: tuple[SkippedSavepoints, ...]
    resumed: int
    started_at: datetime
    seconds: Annotated[float, MILLIS]
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    ended: str = ""
    left: tuple[Mapping[str, str], ...] = ()
    hint: Annotated[str, HIDDEN] = ""

    @property
    def passed(self) -> bool:
        """Whether each drill passed."""
        return not self.failed

    @property
    def failed(self) -> list[JsonDict]:
        """Of each drill that failed: its savepoints, its step, and why."""
        return [failure_of(one) for one in self.drills if one["passed"] is not True]

    @property
    def error(self) -> str:
        """Which drills failed, each with its step and cause, for people; empty where none did."""
        return self.error_of()

    def error_of(self, most: int | None = None) -> str:
        """The same, where only some of them are named."""
        failed = self.failed
        if not failed:
            return ""
        ended = f" {self.ended}" if self.ended else ""
        return f"{len(failed)} of {len(self.drills)} failed: {failures(failed, most=most)}{ended}"

    @property
    def verdict(self) -> str:
        """How it ended, for people."""
        return f"{len(self.drills) - len(self.failed)} of {len(self.drills)} passed"

    def rows(self) -> Rows:
        """What people read of it, beside the verdict: a row for each drill."""
        rows = [("repository", self.repository)]
        for one in self.drills:
            said = f"failed at the step {one['failed_step']}: {one['error']}"
            if one["passed"]:
                rpo_s = one["rpo_s"] and round(one["rpo_s"])
                said = f"passed, RTO {said_s(one['rto_s'])}, RPO {said_s(rpo_s)}"
                said += f"; not run on the copy: {one['not_run']}" if one["not_run"] else ""
            elif (taken_at := one["round"]["taken_at"]) is not None:
                age = from_json_time(one["started_at"]) - from_json_time(taken_at)
                said = f"{say_duration(round(age.total_seconds()))} old, {said}"
            rows.append((f"drill of {called(savepoints_of(one)) or 'no savepoint'}", said))
        rows += [("skipped", f"{called(one.savepoints)}: {one.why}") for one in self.skipped]
        return [*rows, *titled("ended early", [self.ended])]

    def to_dict(self) -> dict[str, Any]:
        """As JSON: step and code of the first drill that failed, RTO and RPO of the first drill.

        `not_run` is that of the first drill that has not run the application.
        """
        failed = self.failed
        first = failed[0] if failed else {"failed_step": None, "code": None}
        leading = self.drills[0] if self.drills else {}
        return encode(self) | {
            "passed": self.passed,
            "failed_step": first["failed_step"],
            "code": first["code"],
            "error": self.error,
            "not_run": next((said for one in self.drills if (said := one.get("not_run"))), ""),
            "failed": failed,
            "rto_s": leading.get("rto_s"),
            "rpo_s": leading.get("rpo_s"),
        }


def drill_each(request: DrillRequest, *, say: Say = quiet) -> RoundReport:
    """Rehearse a restore of each savepoint that is kept.

    Args:
        request: What is asked; `timeout_s` is for each savepoint, `time_limit_s` for all.

    Raises:
        StorageError: A report could not be written down.
        InputError, RefusedError: As `rehearse`.
    """
    return _Round(request, say).run()


def kept(store: Store, job: Job) -> list[Kept]:
    """The savepoints of a job's queries, the newest first: none that is rejected, but damaged ones, too."""
    found = []
    for name in job.queries:
        of_query = job.savepoint_name(name)
        ids = [savepoint for of_job, savepoint in listed(store, of_query) if of_job == of_query]
        order_at = utc_now()
        for savepoint in sorted(ids, key=lambda one: (batch_of_id(one), one), reverse=True):
            head = glimpse(store, of_query, savepoint)
            if head is not None and is_rejected(store, head):
                continue
            order_at = order_at if head is None else head.taken_at
            found.append(Kept(name, savepoint, None if head is None else head.taken_at, order_at))
    return sorted(found, key=lambda one: one.order_at, reverse=True)


def alike(drills: Sequence[Mapping[str, Any]], *, left: int) -> str:
    """Why no more savepoints are drilled, as a sentence; empty where they are.

    The newest drills failed in a row at the same step with the same code, for a reason that is the
    application's, or its cluster's, and not a savepoint's: it was not launched, it ended before it opened any
    state, its time was over, or its copy could not be removed. Damage shows at other steps: at `choose` and
    `restore`, where bytes are hashed, or at `batches` and `compare`.
    """
    newest = drills[-_IN_A_ROW:]
    if len(newest) < _IN_A_ROW or not all(map(_of_application, newest)):
        return ""
    if len({(one["failed_step"], one["code"]) for one in newest}) > 1:
        return ""
    step, code = newest[0]["failed_step"], newest[0]["code"]
    return (
        f"The round ended: {_IN_A_ROW} drills in a row failed alike, at the step {step} ({code}), and "
        f"{left} more {'was' if left == 1 else 'were'} not begun."
    )


def _of_application(report: Mapping[str, Any]) -> bool:
    """Whether a drill failed for a reason that is not its savepoint's."""
    step, code = report["failed_step"], report["code"]
    if step == "state" and code == "drill-died":
        return not any(one["state"] for one in report["queries"])
    return step in ("launch", "clean") or code == "drill-timeout"


def sets_of(there: Sequence[Kept], queries: Sequence[str]) -> list[list[Kept]]:
    """Savepoints of all queries that are drilled together: that of a restore first, then the newest set.

    Args:
        there: Savepoints, the newest first; of each query there is one at least.
    """
    sets: list[list[Kept]] = []
    covered: set[Kept] = set()
    newest = [next(one for one in there if one.query == name) for name in queries]
    for anchor in (min(newest, key=lambda one: one.order_at), *there):
        if anchor not in covered:
            sets.append(set_around(anchor, there, queries))
            covered.update(sets[-1])
    return sets


def set_around(anchor: Kept, there: Sequence[Kept], queries: Sequence[str]) -> list[Kept]:
    """A savepoint, and of each other query the one that was taken closest to it.

    Args:
        there: All that there are; of a query without one the set has none.
    """

    def distance(one: Kept) -> float:
        return abs((one.order_at - anchor.order_at).total_seconds())

    found = []
    for name in queries:
        of_query = [anchor] if name == anchor.query else [one for one in there if one.query == name]
        found += [min(of_query, key=distance)] if of_query else []
    return found


class _Round(Procedure[DrillRequest]):
    def __init__(self, request: DrillRequest, say: Say) -> None:
        super().__init__(request, say)
        self.control = request.job.records()
        self.id = f"{self.started_at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self.drills: list[JsonDict] = []
        self.skipped: list[SkippedSavepoints] = []
        self.ended = ""
        self.hints: dict[str, str] = {}
        self.left: tuple[dict[str, str], ...] = ()
        self.drilled_before: list[dict[str, str]] = []

    @property
    def _time_limit_s(self) -> float | None:
        asked = self.request.time_limit_s
        return self.job.drill.time_limit_s if asked is None else asked or None

    def run(self) -> RoundReport:
        """Drill what is left, and leave the record of the round."""
        as_drilled(self.request)  # what is refused leaves no report
        self._go_on()
        resumed = len(self.drills)
        try:
            there, sets = self._plan()
        except StreambankError as error:
            self._leave(self._not_begun(error), {}, None, resumed + 1, resumed + 1)
        else:
            for number, chosen in enumerate(sets, start=resumed + 1):
                left = sets[number - resumed - 1 :]
                self.ended = alike(self.drills, left=len(left)) or self._out_of_time(number - resumed, left)
                if self.ended:
                    self.say(self.ended.rstrip("."))
                    self.left = tuple(_ids(one) for one in left)
                    break
                self._drill(chosen, there, number, resumed + len(sets))
            if not self.drills:
                none = none_of(
                    Repository.open(open_store(self.request.source)).store,
                    self.job.savepoint_name(next(iter(self.job.queries))),
                )
                self._leave(self._not_begun(none), {}, None, 1, 1)
        failed = next((one for one in self.drills if one["passed"] is not True), {"code": ""})
        report = RoundReport(
            id=self.id,
            job=self.job.name,
            repository=self.request.source,
            drills=tuple(self.drills),
            skipped=tuple(self.skipped),
            resumed=resumed,
            started_at=self.started_at,
            seconds=self.seconds,
            by=dict(self.request.by),
            why=self.request.why,
            ended=self.ended,
            left=self.left,
            hint=self.hints.get(failed["code"] or "", ""),
        )
        record = {name: one for name, one in report.to_dict().items() if name != "drills"}
        drilled = [*self.drilled_before, *(one["round"]["savepoints"] for one in self.drills)]
        record_round(self.control, {**record, "drilled": drilled})
        return report

    def _out_of_time(self, number: int, left: Sequence[Sequence[Kept]]) -> str:
        """Why no more drills begin, as a sentence; empty while they do, and for the first of each try."""
        limit_s = self._time_limit_s
        if limit_s is None or number == 1 or (utc_now() - self.started_at).total_seconds() < limit_s:
            return ""
        were = "was" if len(left) == 1 else "were"
        return (
            f"The round ended: its time limit of {say_duration(limit_s)} was over, and {len(left)} more "
            f"{were} not begun. The next round with a limit goes on from there."
        )

    def _go_on(self) -> None:
        """Take over the round that an earlier try of the same task has not finished."""
        by = self.request.by
        task = {name: by[name] for name in _TASK if by.get(name)}
        if len(task) < len(_TASK):
            return
        for one in drills_of(self.control):
            took = timedelta(seconds=float(one.get("seconds") or 0.0))
            if from_json_time(str(one["started_at"])) + took < utc_now() - _LOOKED_BACK:
                return  # records are in the order in which drills ended
            found = round_id(one)
            if found is None or one.get("repository") != self.request.source:
                continue
            if {name: one.get("by", {}).get(name) for name in _TASK} != task:
                continue
            if round_over(self.control, found) is None:
                self.id = found
                self.started_at = from_json_time(str(one["round"]["started_at"]))
                self.drills = self._of_round()
                self.say(f"going on with a round that was ended: {len(self.drills)} were drilled")
            return

    def _of_round(self) -> list[JsonDict]:
        """The drills of the round that there have been, in their order."""
        found = []
        for one in drills_of(self.control):
            if round_id(one) == self.id:
                found.append(one)
                if one["round"]["number"] == 1:
                    break
        return found[::-1]

    def _plan(self) -> tuple[list[Kept], list[list[Kept]]]:
        """The savepoints that are kept, and which of them are drilled together from now on."""
        self.say("looking which savepoints are kept")
        store = Repository.open(open_store(self.request.source)).store
        there = kept(store, self.job)
        for name in self.job.queries:
            if not any(one.query == name for one in there):
                raise none_of(store, self.job.savepoint_name(name))
        limit = self.job.drill.limit if self.request.limit is None else self.request.limit or None
        done = [one["round"]["savepoints"] for one in self.drills]
        sets = sets_of(there, tuple(self.job.queries))[:limit]
        if self._time_limit_s is not None:
            sets = self._rest_first(sets)
        return there, [one for one in sets if _ids(one) not in done]

    def _rest_first(self, sets: list[list[Kept]]) -> list[list[Kept]]:
        """Those that were left by the last round, then new ones; all sets where nothing was left.

        A round since then that drilled only some, or none, leaves the others to this one.
        """
        since: list[Any] = []
        left: list[Any] = []
        for last in islice(rounds_over(self.control, self.request.source), _ROUNDS_BACK):
            since += last.get("drilled") or []
            if left := last.get("left") or []:
                break
        rest = [one for one in sets if _ids(one) in left and _ids(one) not in since]
        if not rest:
            return sets
        self.say(f"going on with {len(rest)} that the last round left")
        kept_ids = [_ids(one) for one in sets]
        self.drilled_before = [one for one in since if one in kept_ids]
        known = [*left, *self.drilled_before]
        return [*rest, *(one for one in sets if _ids(one) not in known)]

    def _drill(self, chosen: list[Kept], there: Sequence[Kept], number: int, of: int) -> None:
        asked = _ids(chosen)
        left = [one for one in chosen if self._is_kept(one)]
        if left and len(left) < len(chosen):  # what is still kept, with others
            chosen = set_around(
                left[0], [one for one in there if self._is_kept(one)], tuple(self.job.queries)
            )
        if not left or len(chosen) < len(self.job.queries):
            self._skip(asked, number, of)
            return
        savepoints = _ids(chosen)
        self.say(f"savepoint {number} of {of}: {called(savepoints)}")
        request = replace(self.request, savepoint=None, savepoints=savepoints)
        report = rehearse(request, say=self.say)
        if report.code == "no-such-savepoint" and not all(self._is_kept(one) for one in chosen):
            self._skip(savepoints, number, of)
            return
        taken = [one.taken_at for one in chosen if one.taken_at is not None]
        oldest = min(taken) if len(taken) == len(chosen) else None
        self._leave(report, savepoints, oldest, number, of)

    def _skip(self, savepoints: Mapping[str, str], number: int, of: int) -> None:
        why = "it has expired meanwhile"
        self.say(f"savepoint {number} of {of}: {called(savepoints)} is skipped: {why}")
        self.skipped.append(SkippedSavepoints(savepoints, why))

    def _is_kept(self, one: Kept) -> bool:
        try:
            store = open_store(self.request.source)
            return store.exists(manifest_key(self.job.savepoint_name(one.query), one.savepoint))
        except StorageError:
            return True  # the drill itself fails, and says what is wrong with the repository

    def _leave(
        self,
        report: DrillReport,
        savepoints: Mapping[str, str],
        oldest: datetime | None,
        number: int,
        of: int,
    ) -> None:
        facts = {
            "id": self.id,
            "number": number,
            "of": of,
            "savepoints": dict(savepoints),
            "taken_at": None if oldest is None else to_json_time(oldest),
            "started_at": to_json_time(self.started_at),
        }
        report = replace(report, round=facts)
        leave_report(self.request, report)
        self.hints.setdefault(report.code or "", report.hint)
        self.drills.append(report.to_dict())

    def _not_begun(self, error: StreambankError) -> DrillReport:
        """The report where no savepoint could be drilled."""
        return DrillReport(
            job=self.job.name,
            repository=self.request.source,
            failed_step="choose",
            code=error.code,
            error=error.message,
            hint=error.hint,
            failed_queries=tuple(self.job.queries),
            started_at=utc_now(),
            seconds=self.seconds,
            by=dict(self.request.by),
            why=self.request.why,
        )


def _ids(chosen: Sequence[Kept]) -> dict[str, str]:
    """The savepoints of a set, by query."""
    return {one.query: one.savepoint for one in chosen}
