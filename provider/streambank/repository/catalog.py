"""The catalog: which savepoints a repository holds.

It is the repository itself, listed; there is nothing beside it to keep in step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from streambank.core.errors import (
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StreambankError,
)
from streambank.core.json_text import is_whole_number
from streambank.core.names import QueryRef, check_name
from streambank.core.shape import HIDDEN, JsonName, encode
from streambank.repository.manifest import Manifest, decode_head, glance, nothing
from streambank.repository.marks import PIN, RESTORED, UNREADABLE, Marks, is_pinned
from streambank.repository.names import names_there
from streambank.storage.store import FileInfo, Store, chunks

LATEST, LATEST_GOOD = "latest", "latest-good"
"""Names that stand for a savepoint: see `references.py`."""
EXPIRED = "expired"
"""Folder of the copies of expired manifests, by job and savepoint."""
_GLANCE_BYTES = 64 << 10
_NAMED = 5
"""How many names a message gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointSummary:
    """One savepoint as a listing shows it.

    Attributes:
        error: Why its manifest cannot be used; None for a good one. Where it is set, what follows is empty.
        batch: The committed batch after which a restored query goes on.
        restored: It was made from another one, and a job went on from it.
        rejected: Its rehearsal has not passed, and no job went on from it: only its whole id or its name
            means it.
        rehearsed_at: When the newest mark of its rehearsal was made, in UTC; None for none, or a damaged one.
        pinned: Whether retention leaves it alone; a pin mark that cannot be read counts as one.
        verified_ok: Whether no damage was found then, and none that hashing found before still stands.
        hashed_since: Every byte of it has been hashed since then, in UTC; None where some never were.
    """

    savepoint: str
    job: str
    error: StreambankError | None = None
    batch: int | None = None
    query_id: str = ""
    taken_at: datetime | None = None
    bytes: int = 0
    file_count: Annotated[int, JsonName("files")] = 0
    new_bytes: int = 0
    watermark_ms: int | None = None
    note: str = ""
    names: tuple[str, ...] = ()
    checkpoint: str = ""
    derived_from: str | None = None
    restored: Annotated[bool, HIDDEN] = False
    rejected: bool = False
    rehearsed_at: Annotated[datetime | None, HIDDEN] = None
    pinned: bool = False
    verified_at: datetime | None = None
    verified_level: str = ""
    verified_ok: bool | None = None
    hashed_since: datetime | None = None
    mark_errors: tuple[StreambankError, ...] = ()
    stats: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=nothing)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "verified_level": self.verified_level or None,
            "error": self.error.message if self.error else None,
            "mark_errors": [error.message for error in self.mark_errors],
        }


def manifest_key(job: str, savepoint: str) -> str:
    """Where a manifest lies in its repository.

    Raises:
        InputError: One of the names is not allowed (code `bad-name`).
    """
    QueryRef.parse(job)
    return f"savepoints/{job}/{check_name(savepoint, 'savepoint')}.json"


def listed(store: Store, job: str | None = None) -> list[tuple[str, str]]:
    """Job and id of every manifest, damaged or not, in order of their names.

    Args:
        job: Only this one's: for `job` its queries' too, for `job/query` that query's.
    """
    if job is not None:
        QueryRef.parse(job)
    found = []
    for info in store.list("savepoints/" + job if job else "savepoints"):
        place, _, name = info.path.removeprefix("savepoints/").rpartition("/")
        if name.endswith(".json") and _is_job(place):
            found.append((place, name.removesuffix(".json")))
    return sorted(found)


def settle_listed(store: Store, job: str) -> None:
    """Make sure that those savepoints of a job that can be seen stay, whoever died while it listed one."""
    store.settle_names([f"savepoints/{job}"])


def require_any(store: Store, job: str | None) -> None:
    """Make sure that there is a savepoint of a job: its name may be mistyped, and then all of none is well.

    Raises:
        InputError: The name is not allowed (code `bad-name`).
        NotFoundError: There is none (code `no-such-savepoint`).
    """
    if not listed(store, job):
        raise none_of(store, job)


def none_of(store: Store, job: str | None) -> NotFoundError:
    """The error of a job, or a repository, that has no savepoint, or only rejected ones."""
    if job and (
        rejected := [
            head.savepoint for head in heads(store, job) if head.job == job and is_rejected(store, head)
        ]
    ):
        return only_rejected(job, rejected)
    jobs = sorted({one for one, _ in listed(store)}) if job else []
    return NotFoundError(
        f"There is no savepoint{f' of {job}' if job else ''} in {store.uri}.",
        code="no-such-savepoint",
        hint=f"There are savepoints of {some(jobs)}." if jobs else "Take one, or name another repository.",
    )


