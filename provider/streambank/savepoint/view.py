"""A savepoint read where it lies, as the checkpoint it is a copy of: listed and read, but not laid out.

For questions that its small files answer, and heads and ends of larger ones; Spark needs a restore.
"""

from __future__ import annotations

from functools import lru_cache

from streambank.checkpoint.closure import Closure, plan_closure
from streambank.core.choices import ClosureKind
from streambank.core.errors import IntegrityError, NotFoundError, StreambankError
from streambank.repository.manifest import Manifest
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.storage.store import FileInfo

_KEPT_FILES = 4


class SavedFiles:
    """The files of a savepoint's checkpoint."""

    def __init__(self, repository: Repository, manifest: Manifest) -> None:
        self._repository = repository
        self._manifest = manifest
        self._digests = {entry.path: entry.digest for entry in manifest.files}
        self._sizes = {entry.path: entry.size_bytes for entry in manifest.files}
        # A zip is read in several pieces, one right after the other.
        self._whole = lru_cache(_KEPT_FILES)(repository.objects.read)

    def listing(self) -> dict[str, FileInfo]:
        """Every file, path -> file; its digest is its identity."""
        return {
            entry.path: FileInfo(entry.path, entry.size_bytes, entry.mtime_ns, entry.digest)
            for entry in self._manifest.files
        }

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file. Those of small ones (512 KiB) are compared with their digest, parts of others not.

        Raises:
            NotFoundError: The savepoint has no such file (code `not-found`).
            IntegrityError: The repository does not have its bytes any more (codes `object-missing`,
                `object-damaged`, `pack-missing`).
        """
        digest = self._digests.get(path)
        if digest is None:
            raise NotFoundError(
                f"The savepoint {self._manifest.savepoint} has no file {path}.",
                hint="Look at its manifest, which lists its files.",
            )
        if length is None or self._sizes[path] <= SMALL_BYTES:
            return self._whole(digest)[offset : None if length is None else offset + length]
        location = self._repository.objects.locate(digest)
        wanted = min(length, max(location.length - offset, 0))
        try:
            return self._repository.store.read(location.key, location.offset + offset, wanted)
        except NotFoundError as error:
            raise IntegrityError(
                f"The object {digest} of {path} is gone.",
                code="object-missing",
                hint="Somebody swept the repository meanwhile: look at what savepoints there are.",
            ) from error

    def closure(self, kind: ClosureKind = "minimal") -> Closure:
        """The closure of the savepoint's batch, planned again from its files.

        Raises:
            IntegrityError: The repository lacks bytes of it, or it is no whole checkpoint (code
                `savepoint-incomplete`).
            FormatError: As `checkpoint.closure.plan_closure`.
        """
        try:
            return plan_closure(self.listing(), self.read, self._manifest.batch, kind)
        except NotFoundError as error:
            raise incomplete(self._manifest, error) from error


def incomplete(manifest: Manifest, error: StreambankError) -> IntegrityError:
    """That the files of a savepoint are not those that its batch needs (code `savepoint-incomplete`)."""
    return IntegrityError(
        f"What savepoint {manifest.savepoint} holds is not a complete checkpoint of batch {manifest.batch}: "
        f"{error.message}",
        code="savepoint-incomplete",
        hint="Use another savepoint, and report this one.",
    )
