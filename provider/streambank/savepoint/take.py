"""Taking a savepoint of a query while it runs.

Plan the closure of a committed batch, hold its files, copy those whose bytes the repository does not have,
look again whether any of them moved, and create the manifest: that conditional create is the only commit
point. A file that went away, or the job's lease changing hands, means another plan on a newer batch, with
everything kept that has arrived.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from streambank.checkpoint.closure import plan_closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.choices import CLOSURE_KINDS, ClosureKind
from streambank.core.environment import user_name
from streambank.core.errors import (
    ConflictError,
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    StreambankError,
    check_choice,
)
from streambank.core.names import ASKER, QueryRef, is_same_task
from streambank.core.python310 import UTC
from streambank.core.shape import MILLIS, encode
from streambank.core.units import say_count_are
from streambank.repository.catalog import distrusted, heads, settle_listed
from streambank.repository.manifest import FileEntry, Manifest, savepoint_id
from streambank.repository.names import check_savepoint_name
from streambank.repository.references import check_name_free, holder_of, name_taken, recorded_name
from streambank.repository.repository import ObjectWriter, Repository
from streambank.savepoint.lost_state import Reported, check_state_is_there
from streambank.savepoint.plan import (
    Arrived,
    Budget,
    TakePlan,
    check_is_of,
    check_objects,
    check_same,
    forget_lost,
    from_newest,
    heal,
    lacking_objects,
    make_plan,
)
from streambank.savepoint.sinks import (
    Captured,
    SinkCapture,
    SourceCapture,
    capture_files,
    capture_rest,
    described,
    require_sinks,
)
from streambank.savepoint.warnings import first_said, lacks, other_note
from streambank.storage import service_name
from streambank.storage.local.modes import openness
from streambank.storage.store import Store
from streambank.work.copy import CHECKPOINT, Copying, CopyTask, look, moved
from streambank.work.executor import DEFAULT_PACE, Pace
from streambank.work.pace import LOCK, Meter, counted

_log = logging.getLogger(__name__)

_PLAN_AGAIN = ("checkpoint-moved", "objects-condemned", "sink-moved", "size-changed")


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """What a take is asked for.

    Attributes:
        sinks_found: Nobody named `sinks`: they were found, so a savepoint that is there without them is no
            conflict, and one that cannot be saved is a candidate.
        sink_candidates: Output directories that may be sinks, and are not saved.
        name: A name that is unique within the job; empty for none. It exempts it from nothing.
        taken_by: Who takes it and why; user and host are added. What it says as `asker` (`ASKER`) tells
            another try of the same task from a person who asks once more: a try that finds its name given by
            the try before ends with that savepoint, and a later round takes the name along.
        new_query: The query id may be another one than that of the job's savepoints.
        application, conf: Fingerprints, where they are known.
        derived_from: The checkpoint was made from this savepoint of the same repository, which is held: it
            is of the same batch with other state. What that says of sinks, application and the checkpoint
            it was taken from is true of the new one, too.
        taken_at: When the checkpoint was what it is, for a copy; None for the moment of the plan.
        restored_from: The savepoint whose files a restore has laid into the checkpoint: while the query
            stands at its batch, they need not be compared with it.
        before_commit: Called when all bytes are stored, right before the savepoint counts; raises where it
            must not.
    """

    checkpoint: Store
    repository: Repository
    job: str
    _: KW_ONLY
    batch: int | None = None
    closure: ClosureKind = "safe"
    sinks: Sequence[SinkCapture] = ()
    sinks_found: bool = False
    sink_candidates: tuple[str, ...] = ()
    sources: SourceCapture | None = None
    note: str = ""
    name: str = ""
    pin: bool = False
    taken_by: Mapping[str, Any] = field(default_factory=dict)
    new_query: bool = False
    max_replans: int = 8
    lease_epoch: Callable[[], str | None] | None = None
    spark_version: str | None = None
    application: Any = None
    conf: Any = None
    derived_from: Manifest | None = None
    taken_at: datetime | None = None
    reported: Reported | None = None
    restored_from: str | None = None
    before_commit: Callable[[Manifest], None] | None = None


def take(request: TakeRequest, *, pace: Pace = DEFAULT_PACE) -> TakeResult:
    """Take a savepoint.

    Raises:
        InputError: A name, the note, the closure (`bad-choice`) or a sink cannot be right; or another
            savepoint of the job has the name (`name-taken`).
        NotFoundError: There is no committed batch, or not the one that was asked for.
        FormatError: The checkpoint uses something that is not understood.
        ConflictError: `another-query`: the job's savepoints are of another query; `take-cannot-converge`:
            the query deletes its files faster than they can be held; `taken-without-sink`: the savepoint of
            this batch is there, and says nothing of a sink that is named now.
        IntegrityError: `savepoint-damaged`: the savepoint of this batch is there and not whole, and
            could not be healed from the checkpoint and the sinks.
    """
    QueryRef.parse(request.job)
    check_asked(request.note, request.max_replans, request.batch)
    check_choice(request.closure, "closure", CLOSURE_KINDS)
    if request.name:
        check_savepoint_name(request.name)
    own, asked_by = _own_holder(request) or (None, None)
    work = _Take(request, pace, own)
    try:
        result = work.take_again() if own is not None and asked_by == request.taken_by[ASKER] else None
        if result is None:
            result = work.run()
    except (FormatError, NotFoundError) as error:
        if request.batch is None:
            raise CheckpointReader(request.checkpoint).explained(error) from error
        raise
    if request.name:
        _give_name(request, result.savepoint, own)
    if request.pin:
        request.repository.pin(request.job, result.savepoint)
    return replace(result, name=request.name)


def _own_holder(request: TakeRequest) -> tuple[str, str] | None:
    """The savepoint to which the task that asks has given the name already, and in which round of its tries.

    None where no savepoint has the name, or another task gave it.
    """
    asker = request.taken_by.get(ASKER)
    if not request.name or not asker:
        return None
    store = request.repository.store
    found = recorded_name(store, request.job, request.name)
    if found is None:
        # A try that was lost before it recorded the name has left it in the manifest.
        holder = holder_of(store, request.job, request.name)
        if holder is None:
            return None
        found = holder, request.repository.load(request.job, holder).taken_by
    before = str(found[1].get(ASKER, ""))
    return (found[0], before) if is_same_task(str(asker), before) else None


def _give_name(request: TakeRequest, savepoint: str, own: str | None) -> None:
    """Record the name, now that the savepoint is there, if the same task has not.

    Raises:
        InputError: Another take was faster (code `name-taken`).
    """
    repository, by = request.repository, dict(request.taken_by)
    moves = own is not None and own != savepoint
    holder = repository.give_name(request.job, savepoint, request.name, by=by, anyway=moves)
    if holder != savepoint:
        raise name_taken(
            request.job, request.name, holder, f" The savepoint {savepoint} was taken without a name."
        )


class _Take:
    def __init__(self, request: TakeRequest, pace: Pace, own: str | None) -> None:
        self.request = request
        self.pace = pace
        self.own = own
        self.checkpoint, self.repository, self.job = request.checkpoint, request.repository, request.job
        self.sinks = request.sinks
        self.named = () if request.sinks_found else request.sinks
        self.sink_candidates = request.sink_candidates
        self.reader = CheckpointReader(self.checkpoint)
        self.started = time.monotonic()
        self.taken_at = datetime.now(UTC)
        self.arrived: Arrived | None = None
        self.distrust = distrusted(self.repository.store, self.job)
        self.new_files = 0
        self.budget = Budget(0, None)

    def run(self) -> TakeResult:
        batch, max_replans = self.request.batch, self.request.max_replans
        last: StreambankError | None = None
        attempt_s = 0.0
        self.repository.check_new(self.job)
        with self.repository.objects.writer() as writer:
            if batch is None and (there := self._unchanged(writer)) is not None:
                return there
            for replans in range(max_replans + 1):
                began = time.monotonic()
                try:
                    return self._attempt(writer, replans)
                except ConflictError as error:
                    if error.code not in _PLAN_AGAIN:
                        raise
                    if error.code == "objects-condemned" and self.arrived is not None:
                        forget_lost(self.repository, self.arrived, writer)
                    last = error
                except IntegrityError as error:
                    # It took so long that what it counts on was swept, and nobody remembers it any more.
                    if error.code != "object-missing" or self.arrived is None:
                        raise
                    forget_lost(self.repository, self.arrived, writer)
                    last = error
                except NotFoundError as error:
                    # A batch that was asked for will not come back; another newest one will.
                    if batch is not None or (last is not None and str(last) == str(error)):
                        raise
                    last = error
                attempt_s = time.monotonic() - began
                if not isinstance(last, NotFoundError):  # what is missing may have been missing before
                    _log.info(
                        "The files of %s changed while they were copied, so the plan is made again.", self.job
                    )
        if last is not None and max_replans == 0:
            raise last
        raise ConflictError(
            f"No savepoint of {self.job}: in {max_replans + 1} attempts the query always moved on ({last}) "
            f"{self.budget.sentence(attempt_s)}",
            code="take-cannot-converge",
            hint="Let the query retain more batches, or stop it at a batch boundary and take then.",
        ) from last

    def take_again(self) -> TakeResult | None:
        """The savepoint that an earlier try of the same task took; None where it is gone."""
        assert self.own is not None, "there is one"
        self.repository.check_new(self.job)
        with self.repository.objects.writer() as writer:
            return self._already_there(self.own, writer, 0)

    def _check_name(self, savepoint: str) -> None:
        name, store = self.request.name, self.repository.store
        if name and (self.own is None or holder_of(store, self.job, name) != self.own):
            check_name_free(store, self.job, name, savepoint)

    def _attempt(self, writer: ObjectWriter, replans: int) -> TakeResult:
        request, lease_epoch = self.request, self.request.lease_epoch
        epoch = lease_epoch() if lease_epoch else None
        # What readers may have read is judged by it: that is neither an earlier batch nor a later one.
        self.taken_at = request.taken_at or datetime.now(UTC)
        listing = self.reader.listing()
        self.budget = Budget.of(listing)
        closure = plan_closure(listing, self.checkpoint.read, request.batch, request.closure)
        self._check_query(closure.query_id)
        savepoint = self._savepoint_id(closure.query_id, closure.batch)
        self._check_name(savepoint)
        is_of = partial(check_is_of, checkpoint=self.checkpoint, listing=listing, closure=closure)
        if (there := self._already_there(savepoint, writer, replans, is_of)) is not None:
            return there
        captured = self._capture(closure.batch)
        if self.arrived is None:
            self.arrived = from_newest(self.repository, self.job, self.checkpoint.uri, self.sinks)
        check_state_is_there(closure, self.arrived.before, request.reported)
        plan = make_plan(self.checkpoint, listing, closure, captured, self.arrived.entries)
        self._copy(plan, writer, self.arrived)
        # Others are asked when the files are ours: however slow they are, that uses up nothing of the budget.
        plan = replace(plan, captured=capture_rest(self.sinks, captured, closure.batch))
        sources = [described(source, request.sources, request.derived_from) for source in closure.sources]
        self._check_unmoved(plan)
        if lease_epoch and lease_epoch() != epoch:
            raise _moved_on(f"Another driver took over job {self.job} while the savepoint was taken.")
        # However long this takes, no file that is written again meanwhile means another plan.
        plan = replace(plan, captured=tuple(sink.complete() for sink in plan.captured))
        writer.flush()
        manifest = self._manifest(savepoint, plan, self.arrived, sources, writer, replans)
        if self.distrust:
            check_objects(self.repository, manifest)
        if request.before_commit is not None:
            request.before_commit(manifest)
        if not self.repository.commit(manifest, counted(self.pace.progress, LOCK)):
            is_same = partial(check_same, manifest, where="The repository")
            there = self._already_there(savepoint, writer, replans, is_same)
            if there is None:
                raise _moved_on(
                    f"Savepoint {savepoint} of job {self.job} was there, and is gone.",
                    "Somebody let it expire meanwhile: take again.",
                )
            return there
        result = self._result(manifest, replans, already_there=False, new_bytes=writer.new_bytes)
        first = first_said(manifest, plan.captured, self.arrived.before)
        return replace(result, warnings=(*result.warnings, *first))

    def _capture(self, batch: int) -> list[Captured]:
        """What the sinks add to the plan; of those that were found, what cannot be saved is a candidate."""
        if self.named:
            return capture_files(self.sinks, batch)
        kept: list[SinkCapture] = []
        captured: list[Captured] = []
        for sink in self.sinks:
            try:
                captured += capture_files([sink], batch)
                kept.append(sink)
            except ConflictError:
                raise
            except StreambankError:
                self.sink_candidates = (*self.sink_candidates, sink.path)
        if len(kept) < len(self.sinks):
            self.sinks, self.arrived = kept, None  # what has arrived is known by the numbers of sinks
        return captured

    def _check_query(self, query_id: str) -> None:
        known: set[str] = set()
        for head in heads(self.repository.store, self.job):
            if head.query_id == query_id or self.request.new_query:
                return
            known.add(head.query_id)
        if known:
            raise ConflictError(
                f"The checkpoint is of query {query_id}, but the savepoints of job {self.job} are of "
                f"{', '.join(sorted(known))}.",
                code="another-query",
                hint="Give it another job name, or give --new-query if the job started from nothing.",
            )

    def _savepoint_id(self, query_id: str, batch: int) -> str:
        try:
            offsets = self.checkpoint.read(f"offsets/{batch}")
            commits = self.checkpoint.read(f"commits/{batch}")
        except NotFoundError as error:
            raise _moved_on(
                f"The logs of batch {batch} went away while the savepoint was planned."
            ) from error
        return savepoint_id(self.job, query_id, batch, offsets, commits)

    def _already_there(
        self,
        savepoint: str,
        writer: ObjectWriter,
        replans: int,
        check: Callable[[Manifest], None] | None = None,
    ) -> TakeResult | None:
        """The result for a savepoint that is listed already, healed if need be; None where there is none.

        `check` raises where it is another one with the same id.
        """
        try:
            manifest = self.repository.load(self.job, savepoint)
        except NotFoundError:
            return None
        # A rewrite gives other bytes each time, and what a restore has laid out needs no look.
        request = self.request
        if check is not None and request.derived_from is None and savepoint != request.restored_from:
            check(manifest)
        require_sinks(manifest, self.named)
        settle_listed(self.repository.store, self.job)
        lacking = lacking_objects(self.repository, manifest, distrust=self.distrust)
        lacking |= self.repository.objects.condemned(manifest.objects(), refresh=True)
        if lacking:
            heal(self.repository, writer, manifest, lacking, self.checkpoint, self.sinks)
            lacking = lacking_objects(self.repository, manifest, distrust=self.distrust)
        if lacking:
            raise IntegrityError(
                f"Savepoint {savepoint} of {self.job} is listed, but "
                f"{say_count_are(len(lacking), 'object')} not whole, and could not be stored again "
                "from the checkpoint.",
                code="savepoint-damaged",
                hint="Look at it with `streambank verify`; take the next batch meanwhile.",
            )
        self.repository.lock_savepoint(manifest, counted(self.pace.progress, LOCK))
        return self._result(manifest, replans, already_there=True, new_bytes=writer.new_bytes)

    def _unchanged(self, writer: ObjectWriter) -> TakeResult | None:
        """The result where the newest batch has its savepoint: nothing is listed or planned then."""
        try:
            batch = self.reader.last_committed()
            if batch is None:
                return None
            savepoint = self._savepoint_id(self.reader.query_id(), batch)
            self._check_name(savepoint)
            return self._already_there(savepoint, writer, 0, partial(self._check_known, f"commits/{batch}"))
        except (ConflictError, NotFoundError, FormatError):
            return None  # whatever it is, the plan will say it, or find it again

    def _check_known(self, commit: str, there: Manifest) -> None:
        """Leave it to the plan to compare a savepoint that may be of another checkpoint, or of one before."""
        now = self.checkpoint.stat(commit).identity
        same = service_name(there.checkpoint) == service_name(self.checkpoint.uri)
        if not same or now not in [file.identity for file in there.files if file.path == commit]:
            raise _moved_on(f"{commit} was written again.")

    def _copy(self, plan: TakePlan, writer: ObjectWriter, arrived: Arrived) -> None:
        meter = Meter(self.pace.progress, "copy", len(plan.copy), plan.copy_bytes)

        def done(task: CopyTask, entry: FileEntry) -> None:
            arrived.add(task, entry)
            meter.add(1, task.size_bytes)

        before = len(arrived.entries)
        try:
            work = Copying(self.repository, plan.stores, writer, self.pace.rate)
            self.pace.who.run(work, plan.copy, done)
        finally:
            self.new_files += len(arrived.entries) - before

    def _check_unmoved(self, plan: TakePlan) -> None:
        """Compare the whole closure with its plan once more; files that went away meanwhile are no matter."""
        for origin, store in plan.stores.items():
            tasks = [task for task in plan.tasks if task.origin == origin]
            for task, info in zip(tasks, look(store, tasks), strict=True):
                if info is not None and info.identity != task.identity:
                    raise moved(task, "was written again")

    def _manifest(
        self,
        savepoint: str,
        plan: TakePlan,
        arrived: Arrived,
        sources: Sequence[Mapping[str, Any]],
        writer: ObjectWriter,
        replans: int,
    ) -> Manifest:
        closure = plan.closure
        entries = [(task, arrived.entries[task.key]) for task in plan.tasks]
        # The role is that of this plan; everything else is as it was when the bytes were read.
        files = tuple(task.of_plan(entry) for task, entry in entries if task.origin == CHECKPOINT)
        sinks = tuple(
            {
                **captured.record,
                "files": [task.of_plan(entry).to_dict() for task, entry in entries if task.origin == number],
            }
            for number, captured in enumerate(plan.captured)
        )
        request, mode = self.request, openness(self.checkpoint.uri)
        by = {"user": user_name(), "host": socket.gethostname(), **request.taken_by}
        manifest = Manifest(
            savepoint=savepoint,
            job=self.job,
            query_id=closure.query_id,
            batch=closure.batch,
            taken_at=self.taken_at,
            digest=self.repository.digest_name,
            checkpoint=self.checkpoint.uri,
            closure=closure.kind,
            watermark_ms=closure.watermark_ms,
            operators=tuple(operator.to_dict() for operator in closure.operators),
            offset_conf=closure.offset_conf,
            sources=tuple(sources),
            sinks=sinks,
            sinks_known=bool(sinks),
            sink_candidates=self.sink_candidates,
            parent=arrived.parent,
            bytes=sum(task.size_bytes for task in plan.tasks),
            file_count=len(plan.tasks),
            stats={
                "new_bytes": writer.new_bytes,
                "new_files": self.new_files,
                "replans": replans,
                "seconds": round(time.monotonic() - self.started, 3),
            },
            left_out=tuple(asdict(part) for part in closure.left_out),
            files=files,
            taken_by=by if mode is None else by | {"mode": str(mode)},
            note=request.note,
            name=request.name,
            spark_version=request.spark_version,
            application=request.application,
            conf=request.conf,
        )
        origin = request.derived_from
        return manifest if origin is None else _with_what_is_true_of(origin, manifest)

    def _result(self, manifest: Manifest, replans: int, *, already_there: bool, new_bytes: int) -> TakeResult:
        return TakeResult(
            savepoint=manifest.savepoint,
            job=self.job,
            batch=manifest.batch,
            files=manifest.file_count,
            bytes=manifest.bytes,
            new_bytes=new_bytes,
            new_files=0 if already_there else self.new_files,
            seconds=time.monotonic() - self.started,
            replans=replans,
            already_there=already_there,
            warnings=(*lacks(manifest), *other_note(manifest, self.request.note if already_there else "")),
        )


def _with_what_is_true_of(origin: Manifest, made: Manifest) -> Manifest:
    """A savepoint that was made from another one, with all of that which is not its state."""
    carried = list(origin.sink_files())
    return replace(
        made,
        checkpoint=origin.checkpoint,
        sinks=origin.sinks,
        sinks_known=bool(origin.sinks),
        sink_candidates=origin.sink_candidates,
        derived_from=origin.savepoint,
        bytes=made.bytes + sum(file.size_bytes for file in carried),
        file_count=made.file_count + len(carried),
        left_out=made.left_out or origin.left_out,
        spark_version=origin.spark_version,
        application=origin.application,
        conf=origin.conf,
    )


def _moved_on(message: str, hint: str = "Take again.") -> ConflictError:
    return ConflictError(message, code="checkpoint-moved", hint=hint)


@dataclass(frozen=True, slots=True)
class TakeResult:
    """What a take gave.

    Attributes:
        replans: How often it had to plan again, because the query moved on.
        already_there: The savepoint of this batch was there before, or another take made it meanwhile.
        warnings: What it does not hold, and a restore will miss.
    """

    savepoint: str
    job: str
    batch: int
    files: int
    bytes: int
    new_bytes: int
    new_files: int
    seconds: Annotated[float, MILLIS]
    replans: int
    already_there: bool
    warnings: tuple[str, ...] = ()
    name: str = ""

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"name": self.name or None}


MAX_NOTE_CHARACTERS = 4000


def check_asked(note: str, max_replans: int, batch: int | None) -> None:
    """Refuse a note that is too long, and numbers that cannot be.

    Raises:
        InputError: Codes `note-too-long`, `bad-input`.
    """
    if len(note) > MAX_NOTE_CHARACTERS:
        raise InputError(
            f"A note has at most {MAX_NOTE_CHARACTERS} characters, this one {len(note)}.",
            code="note-too-long",
            hint="Say it shorter, and keep the rest elsewhere.",
        )
    if max_replans < 0 or (batch is not None and batch < 0):
        raise InputError(
            f"max_replans={max_replans} and batch={batch} are not valid for a take.",
            code="bad-input",
            hint="max_replans and batch must not be negative.",
        )
