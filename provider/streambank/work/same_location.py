"""Do two machines mean the same by one location? Shown by what lies there, never assumed from names."""

from __future__ import annotations

import socket
from functools import lru_cache

from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.repository.repository import Repository
from streambank.storage import open_store, scheme_of


@lru_cache(maxsize=8)
def same_repository(uri: str, repository_id: str) -> Repository:
    """The repository of a plan, opened once in a process that works on many portions.

    Raises:
        RefusedError: Another one lies there, or none (code `paths-not-shared`).
    """
    try:
        repository = Repository.open(open_store(uri))
    except NotFoundError as error:
        raise not_shared(uri, "there is no repository") from error
    if repository.id != repository_id:
        raise not_shared(uri, "it is another repository")
    return repository


def portable(uri: str) -> str:
    """The same location, if other processes can open it.

    Raises:
        InputError: It is in the memory of this one (code `not-elsewhere`).
    """
    if scheme_of(uri) == "memory":
        raise InputError(
            f"{uri} is in the memory of this process, so no other machine can work on it.",
            code="not-elsewhere",
            hint="Do the work on this machine, or use a location that the workers see.",
        )
    return uri


def not_shared(uri: str, what: str) -> RefusedError:
    """The error of a machine that does not see what the plan is about."""
    return RefusedError(
        f"{socket.gethostname()} sees other files at {uri} than the machine that made the plan: {what}.",
        code="paths-not-shared",
        hint="Mount it at the same path on every worker, use a location such as s3://, or do the work here.",
    )