def only_rejected(job: str, rejected: Sequence[str]) -> NotFoundError:
    """The error of what could mean none but savepoints whose rehearsal has not passed."""
    return NotFoundError(
        f"Of {job} only savepoints whose rehearsal has not passed could be meant: {some(rejected)}.",
        code="no-such-savepoint",
        hint="Only its whole id or its name means such a savepoint. Give that, or take another one.",
    )


def some(names: Sequence[str]) -> str:
    """The first few names, and that there are more, for messages."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def summarize(store: Store, job: str | None = None) -> Iterator[SavepointSummary]:
    """Every savepoint, by job and then by age; damaged ones, with their `error`, first within their job.

    Raises:
        InputError: The job's name is not allowed (code `bad-name`).
    """
    if job is not None:
        QueryRef.parse(job)
    marks, there = _marks(store, job), listed(store, job)
    known = set(there)
    names, recorded = names_there(store, job, lambda *which: which in known)
    found = (
        summary_of(store, *which, marks.get(which, ()), names.get(which, ()), recorded) for which in there
    )
    yield from sorted(
        (it for it in found if it),
        key=lambda it: (it.job, it.taken_at.timestamp() if it.taken_at else 0.0, it.savepoint),
    )


def candidates(store: Store, job: str) -> list[SavepointSummary]:
    """What can be chosen of a job without its id or its name: readable and not rejected, oldest first.

    Args:
        job: `job`, without its queries, or `job/query`.

    Raises:
        InputError: The job's name is not allowed (code `bad-name`).
    """
    found = (summary for summary in summarize(store, job) if summary.job == job)
    return [summary for summary in found if summary.error is None and not summary.rejected]


def candidate_heads(store: Store, job: str) -> Iterator[Manifest]:
    """The same by the beginnings of the manifests, newest batch first; see `heads`."""
    return (head for head in heads(store, job) if head.job == job and not is_rejected(store, head))


def read_head(store: Store, job: str, savepoint: str) -> Manifest:
    """A manifest without its files, its seal checked.

    Raises:
        NotFoundError: There is no such savepoint (code `no-such-savepoint`).
        IntegrityError, FormatError: It cannot be used.
    """
    what = manifest_name(job, savepoint)
    try:
        with store.open(manifest_key(job, savepoint)) as reader:
            manifest = decode_head(chunks(reader), what)
    except NotFoundError as error:
        raise no_such_savepoint(job, savepoint) from error
    return check_place(manifest, job, savepoint)


def heads(store: Store, job: str) -> Iterator[Manifest]:
    """The savepoints of a job without their files, newest batch first; damaged ones are left out.

    Only as much is read as it takes to choose one: who counts on what a head says loads the savepoint. For
    `job` those of its queries are among them.
    """
    for of_job, savepoint in sorted(
        listed(store, job), key=lambda which: (batch_of_id(which[1]), which[1]), reverse=True
    ):
        head = glimpse(store, of_job, savepoint)
        if head is not None:
            yield head


def glimpse(store: Store, job: str, savepoint: str) -> Manifest | None:
    """A savepoint by the beginning of its manifest, without its files; None where that is damaged or gone."""
    try:
        return read_glance(store, job, savepoint)
    except (NotFoundError, IntegrityError, FormatError):
        return None


def read_glance(store: Store, job: str, savepoint: str) -> Manifest:
    """As `read_head`, by the beginning of the manifest where that is enough: its seal is then not checked."""
    try:
        beginning = store.read(manifest_key(job, savepoint), 0, _GLANCE_BYTES)
    except NotFoundError as error:
        raise no_such_savepoint(job, savepoint) from error
    head = glance(beginning, manifest_name(job, savepoint))
    return check_place(head, job, savepoint) if head else read_head(store, job, savepoint)


def distrusted(store: Store, job: str) -> bool:
    """Whether the last verification of any savepoint of a job found damage.

    One that was expired for it counts as long as it can be brought back: others may share what is damaged.
    """
    there = set(listed(store, job))
    return any(
        which in there or (all(which) and store.names("/".join((EXPIRED, *which))))
        for which in _verified_damaged(store, job)
    )


def found_damaged(store: Store, job: str | None = None) -> Iterator[tuple[str, str]]:
    """Job and id of each listed savepoint whose last verification found damage; only marks are read."""
    there = set(listed(store, job))
    yield from (which for which in _verified_damaged(store, job) if which in there)


def _verified_damaged(store: Store, job: str | None) -> Iterator[tuple[str, str]]:
    """The same of savepoints that have marks, whether or not they are listed."""
    for which, names in _marks(store, job).items():
        verified = Marks(store, *which, names).readable_verification()
        if verified is not None and not verified.ok:
            yield which


def is_rejected(store: Store, head: Manifest) -> bool:
    """Whether the rehearsal of a savepoint has not passed, and no job went on from it."""
    return head.derived_from is not None and Marks(store, head.job, head.savepoint).rehearsal()[0]


def newest_first(summaries: Sequence[SavepointSummary]) -> list[SavepointSummary]:
    """Savepoints of one job by how new their data is, not by when they were taken; without rejected ones.

    A savepoint of an older batch may well be taken after that of a newer one. Within one checkpoint the
    batch tells which is newer; of two checkpoints (a restore begins another one), the one with the last
    savepoint. What was made from a savepoint, with other state, comes after it until a job goes on from it,
    and then before it.

    Args:
        summaries: Readable ones, oldest first by when they were taken.
    """
    last_of: dict[tuple[str, str], int] = {}
    for number, one in enumerate(summaries):
        if one.derived_from is None or one.restored:
            last_of[one.checkpoint, one.query_id] = number

    def newness(numbered: tuple[int, SavepointSummary]) -> tuple[int, int, int, int]:
        number, one = numbered
        rank = 1 if one.derived_from is None else 2 * one.restored
        of_checkpoint = last_of.get((one.checkpoint, one.query_id), -1)
        return of_checkpoint, one.batch or 0, rank, number if one.restored else -number

    return [one for _, one in sorted(enumerate(summaries), key=newness, reverse=True) if not one.rejected]


def manifest_name(job: str, savepoint: str) -> str:
    """What messages call a savepoint's manifest."""
    return f"manifest of the savepoint {savepoint} of {job}"


