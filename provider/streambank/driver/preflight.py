"""What speaks against starting a query: asked by whoever launches its driver, and by the driver itself.

The launcher asks before anything is created, and again with the operation lock in hand. The driver asks under
its lease: once before it reads the application, and at each start of a query, before Spark writes anything.
So a driver that comes up late, or that its master brings back, starts no query which a launcher would have
refused. Everything here only looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.lease import LeaseView
from streambank.control.marker import Marker, marker_location, read_marker, records_root, service_name
from streambank.control.rollbacks import check_not_rolled_back
from streambank.core.errors import (
    FormatError,
    InputError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.names import QueryRef
from streambank.declaration.declaration import Job
from streambank.driver.spec import LaunchSpec, read_launch
from streambank.repository.catalog import heads
from streambank.repository.header import HEADER_KEY, read_header
from streambank.sinks.file.log import LOG_DIRECTORY, list_log
from streambank.storage import normalize_location, open_store, scheme_of

REPOSITORY_LOST = "repository-lost"
CHECKPOINT_LOST = "checkpoint-lost"
FILES = "files"
"""The kind of an output that Spark's file sink writes, whatever the format."""
UNREAD = frozenset({"console", "memory", "noop"})
"""Kinds of outputs that keep nothing: a query may move from one of them to any other."""
TABLE = "table"
_NEVER_FILES = UNREAD | {"foreach", "foreachBatch", "kafka"}
"""Kinds that Spark never writes by its file sink, whatever the settings."""


@dataclass(frozen=True, slots=True)
class DeclaredQuery:
    """A query of a job, and where it should be found.

    Attributes:
        job: The job.
        name: The query's name, `main` for the only one.
        checkpoint: The declared checkpoint, a URI: the directory of its generation 1.
        control: The job's records.
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


@dataclass(frozen=True, slots=True)
class Output:
    """Where a query is to write, as its application says before it starts.

    Attributes:
        kind: `files` for Spark's file sink; `foreachBatch`, `foreach`, `table`, or the format.
        path: Its directory as a URI; None where it has none.
        name: The table or the topic; None where it has none.
        located: The directory of a table of a file format, which Spark writes by its file sink; None where
            that is not known. It is not recorded: a table has it only once it exists.
    """

    kind: str
    path: str | None = None
    name: str | None = None
    located: str | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, str | None]:
        """As the records of a query carry it."""
        return {"kind": self.kind, "path": self.path, "name": self.name}

    def __str__(self) -> str:
        where = self.path or self.name
        return f"{self.kind} {where}" if where else self.kind


def declared_query(job: Job, name: str, control: JobControl) -> DeclaredQuery:
    """A query of a declared job.

    Args:
        job: The job.
        name: The query's name, `main` for the only one.
        control: The job's records.
    """
    return DeclaredQuery(job.name, name, job.queries[name], control, job.repository)


def launched_query(spec: LaunchSpec, name: str, control: JobControl) -> DeclaredQuery:
    """A query of a driver that was launched.

    Args:
        spec: The launch.
        name: The query's name, `main` for the only one.
        control: The job's records.
    """
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
    refusal = records_lost(query)
    if refusal is not None:
        raise refusal


def records_lost(query: DeclaredQuery) -> RefusedError | None:
    """Why the records of a query cannot be all there are; None where nothing says so.

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
    if marker is None:
        return _beside(query) if current is None else None
    if (marker.job, marker.query) != (query.job, query.name):
        return _of_another(query, marker)
    elsewhere = _runs_elsewhere(query, marker)
    if elsewhere is not None:
        return elsewhere
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
    try:
        marker = read_marker(query.checkpoint)
    except (FormatError, StorageError):
        return None
    store = open_store(query.repository)
    if (
        marker is None
        or marker.repository_id is None
        or service_name(marker.repository) != service_name(store.uri)
    ):
        return None  # none was ever there, or another one is declared now
    try:
        found = read_header(store).id
        # A replica that was copied there has an id of its own, and the job's savepoints.
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
        "--generation --jobs FILE`; or declare another checkpoint and another output; or accept that its "
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
    """Why nothing may be changed of a query whose driver lives by other records; None where none is known.

    Returns:
        An error with the code `checkpoint-of-another-job`.
    """
    try:
        marker = read_marker(query.checkpoint)
    except (FormatError, StorageError):
        return None
    return None if marker is None else _runs_elsewhere(query, marker)


