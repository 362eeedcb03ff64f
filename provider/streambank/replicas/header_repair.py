"""A repository whose `repository.json` is damaged or gone: what it said can be told from the rest.

The header holds an id, which only tells a repository from its replicas, and the algorithm of its digests,
which every manifest and every pack names as well. So it is made again where one of those is whole and says
which; nothing is guessed, and nothing is taken over from a replica.
"""

from __future__ import annotations

import uuid

from streambank.core.errors import ConflictError, FormatError, IntegrityError, NotFoundError
from streambank.core.units import to_json_time, utc_now
from streambank.repository.catalog import listed, read_head
from streambank.repository.digest import split_digest
from streambank.repository.header import HEADER_KEY, RepositoryHeader
from streambank.repository.locks import LockPolicy
from streambank.repository.objects.packs import read_pack
from streambank.repository.repository import Repository
from streambank.repository.sealed import encode_record
from streambank.storage.store import Store

_LOST = ("header-missing", "record-damaged")


def open_for_repair(
    store: Store, *, dry_run: bool, lock: LockPolicy | None = None
) -> tuple[Repository, IntegrityError | None]:
    """The repository at a place, though its header may be damaged or gone.

    Args:
        lock: For how long what is repaired is locked, at least; what was locked is locked again anyway.

    Returns:
        The repository, and what was wrong with its header.

    Raises:
        NotFoundError: There is no repository (code `no-repository`).
        FormatError: A newer Streambank made it.
        IntegrityError: The header is lost, and no whole manifest or pack says what it was.
    """
    try:
        return Repository.open(store, lock=lock), None
    except IntegrityError as error:
        if error.code not in _LOST:
            raise
        digest = _digest_of_manifests(store) or _digest_of_packs(store)
        if digest is None:
            raise
        header = RepositoryHeader(str(uuid.uuid4()), digest, utc_now())
        if dry_run:
            return Repository(store, header), error
        record = encode_record({"id": header.id, "created_at": to_json_time(header.created_at)}, digest)
        try:
            store.write(HEADER_KEY, record, exclusive=error.code == "header-missing")
        except ConflictError as conflict:
            if conflict.code != "exists":
                raise
        return Repository.open(store, lock=lock), error


def _digest_of_manifests(store: Store) -> str | None:
    """The digest algorithm of the first whole manifest; None where there is none."""
    for job, savepoint in listed(store):
        try:
            return read_head(store, job, savepoint).digest
        except (IntegrityError, FormatError, NotFoundError):
            continue
    return None


def _digest_of_packs(store: Store) -> str | None:
    """The digest algorithm of the first pack whose table is whole; None where there is none."""
    for info in store.list("packs"):
        try:
            entries = read_pack(store, info.path.rpartition("/")[2]).entries
        except (IntegrityError, FormatError, NotFoundError):
            continue
        if entries:
            return split_digest(entries[0].digest)[0]
    return None
