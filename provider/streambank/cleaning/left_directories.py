"""Directories that work on a job has left behind: what each is, how large, and what still needs it.

| kind | what and where | what needs it |
|---|---|---|
| `generation` | the declared checkpoint, `<checkpoint>.g000n`; not the one that counts | the way back |
| `unfinished-restore` | a `<checkpoint>.g000n` that was never finished | an operation that works on the job |
| `restored` | beside the checkpoint, with a restore's report beside it | whoever uses the copy |
| `quarantine` | files that `compact` moved | an undo, until the query has committed another batch |
| `output-aside` | `_streambank_aside` in the output of a file sink | savepoints of later batches, anywhere |
| `staging` | below the work location, in the temporary folder here | a command that may still read it |
| `drill` | the copy of a drill that was killed, older than a drill gets | a driver of the copy |

A directory is the job's own where its place and its name are those that are declared (`<checkpoint>`,
`<checkpoint>.g0002`), and its records name it, or a note, a journal or a record inside says so. What records
alone name is not: who may write them must not choose what is removed. Nothing here writes or deletes.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from streambank.checkpoint.files import read_query_id
from streambank.checkpoint.position import batches_of
from streambank.cleaning.left_directory import Kind, LeftDirectories, LeftDirectory
from streambank.cleaning.needs import healing_savepoint, writers
from streambank.compaction.quarantine import Quarantine
from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.marker import read_marker
from streambank.control.operation import Operation
from streambank.control.rollbacks import pending_rollback, taken_back_records
from streambank.core.errors import FormatError, NotFoundError, RefusedError, StreambankError
from streambank.core.json_text import loads
from streambank.core.units import from_epoch_ms, to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.drills.copy_of_job import copy_of, scratch_of
from streambank.drills.left import MARGIN_S, is_of, left_by_drills
from streambank.driver.preflight import declared_query, records_lost
from streambank.recovery.report import REPORT_SUFFIX
from streambank.repository.catalog import heads, listed
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.retention.expired import UNUSABLE, expired_savepoints, load
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.rollback import SetAside, set_aside
from streambank.sinks.unguarded import sink_from_description
from streambank.storage import is_inside, local_path, open_store, same_place, service_name
from streambank.storage.local.trees import is_private, judge
from streambank.storage.store import Store, read_record
from streambank.work.staging import INSPECTED, TEMPORARY, is_repository, is_staging
from streambank.work.target import read_note

AT_A_GLANCE = 1000
"""So many files of a directory are counted at a glance: a page of a listing on S3."""
CLOCKS = timedelta(minutes=10)
"""How far the clocks of the storage and of this machine may be apart."""
IN_USE = timedelta(days=1)
"""Younger staging folders may be those of a command that still runs."""


def left_directories(
    job: Job,
    query: str | None = None,
    *,
    glance: bool = False,
    now: datetime | None = None,
    operation: Operation | None = None,
    records: JobControl | None = None,
) -> LeftDirectories:
    """Find the directories that work on a job has left. What cannot be read is named, and not raised.

    Args:
        glance: Count no more than `AT_A_GLANCE` files of each, and look for quarantines only beside the
            checkpoint: for who looks often.
    """
    records = records or job.records()
    epoch = operation.claim.epoch if operation is not None else None
    found: list[LeftDirectory] = []
    unread: list[tuple[str, str]] = []
    for name in job.queries_named(query):
        search = _Search(job, name, records, glance, now or utc_now(), unread, epoch)
        search.run()
        found += search.found
    # A temporary folder that tells of no query is the same one for each of them.
    once = {one.location: one for one in reversed(found)}
    return LeftDirectories(tuple(reversed(once.values())), tuple(dict.fromkeys(unread)))


@dataclass
class _Search:
    job: Job
    query: str
    records: JobControl
    glance: bool
    now: datetime
    unread: list[tuple[str, str]]
    epoch: int | None
    found: list[LeftDirectory] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    query_id: object = None

    def __post_init__(self) -> None:
        self.called = self.job.savepoint_name(self.query)
        self.current = self.declared = self.job.queries[self.query]

    def run(self) -> None:
        """Look for each kind; one that fails leaves the others."""
        if not self._guarded(f"the records of job {self.job.name}", self._read_records):
            return
        self._guarded(self.declared, self._directories)
        self._guarded("the events of the job", self._quarantines_elsewhere)
        self._guarded("the outputs of the query", self._outputs)
        self._staging()
        self._guarded("copies of drills", self._drills)

    def _guarded(self, what: str, look: Callable[[], None]) -> bool:
        try:
            look()
        except StreambankError as error:
            self.unread.append((what, error.message))
            return False
        return True

    def _read_records(self) -> None:
        self.generations = self.records.generations(self.query).all()
        if self.generations:
            self.current = self.generations[-1].location
            base = self.generations[0].base
            if service_name(base) == service_name(self.declared):
                self.declared = base  # by the name that records and savepoints have of it
        self.query_id = (self.records.query_facts(self.query) or {}).get("query_id")
        view = self.records.operation_lock.view()
        self.busy = ""
        if view is not None and not view.free and view.epoch != self.epoch:
            name = view.holder.details.get("operation") if view.holder else "of an unreadable record"
            self.busy = f"the operation {name}, which works on the job"
        self.pending = pending_rollback(self.records, self.query)
        earlier = len(self.generations) > 1
        self.writers = writers(self.records, self.query, self.now) if earlier else {}

    def _add(
        self,
        kind: Kind,
        location: str,
        since: datetime | None,
        needed_by: str,
        removal: str = "",
        *,
        ours: bool = True,
        number: int | None = None,
    ) -> None:
        # By whichever name of its service: what is found twice would be judged twice, and kept only once.
        if is_inside(self.current, location) or _is_among(location, self.found):
            return
        path, judged, refused = local_path(location), None, None
        if path is not None:
            try:
                judged = judge(path)
            except NotFoundError:
                return
            except RefusedError as error:  # the removal of a link is refused again, where it comes to that
                refused = error if error.code == "not-this-users" else None
        most = AT_A_GLANCE if self.glance else None
        files = bytes_ = newest_ns = 0
        listing = open_store(location).list()
        for info in islice(listing, most):
            files, bytes_ = files + 1, bytes_ + info.size_bytes
            newest_ns = max(newest_ns, info.mtime_ns)
        if not files:
            return
        counted = most is None or next(listing, None) is None
        newest = from_epoch_ms(newest_ns // 1_000_000) if newest_ns else None
        if newest is not None and since is not None and kind == "generation" and newest > since + CLOCKS:
            needed_by = (
                needed_by or f"whatever has written to it at {to_json_time(newest)}, after it was left"
            )
        since = max((one for one in (since, newest) if one is not None), default=None)
        if kind == "staging" and since is not None and self.now - since < IN_USE:
            needed_by = "a command that may still read it: it was written within a day"
        self.found.append(
            LeftDirectory(
                kind,
                self.query,
                location,
                since,
                files,
                bytes_,
                counted,
                needed_by,
                removal or removal_command(location),
                ours,
                number,
                judged,
                refused,
            )
        )

    # Directories in which the query has worked.

    def _directories(self) -> None:
        """Nothing is said of them where it is not certain which one counts."""
        lost = records_lost(declared_query(self.job, self.query, self.records))
        if lost is not None:
            raise lost
        self.records.generations(self.query).check_of(self.generations, self.declared)
        self._earlier_generations()
        self._siblings()

    def _earlier_generations(self) -> None:
        left: dict[str, tuple[datetime, int]] = {}
        for one, following in zip(self.generations, self.generations[1:], strict=False):
            left[one.location] = (following.made_at, one.again or one.number)
        if self.generations:
            left.setdefault(self.declared, (self.generations[0].made_at, 1))
        for location, (since, number) in left.items():
            if location != self.current:
                self._guarded(location, partial(self._earlier_generation, location, since, number))

    def _earlier_generation(self, location: str, since: datetime, number: int) -> None:
        marker = read_marker(self.declared)  # who may write the records does not write that
        if marker is not None and same_place(marker.location, location):
            need = "the marker beside the checkpoint, which calls it the one that counts"
        else:
            need = of_another_job(location, self.called) or self._way_back(location)
        self._add("generation", location, since, need, number=number)

    def _way_back(self, location: str) -> str:
        if not any(owner == self.called for owner, _ in listed(open_store(self.job.repository), self.called)):
            return "the job, which has no savepoint: it would be the only way back"
        here, now = batches_of(location).committed, batches_of(self.current).committed
        # Of any earlier one, not only the last: records alone say which is which, and which one counts.
        if here is not None and (now is None or now <= here):
            return f"the way back from {self.current}, which has not committed a later batch yet"
        writer = self.writers.get(service_name(location))
        if writer:
            return writer
        if self.pending is not None:
            return f"a restore of {self.pending.savepoint} that rolled outputs back and did not finish"
        broken = "" if self.glance else healing_savepoint(self.job.repository, self.called, location)
        if broken:
            return f"savepoint {broken}, which is not whole: a take there may heal it"
        return self.busy

    def _siblings(self) -> None:
        parent, _, stem = self.declared.rstrip("/").rpartition("/")
        if not stem or parent.endswith(("/", ":")):
            return  # the root of its store has nothing beside it
        store = open_store(parent)
        generation = re.compile(rf"{re.escape(stem)}\.g[0-9]{{4,}}")
        quarantine = re.compile(rf"{re.escape(stem)}(\.g[0-9]{{4,}})?\.quarantine-.+")
        for name in store.names():
            if generation.fullmatch(name):
                self._guarded(f"{parent}/{name}", partial(self._unrecorded, f"{parent}/{name}"))
            elif quarantine.fullmatch(name):
                self._guarded(f"{parent}/{name}", partial(self._quarantine, f"{parent}/{name}", beside=True))
            elif name.endswith(REPORT_SUFFIX):
                self._guarded(f"{parent}/{name}", partial(self._restored, store, name))

    def _unrecorded(self, location: str) -> None:
        if _is_among(location, self.generations):
            return
        note = read_note(open_store(location))
        marker = read_marker(location)
        need = self.busy if marker is None else f"job {marker.called}, whose checkpoint it is"
        if self.pending is not None and not need:
            need = f"a restore of {self.pending.savepoint} that rolled outputs back and did not finish"
        ours = note is not None and note.get("job") == self.called
        self._add("generation" if note is None else "unfinished-restore", location, None, need, ours=ours)

    def _restored(self, store: Store, name: str) -> None:
        try:
            report = loads(read_record(store, name))
            job, at = report["job"], f"{store.uri}/{name.removesuffix(REPORT_SUFFIX)}"
        except (ValueError, KeyError, TypeError):
            return  # somebody else's file
        if job != self.called:
            return
        by = report.get("by")
        who = by.get("user") if isinstance(by, Mapping) else None
        need = f"the copy that {who or 'somebody'} restored there"
        marker = read_marker(at)
        if marker is not None:
            need = f"job {marker.called}, whose checkpoint it is"
        self._add("restored", at, None, need)

    # What was moved out of the way.

    def _quarantines_elsewhere(self) -> None:
        if self.glance:
            return
        for record in self.records.events():
            if record.data.get("kind") == "compacted" and record.data.get("query") == self.query:
                location = str(record.data.get("quarantine"))
                self._guarded(location, partial(self._quarantine, location))

    def _quarantine(self, location: str, *, beside: bool = False) -> None:
        quarantine = Quarantine(open_store(location))
        record, need = quarantine.record(), self.busy
        if record is None:
            purging = quarantine.is_purging
            ours = beside and purging and service_name(quarantine.checkpoint()) in self._checkpoints()
            self._add("quarantine", location, None, need, self._purge(location, purging), ours=ours)
            return
        newest = batches_of(record.checkpoint).committed
        gone_on = newest is not None and record.batch is not None and newest > record.batch
        if not gone_on and not quarantine.is_purging and same_place(record.checkpoint, self.current):
            need = "an undo: the query has committed no batch since (streambank compact --undo)"
        done = gone_on or quarantine.won() is not None or quarantine.is_purging
        ours = beside and service_name(record.checkpoint) in self._checkpoints()
        self._add("quarantine", location, record.created_at, need, self._purge(location, done), ours=ours)

    def _checkpoints(self) -> set[str | None]:
        """Every location that the checkpoint of the query has had, by the names of their services."""
        return {service_name(one) for one in (self.declared, *(one.location for one in self.generations))}

    def _purge(self, location: str, by_verb: bool) -> str:
        """The verb refuses what a compaction left that broke off: that goes like any other directory."""
        if not by_verb:
            return removal_command(location)
        return f"streambank compact --job {shlex.quote(self.job.name)} --purge {shlex.quote(location)}"

    def _outputs(self) -> None:
        for location in dict.fromkeys(self._output_locations()):
            self._guarded(location, partial(self._aside, location))

    def _output_locations(self) -> Iterator[str]:
        described = (self.records.query_facts(self.query) or {}).get("sink")
        sink = sink_from_description(described) if isinstance(described, str) else None
        if isinstance(sink, FileSinkCapture):
            yield sink.path
        for one in self.generations:
            if self.job.copy is None:  # the outputs that a copy leaves alone are those of the live job
                yield from one.new_sinks
            yield from one.new_sinks.values()
        note = taken_back_records(self.records, self.query).latest()
        if note is not None and isinstance(note.data.get("sinks"), Mapping):
            yield from note.data["sinks"]
        marker = read_marker(self.declared)
        if marker is not None and marker.called == self.called and marker.sink_path:
            yield marker.sink_path

    def _aside(self, location: str) -> None:
        store = open_store(location)
        for one in set_aside(store):
            need = "a rollback that did not finish: the next restore finishes it"
            if one.finished:
                need = self._restore_that_needs(one) or self.busy
            if not need and self.pending is not None and store.uri in self.pending.outputs:
                need = f"a restore of {self.pending.savepoint} that rolled outputs back and did not finish"
            ours = one.called == self.called  # records alone say that the output is this job's
            self._add("output-aside", f"{store.uri}/{one.folder}", one.begun_at, need, ours=ours)

    def _restore_that_needs(self, aside: SetAside) -> str:
        """Which savepoint's restore brings the files back; empty where none does, here or in a replica.

        A replica that cannot be looked into may hold one.
        """
        begun_at = aside.begun_at + timedelta(seconds=1)  # noted in whole seconds
        later: dict[str, None] = {}
        unknown = ""
        for uri in (self.job.repository, *self.job.replicate.to):
            try:
                store = Repository.open(open_store(uri)).store
                later |= {
                    head.savepoint: None
                    for head in self._restorable(store)
                    if head.job == self.called and head.batch > aside.batch and head.taken_at < begun_at
                }
            except StreambankError as error:
                unknown = f"savepoints that {uri} may hold: {error.message}"
        if not later:
            return unknown
        others = f" (as do those of {len(later) - 1} more)" if len(later) > 1 else ""
        return f"a restore of {next(iter(later))}, which brings its files back{others}"

    def _restorable(self, store: Store) -> Iterator[Manifest]:
        """Manifests, without their files, of savepoints that are listed or can be brought back."""
        yield from heads(store, self.called)
        for copy in expired_savepoints(store):
            if copy.job == self.called:
                with suppress(NotFoundError, *UNUSABLE):
                    yield load(store, copy, files=False)

    # What was laid out for Spark, and not removed.

    def _staging(self) -> None:
        work = self.job.work_location(self.query)
        self._guarded(work, lambda: self._below(work))
        for folder in filter(is_private, sorted(Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"))):
            self._guarded(str(folder), partial(self._below, str(folder)))

    def _below(self, work: str) -> None:
        store = open_store(work)
        for name in store.names():
            if is_staging(name) and (ours := self._is_ours(store.child(name), name)) is not False:
                self._add("staging", f"{store.uri}/{name}", None, "", ours=ours is True)

    def _is_ours(self, store: Store, name: str) -> bool | None:
        """Whether it says so itself, by its note or by the id of the query; None where it may be ours.

        It is not where it says that it is of another query: work locations are shared.
        """
        if is_repository(name):
            whose: set[object] = {head.query_id for head in heads(store, INSPECTED)}
        elif (note := read_note(store)) is not None:
            return None if note.get("job") == INSPECTED else note.get("job") == self.called
        else:
            whose = {_query_id(store)} - {None}
        if not whose or self.query_id is None:
            return None
        if self.query_id not in whose:
            return False
        return True if len(whose) == 1 else None

    # Copies of drills.

    def _drills(self) -> None:
        """Below the folder in which the job's drills write, by the names that they give."""
        folder = scratch_of(self.job, "").rstrip("/")
        for scratch in left_by_drills(folder, self.job.drill.timeout_s + MARGIN_S):
            self._guarded(scratch, partial(self._drill, scratch))

    def _drill(self, scratch: str) -> None:
        view = copy_of(self.job, scratch, {}).records().lease.view()
        lives = view is not None and not view.free
        need = "the driver of the copy, which may still run: the next drill ends it" if lives else ""
        self._add("drill", scratch, None, need, ours=is_of(scratch, self.records))


