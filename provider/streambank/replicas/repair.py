"""Repairing a repository: what is damaged or gone is taken again from a replica that has it whole.

The order is that in which a repository is written: first the index, which its own packs tell, then objects
and packs, and a damaged manifest last, once all that it names is whole. Each file is replaced at once, by
bytes that were hashed, and nothing is deleted; so a repair that is killed leaves nothing worse than it was,
and the next one goes on. In the end every savepoint that was touched is verified in full.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from streambank.core.errors import (
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StreambankError,
)
from streambank.core.shape import MILLIS, encode
from streambank.core.signing import is_signed
from streambank.replicas.file_repair import FileRepair, RepairedFile, Replicas, repair_files
from streambank.replicas.replicate import read_manifest
from streambank.repository.catalog import manifest_key
from streambank.repository.header import HEADER_KEY
from streambank.repository.manifest import MANIFEST_SEAL, Manifest, glance
from streambank.repository.objects.packs import read_pack
from streambank.repository.repository import Repository
from streambank.repository.signatures import Signatures
from streambank.savepoint.plan import check_same
from streambank.savepoint.verify import VerifyReport, flaws, verify
from streambank.storage import same_place
from streambank.storage.store import Store
from streambank.storage.threads import at_once
from streambank.work.check import check_objects
from streambank.work.damage import BAD_DISK, DAMAGE, is_damage
from streambank.work.executor import DEFAULT_PACE, Pace
from streambank.work.pace import LOCK, Meter, counted

_BY_INDEX = frozenset({"index-damaged", "index-incomplete"})
_NOT_KNOWN = (
    "It has a savepoint of this id, and nothing here says that it is this one. If you know that it is, move "
    "the damaged manifest away, and replicate the savepoint from there."
)
_OWN_MARKS = "Each repository has its own marks: pin or unpin the savepoint again, and verify it again."

Which = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NotRepaired:
    """Something that stays damaged.

    Attributes:
        file: Its key in the repository, or the digest of an object that lies nowhere.
        needed_by: The savepoints that need it, as `job/id`.
    """

    file: str
    cause: str
    reason: str
    needed_by: tuple[str, ...] = ()


@dataclass(slots=True)
class RepairReport:
    """What a repair came to.

    Attributes:
        verified: A full verification of each savepoint that was touched.
    """

    repository: str
    replicas: tuple[str, ...]
    dry_run: bool
    repaired: list[RepairedFile] = field(default_factory=list)
    not_repaired: list[NotRepaired] = field(default_factory=list)
    verified: list[VerifyReport] = field(default_factory=list)
    seconds: Annotated[float, MILLIS] = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing that was looked at is damaged any more, or would be."""
        return not self.not_repaired and all(report.ok for report in self.verified)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"ok": self.ok}


def repair(
    repository: Repository,
    replicas: Sequence[Repository],
    which: Sequence[Which],
    *,
    header_error: IntegrityError | None = None,
    dry_run: bool = False,
    pace: Pace = DEFAULT_PACE,
    by: Mapping[str, Any] | None = None,
) -> RepairReport:
    """Make savepoints whole again.

    Args:
        replicas: Where to take whole bytes from, the preferred one first.
        which: Job and id of the savepoints to look at.
        header_error: What was wrong with the header (`open_for_repair`).
        dry_run: Read all the same, and write nothing.

    Raises:
        InputError: A replica names objects by another digest (code `other-digest`), or is what is to be
            repaired (`same-repository`), or the rate is less than 1 (`bad-rate`).
        StorageError: A place failed as a whole; what is repaired stays so, and the next try goes on.
    """
    started = time.monotonic()
    for replica in replicas:
        _check_fit(repository, replica)
    if dry_run and header_error is not None:
        pace = replace(pace, executor=None)  # no other process could open a repository without its header
    run = _Repair(repository, replicas, which, dry_run, pace)
    if header_error is not None:
        run.report.repaired.append(RepairedFile("header", HEADER_KEY))
    touched = run.run()
    if not dry_run:
        fresh = Repository.open(repository.store, lock=repository.locks.policy)
        for each in touched:
            with suppress(NotFoundError):  # it was deleted meanwhile
                report = verify(fresh, *each, "full", pace=pace, by=by)
                run.report.verified.append(report)
                if report.ok:
                    fresh.lock_savepoint(fresh.load(*each), counted(pace.progress, LOCK))
    run.report.seconds = time.monotonic() - started
    return run.report


def _check_fit(repository: Repository, replica: Repository) -> None:
    if replica.id == repository.id and same_place(replica.store.uri, repository.store.uri):
        raise InputError(
            f"{replica.store.uri} cannot be repaired from itself.",
            code="same-repository",
            hint="Name a replica of it.",
        )
    if replica.digest_name != repository.digest_name:
        raise InputError(
            f"{replica.store.uri} names objects by {replica.digest_name}, and {repository.store.uri} by "
            f"{repository.digest_name}, so it is not a replica of it.",
            code="other-digest",
            hint="Name a replica that `streambank replicate` made.",
        )


