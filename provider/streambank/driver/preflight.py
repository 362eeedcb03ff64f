"""What speaks against starting a query: asked by whoever launches its driver, and by the driver itself.

The launcher asks before anything is created, and again with the operation lock in hand. The driver asks under
its lease: once before it reads the application, and at each start of a query, before Spark writes anything.
So a driver that comes up late, or that its master brings back, starts no query which a launcher would have
refused. Everything here only looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.position import batches_of
from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.marker import Marker, marker_location, read_marker, records_root
from streambank.control.rollbacks import check_not_rolled_back
from streambank.core.errors import (
    FormatError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.names import QueryRef
from streambank.declaration.declaration import Job
from streambank.driver.spec import LaunchSpec
from streambank.repository.catalog import heads
from streambank.repository.header import HEADER_KEY, read_header
from streambank.storage import open_store, same_place, service_name

REPOSITORY_LOST = "repository-lost"
CHECKPOINT_LOST = "checkpoint-lost"


@dataclass(frozen=True, slots=True)
class DeclaredQuery:
    """A query of a job, and where it should be found.

    Attributes:
        name: The query's name, `main` for the only one.
        checkpoint: The declared checkpoint, a URI: the directory of its generation 1.
        repository: Where its savepoints are; None where that is not known here.
    """

    job: str
    name: str
    checkpoint: str
    control: JobControl
    repository: str | None = None

    @property
    def called(self) -> str:
        """`job`, or `job/query`."""
        return str(QueryRef.of(self.job, self.name))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What its last driver learnt of it."""
        return self.control.query_facts(self.name) or {}

    @property
    def marker(self) -> Marker | None:
        """The marker of its checkpoint; None where there is none that can be read."""
        try:
            return read_marker(self.checkpoint)
        except (FormatError, StorageError):
            return None


def declared_query(job: Job, name: str, control: JobControl) -> DeclaredQuery:
    """A query of a declared job."""
    return DeclaredQuery(job.name, name, job.queries[name], control, job.repository)


def launched_query(spec: LaunchSpec, name: str, control: JobControl) -> DeclaredQuery:
    """A query of a driver that was launched."""
    current = control.generation(name)
    launched = spec.queries[name]
    base = current.base if current is not None else launched.declared or launched.checkpoint
    return DeclaredQuery(spec.job, name, base, control, spec.repository)


# The records: whether they are those of this query, and all of them.


def check_records(query: DeclaredQuery) -> None:
    """Make sure that the records of a query are not lost, as far as its checkpoint's neighbours tell.

    Raises:
        RefusedError: They are (code `repository-lost`), or the checkpoint belongs to another job
            (`checkpoint-of-another-job`).
    """
    refusal = records_lost(query, settle=True)
    if refusal is not None:
        raise refusal


def records_lost(query: DeclaredQuery, *, settle: bool = False) -> RefusedError | None:
    """Why the records of a query cannot be all there are; None where nothing says so.

    Args:
        settle: Wait until it can be told whether a driver on another host lives by other records: else one
            of which it is not known counts as living.

    Returns:
        An error with the code `repository-lost`, or `checkpoint-of-another-job`.

    Raises:
        StorageError: There are no records, and whether there is a marker cannot be seen.
    """
    # The marker first: a restore switches the generation before it writes the marker.
    marker, unread = None, None
    try:
        marker = read_marker(query.checkpoint)
    except (FormatError, StorageError) as error:
        unread = error
    current = query.control.generation(query.name)
    if unread is not None:
        # A job whose records are there runs on: its marker may lie where this process may not read.
        if current is not None:
            return None
        if isinstance(unread, StorageError):
            raise unread
        return _lost(query, f"and {unread.message}")
    elsewhere = _held_by(marker, query, settle)
    if elsewhere is not None:
        return elsewhere
    if marker is None or not marker.has_worked:
        return _beside(query) if current is None else None
    worked = (
        f"but generation {marker.generation} in {marker.location} was current when the marker "
        f"{marker_location(query.checkpoint)} was last written, at {marker.at}"
    )
    if current is None:
        return _lost(query, worked, marker)
    if marker.generation < current.number:
        return None
    if marker.generation > current.number or service_name(marker.location) != service_name(current.location):
        return RefusedError(
            f"The records of job {query.called} at {query.control.store.uri} are older than its checkpoint: "
            f"they say generation {current.number} in {current.location}, {worked}.",
            code=REPOSITORY_LOST,
            hint=_way_out(query, marker),
        )
    return None


