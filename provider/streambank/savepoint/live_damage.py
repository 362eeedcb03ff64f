"""Damage in a live checkpoint: files that the query loads at its next start, and that are not what they were.

What is compared has to be immutable, or a healthy job would be kept from starting. So only the minimal
closure of the newest committed batch is checked, and a savepoint counts only where it was taken from this
very directory and this very run of batches: the logs of its batch are there, byte for byte. Where they are
not (retained any more), only files with unique names are compared. A file of another size is damaged

* where Spark never writes that name again: logs, SST files, everything with a unique id;
* where it has not been written since: it has the time that it had;
* where its last bytes are those from the middle of what was saved: it was cut off.

Deltas, snapshots, changelogs and zips without a unique id may have been written again, by a late task or by
maintenance, with other bytes of the same meaning: such a file has to be complete, no more.

Costs: the listing and the logs that a plan reads; the newest savepoint's manifest; one or two reads of each
state file that the manifest does not vouch for, at most `MOST_ENDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.files import read_entry
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import CheckpointIndex
from streambank.checkpoint.inspection import file_of
from streambank.checkpoint.listing import Listing
from streambank.checkpoint.position import batches_in_log
from streambank.checkpoint.shape import Closure
from streambank.checkpoint.state.cut_off import cut_off
from streambank.core.errors import ConflictError, FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.repository.digest import digest_of, split_digest
from streambank.repository.manifest import FileEntry, Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.lost_state import lost_operators
from streambank.storage import same_place, service_name
from streambank.storage.store import FileInfo, Store, stat_or_none
from streambank.storage.threads import each

MOST_ENDS = 2000
"""Of so many state files the ends are read, newest versions first."""
_PLAN = ("half-written", "missing-state-file", "missing-log-entry", "batch-not-retained")
"""Codes of a plan that Spark stumbles over as well."""
_ONCE = frozenset({Kind.METADATA, Kind.OFFSETS, Kind.COMMITS, Kind.SOURCE_LOG, Kind.OPERATOR_V2})
"""Written once in the life of a run of batches."""
_UNIQUE = frozenset({Kind.SST, Kind.WAL, Kind.SCHEMA_V3})
"""Their names are unique."""
_STREAMS = frozenset({Kind.DELTA, Kind.SNAPSHOT, Kind.CHANGELOG})
_COMPARED_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CheckpointDamage:
    """One file of a live checkpoint that is not what Spark wrote.

    Attributes:
        path: Relative to the checkpoint; empty where the damage is of no single file.
        fatal: Whether the query cannot go on: Spark repairs a damaged snapshot from an older one.
    """

    path: str
    cause: str
    size_bytes: int | None = None
    saved_bytes: int | None = None
    fatal: bool = True


def find_damage(
    checkpoint: Store,
    planner: ClosurePlanner,
    savepoints: Sequence[Manifest] = (),
    repository: Repository | None = None,
) -> tuple[CheckpointDamage, ...]:
    """What is damaged of what the query will load at its next start, compared with its newest savepoints.

    Only reads. Nothing where the checkpoint has no committed batch, is not understood, or moves meanwhile.
    """
    if not planner.index.commits:
        return ()
    try:
        closure = planner.plan(None, "minimal")
    except ConflictError:
        return ()
    except StreambankError as error:
        sparse = error.code == "batch-not-retained" and not planner.index.operators
        if error.code not in _PLAN or sparse:  # a stateless query may log its progress now and then
            return ()
        return _that_stood_still(checkpoint, planner, (_of_plan(planner.index.listing, error),))
    compared = _Comparison.of(checkpoint, closure, savepoints, repository)
    found = {damage.path: damage for damage in _planned_batch(planner, closure)}
    found |= {damage.path: damage for damage in _without_state(checkpoint, closure, savepoints)}
    try:
        for damage in (*compared.damaged_logs(), *compared.other_sizes(planner.index.listing)):
            found.setdefault(damage.path, damage)
        for damage in _without_end(checkpoint, planner.index.listing, closure, compared):
            found.setdefault(damage.path, damage)
    except NotFoundError:
        return ()  # the query runs, and has deleted what was listed
    return _that_stood_still(checkpoint, planner, _weighed(planner, checkpoint, tuple(found.values())))


def _without_state(
    checkpoint: Store, closure: Closure, savepoints: Sequence[Manifest]
) -> Iterator[CheckpointDamage]:
    """Operators of which nothing is left, though a savepoint of the query had them."""
    place = service_name(checkpoint.uri)
    for head in savepoints:
        if service_name(head.checkpoint) == place and head.derived_from is None:
            for operator in lost_operators(closure, head):
                path = f"state/{operator}"
                yield CheckpointDamage(path, f"{path} is missing, and savepoint {head.savepoint} has it.")


def _that_stood_still(
    checkpoint: Store, planner: ClosurePlanner, found: tuple[CheckpointDamage, ...]
) -> tuple[CheckpointDamage, ...]:
    """What was found; nothing where a second look shows another batch, or one of the files otherwise.

    What the newest batch needs may be deleted between two listings once there is a newer one, a file may be
    written again between the listing and a read, and a listing may lag behind.
    """
    if not found:
        return found
    if max(batches_in_log(checkpoint, "commits"), default=None) != max(planner.index.commits):
        return ()
    for path in (damage.path for damage in found if damage.path):
        listed = planner.index.listing.get(path)
        if _seen(stat_or_none(checkpoint, path)) != _seen(listed):
            return ()
    return found


def _seen(info: FileInfo | None) -> tuple[int, int] | None:
    return None if info is None else (info.size_bytes, info.mtime_ns)


def _of_plan(listing: Listing, error: StreambankError) -> CheckpointDamage:
    """What kept the newest batch from being planned, and would keep Spark from loading it."""
    path = file_of(error)
    info = listing.get(path)
    return CheckpointDamage(path, error.message, info.size_bytes if info else None)


def _planned_batch(planner: ClosurePlanner, closure: Closure) -> Iterator[CheckpointDamage]:
    """The log of a batch that is planned and not committed: a start runs it again as it is planned."""
    newest = max(planner.index.offsets)
    if newest <= closure.batch:
        return
    path = planner.index.offsets[newest]
    try:
        planner.files.offsets(path)
    except FormatError as error:
        if error.code == "half-written":
            yield _of_plan(planner.index.listing, error)
    except ConflictError:
        return


class _Comparison:
    """A savepoint of the same directory, and which of its files say something of those that are there now."""

    def __init__(
        self, checkpoint: Store, closure: Closure, saved: Manifest | None, repository: Repository | None
    ) -> None:
        self._checkpoint, self._closure = checkpoint, closure
        self._saved, self._repository = saved, repository
        self._entries = {entry.path: entry for entry in saved.files} if saved else {}
        self._logs: list[CheckpointDamage] = []
        self.same_run = saved is not None and self._is_same_run(saved.batch)
        """Whether the batches up to the savepoint's are those that it was taken of."""

    @classmethod
    def of(
        cls,
        checkpoint: Store,
        closure: Closure,
        savepoints: Sequence[Manifest],
        repository: Repository | None,
    ) -> _Comparison:
        for head in savepoints:
            if repository is None:
                break
            ours = head.query_id == closure.query_id and same_place(head.checkpoint, checkpoint.uri)
            if ours and head.derived_from is None and head.batch <= closure.batch:
                try:
                    return cls(checkpoint, closure, repository.load(head.job, head.savepoint), repository)
                except (NotFoundError, IntegrityError, FormatError):
                    continue  # another one may be whole
        return cls(checkpoint, closure, None, None)

    def _is_same_run(self, batch: int) -> bool:
        """Whether the logs of the savepoint's batch are still those that were saved, or are cut off."""
        same = 0
        for path in (f"offsets/{batch}", f"commits/{batch}"):
            entry = self._entries.get(path)
            if entry is None:
                return False
            try:
                data = read_entry(self._checkpoint, path)
            except (NotFoundError, FormatError):
                return False
            if digest_of(split_digest(entry.digest)[0], data) == entry.digest:
                same += 1
            elif path in self._closure.paths and self._is_piece(entry, len(data)):
                self._logs.append(self._other_size(entry, len(data)))
            else:
                return False
        return same > 0

    def damaged_logs(self) -> Sequence[CheckpointDamage]:
        return self._logs if self.same_run else ()

    def vouches_for(self, info: FileInfo) -> bool:
        """Whether a file is as it was when it was saved, by its size and its time."""
        entry = self._entries.get(info.path)
        return (
            self.same_run
            and entry is not None
            and (info.size_bytes, info.mtime_ns) == (entry.size_bytes, entry.mtime_ns)
        )

    def other_sizes(self, listing: Listing) -> Iterator[CheckpointDamage]:
        """Files of the closure whose size is not the saved one, and which Spark has not written again."""
        for file in self._closure.files:
            entry = self._entries.get(file.path)
            if entry is None or not file.required or classify(file.path).kind is Kind.SCHEMA_V2:
                continue  # Spark writes a schema again where columns may be null now
            info = listing[file.path]
            if info.size_bytes != entry.size_bytes and self._is_damaged(entry, info):
                yield self._other_size(entry, info.size_bytes)

    def _is_damaged(self, entry: FileEntry, info: FileInfo) -> bool:
        part = classify(entry.path)
        if part.kind in _UNIQUE or part.unique_id is not None:
            return True
        if not self.same_run:
            return False
        if part.kind in _ONCE or 0 < info.mtime_ns == entry.mtime_ns:
            return True
        return part.kind in _STREAMS and self._is_piece(entry, info.size_bytes)

    def _is_piece(self, entry: FileEntry, size_bytes: int) -> bool:
        """Whether a file is shorter than what was saved, and its last bytes are the same."""
        if self._repository is None or size_bytes >= entry.size_bytes:
            return False
        if size_bytes == 0:
            return True
        begin = max(0, size_bytes - _COMPARED_BYTES)
        now = self._checkpoint.read(entry.path, begin, size_bytes - begin)
        try:
            place = self._repository.objects.locate(entry.digest)
            saved = self._repository.store.read(place.key, place.offset + begin, size_bytes - begin)
        except (NotFoundError, IntegrityError, FormatError):
            return False
        return now == saved

    def _other_size(self, entry: FileEntry, size_bytes: int) -> CheckpointDamage:
        assert self._saved is not None
        return CheckpointDamage(
            entry.path,
            f"{entry.path} has {size_bytes} bytes, and had {entry.size_bytes} when savepoint "
            f"{self._saved.savepoint} was taken.",
            size_bytes,
            entry.size_bytes,
        )


