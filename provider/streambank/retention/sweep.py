"""Deleting what no savepoint needs any more, in two phases with a grace between them.

One run removes expired manifests that are older than the grace, deletes the files that an earlier run has
condemned longer than the grace ago, condemns what no savepoint needs now, and stores again what one needs out
of condemned files. What somebody holds, to read it, it leaves where it is. Any number of sweeps, takes and
restores may be at work at once, and a run may die anywhere: the next one goes on. docs/formats/repository.md
has the rules and why they suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from streambank.core.errors import (
    InputError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.shape import TENTHS, JsonObject, encode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.catalog import EXPIRED, manifest_key
from streambank.repository.holds import Hold, holds
from streambank.repository.locks import locked_until, visible_locks
from streambank.repository.marks import Marks
from streambank.repository.objects.packs import pack_key
from streambank.repository.repository import Repository
from streambank.repository.sealed import encode_record
from streambank.repository.trash import (
    FOLDER,
    MIN_GRACE_S,
    PendingDeleteRecord,
    boot_clock_s,
    condemn,
    condemned_records,
    forget,
    forget_orphans,
    is_there,
    mark_done,
)
from streambank.retention.expired import (
    UNUSABLE,
    Expired,
    expired_savepoints,
    remove,
    unlisted,
)
from streambank.retention.survey import (
    ContentFile,
    Rescued,
    Survey,
    dead_share,
    digests,
    is_content,
    is_intact,
    named_objects,
    needed_objects,
    rescue,
    survey,
    total_bytes,
)
from streambank.storage.store import Leftover
from streambank.storage.threads import at_once, each
from streambank.work.pace import Meter, Progress

DEFAULT_GRACE_S = 86400.0
REPACK_SHARE = 0.5
"""A pack of which no savepoint needs more than this is condemned, and what one needs is stored again."""
RECORD_KEYS = 50_000
"""So many files are named by one record at most."""
LOOK_EVERY_S = 60.0
"""So often a sweep that deletes makes sure that nobody has finished its work and forgotten the record, and
looks who holds what."""

_STAYS = ("object-locked", "no-permission")
"""Codes of errors of deleting that are about one file, which is tried again the next time."""
_MAY_NOT_LOOK = ("no-permission", "storage")
"""Codes of errors of a service that has no listing of uploads, or keeps it from us."""


def sweep(
    repository: Repository,
    *,
    grace_s: float = DEFAULT_GRACE_S,
    dry_run: bool = False,
    by: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SweepReport:
    """Delete what was condemned long enough ago, and condemn what no savepoint needs.

    Args:
        grace_s: How long expired savepoints can be brought back, and condemned files stay.
        dry_run: Only say what would happen; this machine's clock stands for that of the storage.

    Raises:
        InputError: The grace is shorter than `MIN_GRACE_S` (code `grace-too-short`).
        IntegrityError, FormatError: A manifest or index file cannot be used, so nothing is swept.
        RefusedError: The storage does not say when files were written (code `no-file-times`).
    """
    if grace_s < MIN_GRACE_S:
        raise InputError(
            f"A grace of {grace_s:g} s is shorter than {MIN_GRACE_S:g} s.",
            code="grace-too-short",
            hint="A take that is running may rely on existing files for that long without recording it.",
        )
    return _Sweep(repository, grace_s, dry_run, dict(by or {}), progress).run()


class _Sweep:
    """One run."""

    def __init__(
        self,
        repository: Repository,
        grace_s: float,
        dry_run: bool,
        by: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        self.repository = repository
        self.store = repository.store
        self.by = by
        self.progress = progress
        self.report = SweepReport(dry_run, grace_s)
        self.now_ns = 0
        self.needed: set[str] = set()
        self.found = Survey()
        self.held = HeldContent(repository, 0)

    def run(self) -> SweepReport:
        """Do it."""
        self.now_ns = self._now_ns()
        records = condemned_records(self.store)
        self.held = HeldContent(self.repository, self.now_ns)
        self.held.look()
        removed = self._remove_expired()
        # Read after the records: whoever did not see a record that is old enough has listed its savepoint.
        self.needed = needed_objects(self.repository, removed, self.progress)
        self.found = survey(self.repository, self._old_ns(), self.progress)
        self.report.left |= self.found.unreadable
        open_records = [record for record in records if record.done_ns is None and record.error is None]
        if not self.report.dry_run:
            self._rescue(self._present(open_records))
        waiting = []
        for record in open_records:
            if record.age_s(self.now_ns) >= self.report.grace_s:
                self._delete(record)
            else:
                waiting.append(record)
        self._forget(records)
        self._condemn(records)
        self._tell(waiting)
        self._discard_leftovers()
        self.report.holds = [hold for hold in self.held.holds if hold.counts]
        if not self.report.dry_run:
            self._clean_index()
            for hold in self.held.holds:
                if not hold.counts:
                    self.store.delete(hold.key)  # its name is never used again
        return self.report

    def _now_ns(self) -> int:
        """The time by the clock of the storage, which stamps every file; no machine's own is trusted."""
        if self.report.dry_run:
            return int(utc_now().timestamp() * 1e9)
        key = f"{FOLDER}/last-sweep"
        fields = {"kind": "sweep", "at": to_json_time(utc_now()), "by": self.by}
        self.store.write(key, encode_record(fields, self.repository.digest_name))
        # From a listing, as all ages are: some services say less there than of a single file.
        now_ns = next((info.mtime_ns for info in self.store.list(FOLDER) if info.path == key), 0)
        if now_ns <= 0:
            raise RefusedError(
                f"{self.store.uri} does not say when files were written, so no grace can be measured.",
                code="no-file-times",
                hint="Copy the repository to a storage that does, such as a local disk or S3.",
            )
        return now_ns

    def _old_ns(self) -> int:
        """What was written before this is older than the grace."""
        return self.now_ns - int(self.report.grace_s * 1e9)

    def _remove_expired(self) -> set[str]:
        """Remove expired manifests that are older than the grace; the keys of those."""
        copies = expired_savepoints(self.store)
        old = [copy for copy in copies if copy.expired_ns <= self._old_ns()]
        gone = [copy for copy in old if not self._must_stay(copy)]
        keys = {copy.key for copy in gone}
        rest = [copy for copy in copies if copy.key not in keys]
        still = {copy.which for copy in rest}
        for number, copy in enumerate(gone):
            others = copy.which in still or any(later.which == copy.which for later in gone[number + 1 :])
            if not self.report.dry_run:
                remove(self.store, copy, others)
        self.report.removed = unlisted(self.store, [copy for copy in gone if copy.which not in still])
        self.report.expired = [(copy, self._left_s(copy)) for copy in unlisted(self.store, rest)]
        return keys

    def _must_stay(self, copy: Expired) -> bool:
        return copy.which in self.held or Marks(self.store, *copy.which).may_be_pinned()

    def _left_s(self, copy: Expired) -> float:
        return max(0.0, self.report.grace_s - (self.now_ns - copy.expired_ns) / 1e9)

    def _present(self, records: Iterable[PendingDeleteRecord]) -> list[ContentFile]:
        """Files of records that are still there."""
        keys = dict.fromkeys(key for record in records for key in record.keys)
        return [self.found.files[key] for key in keys if key in self.found.files]

    def _rescue(self, files: Iterable[ContentFile]) -> None:
        """Store what savepoints need out of condemned files where it lasts."""
        name = self.repository.digest_name
        wanted = dict.fromkeys(digest for file in files for digest in digests(file, self.needed, name))
        self.repository.objects.refresh()
        lacking = [digest for digest in wanted if not self.repository.objects.lasting_places(digest)]
        if lacking:
            self.report.rescued.add(rescue(self.repository, lacking))

    def _delete(self, record: PendingDeleteRecord) -> None:
        """Delete the files of a record, but for what is held, or the only whole copy of something needed."""
        # Whoever holds looks around after its mark is written. So either the mark is seen here, or the holder
        # has seen that these files are condemned, and what was stored again out of them.
        self.held.look()
        files = self._present([record])
        if self.report.dry_run:
            self.report.deleted.add([file for file in files if not self._has_to_wait(file)])
            return
        meter = Meter(self.progress, "delete", len(files), total_bytes(files))
        checked_s = float("-inf")
        kept = False
        for file in files:
            if boot_clock_s() - checked_s > LOOK_EVERY_S:
                again, checked_s = checked_s > 0, boot_clock_s()
                if not is_there(self.store, record):
                    return  # another sweep was faster
                if again:
                    self.held.look()
            if self._has_to_wait(file) or not self._may_go(file) or not self._delete_file(file):
                kept = True
            meter.add(1, file.size_bytes)
        if not kept:
            mark_done(self.store, self.repository.digest_name, record)

    def _is_held(self, file: ContentFile) -> bool:
        """Whether a file has to stay since somebody reads what is in it; it is counted then."""
        if not self.held.names(file):
            return False
        self.report.held.add([file])
        return True

    def _has_to_wait(self, file: ContentFile) -> bool:
        """Whether a condemned file is held, and waits for the next sweep."""
        if not self._is_held(file):
            return False
        self.report.waiting.add([file])
        return True

    def _may_go(self, file: ContentFile) -> bool:
        """Whether everything that a file holds and a savepoint needs lies whole in a place that lasts."""
        if not is_content(file.key):
            return False
        if file.objects is None:
            self.report.left.setdefault(file.key, _unknown(file.key))
            return False
        for digest in digests(file, self.needed, self.repository.digest_name):
            if not is_intact(self.repository, digest):
                self.report.left[file.key] = self.report.rescued.failed.get(digest) or _only_copy(file.key)
                return False
        return True

    def _delete_file(self, file: ContentFile) -> bool:
        try:
            self.store.delete(file.key)
        except StorageError as error:
            if error.code not in _STAYS:
                raise
            self.report.left[file.key] = error
            return False
        del self.found.files[file.key]
        self.report.deleted.add([file])
        return True

    def _forget(self, records: Sequence[PendingDeleteRecord]) -> None:
        """Remove records whose files were deleted longer than the grace ago, and damaged ones as old."""
        if self.report.dry_run:
            return
        for record in records:
            since_ns = record.condemned_ns if record.error else record.done_ns
            if since_ns is not None and since_ns <= self._old_ns():
                forget(self.store, record)
        forget_orphans(self.store)

    def _condemn(self, records: Sequence[PendingDeleteRecord]) -> None:
        """Condemn files that are older than the grace and of which savepoints need nothing, or little."""
        condemned = {key for record in records for key in record.keys}
        chosen = []
        for file in self.found.files.values():
            if file.key in condemned:
                continue
            if file.mtime_ns <= self._old_ns() and self._is_waste(file) and not self._is_held(file):
                chosen.append(file)
            else:
                self.report.kept.add([file])
        chosen = self._but_locked(chosen)
        self.report.condemned.add(chosen)
        if self.report.dry_run or not chosen:
            return
        chosen.sort(key=lambda file: file.key)
        for start in range(0, len(chosen), RECORD_KEYS):
            keys = [file.key for file in chosen[start : start + RECORD_KEYS]]
            condemn(self.store, self.repository.digest_name, keys, self.by)
        self._rescue(chosen)

    def _but_locked(self, files: Sequence[ContentFile]) -> list[ContentFile]:
        """Those files that are not locked; the others are counted."""
        free, locks = [], visible_locks(self.store)
        if locks is None:
            return list(files)
        ends = each(lambda file: locked_until(locks, file.key), files, at_once(self.store))
        for file, until in zip(files, ends, strict=True):
            if until is None:
                free.append(file)
                continue
            self.report.kept.add([file])
            self.report.locked.add([file])
            self.report.locked_until = max(until, self.report.locked_until or until)
        return free

    def _is_waste(self, file: ContentFile) -> bool:
        """Whether hardly anything in a file is needed, or all of that is found elsewhere and nothing here."""
        if dead_share(file, self.needed) > REPACK_SHARE:
            return True
        if file.key not in self.found.unindexed or file.objects is None:
            return False
        needed = digests(file, self.needed, self.repository.digest_name)
        return all(self.repository.objects.lasting_places(digest) for digest in needed)

    def _tell(self, waiting: Sequence[PendingDeleteRecord]) -> None:
        """Report what is condemned and waits."""
        self.report.waiting.add(self._present(waiting))
        ages = [record.age_s(self.now_ns) for record in waiting]
        if self.report.condemned.files:
            ages.append(0.0)
        if ages:
            self.report.next_s = max(0.0, self.report.grace_s - max(ages))

    def _discard_leftovers(self) -> None:
        """Remove what writes have left that nobody has added to for a grace. Records of jobs are not ours."""
        try:
            found = list(self.store.leftovers(self._old_ns()))
        except StorageError as error:
            if error.code not in _MAY_NOT_LOOK:
                raise
            self.report.warnings.append(f"Leftovers of broken writes could not be listed: {error.message}")
            return
        for leftover in sorted(found, key=lambda each: (each.key, each.upload)):
            if leftover.key.startswith("jobs/"):
                continue
            try:
                if not self.report.dry_run:
                    self.store.discard(leftover)
            except StorageError as error:
                if error.code not in _STAYS:
                    raise
                self.report.left[leftover.key] = error
            else:
                self.report.leftovers.append(leftover)

    def _clean_index(self) -> None:
        """Let the index name no pack that was swept; what savepoints lack stays, for `verify` to name."""
        swept = {
            pack_id
            for pack_id, pack in self.found.lost_packs.items()
            if all(
                entry.digest[-64:] not in self.needed or self._lies_elsewhere(entry.digest, pack_id)
                for entry in pack.entries
            )
        }
        condemned = {key for record in condemned_records(self.store) for key in record.keys}
        swept |= {key[-64:] for key in condemned if key.startswith("packs/") and key not in self.found.files}
        if swept:
            self.repository.objects.index.drop(swept)

    def _lies_elsewhere(self, digest: str, pack_id: str) -> bool:
        places = self.repository.objects.lasting_places(digest)
        return any(place.key != pack_key(pack_id) for place in places)