@dataclass(eq=False)
class _Repair:
    """One repair, up to the verification."""

    repository: Repository
    replicas: Sequence[Repository]
    which: Sequence[Which]
    dry_run: bool
    pace: Pace

    def __post_init__(self) -> None:
        replicas = tuple(replica.store.uri for replica in self.replicas)
        self.report = RepairReport(self.repository.store.uri, replicas, self.dry_run)
        self.copies: dict[Which, _ManifestCopy] = {}

    def run(self) -> list[Which]:
        """Repair, and say which savepoints were touched."""
        objects = self._objects()
        lacking = dict(flaws(self.repository, objects, also=BAD_DISK))
        users = self._users(lacking)
        hidden: Set[str] = frozenset()
        if self._index(lacking):
            if self.dry_run:  # what the packs themselves lack is seen only once there is an index
                hidden = {digest for digest, error in lacking.items() if error.code in _BY_INDEX}
            else:
                lacking = dict(flaws(self.repository, objects, also=BAD_DISK))
        rest = {digest: size for digest, size in objects.items() if digest not in lacking}
        lacking |= self._unreadable(self.repository, rest)
        lacking = {digest: error for digest, error in lacking.items() if digest not in hidden}
        users |= self._users(lacking)
        lost = self._mend({digest: objects[digest] for digest in lacking})
        for digest, reason in lost.items():
            self._give_up(self._place(digest), lacking[digest].message, reason, users.get(digest, []))
        unfit = {which for digest in lost for which in users.get(digest, [])}
        for which, copy in self.copies.items():
            self._manifest(which, copy, complete=which not in unfit)
        self._marks()
        touched = {which for each in users.values() for which in each} | self.copies.keys()
        return [which for which in self.which if which in touched]

    def _objects(self) -> dict[str, int]:
        """The objects of all savepoints; of one whose manifest is damaged, as a replica's copy has them."""
        objects: dict[str, int] = {}
        for which in self.which:
            try:
                manifest = self.repository.load(*which)
            except NotFoundError:
                continue  # it was deleted since it was listed
            except (*DAMAGE, StorageError) as error:
                if not is_damage(error):
                    raise
                copy = self._copy_of(which, error)
                if copy is None:
                    continue
                self.copies[which], manifest = copy, copy.manifest
            objects |= manifest.objects()
        return objects

    def _copy_of(self, which: Which, error: StreambankError) -> _ManifestCopy | None:
        """The first whole copy of a manifest that cannot be read; None, and a reason, where there is none."""
        reasons = [error.hint] if isinstance(error, FormatError) else []
        for replica in self.replicas if not isinstance(error, FormatError) else ():
            try:
                data, manifest = read_manifest(replica, *which)
            except (NotFoundError, *DAMAGE) as other:
                reasons.append(f"{replica.store.uri}: {other.message}")
                continue
            if self._is_known(which, data, manifest):
                return _ManifestCopy(data, manifest, replica.store, error)
            reasons.append(f"{replica.store.uri}: {_NOT_KNOWN}")
        self._give_up(manifest_key(*which), error.message, " ".join(reasons), [which])
        return None

    def _is_known(self, which: Which, data: bytes, manifest: Manifest) -> bool:
        """Whether a copy is of the damaged manifest: its id may be that of another savepoint, too.

        A signature that lies here decides. Else what is left of the manifest does: its seal, which is of all
        its bytes, or its head. Where that says nothing, the objects that the copy names do (`_may_be`).
        """
        repository = self.repository
        signatures = repository.signatures
        names = signatures.of(*which)
        if names and signatures.keys:
            return bool(is_signed(signatures.signing(*which, [data]), names))
        left = b""
        with suppress(StorageError, NotFoundError):
            left = repository.store.read(manifest_key(*which))
        if left.endswith(data[data.rindex(f'"{MANIFEST_SEAL}"'.encode()) :]):
            return True
        head = glance(left)
        if head is not None:
            return (head.taken_at, head.checkpoint) == (manifest.taken_at, manifest.checkpoint)
        return self._may_be(which, manifest)

    def _may_be(self, which: Which, manifest: Manifest) -> bool:
        """Whether all objects of a copy are known here, or may have been in a pack that nobody can read now.

        A power cut takes the last pack with its index file and the manifest. Then the copy counts unless a
        verification saw other bytes, or another replica has another savepoint.
        """
        repository = self.repository
        known: set[str] = set()
        is_lost = False
        for pack_id in repository.objects.index.unindexed_packs():
            try:
                known.update(entry.digest for entry in read_pack(repository.store, pack_id).entries)
            except NotFoundError:
                continue  # it was deleted since it was listed
            except DAMAGE:
                is_lost = True
        if all(digest in known or self._is_listed(digest) for digest in manifest.objects()):
            return True
        said = [one for one in repository.verifications(*which) if one.files and one.level != "sampled"]
        seen = (len(list(manifest.all_files())), sum(manifest.objects().values()))
        if not is_lost or any((one.files, one.bytes) != seen for one in said):
            return False
        for replica in self.replicas:
            try:
                check_same(manifest, read_manifest(replica, *which)[1], replica.store.uri)
            except (NotFoundError, *DAMAGE) as error:
                if error.code == "other-savepoint":
                    return False
        return True

    def _is_listed(self, digest: str) -> bool:
        try:
            self.repository.objects.locate(digest)
        except DAMAGE:
            return False
        return True

    def _users(self, digests: Container[str]) -> dict[str, list[Which]]:
        """Which savepoints need some objects; manifests are read again rather than kept."""
        users: dict[str, list[Which]] = {}
        for which in self.which:
            try:
                copy = self.copies.get(which)
                manifest = copy.manifest if copy else self.repository.load(*which)
            except (NotFoundError, *DAMAGE, StorageError) as error:
                if not isinstance(error, NotFoundError) and not is_damage(error):
                    raise
                continue  # `_objects` has said so
            for digest in manifest.objects():
                if digest in digests:
                    users.setdefault(digest, []).append(which)
        return users

    def _index(self, lacking: Mapping[str, StreambankError]) -> bool:
        """Make the index again where it is damaged or incomplete; whether that was needed."""
        damaged = [damage.key for damage in self.repository.objects.index.check()]
        if not damaged and not any(error.code in _BY_INDEX for error in lacking.values()):
            return False
        if not self.dry_run:
            self.repository.objects.index.rebuild()
        self.report.repaired += [RepairedFile("index", key) for key in damaged or ["index/"]]
        return True

    def _unreadable(self, repository: Repository, objects: Mapping[str, int]) -> dict[str, StreambankError]:
        who, rate = self.pace.who, self.pace.rate
        meter = Meter(self.pace.progress, "check", len(objects), sum(objects.values()))
        return check_objects(repository, objects, who, rate=rate, meter=meter, also=BAD_DISK)

    def _mend(self, lacking: Mapping[str, int]) -> dict[str, str]:
        """Bring objects back; those that stay lost, and why."""
        if not lacking:
            return {}
        with nullcontext() if self.dry_run else self.repository.objects.writer() as writer:
            mender = FileRepair(self.repository, Replicas(self.replicas, self.pace.rate), writer)
            parallel = self.pace.parallel or at_once(self.repository.store)
            repair_files(mender, lacking, parallel=parallel, progress=self.pace.progress)
        self.report.repaired += mender.mended.repaired
        lost = mender.mended.lost
        if not self.dry_run:
            fresh = Repository.open(self.repository.store)
            hoped = {digest: size for digest, size in lacking.items() if digest not in lost}
            bad = dict(flaws(fresh, hoped, also=BAD_DISK))
            rest = {digest: size for digest, size in hoped.items() if digest not in bad}
            bad |= self._unreadable(fresh, rest)
            lost |= {digest: f"What was written does not read back: {bad[digest].message}" for digest in bad}
        return lost

    def _manifest(self, which: Which, copy: _ManifestCopy, *, complete: bool) -> None:
        """Put a replica's manifest in the place of a damaged one, once all that it names is whole."""
        key = manifest_key(*which)
        if not complete:
            self._give_up(key, copy.error.message, "Objects that it names are not whole.", [which])
            return
        if not self.dry_run:
            fresh = Repository.open(self.repository.store, lock=self.repository.locks.policy)
            names = fresh.signatures.lacking(Signatures(copy.source), *which)
            on_lock = counted(self.pace.progress, LOCK)
            fresh.adopt(copy.manifest, copy.data, signatures=names, replace_damaged=True, on_lock=on_lock)
        self.report.repaired.append(RepairedFile("manifest", key, 0, len(copy.data), (copy.source.uri,)))

    def _marks(self) -> None:
        for which in self.which:
            for key, error in self.repository.damaged_marks(*which):
                self._give_up(key, error.message, _OWN_MARKS, [which])

    def _place(self, digest: str) -> str:
        """Where an object is, or should be."""
        try:
            return self.repository.objects.locate(digest).key
        except DAMAGE:
            return digest

    def _give_up(self, file: str, cause: str, reason: str, users: Sequence[Which]) -> None:
        needed_by = tuple(f"{job}/{savepoint}" for job, savepoint in users)
        self.report.not_repaired.append(NotRepaired(file, cause, reason, needed_by))


@dataclass(frozen=True, slots=True)
class _ManifestCopy:
    """A replica's whole copy of a manifest that is damaged here."""

    data: bytes
    manifest: Manifest
    source: Store
    error: StreambankError
