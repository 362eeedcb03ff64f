"""Moving what a job remembers to another place, such as from the repository to beside it.

A copy is made first, under a mark (`moving.json`) that says that it does not count yet. One exclusive create,
`moved.json` in the old place, switches over; only then anything is deleted there. The operation lock and the
lease are held meanwhile, so neither a driver nor another operation writes. Who had opened the old place
before, and gets its lock or its lease later, finds `moved.json` and is refused (control/claims.py). A move
that was killed is done by the next call: from the start, or, after the switch, from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from streambank.code.vouched import follow
from streambank.control.claims import Claim
from streambank.control.control import JobControl
from streambank.control.marker import read_marker, records_root, write_marker
from streambank.control.place import INSIDE, MOVED, MOVING, beside
from streambank.control.records import decode_json, encode_json
from streambank.control.signed import IDENTITY
from streambank.core.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.shape import JsonName, JsonObject
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.storage import service_name
from streambank.storage.local.reserve import RESERVE
from streambank.storage.locations import is_inside, normalize_location, open_store
from streambank.storage.store import Store, chunks, read_record

OPERATION = "move-records"
MOVED_EVENT = "records-moved"
"""The kind of event that is left in the new place."""
_NOT_COPIED = ("bundles/", f"{RESERVE}/")
"""The next driver writes these again."""
_NOT_AS_IT_IS = (MOVED, IDENTITY)
_CLAIMS = ("operation/", "lease/")
"""They stay in the old place as well: who waits for one of them has to find that the records are gone."""


@dataclass(frozen=True, slots=True)
class RecordsMoved(JsonObject):
    """What a move came to.

    Attributes:
        source: Where its records were, a URI; None where they were at `target` already.
    """

    job: str
    source: Annotated[str | None, JsonName("from")]
    target: Annotated[str, JsonName("to")]
    files: int = 0
    bytes: int = 0
    warnings: tuple[str, ...] = ()


def move_records(
    job: Job, *, by: Mapping[str, str], to: str | None = None, why: str = "", wait_s: float = 0.0
) -> RecordsMoved:
    """Move the records of a job that stands still.

    Args:
        to: The control location to move them to; the one beside the job's repository when left out. A
            location that a job does not find by itself has to be declared as `control` afterwards.

    Raises:
        InputError: Nothing is beside the repository (code `no-place-beside`), or the places are inside each
            other (`bad-location`).
        NotFoundError: The job has no records (`never-started`).
        RefusedError: It is meant to run (`not-stopped`), a driver lives (`lease-held`), or the records are
            signed, and there is no key (`signing-key-missing`).
        IntegrityError: They are those of another place (`records-of-another-place`).
        ConflictError: The new place has records (`records-twice`); another operation works on the job
            (`operation-in-progress`), or has broken the lock (`claim-lost`).
        StorageError: A place cannot be read or written.
    """
    root = normalize_location(to) if to is not None else beside(job.repository)
    if root is None:
        raise InputError(
            f"There is no place beside the repository {job.repository} that is sure to be seen with it.",
            code="no-place-beside",
            hint="Name a location, such as another bucket, and declare it as `control` afterwards.",
        )
    target = open_store(root).child(job.name)
    finished = _finish(job, target)
    if finished is not None:
        return finished
    records = job.records()
    source = records.store
    if service_name(source.uri) == service_name(target.uri):
        _check_there(job, records)
        return RecordsMoved(job.name, None, target.uri)
    if is_inside(source.uri, target.uri) or is_inside(target.uri, source.uri):
        raise InputError(
            f"One of {source.uri} and {target.uri} is inside the other.",
            code="bad-location",
            hint="Give a location outside of the job's records.",
        )
    if any(is_inside(root, checkpoint) for checkpoint in job.queries.values()):
        raise InputError(
            f"{root} is inside a checkpoint of job {job.name}.",
            code="bad-location",
            hint="Give a location elsewhere, best on another disk.",
        )
    _check_there(job, records)
    _check_stopped(records)
    records.signer.identity()  # it is signed anew for the new place
    with (
        records.operation(OPERATION, by=by, wait_s=wait_s, any_site=True) as operation,
        records.lease.held(OPERATION, by=by) as lease,
    ):
        _check_stopped(records)
        _begin(job, source, target)
        ours = [_epoch(operation.claim), _epoch(lease)]
        files, size = _copy(source, target, ours)
        records.signer.move_to(JobControl(target, job.name).signer)  # from the switch on they are read there
        operation.check()
        lease.check()
        details = {"at": to_json_time(utc_now()), "by": dict(by), "why": why, "to": root}
        source.write(MOVED, encode_json(details), exclusive=True)
        if not (operation.claim.held() and lease.held()):
            source.delete(MOVED)
            operation.check()
            lease.check()
        warnings = _complete(job, source, target, ours)
    return RecordsMoved(job.name, source.uri, target.uri, files, size, warnings)


def _check_there(job: Job, records: JobControl) -> None:
    if not records.store.names():
        raise NotFoundError(
            f"Job {job.name} has no records: there are none at {records.store.uri}.",
            code="never-started",
            hint="Its first start makes them where they belong; there is nothing to move.",
        )


def _check_stopped(records: JobControl) -> None:
    desired = records.desired()
    if desired is not None and desired.state == "running":
        raise RefusedError(
            f"Job {records.name} is meant to run, and its driver writes records.",
            code="not-stopped",
            hint=f"Stop it first: `streambank job stop {records.name}`.",
        )


def _begin(job: Job, source: Store, target: Store) -> None:
    """Claim the new place: it is empty, or what an earlier call for the same records has left."""
    names = target.names()
    begun = MOVING in names and service_name(str(_said(target, MOVING).get("from")))
    if names and begun != service_name(source.uri):
        raise ConflictError(
            f"There are records of job {job.name} at {target.uri} already.",
            code="records-twice",
            hint=f"Look at the newest files there and at {source.uri}, and move the folder away that is not "
            "the job's; or name another location.",
        )
    if not names:
        target.write(MOVING, encode_json({"at": to_json_time(utc_now()), "from": source.uri}), exclusive=True)
    for info in list(target.list()):
        if info.path != MOVING:
            target.delete(info.path)


def _copy(source: Store, target: Store, left_out: Sequence[str]) -> tuple[int, int]:
    """Copy what is not there yet; how many files, and their bytes.

    What is there stays: after the switch, whoever works in the new place may have the same number already.
    """
    there = {info.path for info in target.list()}
    files = size = 0
    for info in list(source.list()):
        key = info.path
        if key in there or key in _NOT_AS_IT_IS or key.startswith((*_NOT_COPIED, *left_out)):
            continue
        try:
            with source.open(key) as reader:
                target.write(key, chunks(reader), exclusive=True)
        except NotFoundError:
            continue  # it was pruned meanwhile
        except ConflictError as error:
            if error.code != "exists":
                raise
            continue
        copied = target.stat(key).size_bytes
        if copied != info.size_bytes:
            raise StorageError(
                f"{key} in {target.uri} has {copied} bytes instead of {info.size_bytes}.",
                code="io-error",
                hint="The records count where they were. Try again.",
            )
        files, size = files + 1, size + copied
    return files, size


def _root(store: Store) -> str:
    return store.uri.rpartition("/")[0]


def _epoch(claim: Claim) -> str:
    return claim.records.key(claim.epoch).removesuffix(".json")


def _finish(job: Job, target: Store) -> RecordsMoved | None:
    """Do the rest of a move that broke off after its switch; None where there was none."""
    if not target.exists(MOVING):
        return None
    said = service_name(str(_said(target, MOVING).get("from")))
    roots = [f"{job.repository}/{INSIDE}", beside(job.repository), job.control]
    places = [open_store(root).child(job.name) for root in roots if root is not None]
    source = next((place for place in places if service_name(place.uri) == said), None)
    if source is None or not source.exists(MOVED):
        return None
    return RecordsMoved(job.name, source.uri, target.uri, warnings=_complete(job, source, target, _CLAIMS))


def _complete(job: Job, source: Store, target: Store, left_out: Sequence[str]) -> tuple[str, ...]:
    """What is left to do after the switch; why some of it could not be done."""
    _copy(source, target, left_out)  # what was recorded beside the lock meanwhile: a savepoint, an alert
    moved, said = JobControl(target, job.name), _said(source, MOVED)
    JobControl(source, job.name).signer.move_to(moved.signer)
    fact = {name: said.get(name) for name in ("by", "why", "to")} | {"source": _root(source)}
    last = moved.last_event(MOVED_EVENT)
    if last is None or any(last.get(name) != value for name, value in fact.items()):
        moved.record_event(MOVED_EVENT, **fact)
    warnings = tuple(_mark(job, source, moved, said.get("by") or {}))
    follow(JobControl(source, job.name), moved)
    _tidy(source)
    target.delete(MOVING)
    return warnings


def _said(store: Store, key: str) -> Mapping[str, Any]:
    return decode_json(read_record(store, key), f"{store.uri}/{key}")


def _mark(job: Job, source: Store, moved: JobControl, by: Mapping[str, str]) -> Iterator[str]:
    """Let the markers beside the checkpoints name the new place; why some could not."""
    before = service_name(_root(source))
    for query, checkpoint in job.queries.items():
        try:
            marker = read_marker(checkpoint)
            if marker is not None and marker.job == job.name and service_name(marker.control) == before:
                write_marker(checkpoint, replace(marker, control=records_root(moved), by=dict(by)))
        except StreambankError as error:
            yield f"The marker of query {query} still names the old place: {error.message}"


def _tidy(source: Store) -> None:
    """Remove what was moved; a process that had opened the old place finds the claims and `moved.json`."""
    for info in list(source.list()):
        if info.path != MOVED and not info.path.startswith(_CLAIMS):
            source.delete(info.path)
    source.prune()
