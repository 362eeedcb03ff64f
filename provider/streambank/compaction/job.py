"""Compact the checkpoints of a declared job: held by its lease, or beside its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from streambank.compaction.compact import CompactionReport, CompactionRequest, compact, plan
from streambank.compaction.purge import PurgeReport, purge
from streambank.compaction.quarantine import Quarantine, quarantine_location
from streambank.compaction.quiet_check import HELD
from streambank.compaction.undo import UndoReport, bring_back
from streambank.control.control import JobControl
from streambank.control.records import leaving_word
from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.core.verb_options import CompactOptions
from streambank.declaration.declaration import Job
from streambank.driver.preflight import check_records, declared_query
from streambank.storage import open_store, same_place
from streambank.work.pace import Progress

OPERATION = "compact"
_UNDONE, _PURGED = "compaction-undone", "quarantine-purged"


def compact_job(
    job: Job,
    options: CompactOptions | None = None,
    *,
    label: str,
    by: Mapping[str, str],
    why: str = "",
    query: str | None = None,
    quarantine: str | None = None,
    progress: Progress | None = None,
) -> dict[str, CompactionReport]:
    """Compact the current checkpoint of each query of a job (or of one).

    While no driver lives, none can start until it is done, and everything goes that no kept batch needs.
    Beside a driver that lives only old unfinished writes go.

    Args:
        label: What tells this compaction from others: the same one again goes on where it broke off.
        options: `stopped`: refuse to work beside a driver.
        quarantine: Where the dead files go; a sibling of the checkpoint where it is left out.

    Raises:
        InputError: There is no such query (`no-such-query`), or one quarantine for several (`which-query`).
        NotFoundError: The job was never started (`never-started`).
        RefusedError: Its records are lost (`repository-lost`).
        RefusedError: The job has another site that is the active one (`failed-over`, `failing-over`,
            `sites-disagree`).
        RefusedError: `stopped`, and a driver lives (`lease-held`).
        ConflictError: Another operation works on the job (`operation-in-progress`).
        StreambankError: Whatever else `compact` raises.
    """
    records, asked = job.records(), options or CompactOptions()
    names = _queries(job, query, quarantine)
    places = {name: _place(job, records, name) for name in names}
    request = CompactionRequest(
        stopped=True,
        keep_batches=asked.keep_batches,
        older_than_s=asked.older_than_s,
        by=by,
        why=why,
        watch=HELD,
    )
    if asked.plan_only:
        return _plans(job, records, places, request, asked.stopped)
    done = {}
    with _held(records, by, stopped=asked.stopped) as (is_held, check):
        for name, place in places.items():
            where = quarantine or quarantine_location(place, label)
            held = replace(request, stopped=is_held, check=check)
            report = compact(open_store(place), open_store(where), held, progress=progress)
            done[name] = _named(job, name, report)
            if report.files and not report.already_done:
                _record(records, "compacted", name, report.to_dict(), by, why)
    return done


def undo_job(
    job: Job,
    quarantine: str,
    *,
    by: Mapping[str, str],
    why: str = "",
    progress: Progress | None = None,
) -> UndoReport:
    """Bring back what was moved from a checkpoint of a job; no driver may live, and none can start meanwhile.

    What the newest undo of the job has brought back already is not looked for again.

    Raises:
        InputError: The quarantine is of no current checkpoint of the job (code `another-job`).
        RefusedError: A driver lives (`lease-held`), or see `bring_back`.
        StreambankError: Whatever else `bring_back` raises.
    """
    records = job.records()
    kept_apart = Quarantine(open_store(quarantine))
    done = _done_before(records, _UNDONE, kept_apart)
    if done is not None:
        return UndoReport(
            checkpoint=done["checkpoint"],
            quarantine=kept_apart.store.uri,
            files=done["files"],
            bytes=done["bytes"],
            left=(),
            missing=tuple(done["missing"]),
            already_done=True,
        )
    record = kept_apart.existing()
    places = {_place(job, records, name): name for name in job.queries}
    place = next((one for one in places if same_place(one, record.checkpoint)), None)
    if place is None:
        raise _of_another_job(job, quarantine, record.checkpoint, "current checkpoint")
    with _held(records, by, stopped=record.mode == "stopped") as (_, check):
        report = bring_back(open_store(place), kept_apart, check=check, progress=progress)
        _record(records, _UNDONE, places[place], report.to_dict(), by, why)
    return report


def purge_job(
    job: Job,
    quarantine: str,
    *,
    by: Mapping[str, str],
    why: str = "",
    progress: Progress | None = None,
) -> PurgeReport:
    """Delete for good what was moved from a checkpoint of a job; its driver may live.

    What the newest purge of the job has deleted already is not looked for again.

    Raises:
        InputError: The quarantine is of no checkpoint that the job has ever had (code `another-job`).
        RefusedError: The job has another site that is the active one (`failed-over`, `failing-over`,
            `sites-disagree`).
        ConflictError: Another operation works on the job (`operation-in-progress`).
        StreambankError: Whatever `purge` raises.
    """
    records = job.records()
    kept_apart = Quarantine(open_store(quarantine))
    done = _done_before(records, _PURGED, kept_apart)
    if done is not None:
        return PurgeReport(done["checkpoint"], kept_apart.store.uri, done["files"], done["bytes"], True)
    checkpoint = kept_apart.checkpoint()
    places = {
        place: name for name, declared in job.queries.items() for place in _places(records, name, declared)
    }
    query = next((name for place, name in places.items() if same_place(place, checkpoint)), None)
    if query is None:
        raise _of_another_job(job, quarantine, checkpoint, "checkpoint")
    with records.operation(OPERATION, by=by):
        report = purge(kept_apart, progress=progress)
        told = {**report.to_dict(), "checkpoint": checkpoint}
        _record(records, _PURGED, query, told, by, why)
    return report


def _places(records: JobControl, name: str, declared: str) -> list[str]:
    known = records.generations(name).all()
    return [declared, *(generation.location for generation in known)]


def _done_before(records: JobControl, kind: str, quarantine: Quarantine) -> Mapping[str, Any] | None:
    """What an earlier try left behind that came to its end; None where there is something to do."""
    event = records.last_event(kind)
    if event is None or "checkpoint" not in event:
        return None
    if not same_place(str(event["quarantine"]), quarantine.store.uri):
        return None
    return None if quarantine.record() is not None or quarantine.is_purging else event


def _of_another_job(job: Job, quarantine: str, checkpoint: str, what: str) -> InputError:
    return InputError(
        f"The quarantine {quarantine} is of {checkpoint}, which is not a {what} of job {job.name}.",
        code="another-job",
        hint="Name the job that it belongs to, or the checkpoint itself.",
    )


@contextmanager
def _held(
    records: JobControl, by: Mapping[str, str], *, stopped: bool
) -> Iterator[tuple[bool, Callable[[], None]]]:
    """Hold the operation lock, and the lease too unless a driver has it; whether the lease is ours."""
    with records.operation(OPERATION, by=by) as operation:
        view = records.lease.settle()
        if view is not None and not view.free and not stopped:
            yield False, operation.check
            return
        with records.lease.held(OPERATION, by=by) as lease:

            def check() -> None:
                operation.check()
                lease.check()

            yield True, check


def _plans(
    job: Job,
    records: JobControl,
    places: Mapping[str, str],
    request: CompactionRequest,
    stopped: bool,
) -> dict[str, CompactionReport]:
    """What would happen now, or with `stopped` once the job was stopped."""
    view = records.lease.view()
    is_free = view is None or view.free
    planned = replace(request, stopped=stopped or is_free)
    against: tuple[RefusedError, ...] = ()
    if stopped and view is not None and not is_free:
        against = (records.lease.refusal(view),)
    elif (doubt := records.lease.doubt(view)) is not None:
        against = (doubt,)
    plans = {name: plan(open_store(place), planned) for name, place in places.items()}
    return {name: _named(job, name, found.having(refusals=against)) for name, found in plans.items()}


def _named(job: Job, name: str, report: CompactionReport) -> CompactionReport:
    return report.having(job=job.savepoint_name(name))


def _record(
    records: JobControl, kind: str, name: str, told: Mapping[str, Any], by: Mapping[str, str], why: str
) -> None:
    with leaving_word(
        f"The work on the quarantine {told['quarantine']} is done, but not recorded as an event of its job",
        "There is no need to do it again.",
    ):
        records.record_event(
            kind,
            query=name,
            files=told["files"],
            bytes=told["bytes"],
            quarantine=told["quarantine"],
            checkpoint=told["checkpoint"],
            missing=told.get("missing", []),
            by=dict(by),
            why=why,
        )


def _queries(job: Job, query: str | None, quarantine: str | None) -> tuple[str, ...]:
    names = job.queries_named(query)
    if quarantine is not None and len(names) > 1:
        raise InputError(
            f"Job {job.name} has several queries, and each needs its own quarantine.",
            code="which-query",
            hint="Name one query, or leave the quarantine out.",
        )
    return names


def _place(job: Job, records: JobControl, name: str) -> str:
    check_records(declared_query(job, name, records))
    generation = records.generation(name)
    location = generation.location if generation is not None else job.queries[name]
    if generation is None and not open_store(location).names("commits"):
        raise NotFoundError(
            f"Job {job.name} was never started: there is nothing at {location}.",
            code="never-started",
            hint=f"Start it first: `streambank job start {job.name}`.",
        )
    return location