def savepoints_lost(query: DeclaredQuery) -> RefusedError | None:
    """Why the savepoints of a query are lost, where its records are there; None where nothing says so."""
    if query.repository is None:
        return None
    marker = query.marker
    if marker is None:
        return None
    store = open_store(query.repository)
    if marker.repository_id is None or service_name(marker.repository) != service_name(store.uri):
        return None  # none was ever there, or another one is declared now
    try:
        found = read_header(store).id
        # A replica that was copied there has its own id, and the job's savepoints.
        if found == marker.repository_id or next(heads(store, query.called), None) is not None:
            return None
        what = f"is another one ({found}), without a savepoint of the job"
    except NotFoundError:
        what = f"is gone or empty: it has no {HEADER_KEY}"
    except StreambankError:
        return None  # it is damaged, and whoever opens it says so
    return RefusedError(
        f"The repository {store.uri} of job {query.called} {what}, but the marker "
        f"{marker_location(query.checkpoint)} says that repository {marker.repository_id} was there at "
        f"{marker.at}.",
        code=REPOSITORY_LOST,
        hint="Mount it or bring it back, or copy a replica there. To create a new one in its place, with no "
        f"savepoint in it: `streambank job savepoint {query.job} --new-repository`.",
    )


def _lost(query: DeclaredQuery, why: str, marker: Marker | None = None) -> RefusedError:
    before = (
        f" They were at {marker.control}." if marker and marker.control != records_root(query.control) else ""
    )
    return RefusedError(
        f"The records of job {query.called} are gone: there are none at {query.control.store.uri}, "
        f"{why}.{before}",
        code=REPOSITORY_LOST,
        hint=_way_out(query, marker),
    )


def _way_out(query: DeclaredQuery, marker: Marker | None) -> str:
    where = marker.repository if marker is not None and marker.repository else query.repository
    return (
        f"Mount the repository{f' {where}' if where else ''} or bring it back. If it is lost for good, "
        f"restore from a replica: `streambank restore latest-good -r REPLICA --job {query.called} "
        "--generation --jobs FILE`, without `-r` if the repository still has savepoints, and only the "
        "records are lost; or declare another checkpoint and another output; or accept that its "
        f"records are lost: `streambank job start {query.job} --fresh-start` (it goes on in the checkpoint "
        "that was current, if that still exists)."
    )


def _beside(query: DeclaredQuery) -> RefusedError | None:
    """A job without a marker: only a restore makes the directory of a later generation."""
    parent, _, name = query.checkpoint.rpartition("/")
    if marker_location(query.checkpoint) is None:
        return None
    later = re.compile(rf"{re.escape(name)}\.g[0-9]{{4,}}")
    store = open_store(parent)
    for other in reversed(store.names()):
        if later.fullmatch(other) and store.exists(f"{other}/metadata"):
            return RefusedError(
                f"The records of job {query.called} are gone: there are none at {query.control.store.uri}, "
                f"but {parent}/{other} is the directory of a later generation.",
                code=REPOSITORY_LOST,
                hint="Mount the repository or bring it back. If it is lost for good, declare "
                f"{parent}/{other} as the job's checkpoint to go on there, or move it away to begin from "
                "nothing.",
            )
    return None


def unused_checkpoint(declared: str, generation: Generation | None) -> str:
    """That a declared checkpoint has no effect, since the query has worked in another; empty where it has."""
    if generation is None or same_place(generation.base, declared):
        return ""
    return (
        f"The declared checkpoint {declared} has no effect: the query goes on in {generation.location} "
        f"(generation {generation.number})."
    )