def no_such_savepoint(job: str, savepoint: str) -> NotFoundError:
    """The error of a savepoint that is not there."""
    return NotFoundError(
        f"There is no savepoint {savepoint} of {job}.",
        code="no-such-savepoint",
        hint="List the savepoints to see those that are there: this one is gone, or was never taken.",
    )


def check_place(manifest: Manifest, job: str, savepoint: str) -> Manifest:
    """The same manifest, if it is the one of this job and id.

    Raises:
        IntegrityError: It is another one's (code `record-damaged`).
    """
    if (manifest.job, manifest.savepoint) != (job, savepoint):
        raise IntegrityError(
            f"{manifest_name(job, savepoint)} holds the manifest of {manifest.savepoint} of {manifest.job}.",
            code="record-damaged",
            hint="The file was moved or renamed. Use another savepoint.",
        )
    return manifest


def _marks(store: Store, job: str | None) -> dict[tuple[str, str], list[str]]:
    """Names of the marks of each savepoint."""
    marks: dict[tuple[str, str], list[str]] = {}
    for info in store.list("marks/" + job if job else "marks"):
        place, _, name = info.path.removeprefix("marks/").rpartition("/")
        of_job, _, savepoint = place.rpartition("/")
        marks.setdefault((of_job, savepoint), []).append(name)
    return marks


def batch_of_id(savepoint: str) -> int:
    """The batch that an id begins with, which may have grown beyond six digits; -1 for another id."""
    digits = savepoint.partition("-")[0].removeprefix("b")
    return int(digits) if is_whole_number(digits) else -1


def _is_job(place: str) -> bool:
    try:
        QueryRef.parse(place)
    except InputError:
        return False
    return True