def of_another_job(location: str, called: str) -> str:
    """Which other job has declared a directory as its checkpoint, by the marker beside it; empty for none.

    Raises:
        FormatError, StorageError: There is a marker that cannot be read.
    """
    marker = read_marker(location)
    return "" if marker is None or marker.called == called else f"job {marker.called}, whose checkpoint it is"


def holds_another_checkpoint(store: Store) -> str:
    """A checkpoint, or the output of a file sink, deep inside a checkpoint; empty where there is none.

    Nothing that Spark writes into a checkpoint has such a folder below its top.
    """
    for info in store.list():
        folders = info.path.split("/")[:-1]
        for number, name in enumerate(folders[1:], start=1):
            if name in ("offsets", "commits", "_spark_metadata"):
                return "/".join(folders[:number])
    return ""


def _is_among(location: str, places: Iterable[LeftDirectory | Generation]) -> bool:
    return service_name(location) in {service_name(one.location) for one in places}


def _query_id(store: Store) -> object:
    try:
        return read_query_id(store)
    except (NotFoundError, FormatError):
        return None


def removal_command(location: str) -> str:
    """The command that removes a directory by hand."""
    path = local_path(location)
    if path is not None:
        return f"rm -r -- {shlex.quote(str(path))}"
    if location.startswith("s3"):
        return f"aws s3 rm --recursive {shlex.quote(re.sub(r'^s3[an]:', 's3:', location))}/"
    return f"hadoop fs -rm -r {shlex.quote(location)}"