def _of_another(query: DeclaredQuery, marker: Marker) -> RefusedError:
    known = query.control.generation(query.name) is not None
    mine = ", although this job's records name it, too" if known else ""
    return RefusedError(
        f"The checkpoint {query.checkpoint} of job {query.called} belongs to job {marker.called}{mine}: its "
        f"marker {marker_location(query.checkpoint)} says so since {marker.at}, and two jobs on one "
        "checkpoint destroy each other's state.",
        code="checkpoint-of-another-job",
        hint=f"Declare another checkpoint. If {marker.called} was renamed, stop it by its old name (its "
        f"records: {marker.control}), and give this job its checkpoint: `streambank job start {query.job} "
        "--fresh-start`.",
    )


def held_elsewhere(query: DeclaredQuery) -> RefusedError | None:
    """Why nothing of a query may be changed; None where nothing says so.

    The marker of its checkpoint is that of another job, or names this job, and a driver lives by other
    records.

    Returns:
        An error with the code `checkpoint-of-another-job`.
    """
    try:
        return _held_by(query.marker, query, True)
    except (FormatError, StorageError):
        return None


def _held_by(marker: Marker | None, query: DeclaredQuery, settle: bool) -> RefusedError | None:
    if marker is None:
        return None
    if marker.has_worked and (marker.job, marker.query) != (query.job, query.name):
        return _of_another(query, marker)
    return _runs_elsewhere(query, marker, settle)  # a driver that has just begun lives, too


def _runs_elsewhere(query: DeclaredQuery, marker: Marker, settle: bool) -> RefusedError | None:
    """Whether the job that the marker names runs by other records than those of this query."""
    if service_name(f"{marker.control}/{marker.job}") == service_name(query.control.store.uri):
        return None
    view = _lease_at(marker)
    if view is not None and not _is_same(view, query.control.lease.view()):
        view = _lease_at(marker, settle)  # it may have passed on between the two views
    if view is None or _is_same(view, query.control.lease.view()):
        return None
    return RefusedError(
        f"The checkpoint {query.checkpoint} belongs to job {marker.called} with the records at "
        f"{marker.control}. That job is held by {view.describe()} ({view.state}: {view.why}).",
        code="checkpoint-of-another-job",
        hint="Stop that job first, with its own jobs file, or declare another checkpoint. If you know that "
        f"it is dead: `streambank job break {marker.job} --why TEXT`, with that jobs file.",
    )


def _lease_at(marker: Marker, settle: bool = False) -> ClaimView | None:
    """The lease among the records that a marker names; None where nobody has it."""
    try:
        lease = JobControl.open(marker.control, marker.job).lease
        view = lease.settle() if settle else lease.view()
        gone = view is None or (view.free and lease.doubt(view) is None)
    except StreambankError:
        return None  # gone, as records are that were moved; or not to be reached from here
    return None if gone else view


def _is_same(one: ClaimView, other: ClaimView | None) -> bool:
    """Whether two views show one lease: a link, a mount or a scheme gives the same records another name.

    A copy of the records shows its own lease as soon as a driver has it.
    """
    if other is None or one.holder is None:
        return False
    return (one.epoch, one.since, one.holder) == (other.epoch, other.since, other.holder)


def check_acceptable(query: DeclaredQuery) -> Marker | None:
    """Make sure that a person may accept what `check_records` refuses; what the marker says, if anything.

    Raises:
        RefusedError: Another job whose marker it is has a driver (code `checkpoint-of-another-job`); or the
            query would go on in another checkpoint than the one that counted last (`repository-lost`).
    """
    try:
        marker = read_marker(query.checkpoint)
    except FormatError:
        marker = None
    if marker is None:
        beside = _beside(query)
        if beside is not None:
            raise beside
        return None
    elsewhere = _runs_elsewhere(query, marker, True)
    if elsewhere is not None:
        raise elsewhere
    current = query.control.generation(query.name)
    location = current.location if current is not None else query.checkpoint
    if is_left(marker) or batches_of(location).planned is None:
        return marker
    raise RefusedError(
        f"Job {query.called} would go on in {location}, an older checkpoint than its last one, "
        f"{marker.location}, which is gone. Its sinks may have later batches, and would drop what it writes "
        "again.",
        code=REPOSITORY_LOST,
        hint=f"Restore a savepoint. To begin from nothing, move {location} away, and name another output.",
    )


