"""Signing a savepoint that is there already: somebody vouches for it once all its bytes were looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from streambank.core.errors import FormatError, IntegrityError
from streambank.core.shape import JsonObject
from streambank.core.signing import require_keys
from streambank.repository.catalog import manifest_key, manifest_name
from streambank.repository.manifest import decode_head
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage.store import chunks
from streambank.work.executor import Pace
from streambank.work.pace import Progress


@dataclass(frozen=True, slots=True)
class Signed(JsonObject):
    """What came of it; no key where it is not signed."""

    job: str
    savepoint: str
    signed: bool
    key: str | None
    says: str


def sign_savepoint(
    repository: Repository,
    job: str,
    savepoint: str,
    *,
    unsigned: bool = False,
    progress: Progress | None = None,
) -> Signed:
    """Sign a savepoint with the first key: if another key has signed it, or all of it is verified.

    Args:
        unsigned: Also one that no key has signed although there are several, so that there were signatures
            before; and one that was changed since it was signed.

    Raises:
        InputError: There is no key (code `bad-signing-key`).
        NotFoundError: There is no such savepoint.
    """
    require_keys(repository.signatures.keys)
    manifest = _Manifest(repository, job, savepoint)
    try:
        return _sign(repository, manifest, unsigned, Pace(progress=progress))
    except _ChangedError:
        return manifest.unsigned("it was changed while it was verified")


def _sign(repository: Repository, manifest: _Manifest, unsigned: bool, pace: Pace) -> Signed:
    job, savepoint = manifest.job, manifest.savepoint
    try:  # of what is damaged no more is read than up to there
        decode_head(manifest.chunks(), manifest_name(job, savepoint))
    except (FormatError, IntegrityError) as error:
        return manifest.unsigned(error.message)
    signatures = repository.signatures
    if signatures.has_signed(job, savepoint, manifest.chunks()):
        return Signed(job, savepoint, True, signatures.keys[0].id, "it was signed already")
    try:
        signatures.require(job, savepoint, signatures.signing(job, savepoint, manifest.chunks()))
    except IntegrityError as error:
        if not unsigned and (error.code != "not-signed" or len(signatures.keys) > 1):
            return manifest.unsigned(f"{error.message} If you know where it comes from: `--unsigned`.")
    else:  # the key that is about to be replaced vouches for it
        key = signatures.sign(job, savepoint, manifest.chunks())
        return Signed(job, savepoint, True, key, f"signed by key {key}, as by an earlier one")
    report = verify(repository.without_keys(), job, savepoint, "full", pace=pace, record=False)
    problems = [finding for finding in report.findings if finding.severity == "error"]
    if problems:
        return manifest.unsigned(f"{problems[0].file}: {problems[0].cause}")
    key = signatures.sign(job, savepoint, manifest.chunks())
    return Signed(job, savepoint, True, key, f"signed by key {key}")


class _ChangedError(Exception):
    """A manifest is no longer what it was when it was read first."""


class _Manifest:
    """The bytes of a manifest, read as often as need be and never held as a whole: the same each time."""

    def __init__(self, repository: Repository, job: str, savepoint: str) -> None:
        self.job, self.savepoint = job, savepoint
        self._store = repository.store
        self._digest: bytes | None = None

    def chunks(self) -> Iterator[bytes]:
        """All of it.

        Raises:
            NotFoundError: It is gone.
            _ChangedError: At its end, where it has changed since it was read first.
        """
        hasher = hashlib.sha256()
        with self._store.open(manifest_key(self.job, self.savepoint)) as reader:
            for chunk in chunks(reader):
                hasher.update(chunk)
                yield chunk
        if self._digest not in (None, hasher.digest()):
            raise _ChangedError
        self._digest = hasher.digest()

    def unsigned(self, why: str) -> Signed:
        return Signed(self.job, self.savepoint, False, None, f"not signed: {why}")
