"""A copy of a checkpoint as a savepoint: made by `cp -r`, rsync, distcp or a backup.

Such a copy is no moment of the query: files that were listed first may have been gone when their turn came.
So its newest batch that is whole is looked for: its closure is there, no state file is cut off, every byte is
stored, and Spark's own checksums agree. Only then the savepoint counts, and what says why newer batches could
not be used is part of the answer. Its time is that of the batch, not that of the import, so its age is true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.logs import parse_offsets
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.state.cut_off import cut_off
from streambank.core.errors import (
    ConflictError,
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
)
from streambank.core.shape import encode
from streambank.core.units import from_epoch_ms, say_count, utc_now
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.savepoint.verify import checksum_findings
from streambank.storage import same_place
from streambank.storage.store import Store
from streambank.work.executor import DEFAULT_PACE, Pace

REASON = "import"
"""What the savepoint says of why it was taken."""
_STREAMS = (Kind.DELTA, Kind.SNAPSHOT, Kind.CHANGELOG)
_SPEAKS_OF_ALL = frozenset(
    {
        "another-query",
        "no-committed-batch",
        "not-a-checkpoint",
        "not-this-sink",
        "other-savepoint",
        "sink-log-not-retained",
        "taken-without-sink",
    }
)
"""Codes of errors that no older batch would change."""


@dataclass(frozen=True, slots=True)
class SkippedBatch:
    """A batch of the copy that is not whole."""

    batch: int
    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to.

    Attributes:
        batch_at: When the batch was planned, by the clock of its driver.
        passed_over: Newer batches of the copy that are not whole, newest first.
    """

    taken: TakeResult
    source: str
    batch_at: datetime
    passed_over: tuple[SkippedBatch, ...]

    def to_dict(self) -> dict[str, Any]:
        found = encode(self)
        return {**found.pop("taken"), **found}


def import_copy(request: TakeRequest, *, pace: Pace = DEFAULT_PACE) -> Imported:
    """Make the newest whole batch of a copy, or the one asked for, a savepoint; the copy is only read.

    Raises:
        NotFoundError: No batch of the copy is whole (code `no-whole-batch`), or it is no checkpoint.
        ConflictError: It is of another query than the job's savepoints (`another-query`).
        StreambankError: Whatever else `take` raises; and of the batch that was asked for, why it is not
            whole.
    """
    store = request.checkpoint
    reader = CheckpointReader(store)
    reader.query_id()
    planner = ClosurePlanner(CheckpointIndex.build(reader.listing()), store.read)
    passed: list[SkippedBatch] = []
    batches = [request.batch] if request.batch is not None else sorted(planner.index.commits, reverse=True)
    for batch in batches:
        try:
            return replace(_import(request, planner, batch, pace), passed_over=tuple(passed))
        except (FormatError, NotFoundError, IntegrityError, ConflictError) as error:
            if request.batch is not None or error.code in _SPEAKS_OF_ALL:
                raise
            if isinstance(error, FormatError) and error.code.startswith("unknown-"):
                raise
            passed.append(SkippedBatch(batch, error.code, error.message))
    if not passed:
        raise NotFoundError(
            f"No batch of {store.uri} is committed.",
            code="no-committed-batch",
            hint="Name the directory that holds metadata, offsets and commits.",
        )
    raise NotFoundError(
        f"None of {say_count(len(passed), 'committed batch')} of {store.uri} is whole. Batch "
        f"{passed[0].batch}: {passed[0].why}",
        code="no-whole-batch",
        hint="The files of a query that runs vanish while they are copied: take a savepoint of the live "
        "checkpoint instead, or copy it while the query is stopped.",
    )


def _import(request: TakeRequest, planner: ClosurePlanner, batch: int, pace: Pace) -> Imported:
    store = request.checkpoint
    closure = planner.plan(batch, request.closure)
    for file in closure.files:
        if classify(file.path).kind in _STREAMS and (why := cut_off(file.path, file.size_bytes, store.read)):
            raise _damaged(f"{file.path} {why}.")
    key = f"offsets/{batch}"
    planned_ms = parse_offsets(store.read(key), key).timestamp_ms
    moment = (from_epoch_ms(planned_ms) if planned_ms > 0 else None) or utc_now()
    asked = replace(
        request,
        batch=batch,
        taken_at=min(moment, utc_now()),
        max_replans=0,
        lease_epoch=None,
        taken_by={**request.taken_by, "reason": REASON},
        before_commit=lambda manifest: _check(request.repository, manifest),
    )
    return Imported(take(asked, pace=pace), store.uri, moment, ())


def _check(repository: Repository, manifest: Manifest) -> None:
    """Every byte is stored: now Spark's checksums must agree, before the savepoint counts."""
    for finding in checksum_findings(repository, {entry.path: entry for entry in manifest.files}):
        raise _damaged(f"{finding.file}: {finding.cause}")


def _damaged(what: str) -> IntegrityError:
    return IntegrityError(what, code="copy-damaged", hint="Copy it again, or import an older batch.")


def check_copy(store: Store, query_id: object, *, live: str | None) -> None:
    """Make sure that a location is a copy of a query's checkpoint, before a repository is made for nothing.

    Raises:
        InputError: It is that checkpoint (code `not-a-copy`).
        ConflictError: It is of another query (`another-query`).
    """
    if live is not None and same_place(store.uri, live):
        raise InputError(
            f"{store.uri} is the checkpoint in which the query works, not a copy of it.",
            code="not-a-copy",
            hint="Take a savepoint of it instead: that only reads it, and the query may run.",
        )
    found = CheckpointReader(store).query_id()
    if isinstance(query_id, str) and query_id != found:
        raise ConflictError(
            f"The copy {store.uri} is of query {found}, but the job's query is {query_id}.",
            code="another-query",
            hint="Give it another job name, or give --new-query if the job started from nothing.",
        )