def is_left(marker: Marker) -> bool:
    """Whether the checkpoint that a marker names is there: a query that goes on in it loses nothing."""
    return open_store(marker.location).exists("metadata")


# The checkpoint, at the generation that is about to be started.


def check_checkpoint_there(query: DeclaredQuery, generation: Generation) -> None:
    """Start nothing from nothing: a query whose checkpoint has gone would begin again at batch 0.

    A file sink then drops every batch whose number it has seen, silently; other sinks get all rows again.

    Raises:
        RefusedError: The checkpoint is gone (code `checkpoint-lost`).
    """
    lost = checkpoint_lost(query, generation)
    if lost is not None:
        raise lost


def checkpoint_lost(query: DeclaredQuery, generation: Generation | None) -> RefusedError | None:
    """Why a query's checkpoint is gone (code `checkpoint-lost`); None where it is there, or never was one."""
    if generation is None:
        return None
    facts = query.facts
    worked = facts.get("generation") == generation.number and facts.get("query_id") is not None
    worked = worked or _is_marked(query, generation)
    restored = generation.from_savepoint is not None
    if not (worked or restored) or open_store(generation.location).exists("metadata"):
        return None
    why = (
        f"query {query.name} has worked in it"
        if worked
        else f"savepoint {generation.from_savepoint} was restored there"
    )
    return RefusedError(
        f"The checkpoint {generation.location} of job {query.job} is gone or empty, though {why}.",
        code=CHECKPOINT_LOST,
        hint=f"Restore a savepoint: `streambank restore latest-good --job {query.called} --generation`. "
        "To begin from nothing, give the job a new name, a new checkpoint and a new output.",
    )


def check_query_id(query: DeclaredQuery, generation: Generation) -> None:
    """Start no query that has lost its id: a Spark without SPARK-55058 would go on under a new one.

    A sink that knows batches by the query's id (Delta, a ledger) then takes each of them for another one.

    Raises:
        RefusedError: The checkpoint has batches, and no `metadata` (code `query-id-lost`).
    """
    if open_store(generation.location).exists("metadata") or batches_of(generation.location).planned is None:
        return
    raise RefusedError(
        f"The checkpoint {generation.location} of job {query.called} has batches, but its file metadata, "
        "which holds the query's id, is gone. Under a new id, sinks would take batches again that they have.",
        code="query-id-lost",
        hint=f"Restore a savepoint: `streambank restore latest-good --job {query.called} --generation`. "
        "Without one, bring the file back from a copy of the checkpoint. To begin from nothing, give the job "
        "a new name, a new checkpoint and a new output.",
    )


def _is_marked(query: DeclaredQuery, generation: Generation) -> bool:
    """Whether the marker says that the query has worked in a generation's directory.

    The records may not: they were lost, and what is there now was left by a restore that came to nothing; or
    the directory counts again.
    """
    marker = query.marker
    if marker is None or (marker.job, marker.query) != (query.job, query.name):
        return False
    return marker.query_id is not None and service_name(marker.location) == service_name(generation.location)


def check_start(query: DeclaredQuery, generation: Generation) -> None:
    """Make sure that a query may go on in its generation: asked at each launch, and at each start.

    Raises:
        RefusedError: A restore has taken its sinks back without making a generation for them (code
            `sinks-taken-back`); or what `check_checkpoint_there` or `check_query_id` refuses.
    """
    check_not_rolled_back(query.control, query.name, generation)
    check_checkpoint_there(query, generation)
    check_query_id(query, generation)
