"""What a take has to do: the closure of a batch, what of it is there already, and what must be copied."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.paths import needs_rewrite
from streambank.checkpoint.position import is_batch
from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.repository import catalog
from streambank.repository.digest import digest_of, split_digest
from streambank.repository.manifest import FileEntry, Manifest, other_savepoint
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import ObjectWriter, Repository
from streambank.savepoint.sinks import Captured, SinkCapture
from streambank.savepoint.verify import healed_objects
from streambank.storage import service_name
from streambank.storage.store import FileInfo, Store, chunks
from streambank.work.copy import CHECKPOINT, CopyTask, run_task
from streambank.work.damage import damaged_objects

SINK_LOG_ROLE = "sink-log"
"""Role of a sink's own saved files in the manifest."""

Known = Mapping[tuple[int, str, str], FileEntry]
"""What is in the repository already, by origin, path and identity (`CopyTask.key`)."""


@dataclass(frozen=True, slots=True)
class TakePlan:
    """One attempt at a savepoint.

    Attributes:
        stores: The store of each origin: the checkpoint, and the sinks that have files.
        tasks: Every file of the savepoint, those that Spark deletes first in front.
    """

    closure: Closure
    captured: tuple[Captured, ...]
    stores: Mapping[int, Store]
    tasks: tuple[CopyTask, ...]
    copy: tuple[CopyTask, ...]

    @property
    def copy_bytes(self) -> int:
        return sum(task.size_bytes for task in self.copy)


