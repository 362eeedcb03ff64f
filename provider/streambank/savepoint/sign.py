"""Signing a savepoint that is there already: somebody vouches for it once all its bytes were looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streambank.core.errors import IntegrityError
from streambank.core.signing import require_keys
from streambank.repository.catalog import manifest_key
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.work.executor import Pace
from streambank.work.pace import Progress


@dataclass(frozen=True, slots=True)
class Signed:
    """What came of it.

    Attributes:
        job: `job` or `job/query`.
        savepoint: Its id.
        signed: Whether it is signed now.
        key: The id of the key; None where it is not signed.
        says: That it is, or why not.
    """

    job: str
    savepoint: str
    signed: bool
    key: str | None
    says: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


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
        repository: Where it is.
        job: `job` or `job/query`.
        savepoint: Its id.
        unsigned: Also one that no key has signed although there are several, so that there were signatures
            before; and one that was changed since it was signed.
        progress: Told about files and bytes.

    Raises:
        InputError: There is no key (code `bad-signing-key`).
        NotFoundError: There is no such savepoint.
        StorageError: The environment failed.
    """
    require_keys(repository.keys)
    data = repository.store.read(manifest_key(job, savepoint))
    if repository.has_signed(job, savepoint, data):
        return Signed(job, savepoint, True, repository.keys[0].id, "it was signed already")
    try:
        repository.require_signed(job, savepoint, (data,))
    except IntegrityError as error:
        if not unsigned and (error.code != "not-signed" or len(repository.keys) > 1):
            says = f"not signed: {error.message} If you know where it comes from: `--unsigned`."
            return Signed(job, savepoint, False, None, says)
    else:  # the key that is about to be replaced vouches for it
        key = repository.sign(job, savepoint, (data,))
        return Signed(job, savepoint, True, key, f"signed by key {key}, as by an earlier one")
    pace = Pace(progress=progress)
    report = verify(repository.without_keys(), job, savepoint, "full", pace=pace, record=False)
    problems = [finding for finding in report.findings if finding.severity == "error"]
    if problems:
        return Signed(job, savepoint, False, None, f"not signed: {problems[0].file}: {problems[0].cause}")
    if repository.store.read(manifest_key(job, savepoint)) != data:
        return Signed(job, savepoint, False, None, "not signed: it was changed while it was verified")
    key = repository.sign(job, savepoint, (data,))
    return Signed(job, savepoint, True, key, f"signed by key {key}")