def _unknown(key: str) -> IntegrityError:
    return IntegrityError(
        f"The contents of {key} cannot be determined, so it is left as it is.",
        code="pack-damaged",
        hint="`streambank reindex` repairs what can be repaired; the next sweep looks again.",
    )


def _only_copy(key: str) -> IntegrityError:
    return IntegrityError(
        f"{key} holds the only whole copy of an object that a savepoint needs.",
        code="object-damaged",
        hint="Nothing is lost: it stays. `streambank verify --all` shows what is damaged.",
    )


@dataclass(slots=True)
class Tally(JsonObject):
    """How many files, and how many bytes they have."""

    files: int = 0
    bytes: int = 0

    def add(self, files: Iterable[ContentFile]) -> None:
        """Count some more."""
        for file in files:
            self.files += 1
            self.bytes += file.size_bytes


@dataclass(slots=True)
class SweepReport:
    """What a sweep did, or with `dry_run` would do.

    Attributes:
        kept: Files that hold something that a savepoint needs, or that are too young to be judged.
        condemned: Files that were condemned: no savepoint needs them, or hardly anything of them.
        waiting: Files that are condemned and not deleted yet.
        next_s: In how many seconds the first of those may be deleted; None where none waits.
        rescued: Objects that savepoints need and that were stored again, out of condemned files.
        removed: Expired savepoints that can no more be brought back.
        expired: Expired savepoints that still can, with how many seconds they have left.
        left: Files that should have gone and are still there, or cannot be understood, and why.
        locked: Of `kept` those that no savepoint needs, and that a lock keeps from being deleted.
        locked_until: When the last of those locks ends; None where there is none.
        held: Of `kept` and `waiting` those that are still there only since somebody reads a savepoint.
        leftovers: What writes that were broken off have left, and that is deleted.
    """

    dry_run: bool
    grace_s: float
    kept: Tally = field(default_factory=Tally)
    condemned: Tally = field(default_factory=Tally)
    waiting: Tally = field(default_factory=Tally)
    next_s: Annotated[float | None, TENTHS] = None
    deleted: Tally = field(default_factory=Tally)
    rescued: Rescued = field(default_factory=Rescued)
    removed: list[Expired] = field(default_factory=list)
    expired: list[tuple[Expired, float]] = field(default_factory=list)
    left: dict[str, StreambankError] = field(default_factory=dict)
    locked: Tally = field(default_factory=Tally)
    locked_until: datetime | None = None
    held: Tally = field(default_factory=Tally)
    holds: list[Hold] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def leftover_bytes(self) -> int:
        """How many bytes broken writes had left."""
        return sum(leftover.size_bytes for leftover in self.leftovers)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "ok": not self.left,
            "rescued": {"objects": self.rescued.objects, "bytes": self.rescued.bytes},
            "expired": [copy.to_dict() | {"left_s": round(left_s, 1)} for copy, left_s in self.expired],
            "leftovers": [{"file": each.key, "bytes": each.size_bytes} for each in self.leftovers],
            "left": [
                {"file": key, "error": error.code, "message": error.message}
                for key, error in sorted(self.left.items())
            ],
        }


