"""Laying a savepoint out as a checkpoint that Spark can go on from, in an empty target.

What makes a half-done target unusable is its `metadata`: it is the first file written, exclusively, and
holds a note that is no query id, so Spark cannot read it and starts nothing there. It is also the
claim that keeps a second restore out. The real `metadata` replaces it, at once, as the very last step. A
layout that fails removes what it wrote, the note last; one that was killed leaves the note, by which the
next one knows that everything there may go.

Durability follows from that: the note is durable before anything else is written, and everything else before
`metadata` is. In between the files are written in bulk and reach the disk together. After a power cut there
some are missing or empty, but beside a note, so they are removed by their names and written again.

A layout that stood still may be taken for dead, and its place be another's by the time it goes on. So it
looks for its own note again and again, and where that is gone it writes nothing more, and removes nothing.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streambank.checkpoint.closure import plan_closure
from streambank.checkpoint.paths import needs_rewrite, new_query_metadata
from streambank.core.errors import (
    ConflictError,
    FormatError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StreambankError,
)
from streambank.core.python310 import add_note
from streambank.core.shape import JsonObject
from streambank.repository.manifest import FileEntry, Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.view import incomplete
from streambank.storage.local.modes import Openness, make_directory, openness
from streambank.storage.store import FileInfo, Store
from streambank.work.executor import DEFAULT_PACE, Pace
from streambank.work.pace import Meter
from streambank.work.place import Placed, PlaceTask, Placing, place_tasks
from streambank.work.target import METADATA, NOTE, Fence, IsLive, Owner, check_target, read_note

__all__ = ["METADATA", "IsLive", "MaterializeReport", "Owner", "check_target", "materialize"]


@dataclass(frozen=True, slots=True)
class MaterializeReport(JsonObject):
    """What was laid out.

    Attributes:
        rewritten: Files whose bytes differ from the saved ones, since they hold paths or the query id.
        cleared_files: Files of an earlier layout that had died, which were removed first.
    """

    target: str
    batch: int
    query_id: str
    files: int
    bytes: int
    linked_files: int
    rewritten: tuple[str, ...]
    cleared_files: int


def openness_of(manifest: Manifest) -> Openness | None:
    """Who may look into what is laid out of a savepoint: as of its checkpoint; None where that is unknown."""
    return openness(manifest.checkpoint) or Openness.parse(manifest.taken_by.get("mode"))


def materialize(
    repository: Repository,
    manifest: Manifest,
    target: Store,
    *,
    owner: Owner,
    link: bool = False,
    fork: bool = False,
    before_commit: Callable[[MaterializeReport], None] | None = None,
    pace: Pace = DEFAULT_PACE,
) -> MaterializeReport:
    """Write a savepoint's files into an empty target; every byte is hashed on the way.

    Args:
        link: Let large files share their bytes with the repository (hard links) where that is possible:
            damage to one then damages both.
        before_commit: Called with the report when everything but `metadata` is in place; what it raises
            undoes the layout.

    Raises:
        RefusedError: `target-not-empty`.
        ConflictError: `restore-in-progress`: somebody else lays out there, or may do so.
        IntegrityError: The savepoint is damaged.
    """
    return _Materialize(repository, manifest, target, link, fork, pace).run(owner, before_commit)


@dataclass(eq=False)
class _Materialize:
    repository: Repository
    manifest: Manifest
    target: Store
    link: bool
    fork: bool
    pace: Pace
    note: bytes = b""
    linked: int = 0
    rewritten: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.query_id = self.manifest.query_id
        self.token = str(uuid.uuid4())
        self.fence = Fence(self.target, self.token)
        # Spark's checksum of a file that is rewritten would be wrong, and Spark can do without it.
        self.entries = {
            entry.path: entry
            for entry in self.manifest.files
            if not (entry.path.endswith(".crc") and needs_rewrite(entry.path.removesuffix(".crc")))
        }

    def run(
        self, owner: Owner, before_commit: Callable[[MaterializeReport], None] | None
    ) -> MaterializeReport:
        if METADATA not in self.entries:
            raise IntegrityError(
                f"Savepoint {self.manifest.savepoint} has no file {METADATA}.",
                code="savepoint-incomplete",
                hint="No query starts without it: restore another savepoint.",
            )
        metadata = self._metadata()
        leftovers = check_target(self.target, owner)
        self._claim(owner, leftovers)
        committing = False
        try:
            self._place_all()
            self.fence.look()  # what is missing or too much there may be another's doing
            self._check(metadata)
            self.fence.look()
            report = self._report(cleared_files=len(leftovers))
            if before_commit is not None:
                before_commit(report)
                self.fence.look()
            committing = True
            self.target.write(METADATA, metadata)
        except BaseException as error:
            self._undo(error, metadata if committing else None)
            raise
        return report

    def _report(self, *, cleared_files: int) -> MaterializeReport:
        return MaterializeReport(
            target=self.target.uri,
            batch=self.manifest.batch,
            query_id=self.query_id,
            files=len(self.entries),
            bytes=sum(entry.size_bytes for entry in self.entries.values()),
            linked_files=self.linked,
            rewritten=tuple(sorted(self.rewritten)),
            cleared_files=cleared_files,
        )

    def _metadata(self) -> bytes:
        data = self.repository.objects.read(self.entries[METADATA].digest)
        if self.fork:
            self.query_id, data = new_query_metadata()
            self.rewritten[METADATA] = len(data)
        return data

    def _claim(self, owner: Owner, leftovers: Sequence[FileInfo]) -> None:
        """Write the note; where an earlier one is taken over, what belongs to it goes first."""
        note = {
            "says": "A restore into this directory is not finished. Do not start a query here.",
            NOTE: {
                "token": self.token,
                "job": self.manifest.job,
                "savepoint": self.manifest.savepoint,
                "owner": dict(owner.details),
                "files": sorted(self.entries),
            },
        }
        self.note = json.dumps(note).encode()
        if leftovers:
            self._clear(leftovers)
        make_directory(self.target.uri, openness_of(self.manifest))
        try:
            self.target.write(METADATA, self.note, exclusive=True)
        except ConflictError as error:
            raise ConflictError(
                f"Somebody else began to restore into {self.target.uri} at the same time.",
                code="restore-in-progress",
                hint="Wait for it, or restore into another directory.",
            ) from error

    def _clear(self, leftovers: Sequence[FileInfo]) -> None:
        """Remove what a dead layout left, unless somebody else is quicker and begins again there."""
        dead = Fence(self.target, (read_note(self.target) or {}).get("token"))
        for info in leftovers:
            if info.path != METADATA:
                dead.check()
                self.target.delete(info.path)
        dead.look()
        self.target.delete(METADATA)

    def _place_all(self) -> None:
        entries = [entry for entry in self.entries.values() if entry.path != METADATA]
        size_bytes = sum(entry.size_bytes for entry in entries)
        meter = Meter(self.pace.progress, "write", len(entries), size_bytes)

        def wrote(entry: FileEntry) -> None:
            meter.add(1, entry.size_bytes)

        def done(task: PlaceTask, placed: Placed) -> None:
            if not placed.told:
                meter.add(task.files, task.size_bytes)
            with counting:
                self.linked += placed.linked
                self.rewritten.update(placed.rewritten)

        counting = threading.Lock()
        with self.target.bulk() as files:
            work = Placing(
                self.repository,
                files,
                self.target.uri,
                self.token,
                link=self.link,
                rate=self.pace.rate,
                wrote=wrote,
                check=self.fence.check,
            )
            self.pace.who.run(work, place_tasks(self.repository, entries), done)

    def _check(self, metadata: bytes) -> None:
        """Everything is there with its size, and is a checkpoint that can go on after the batch."""
        there = {info.path: info for info in self.target.list()}
        for path, entry in self.entries.items():
            info = there.get(path)
            size_bytes = self.rewritten.get(path, entry.size_bytes)
            if info is None or (path != METADATA and info.size_bytes != size_bytes):
                raise StorageError(
                    f"{path} did not arrive whole in {self.target.uri}.",
                    code="layout-incomplete",
                    hint="Look at the disk of the target, and restore again.",
                )
        if extra := set(there) - set(self.entries):
            raise ConflictError(
                f"Somebody else wrote {min(extra)} into {self.target.uri} meanwhile.",
                code="target-moved",
                hint="Restore into a directory that nothing else uses.",
            )

        def read(path: str, offset: int = 0, length: int | None = None) -> bytes:
            if path == METADATA:
                return metadata[offset:] if length is None else metadata[offset : offset + length]
            return self.target.read(path, offset, length)

        try:
            plan_closure(there, read, batch=self.manifest.batch, kind="minimal")
        except (NotFoundError, FormatError) as error:
            raise incomplete(self.manifest, error) from error

    def _undo(self, error: BaseException, metadata: bytes | None) -> None:
        """Remove what was written, the note last, so that a query can start here at no moment.

        Where the place is another's by now, nothing is touched.

        Args:
            metadata: The real one, if it was being written; it may be there although that failed.
        """
        try:
            if metadata is not None and self.target.read(METADATA) == metadata:
                self.target.write(METADATA, self.note)
            self.fence.look()
            for path in self.entries:
                if path != METADATA:
                    self.fence.check()
                    self.target.delete(path)
            self.target.delete(METADATA)
            for folder in sorted({path.partition("/")[0] for path in self.entries if "/" in path}):
                self.target.prune(folder)
        except StreambankError as failure:
            add_note(error, f"What was written to {self.target.uri} was not removed: {failure}")