def _runs_elsewhere(query: DeclaredQuery, marker: Marker) -> RefusedError | None:
    """Whether the job that the marker names runs by other records than those of this query."""
    if service_name(f"{marker.control}/{marker.job}") == service_name(query.control.store.uri):
        return None
    view = _lease_at(marker)
    if view is not None and not _is_same(view, query.control.lease.view()):
        view = _lease_at(marker)  # it may have passed on between the two views
    if view is None or _is_same(view, query.control.lease.view()):
        return None
    return RefusedError(
        f"The checkpoint {query.checkpoint} belongs to job {marker.called} with the records at "
        f"{marker.control}. That job is held by {view.describe()} ({view.state}: {view.why}).",
        code="checkpoint-of-another-job",
        hint="Stop that job first, with its own jobs file, or declare another checkpoint.",
    )


def _lease_at(marker: Marker) -> LeaseView | None:
    """The lease among the records that a marker names; None where nobody has it."""
    try:
        view = JobControl.open(marker.control, marker.job).lease.view()
    except StreambankError:
        return None  # gone, as records are that were moved; or not to be reached from here
    return None if view is None or view.free else view


def _is_same(one: LeaseView, other: LeaseView | None) -> bool:
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
    elsewhere = _runs_elsewhere(query, marker)
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


def check_taken_back(query: DeclaredQuery, generation: Generation) -> None:
    """Make sure that no restore has taken a query's sinks back without making a generation for them.

    Raises:
        RefusedError: One has (code `sinks-taken-back`).
    """
    check_not_rolled_back(query.control, query.name, generation)


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
    """Why a query's checkpoint is gone; None where it is there, or where there never was one.

    Args:
        query: The query.
        generation: Its current one; None before the first start.

    Returns:
        The refusal of a start (code `checkpoint-lost`).

    Raises:
        StorageError: The storage cannot be read.
    """
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


def _is_marked(query: DeclaredQuery, generation: Generation) -> bool:
    """Whether the marker says that the query has worked in a generation's directory.

    The records may not: they were lost, and what is there now was left by a restore that came to nothing; or
    the directory counts again.
    """
    try:
        marker = read_marker(query.checkpoint)
    except (FormatError, StorageError):
        return False
    if marker is None or (marker.job, marker.query) != (query.job, query.name):
        return False
    return marker.query_id is not None and service_name(marker.location) == service_name(generation.location)


Check = Callable[[DeclaredQuery, Generation], None]
CHECKS: tuple[Check, ...] = (check_taken_back, check_checkpoint_there)
"""What is asked of a query's generation at each launch and each start, in this order."""


def check_start(query: DeclaredQuery, generation: Generation) -> None:
    """Make sure that a query may go on in its generation.

    Raises:
        RefusedError: One of `CHECKS` speaks against it.
    """
    for check in CHECKS:
        check(query, generation)


# The output, as the arguments of a launch name it.


def check_arguments(query: DeclaredQuery, generation: Generation, args: Sequence[str], folder: str) -> None:
    """Make sure that the arguments name no output in which the query must not go on.

    Args:
        query: The query.
        generation: The generation that is about to be started.
        args: The application's arguments.
        folder: The driver's working directory.

    Raises:
        RefusedError: A restore took the query away from an output that they name (code `old-sink`); or they
            name its old output, whose log has batches, and its checkpoint begins from nothing (`sink-used`);
            or another one stands where it stood at the last launch (`sink-changed`).
    """
    said = {service_name(place) for arg in args for place in places_of(arg, folder)}
    for old, new in generation.new_sinks.items():
        if service_name(old) in said:
            raise RefusedError(
                f"An argument of job {query.job} names the output directory {old}, but its generation "
                f"{generation.number} was restored to write to {new}.",
                code="old-sink",
                hint="Declare the new directory and start again. To go on in the old one, restore a "
                "savepoint of it without a new sink.",
            )
    known = query.facts.get("sink_path") or _marked_sink(query)
    try:
        if isinstance(known, str) and service_name(known) in said:
            check_not_used(query.called, known, generation.location)
        elif isinstance(known, str):
            _check_not_moved(query, generation, args, folder, known)
    except RefusedError:
        raise
    except StreambankError:
        return  # the log cannot be read from here; the driver asks again