class HeldContent:
    """The objects that held savepoints name; those that were seen once count for the whole sweep.

    Args:
        now_ns: When the sweep began, by the clock of the storage.

    Attributes:
        holds: Every hold mark of the last look, ended ones among them.
    """

    def __init__(self, repository: Repository, now_ns: int) -> None:
        self.holds: list[Hold] = []
        self._repository = repository
        self._now_ns = now_ns
        self._named: dict[tuple[str, str], set[str]] = {}

    def look(self) -> None:
        """Take in what is held now."""
        self.holds = holds(self._repository.store, self._now_ns)
        for which in {hold.which for hold in self.holds if hold.counts} - self._named.keys():
            self._named[which] = self._objects(*which)

    def __contains__(self, which: object) -> bool:
        """Whether a savepoint, by job and id, is held."""
        return which in self._named

    def names(self, file: ContentFile) -> bool:
        """Whether a held savepoint names anything that lies in a file, be it elsewhere too."""
        inside = {digits for digits, _ in file.objects or ()} if self._named else set()
        return any(not inside.isdisjoint(named) for named in self._named.values())

    def _objects(self, job: str, savepoint: str) -> set[str]:
        """Hex digits of what a savepoint names, listed or expired; nothing where nobody can read that."""
        store = self._repository.store
        copies = [info.path for info in store.list(f"{EXPIRED}/{job}/{savepoint}")]
        found: set[str] = set()
        for key in (manifest_key(job, savepoint), *copies):
            try:
                found |= named_objects(store, key, job, savepoint)
            except (NotFoundError, *UNUSABLE):
                continue  # neither can the holder read it from there
        return found