def make_plan(
    checkpoint: Store,
    listing: Mapping[str, FileInfo],
    closure: Closure,
    captured: Sequence[Captured],
    known: Known,
) -> TakePlan:
    """Put together what has to be saved, and leave out what needs no reading."""
    stores: dict[int, Store] = {CHECKPOINT: checkpoint}
    # Sinks first: their logs are few and small, and the newest of them is what the sink is judged by.
    tasks = []
    for number, sink in enumerate(captured):
        if sink.store is not None:
            stores[number] = sink.store
            tasks += [CopyTask.of(info, SINK_LOG_ROLE, number) for info in sink.files]
    by_urgency = sorted(closure.files, key=lambda file: (file.urgency, file.path))
    tasks += [CopyTask.of(listing[file.path], file.role) for file in by_urgency]
    copy = tuple(task for task in tasks if task.key not in known)
    return TakePlan(closure, tuple(captured), stores, tuple(tasks), copy)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much time a query leaves to a take before it deletes what the take needs.

    Attributes:
        retained_batches: Batches whose logs the checkpoint has.
        batch_period_s: Seconds between two commits, as far as their times tell; None for fewer than two.
    """

    retained_batches: int
    batch_period_s: float | None

    @classmethod
    def of(cls, listing: Mapping[str, FileInfo]) -> Budget:
        """The budget that the commit log of a listing shows."""
        commits = sorted(
            (int(name), listing[path].mtime_ns)
            for path in listing
            if path.startswith("commits/") and is_batch(name := path.removeprefix("commits/"))
        )
        period_s = None
        if len(commits) > 1 and commits[0][1] and commits[-1][1] > commits[0][1]:
            steps = commits[-1][0] - commits[0][0]
            period_s = (commits[-1][1] - commits[0][1]) / 1e9 / steps
        return cls(len(commits), period_s)

    def sentence(self, needed_s: float) -> str:
        """The budget against what an attempt needed, and the setting that would make it fit."""
        if self.batch_period_s is None:
            return f"{self.retained_batches} batches are retained, and one attempt took {needed_s:.1f} s."
        had_s = self.retained_batches * self.batch_period_s
        fits = max(self.retained_batches + 1, math.ceil(2 * needed_s / self.batch_period_s) + 1)
        return (
            f"{self.retained_batches} retained batches of {self.batch_period_s:.2f} s leave {had_s:.1f} s, "
            f"and one attempt took {needed_s:.1f} s; spark.sql.streaming.minBatchesToRetain={fits} would fit."
        )


@dataclass(slots=True)
class Arrived:
    """What is in the repository already: files by origin, path and identity (`CopyTask.key`)."""

    entries: dict[tuple[int, str, str], FileEntry] = field(default_factory=dict)
    parent: str | None = None
    before: Manifest | None = None

    def add(self, task: CopyTask, entry: FileEntry) -> None:
        self.entries[task.key] = entry


def from_newest(repository: Repository, job: str, checkpoint: str, sinks: Sequence[SinkCapture]) -> Arrived:
    """The files of the newest savepoint of a job that was taken from the same checkpoint.

    Those whose objects are not whole any more are left out, so that they are read and stored again; a damaged
    table of contents of a pack is written again first.
    """
    arrived = Arrived()
    manifest = _newest(repository, job, checkpoint)
    if manifest is None:
        return arrived
    whole = healed_objects(repository, manifest)
    whole -= repository.objects.condemned(whole, refresh=True)
    arrived.parent, arrived.before = manifest.savepoint, manifest
    origins = [(CHECKPOINT, entry) for entry in manifest.files]
    for number, sink in enumerate(sinks):
        origins += [(number, entry) for entry in _saved_files(manifest, sink)]
    for origin, entry in origins:
        if entry.digest in whole:
            arrived.entries[origin, entry.path, entry.identity] = entry
    return arrived


def _saved_files(manifest: Manifest, sink: SinkCapture) -> list[FileEntry]:
    saved = next((record for record in manifest.sinks if record.get("path") == sink.path), {})
    return [FileEntry.from_dict(fields) for fields in saved.get("files", ())]


def _newest(repository: Repository, job: str, checkpoint: str) -> Manifest | None:
    # By time, not by batch: a checkpoint that began again at the same place counts from 0 again.
    for head in catalog.recent_heads(repository.store, job):
        # What was derived from a savepoint says where that was taken, and has other files.
        if service_name(head.checkpoint) == service_name(checkpoint) and head.derived_from is None:
            try:
                return repository.load(job, head.savepoint)
            except (NotFoundError, IntegrityError, FormatError):
                continue  # its files are damaged, or it is gone
    return None


def forget_lost(repository: Repository, arrived: Arrived, writer: ObjectWriter) -> None:
    """What sweeps have condemned since it arrived, or deleted already, is read and stored again."""
    repository.objects.refresh()
    lost = repository.objects.missing({entry.digest: entry.size_bytes for entry in arrived.entries.values()})
    for key in [key for key, entry in arrived.entries.items() if entry.digest in lost]:
        del arrived.entries[key]
    writer.forget(lost)


def check_same(one: Manifest, other: Manifest, where: str) -> None:
    """Make sure that two manifests of one id are of one savepoint: no file of both has other bytes.

    The id says nothing of the state. Two lines that finish a batch which was planned before they parted have
    the same logs. Files that name their checkpoint's directory are no matter: a restore writes them anew.

    Raises:
        IntegrityError: They are of two savepoints (code `other-savepoint`).
    """
    digests = {entry.path: entry.digest for entry in one.files}
    for entry in other.files:
        if digests.get(entry.path, entry.digest) != entry.digest and _is_compared(entry.path):
            raise other_savepoint(other, entry.path, where)


def _is_compared(path: str) -> bool:
    """Whether a file tells two savepoints of one id apart; not one that names the checkpoint's directory."""
    return not needs_rewrite(path.removesuffix(".crc"))


def check_is_of(
    there: Manifest, checkpoint: Store, listing: Mapping[str, FileInfo], closure: Closure
) -> None:
    """Make sure that a listed savepoint is of the very files that a take would save under its id.

    Files that have not changed in the same checkpoint since are not read, nor anywhere where their identity
    is of the bytes alone; those that go away meanwhile are no matter.

    Raises:
        IntegrityError: It is another savepoint (code `other-savepoint`).
    """
    saved = {entry.path: entry for entry in there.files}
    same = service_name(there.checkpoint) == service_name(checkpoint.uri)
    same = same or checkpoint.features.identity_of_bytes
    for path in (file.path for file in closure.files if file.path in saved and _is_compared(file.path)):
        known = same and saved[path].identity == listing[path].identity
        if not known and _unchanged(checkpoint, saved[path]) is None and checkpoint.exists(path):
            raise other_savepoint(there, path, "The repository")