def _without_end(
    checkpoint: Store, listing: Listing, closure: Closure, compared: _Comparison
) -> Iterator[CheckpointDamage]:
    """State files that are cut off, of those for which no savepoint vouches."""
    urgent = sorted(closure.files, key=lambda file: file.urgency, reverse=True)
    infos = [listing[file.path] for file in urgent if classify(file.path).kind in _STREAMS]
    asked = [info for info in infos if not compared.vouches_for(info)][:MOST_ENDS]

    def look(info: FileInfo) -> str | None:
        return cut_off(info.path, info.size_bytes, checkpoint.read)

    for info, why in zip(asked, each(look, asked, checkpoint.features.at_once), strict=True):
        if why is not None:
            yield CheckpointDamage(
                info.path, f"{info.path} ({info.size_bytes} bytes) {why}.", size_bytes=info.size_bytes
            )


def _weighed(
    planner: ClosurePlanner, checkpoint: Store, found: tuple[CheckpointDamage, ...]
) -> tuple[CheckpointDamage, ...]:
    """The same, those told apart that Spark can do without: snapshots that it repairs from older ones."""
    snapshots = {damage.path for damage in found if classify(damage.path).kind is Kind.SNAPSHOT}
    if not snapshots:
        return found
    listing = Listing(planner.index.listing.values())
    listing.add_all([replace(listing[path], size_bytes=0) for path in snapshots])
    try:
        ClosurePlanner(CheckpointIndex.build(listing), checkpoint.read).plan(None, "minimal")
    except StreambankError:
        return found
    return tuple(replace(damage, fatal=damage.path not in snapshots) for damage in found)