def _marked_sink(query: DeclaredQuery) -> str | None:
    try:
        marker = read_marker(query.checkpoint)
    except (FormatError, StorageError):
        return None
    return None if marker is None else marker.sink_path


def _check_not_moved(
    query: DeclaredQuery, generation: Generation, args: Sequence[str], folder: str, old: str
) -> None:
    """Compare with the last launch: where its arguments named the output, these may name another one."""
    facts = query.facts
    if facts.get("generation") != generation.number or facts.get("launch_id") is None:
        return
    try:
        launched = read_launch(query.control, str(facts["launch_id"])).args
    except (NotFoundError, FormatError):
        return  # pruned, or of another version: the driver asks again
    if len(launched) != len(args):
        return
    for was, now in zip(launched, args, strict=True):
        if was != now and service_name(old) in map(service_name, places_of(was, folder)):
            for place in list(places_of(now, folder))[-1:]:
                _check_goes_on(query, Output(FILES, old), place, generation, restored=False)


def check_not_used(called: str, output: str, checkpoint: str) -> None:
    """Begin nothing from nothing in an output whose log has batches: Spark skips them in silence.

    Args:
        called: The query, for the message.
        output: URI of the output directory of a file sink.
        checkpoint: URI of the checkpoint.

    Raises:
        RefusedError: The log has batches, and the checkpoint none (code `sink-used`).
        StreambankError: The log cannot be read: Spark may reach it by means of its own.
    """
    newest = _newest(output) if batches_of(checkpoint).planned is None else None
    if newest is None:
        return
    raise RefusedError(
        f"Query {called} would begin at batch 0 in the empty checkpoint {checkpoint}, but the log of its "
        f"output {output} has batches up to {newest}: Spark would drop what it writes in batches 0 to "
        f"{newest}, without an error.",
        code="sink-used",
        hint="Restore a savepoint into the job's next generation, or name another output. To begin again in "
        f"this one, move its {LOG_DIRECTORY} away: its readers then see only what is written from then on.",
    )


def places_of(arg: str, folder: str) -> Iterator[str]:
    """What an argument may mean as a location: all of it, or what stands behind the first equals sign."""
    for text in (arg, arg.partition("=")[2]):
        if text:
            try:
                yield normalize_location(text if scheme_of(text) != "file" else _absolute(text, folder))
            except InputError:
                continue  # it is no location


def _absolute(text: str, folder: str) -> str:
    return text if text.startswith("file:") else str(Path(folder, text))


def _newest(output: str) -> int | None:
    return max((name.batch for name in list_log(open_store(output))), default=None)


# The output, as the application names it when it starts a query.


def check_output(query: DeclaredQuery, generation: Generation, output: Output) -> str | None:
    """Make sure that a query may write where its application says, before Spark starts it.

    A sink that is recorded for a query never changes silently: another kind of sink needs another generation,
    another directory of a file sink a log that the query can go on from.

    Args:
        query: The query.
        generation: The generation that it goes on in.
        output: Where it is to write.

    Returns:
        Why the log of its file sink could not be asked: the driver may have no means to read there but
        Spark's own. None where nothing is to be asked, or it was.

    Raises:
        RefusedError: It was restored to write elsewhere (code `old-sink`), would begin from nothing in an
            output whose log has batches (`sink-used`), or writes elsewhere than before (`sink-changed`).
    """
    place = output.path or output.located
    new = left_for(place, generation.new_sinks)
    if new is not None:
        raise RefusedError(
            f"The query would write to {place}, but was restored to write to {new}.",
            code="old-sink",
            hint="Let the application write to the new one. To use the old one, restore a savepoint of it.",
        )
    facts = query.facts
    before = _recorded(facts, output)
    if before is not None and before.kind not in UNREAD and generation.number == facts.get("generation"):
        _check_same(query, before, output)
    if output.kind != FILES:
        return _check_log(query, generation, output)
    if output.path is None:
        return None
    moved = before is not None and service_name(before.path) != service_name(output.path)
    try:
        check_not_used(query.called, output.path, generation.location)
        if before is not None and moved:
            restored = generation.number != facts.get("generation")
            _check_goes_on(query, before, output.path, generation, restored)
    except RefusedError:
        raise
    except StreambankError as error:
        if moved and service_name(output.path) not in map(service_name, generation.new_sinks.values()):
            raise
        return error.message
    return None