def check_objects(repository: Repository, manifest: Manifest) -> None:
    """Read every object of a savepoint that is about to be made.

    Raises:
        IntegrityError: `repository-damaged`: one of them is not what it was.
    """
    for _, error in damaged_objects(repository, manifest.objects()):
        raise IntegrityError(
            f"No savepoint of {manifest.job}: it would share a damaged object. {error.message}",
            code="repository-damaged",
            hint="Take into another repository; `streambank verify --all` shows what is damaged in this one.",
        ) from error


def lacking_objects(repository: Repository, manifest: Manifest, *, distrust: bool) -> set[str]:
    """The digests of a savepoint's objects that are not whole; `distrust` reads every byte."""
    whole = healed_objects(repository, manifest)
    lacking = set(manifest.objects()) - whole
    if distrust:
        sizes = {digest: size for digest, size in manifest.objects().items() if digest in whole}
        lacking |= {digest for digest, _ in damaged_objects(repository, sizes)}
    return lacking


def heal(
    repository: Repository,
    writer: ObjectWriter,
    manifest: Manifest,
    lacking: Set[str],
    checkpoint: Store,
    sinks: Sequence[SinkCapture],
) -> None:
    """Store the objects that a savepoint lacks again, if all their files still have the very bytes.

    Else nothing is stored; whether it helped, `lacking_objects` says afterwards.

    Raises:
        ConflictError: A file changed meanwhile.
    """
    found: dict[str, tuple[CopyTask, Store]] = {}
    for origin, store, entry in _files(manifest, lacking, checkpoint, sinks):
        if entry.digest not in found and (info := _unchanged(store, entry)) is not None:
            found[entry.digest] = CopyTask.of(info, entry.role, origin), store
    if found.keys() != lacking:
        return
    for digest, (task, store) in found.items():
        if task.size_bytes <= SMALL_BYTES and repository.objects.has(digest, task.size_bytes):
            _patch(repository, digest, store.read(task.path))
        else:
            writer.damaged.add(digest)
            run_task(task, store, writer)
    writer.flush()


def _files(
    manifest: Manifest, lacking: Set[str], checkpoint: Store, sinks: Sequence[SinkCapture]
) -> Iterator[tuple[int, Store, FileEntry]]:
    """The files that lie in lacking objects, and where each was."""
    yield from ((CHECKPOINT, checkpoint, entry) for entry in manifest.files if entry.digest in lacking)
    for number, sink in enumerate(sinks):
        if wanted := [entry for entry in _saved_files(manifest, sink) if entry.digest in lacking]:
            try:
                store = sink.capture(manifest.batch).store
            except NotFoundError:
                continue  # the sink keeps nothing of the batch any more
            if store is not None:
                yield from ((number, store, entry) for entry in wanted)


def _unchanged(store: Store, entry: FileEntry) -> FileInfo | None:
    """A saved file as it is now; None where it is gone or has other bytes."""
    try:
        info = store.stat(entry.path)
        if info.size_bytes != entry.size_bytes:
            return None
        with store.open(entry.path) as reader:
            digest = digest_of(split_digest(entry.digest)[0], chunks(reader))
    except NotFoundError:
        return None
    return info if digest == entry.digest else None


def _patch(repository: Repository, digest: str, data: bytes) -> None:
    """Put the right bytes into a pack that has wrong ones in the place of an object."""
    place = repository.objects.locate(digest)
    if place.kind == "pack" and digest_of(repository.digest_name, data) == digest:
        pack = repository.store.read(place.key)
        end = place.offset + place.length
        if pack[place.offset : end] != data:
            repository.store.write(place.key, pack[: place.offset] + data + pack[end:])
