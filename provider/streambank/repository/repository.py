"""A repository: content-addressed objects, the savepoints that name them, and the marks beside those.

Write order, on which everything rests: objects and packs, then the index, then the manifest. Before the
manifest there is no savepoint; after it, it is complete. docs/formats/repository.md is the specification.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from streambank.core.errors import ConflictError, IntegrityError, NotFoundError, StreambankError
from streambank.core.signing import Keys, signing_keys
from streambank.repository import catalog
from streambank.repository.catalog import SavepointSummary, check_place, manifest_key, manifest_name
from streambank.repository.coverage import Coverage
from streambank.repository.digest import DEFAULT_DIGEST
from streambank.repository.header import RepositoryHeader, create_header, making, read_header
from streambank.repository.locks import LockPolicy, OnLock, SavepointLocks
from streambank.repository.manifest import Manifest, decode, encode
from streambank.repository.marks import (
    PIN,
    REHEARSAL,
    VERIFIED,
    Mark,
    Marks,
    Verification,
    add_mark,
    is_pinned,
    to_verification,
)
from streambank.repository.names import check_savepoint_name, give_name, names_there
from streambank.repository.objects.index_files import RebuildReport
from streambank.repository.objects.objects import Objects
from streambank.repository.objects.read import ObjectLocation
from streambank.repository.objects.write import ObjectWriter
from streambank.repository.references import Found, LeaveOut, ZoneOf, recorded_holder, resolve, utc_of
from streambank.repository.signatures import Signatures
from streambank.repository.trash import COMMIT_WINDOW_S, MIN_GRACE_S, boot_clock_s
from streambank.storage.local.modes import make_directory, openness
from streambank.storage.store import Store, chunks

__all__ = ["ObjectLocation", "ObjectWriter", "RebuildReport", "Repository", "SavepointSummary"]


class Repository:
    """A repository that is there; `Repository.open` gives one. Safe to use from several threads.

    Attributes:
        id: A UUID that tells it from its replicas.
        signatures: Of its savepoints, by the keys of this installation.
        locks: Of savepoints that are made through this.
        objects: Its objects, packs and index, for callers that plan by where things lie.
        zone_of: Gives the time zone of references by time that say none, by job; UTC unless it is set.
    """

    def __init__(
        self, store: Store, header: RepositoryHeader, keys: Keys = (), lock: LockPolicy | None = None
    ) -> None:
        self.store = store
        self._header = header
        self.id = header.id
        self.digest_name = header.digest
        self.objects = Objects(store, header.digest)
        self.signatures = Signatures(store, keys)
        self.locks = SavepointLocks(store, self.objects, lock)
        self.zone_of: ZoneOf = utc_of

    @classmethod
    def open(
        cls,
        store: Store,
        *,
        create: bool = False,
        digest: str = DEFAULT_DIGEST,
        like: str | None = None,
        lock: LockPolicy | None = None,
    ) -> Repository:
        """The repository at the root of a store.

        Args:
            digest: Algorithm of a new one: `blake3`, or `sha256` to need nothing but the standard library.
            like: The checkpoint, or repository, that it is made for: on a disk, no more users may look into
                the new one.
            lock: For how long savepoints that are made through this are locked.

        Raises:
            NotFoundError: There is none (code `no-repository`).
            InputError: It was to be made where other files are (code `not-empty`).
            FormatError: A newer Streambank made it (code `unknown-format`).
            IntegrityError: Its header is damaged or gone (codes `record-damaged`, `header-missing`).
        """
        if create and like is not None:
            found = openness(like)
            with making(store):
                make_directory(store.uri, None if found is None else found.readers())
        header = create_header(store, digest, str(uuid.uuid4())) if create else read_header(store)
        return cls(store, header, signing_keys(), lock)

    def without_keys(self) -> Repository:
        """The same repository, whose savepoints are read whether they are signed or not."""
        same = Repository(self.store, self._header, lock=self.locks.policy)
        same.zone_of = self.zone_of
        return same

    def check_new(self, job: str) -> None:
        """Make sure that a new savepoint of a job can be locked and signed, where it has to be.

        Raises:
            RefusedError: It cannot (codes `no-object-lock`, `signing-key-missing`).
        """
        self.locks.require()
        self.signatures.require_key(job)

    def lock_savepoint(self, manifest: Manifest, on_lock: OnLock | None = None) -> None:
        """Lock a savepoint that is there for as long as one that is saved now, and as it was locked.

        What was stored again for it is another version of a file, without the lock that the first one has.

        Raises:
            IntegrityError, RefusedError, StorageError: As `SavepointLocks.around`.
        """
        with self.locks.around(manifest, self.signatures, again=True, on_lock=on_lock):
            pass

    def commit(self, manifest: Manifest, on_lock: OnLock | None = None) -> bool:
        """Make a savepoint exist: the one commit point. All its objects must have been stored and flushed.

        Returns:
            Whether this call made it; False where it was there already.

        Raises:
            IntegrityError: An object that it names is not there (code `object-missing`).
            ConflictError: A sweep has condemned an object meanwhile (code `objects-condemned`): store again
                what `condemned` names, and commit again.
            RefusedError: The job's savepoints are signed, and there is no key (code `signing-key-missing`);
                or it has to be locked and cannot be (`no-object-lock`).
        """
        manifest = replace(manifest, digest=self.digest_name)
        self.signatures.require_key(manifest.job)
        if self.signatures.keys:
            self.signatures.sign(manifest.job, manifest.savepoint, encode(manifest))
        return self._commit(manifest, encode(manifest), on_lock=on_lock)

    def adopt(
        self,
        manifest: Manifest,
        data: bytes,
        *,
        signatures: Iterable[str] = (),
        replace_damaged: bool = False,
        on_lock: OnLock | None = None,
    ) -> bool:
        """Make a savepoint of another repository exist here too, with the very bytes of its manifest.

        Args:
            signatures: Those that lie beside it there.
            replace_damaged: A file of this name is there, is known to be damaged, and gives way.

        Returns:
            Whether this call made it; False where a savepoint of this id was there already.

        Raises:
            IntegrityError: As `commit`.
        """
        self.signatures.add(manifest.job, manifest.savepoint, signatures)
        return self._commit(manifest, data, exclusive=not replace_damaged, on_lock=on_lock)

    def _commit(
        self,
        manifest: Manifest,
        data: bytes | Iterable[bytes],
        *,
        exclusive: bool = True,
        on_lock: OnLock | None = None,
    ) -> bool:
        key = manifest_key(manifest.job, manifest.savepoint)
        with self.locks.around(manifest, self.signatures, again=not exclusive, on_lock=on_lock):
            checked_s = check_lasting(self.objects, manifest)
            try:
                self.store.write(key, data, exclusive=exclusive)
            except ConflictError as error:
                if error.code != "exists":
                    raise
                catalog.settle_listed(self.store, manifest.job)
                return False
            if boot_clock_s() - checked_s > COMMIT_WINDOW_S:
                self._look_after_sleep(manifest, made=exclusive)
            return True

    def _look_after_sleep(self, manifest: Manifest, *, made: bool) -> None:
        """This machine slept while it listed a savepoint, and a sweep may have been at work: look again.

        What lacks objects now is not listed any more, unless it was before (not `made`): a repair finds that.
        """
        try:
            check_lasting(self.objects, manifest)
        except (ConflictError, IntegrityError):
            if made:
                self.store.delete(manifest_key(manifest.job, manifest.savepoint))
            raise

    def load(self, job: str, savepoint: str) -> Manifest:
        """A savepoint's manifest, checked; its signature, too, where there are keys.

        Raises:
            NotFoundError: There is no such savepoint (code `no-such-savepoint`).
            IntegrityError, FormatError: See `manifest.decode`, or it is not signed (`not-signed`,
                `bad-signature`).
        """
        what = manifest_name(job, savepoint)
        signing = self.signatures.signing(job, savepoint)
        try:
            with self.store.open(manifest_key(job, savepoint)) as reader:
                manifest = decode(signing.passing(chunks(reader)), what)
        except NotFoundError as error:
            raise catalog.no_such_savepoint(job, savepoint) from error
        self.signatures.require(job, savepoint, signing)
        return check_place(manifest, job, savepoint)

    def manifests(self, job: str | None = None) -> Iterator[SavepointSummary]:
        """The catalog, by job and then by age; a damaged savepoint is listed with its `error`."""
        return catalog.summarize(self.store, job)

    def candidates(self, job: str) -> list[SavepointSummary]:
        """What can be chosen of a job without its id or its name, oldest first; see `catalog.candidates`."""
        return catalog.candidates(self.store, job)

    def find(self, reference: str, job: str | None = None) -> tuple[str, str]:
        """Job and id of the savepoint that a person means; see `references.py`."""
        found = self.resolve(reference, job)
        return found.job, found.savepoint

    def resolve(self, reference: str, job: str | None = None, *, leave_out: LeaveOut | None = None) -> Found:
        """The savepoint that a person means; see `references.resolve`."""
        return resolve(self.store, reference, job, zone_of=self.zone_of, leave_out=leave_out)

    def names(self, manifest: Manifest) -> tuple[str, ...]:
        """The names of a savepoint that is listed."""
        which = (manifest.job, manifest.savepoint)
        found, recorded = names_there(
            self.store, manifest.job, lambda *one: self.store.exists(manifest_key(*one))
        )
        own = manifest.name and (manifest.job, manifest.name) not in recorded
        return (*found.get(which, ()), *((manifest.name,) if own else ()))

    def give_name(
        self,
        job: str,
        savepoint: str,
        name: str,
        *,
        by: Mapping[str, Any] | None = None,
        anyway: bool = False,
    ) -> str:
        """Give a name to a savepoint that is listed, unless another one has it.

        Args:
            anyway: Take it away from another one.

        Returns:
            The savepoint that has the name now.

        Raises:
            InputError: A savepoint cannot have such a name (code `bad-savepoint-name`).
            ConflictError: See `names.give_name`.
        """
        check_savepoint_name(name)
        holder = (lambda: None) if anyway else recorded_holder(self.store, job, name)
        return give_name(self.store, self.digest_name, job, name, savepoint, by=by, holder=holder)

    # Marks

    def pin(self, job: str, savepoint: str, *, by: Mapping[str, Any] | None = None, note: str = "") -> Mark:
        """Exempt a savepoint from retention.

        Raises:
            NotFoundError: There is no such savepoint, or it was expired meanwhile.
        """
        mark = self._mark(job, savepoint, PIN, by, {"pinned": True, "note": note})
        # Whoever expires it looks for pins once more after it, so that one of the two sees the other.
        if not self.store.exists(manifest_key(job, savepoint)):
            raise catalog.no_such_savepoint(job, savepoint)
        return mark

    def unpin(self, job: str, savepoint: str, *, by: Mapping[str, Any] | None = None, note: str = "") -> Mark:
        """Leave a savepoint to retention again.

        Raises:
            NotFoundError: There is no such savepoint.
        """
        return self._mark(job, savepoint, PIN, by, {"pinned": False, "note": note})

    def pinned(self, job: str, savepoint: str) -> bool:
        """Whether a savepoint is pinned.

        Raises:
            IntegrityError: The mark that says so is damaged.
        """
        return is_pinned(self.newest_mark(job, savepoint, PIN))

    def newest_mark(self, job: str, savepoint: str, kind: str) -> Mark | None:
        """The newest mark of a kind; None for none.

        Raises:
            IntegrityError: It is damaged.
        """
        return Marks(self.store, job, savepoint).newest(kind)

    def mark_rehearsal(
        self, job: str, savepoint: str, *, passed: bool, by: Mapping[str, Any] | None = None
    ) -> Mark:
        """Say whether a rehearsal of a savepoint with changed state has passed.

        Until one has, only its id or its name means the savepoint: False is written before it is listed.
        """
        return add_mark(
            self.store, self.digest_name, job, savepoint, REHEARSAL, by=by, fields={"passed": passed}
        )

    def record_verification(
        self,
        job: str,
        savepoint: str,
        *,
        level: str,
        ok: bool,
        findings: int = 0,
        files: int = 0,
        bytes: int = 0,
        seconds: float = 0.0,
        coverage: Coverage | None = None,
        by: Mapping[str, Any] | None = None,
    ) -> Mark:
        """Leave beside a savepoint that it was verified, and with what result.

        Damage that was found by hashing stands until those bytes are hashed again: `ok` is recorded as false
        where `coverage` is not.

        Raises:
            NotFoundError: There is no such savepoint.
        """
        fields: dict[str, Any] = {
            "level": level,
            "ok": ok and (coverage is None or coverage.ok),
            "findings": findings,
            "files": files,
            "bytes": bytes,
            "seconds": seconds,
        }
        if coverage is not None:
            fields["coverage"] = coverage.to_list()
        return self._mark(job, savepoint, VERIFIED, by, fields)

    def coverage(self, job: str, savepoint: str) -> Coverage:
        """How much of a savepoint has been hashed, and when, as its newest verification knows.

        Nothing where that cannot be read: then all is hashed again.
        """
        verified = Marks(self.store, job, savepoint).readable_verification()
        return verified.coverage if verified is not None else Coverage()

    def verifications(self, job: str, savepoint: str) -> list[Verification]:
        """All verifications of a savepoint that can be read, oldest first; see `damaged_marks`."""
        marks, _ = Marks(self.store, job, savepoint).read_all()
        return [to_verification(mark) for mark in marks if mark.kind == VERIFIED]

    def damaged_marks(self, job: str, savepoint: str) -> list[tuple[str, StreambankError]]:
        """Marks of a savepoint that cannot be read, by their keys, and what is wrong with each."""
        return Marks(self.store, job, savepoint).read_all()[1]

    def _mark(
        self, job: str, savepoint: str, kind: str, by: Mapping[str, Any] | None, fields: Mapping[str, Any]
    ) -> Mark:
        if not self.store.exists(manifest_key(job, savepoint)):
            raise catalog.no_such_savepoint(job, savepoint)
        return add_mark(self.store, self.digest_name, job, savepoint, kind, by=by, fields=fields)


_LOOKS = 4


def check_lasting(held: Objects, manifest: Manifest) -> float:
    """Make sure that a manifest may be listed now.

    That every object is there may take long to find out, so the condemned files are looked at twice: before,
    as nothing that was not condemned then is deleted within `MIN_GRACE_S`, and once more at the end.

    Returns:
        When the last look began, by `boot_clock_s`; list the manifest within `COMMIT_WINDOW_S` of it.

    Raises:
        IntegrityError: An object is not there (code `object-missing`).
        ConflictError: One was condemned (code `objects-condemned`), or looking took too long
            (`commit-too-slow`).
    """
    objects = manifest.objects()
    for _ in range(_LOOKS):
        began_s = boot_clock_s()
        held.refresh()
        missing = held.missing(objects)
        checked_s = boot_clock_s()
        condemned = held.condemned(objects, refresh=True)
        if condemned:
            raise ConflictError(
                f"The savepoint {manifest.savepoint} of {manifest.job} relies on {len(condemned)} objects "
                "that a sweep has meanwhile marked for deletion.",
                code="objects-condemned",
                hint="Take it again: the objects are then stored again.",
            )
        if missing:
            raise IntegrityError(
                f"The savepoint {manifest.savepoint} of {manifest.job} needs {len(missing)} objects that "
                f"the repository does not hold, such as {min(missing)}.",
                code="object-missing",
                hint="The savepoint was not saved. Take it again.",
            )
        now_s = boot_clock_s()
        if now_s - checked_s < COMMIT_WINDOW_S / 2 and now_s - began_s < MIN_GRACE_S:
            return checked_s
    raise ConflictError(
        f"Checking that all objects of the savepoint {manifest.savepoint} of {manifest.job} exist took too "
        f"long each time. In {MIN_GRACE_S / 60:.0f} minutes a sweep may delete some of them.",
        code="commit-too-slow",
        hint="The savepoint was not saved. Try again when the storage answers faster.",
    )