def left_for(place: str | None, new_sinks: Mapping[str, str]) -> str | None:
    """The output that a query was restored to write to, where `place` is the one that it left.

    Args:
        place: A directory, as a URI; None for none.
        new_sinks: The directories that it left, each with the one that it was restored for.
    """
    if place is None:
        return None
    return next((new for old, new in new_sinks.items() if service_name(old) == service_name(place)), None)


def _check_log(query: DeclaredQuery, generation: Generation, output: Output) -> str | None:
    """What `check_not_used` asks, of an output that Spark may write by its file sink all the same.

    It does so with a table of a file format, and with a format that the application names by its class.
    """
    place = output.located if output.located is not None else _known_log(query, output)
    if place is None:
        return None
    try:
        check_not_used(query.called, place, generation.location)
    except RefusedError:
        raise
    except StreambankError as error:
        return error.message
    return None


def _known_log(query: DeclaredQuery, output: Output) -> str | None:
    """The directory of the file sink by which this very output was written before; None where none was."""
    if output.kind in _NEVER_FILES:
        return None
    facts = query.facts
    known = facts.get("sink_path") or _marked_sink(query)
    if not isinstance(known, str):
        return None
    if output.kind != TABLE:
        return known if service_name(known) == service_name(output.path) else None
    said = facts.get("output")
    if facts.get("sink_path") and isinstance(said, dict) and said.get("kind"):
        return known if (said["kind"], said.get("name")) == (TABLE, output.name) else None
    # A table's directory has its name, in small letters, where the application names no other one.
    table = (output.name or "").rpartition(".")[2].strip("`").lower()
    return known if known.rpartition("/")[2].lower() == table else None


def _recorded(facts: Mapping[str, Any], output: Output) -> Output | None:
    """Where a query wrote last; None where that is not known.

    An older version recorded Spark's sink alone, and Spark has its file sink for tables and for formats of
    any name, too: then only what is certain counts.

    Args:
        facts: What its last driver recorded.
        output: Where it is to write now.
    """
    if facts.get("query_id") is None:
        return None
    path = facts.get("sink_path")
    said = facts.get("output")
    if isinstance(said, dict) and said.get("kind"):
        kind = str(said["kind"])
        return Output(kind, (path if kind == FILES else None) or said.get("path"), said.get("name"))
    if path is not None:
        return Output(FILES, str(path)) if output.kind == FILES or output.kind in _NEVER_FILES else None
    return Output("foreachBatch") if str(facts.get("sink")).startswith("ForeachBatchSink") else None


def _check_same(query: DeclaredQuery, before: Output, output: Output) -> None:
    places = (service_name(before.path), before.name), (service_name(output.path), output.name)
    if before.kind == output.kind and (before.kind == FILES or places[0] == places[1]):
        return
    raise RefusedError(
        f"Query {query.called} would write to {output}, but its checkpoint was written with the sink "
        f"{before}. The new sink would lack the earlier rows, and going back to the old one later would lose "
        "the new rows.",
        code="sink-changed",
        hint="Let it write to the old sink. To move it to another sink on purpose, stop the job with a "
        "savepoint and restore that as its next generation (`streambank restore latest-good --job "
        f"{query.called} --generation`), which may have another sink, or give it a new checkpoint.",
    )


def _check_goes_on(
    query: DeclaredQuery, before: Output, path: str, generation: Generation, restored: bool
) -> None:
    """A file sink that moved: its log must reach as far as the checkpoint, and no further.

    Whoever has just restored a savepoint has said what becomes of an output that is further.
    """
    found = batches_of(generation.location)
    if found.committed is None:
        return
    newest = _newest(path)
    furthest = max(found.planned or 0, found.committed)
    if newest is not None and found.committed <= newest and (restored or newest <= furthest):
        return
    log = "has no log" if newest is None else f"has a log up to batch {newest}"
    old = before.path or str(before)
    raise RefusedError(
        f"Query {query.called} would write to {path}, but has written to {old} up to batch "
        f"{found.committed}, and the new directory {log}: its readers would fail, or miss rows, and the "
        "query would fail later.",
        code="sink-changed",
        hint="Set the old path back. To go on in the new directory, stop the job with a savepoint and "
        f"restore it there: `streambank restore latest-good --job {query.called} --generation --new-sink "
        f"{old}={path}`.",
    )