def summary_of(
    store: Store,
    job: str,
    savepoint: str,
    marks: Iterable[str],
    given: tuple[str, ...],
    recorded: Set[tuple[str, str]],
    head: Callable[[Store, str, str], Manifest] = read_head,
) -> SavepointSummary | None:
    """One savepoint; None where it was deleted since it was listed.

    Args:
        recorded: Names that have records, by job: what a manifest says of these does not count.
        head: Reads the manifest without its files.
    """
    found = Marks(store, job, savepoint, marks)
    errors: list[StreambankError] = []
    pinned, verified = False, None
    try:
        pinned = is_pinned(found.newest(PIN))
    except UNREADABLE as error:
        errors.append(error)
        pinned = True
    try:
        verified = found.verification()
    except NotFoundError:
        pass  # a sweep has removed it since it was listed, beside an undelete: nothing is known any more
    except UNREADABLE as error:
        errors.append(error)
    try:
        manifest = head(store, job, savepoint)
    except NotFoundError:
        return None
    except (IntegrityError, FormatError, InputError, StorageError) as error:
        if isinstance(error, StorageError) and error.code not in ("no-permission", "io-error"):
            raise  # the place as a whole cannot be read
        return SavepointSummary(
            savepoint=savepoint,
            job=job,
            error=error,
            names=given,
            pinned=pinned,
            mark_errors=tuple(errors),
        )
    rejected, rehearsed_at = found.rehearsal()
    own = (manifest.name,) if manifest.name and (job, manifest.name) not in recorded else ()
    return SavepointSummary(
        savepoint=savepoint,
        job=job,
        batch=manifest.batch,
        query_id=manifest.query_id,
        taken_at=manifest.taken_at,
        bytes=manifest.bytes,
        file_count=manifest.file_count,
        new_bytes=manifest.stats.get("new_bytes", 0),
        watermark_ms=manifest.watermark_ms,
        note=manifest.note,
        names=(*given, *own),
        checkpoint=manifest.checkpoint,
        derived_from=manifest.derived_from,
        restored=found.has(RESTORED),
        rejected=rejected,
        rehearsed_at=rehearsed_at,
        pinned=pinned,
        verified_at=verified.at if verified else None,
        verified_level=verified.level if verified else "",
        verified_ok=verified.ok if verified else None,
        hashed_since=verified.coverage.since if verified else None,
        mark_errors=tuple(errors),
        stats=manifest.stats,
    )


def newest_good(
    store: Store, job: str, most: int, *, leave_out: Callable[[Manifest], object] = lambda head: False
) -> list[Manifest]:
    """The newest candidates that no verification found damaged, newest first, without their files.

    Only manifests that were written last, and those of the highest batches, are looked into; after a restore
    these are not the same. Where the storage does not tell when files were written, all are.

    Args:
        job: `job`, without its queries, or `job/query`.
        leave_out: Which ones are none, such as those of other lines.

    Raises:
        InputError: The name is not allowed (code `bad-name`).
    """
    others = 0
    while True:  # rejected ones, and those that are left out, take no place from others
        there = recent_heads(store, job, most + others)
        found = [head for head in there if not (is_rejected(store, head) or leave_out(head))]
        if len(there) - len(found) <= others:
            break
        others = len(there) - len(found)
    found = newest_heads(store, found)
    return [head for head in found if not _is_distrusted(store, head)][:most]


def recent_heads(store: Store, job: str, most: int = 3) -> list[Manifest]:
    """The heads of the manifests written last, and of those of the highest batches, the newest first.

    However many savepoints there are, no more is read. Where the storage does not tell when files were
    written, all are.

    Args:
        job: `job`, without its queries, or `job/query`.
    """
    files = savepoint_files(store, job)
    ids = newest_ids(files, most) if all(info.mtime_ns > 0 for info in files.values()) else files
    there = [head for savepoint in ids if (head := glimpse(store, job, savepoint)) is not None]
    return sorted(there, key=lambda head: (head.taken_at, head.batch), reverse=True)


def savepoint_files(store: Store, job: str) -> dict[str, FileInfo]:
    """The manifests of `job`, without its queries, or of `job/query`, by the ids of their savepoints."""
    folder = manifest_key(job, "x").removesuffix("x.json")
    files = {info.path.removeprefix(folder): info for info in store.list(folder.rstrip("/"))}
    return {
        file.removesuffix(".json"): info
        for file, info in files.items()
        if file.endswith(".json") and "/" not in file
    }


def newest_heads(store: Store, heads: Sequence[Manifest]) -> list[Manifest]:
    """Savepoints of one job, the newest first as in `newest_first`: a clock that jumped decides nothing."""
    by_id = {head.savepoint: head for head in sorted(heads, key=lambda head: (head.taken_at, head.batch))}
    aged = [
        SavepointSummary(
            savepoint=head.savepoint,
            job=head.job,
            batch=head.batch,
            query_id=head.query_id,
            taken_at=head.taken_at,
            checkpoint=head.checkpoint,
            derived_from=head.derived_from,
            restored=head.derived_from is not None and Marks(store, head.job, head.savepoint).has(RESTORED),
        )
        for head in by_id.values()
    ]
    return [by_id[head.savepoint] for head in newest_first(aged)]


def newest_ids(files: Mapping[str, FileInfo], most: int) -> list[str]:
    """Of the savepoints of one job those that were written last, and those of the highest batches."""
    by_time = sorted(files, key=lambda savepoint: files[savepoint].mtime_ns)[-most:]
    return list(dict.fromkeys((*by_time, *sorted(files)[-most:])))


def _is_distrusted(store: Store, head: Manifest) -> bool:
    verified = Marks(store, head.job, head.savepoint).readable_verification()
    return verified is not None and not verified.ok
