"""`repository.json`: what makes a directory a repository, and says how to read it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from streambank.core.errors import ConflictError, InputError, IntegrityError, NotFoundError, StorageError
from streambank.core.shape import decode
from streambank.core.units import to_json_time, utc_now
from streambank.repository.digest import new_hasher
from streambank.repository.sealed import damaged, decode_record, encode_record
from streambank.storage.locations import is_inside, local_path
from streambank.storage.store import Store, Versioned, read_record

HEADER_KEY = "repository.json"
_DELETED = " What was deleted in a bucket with versions comes back by `streambank undelete-files`."
_PARTS = frozenset(
    {
        "condemned",
        "expired",
        "index",
        "marks",
        "names",
        "objects",
        "packs",
        "sampling",
        "savepoints",
        "signatures",
    }
)
_MAY_BE_THERE_BEFORE = frozenset({"jobs", "lost+found"})
_PROBE = "write-test"
"""How the names begin of what `check_new` writes and deletes; one that broke off leaves an empty file."""


@dataclass(frozen=True, slots=True)
class RepositoryHeader:
    """What `repository.json` says.

    Attributes:
        id: A UUID that tells a repository from its replicas.
        digest: The algorithm of all its digests.
    """

    id: str
    digest: str
    created_at: datetime


def read_header(store: Store) -> RepositoryHeader:
    """The header of the repository at the root of a store.

    Raises:
        NotFoundError: There is none (code `no-repository`).
        IntegrityError: It is damaged (code `record-damaged`), or gone from a repository (`header-missing`).
        FormatError: A newer Streambank made it.
    """
    what = f"header {HEADER_KEY} of the repository {store.uri}"
    try:
        data = read_record(store, HEADER_KEY)
    except NotFoundError as error:
        _refuse_headless(store)
        raise NotFoundError(
            f"There is no repository at {store.uri}.",
            code="no-repository",
            hint="The first `streambank take` makes one; or name the directory that holds repository.json."
            + (_DELETED if isinstance(store, Versioned) else ""),
        ) from error
    record = decode_record(data, what)
    header = decode(RepositoryHeader, record, what, refuse=damaged)
    new_hasher(header.digest)
    return header


def create_header(store: Store, digest: str, repository_id: str) -> RepositoryHeader:
    """The header at the root of a store; a new one where there is nothing yet. Of many creators one wins.

    Raises:
        InputError: Other files are there (code `not-empty`): a live checkpoint, for example.
        IntegrityError, FormatError: As `read_header`.
    """
    if not store.exists(HEADER_KEY):
        with making(store):
            _check_empty(store)
        new_hasher(digest)
        header = RepositoryHeader(repository_id, digest, utc_now())
        record = {"id": header.id, "created_at": to_json_time(header.created_at)}
        try:
            with making(store):
                store.write(HEADER_KEY, encode_record(record, digest), exclusive=True)
        except ConflictError as error:
            if error.code != "exists":
                raise
    return read_header(store)


def check_new(store: Store) -> None:
    """Make sure that a repository can be made at the root of a store, without making one.

    An object is written there and deleted again, and so are the directories that are made for it.

    Raises:
        InputError: Other files are there (code `not-empty`), or nothing can be made there (`no-repository`).
        IntegrityError: A repository is there that has lost its header (code `header-missing`).
        StorageError: The place cannot be written to.
    """
    probe, place = f"{_PROBE}-{uuid.uuid4().hex}", local_path(store.uri)
    above = () if place is None else (place, *place.parents)
    with making(store):
        _check_empty(store)
        missing = [one for one in above if not one.exists()]
        try:
            store.write(probe, b"", exclusive=True)
            store.delete(probe)
        finally:
            with suppress(OSError):  # somebody else has begun to use one of them
                for directory in missing:
                    directory.rmdir()


@contextmanager
def making(store: Store) -> Iterator[None]:
    """Make a repository, or try to, in here: what the storage refuses is said of the repository."""
    try:
        yield
    except StorageError as error:
        said = f"No repository can be made at {store.uri}: {error.message}"
        raise StorageError(said, code=error.code, hint=error.hint) from error
    except NotFoundError as error:
        raise InputError(
            f"No repository can be made at {store.uri}: no directory can be made there.",
            code="no-repository",
            hint="Name a directory for the repository that can be made and written to.",
        ) from error


def check_apart(repository: Store, checkpoint: str) -> None:
    """Make sure that no new repository is made inside the checkpoint whose savepoints are to go there.

    It would be written into the live checkpoint, and be lost with it. One that is there already goes on
    being used: savepoints in a bad place are better than none.

    Raises:
        InputError: It would lie inside (code `inside-checkpoint`).
    """
    if is_inside(repository.uri, checkpoint) and not repository.exists(HEADER_KEY):
        raise InputError(
            f"The repository {repository.uri} would lie in the checkpoint {checkpoint}.",
            code="inside-checkpoint",
            hint="Name a directory elsewhere, preferably on another disk, or it is lost with the checkpoint.",
        )


def _check_empty(store: Store) -> None:
    _refuse_headless(store)
    others = sorted(
        name
        for name in set(store.names()) - _MAY_BE_THERE_BEFORE - {HEADER_KEY}
        if not name.startswith(_PROBE)
    )
    if others:
        raise InputError(
            f"No repository can be made at {store.uri}: other files are there, such as {others[0]}.",
            code="not-empty",
            hint="Name an empty or new directory. A checkpoint cannot be a repository.",
        )


def _refuse_headless(store: Store) -> None:
    """Raise where a repository is there whose header is gone: a new one would orphan it."""
    if _PARTS.intersection(store.names()) and not store.exists(HEADER_KEY):
        raise IntegrityError(
            f"The repository at {store.uri} has no {HEADER_KEY} any more.",
            code="header-missing",
            hint="Restore it from a backup, or run `streambank repair` to create it again."
            + (_DELETED if isinstance(store, Versioned) else ""),
        )
