"""Bringing an expired savepoint back, as long as no sweep has removed it for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import ConflictError, IntegrityError, NotFoundError
from streambank.core.shape import JsonObject
from streambank.repository import catalog
from streambank.repository.manifest import Manifest
from streambank.repository.marks import add_mark
from streambank.repository.repository import Repository
from streambank.retention.expired import Expired, find, load, load_newest
from streambank.retention.survey import rescue

UNDELETED = "undeleted"
_TRIES = 5


@dataclass(frozen=True, slots=True)
class UndeleteResult(JsonObject):
    """What bringing a savepoint back came to.

    Attributes:
        already_listed: It was listed, so there was nothing to do.
        stored_again: How many of its objects a sweep had condemned, and were stored again.
    """

    savepoint: str
    job: str
    batch: int
    already_listed: bool
    stored_again: int


def undelete(
    repository: Repository, reference: str, job: str | None = None, *, by: Mapping[str, Any] | None = None
) -> UndeleteResult:
    """List an expired savepoint again. The copy it is made from stays until a sweep finds it too old.

    Args:
        reference: The savepoint's id, the unique beginning of one, or either behind `job/`.

    Raises:
        NotFoundError: No such expired savepoint is kept (code `not-expired`).
        InputError: The reference fits several (code `ambiguous`).
        IntegrityError: A sweep has deleted some of it (code `savepoint-swept`), or each copy is damaged.
        ConflictError: Sweeps are at work all the time (code `objects-condemned`).
    """
    try:
        copy = find(repository.store, reference, job)
    except NotFoundError:
        if (found := _listed(repository, reference, job)) is not None:
            return found
        raise
    manifest = load_newest(repository.store, copy.which)
    made, stored_again = relist(repository, manifest)
    if made:
        place = (repository.store, repository.digest_name, copy.job, copy.savepoint)
        add_mark(*place, UNDELETED, by=by)
    return UndeleteResult(copy.savepoint, copy.job, manifest.batch, not made, stored_again)


def relist(repository: Repository, manifest: Manifest) -> tuple[bool, int]:
    """List a savepoint whose manifest was set aside.

    Returns:
        Whether it was not listed before, and how many of its objects had to be stored again.

    Raises:
        IntegrityError: A sweep has deleted some of it (code `savepoint-swept`).
        ConflictError: Sweeps are at work all the time (code `objects-condemned`).
    """
    stored_again = 0
    for tries_left in reversed(range(_TRIES)):
        try:
            return repository.commit(manifest), stored_again
        except ConflictError as error:
            if error.code != "objects-condemned" or not tries_left:
                raise
        except IntegrityError as error:
            if error.code != "object-missing":
                raise
            raise _swept(manifest, error) from error
        saved = rescue(repository, repository.objects.condemned(manifest.objects(), refresh=True))
        stored_again += saved.objects
        for lost in saved.failed.values():
            raise _swept(manifest, lost) from lost
    raise AssertionError("the last try returns or raises")


def read_back(repository: Repository, copy: Expired) -> tuple[bool, int]:
    """As `relist`, from a copy."""
    return relist(repository, load(repository.store, copy))


def _swept(manifest: Manifest, error: IntegrityError) -> IntegrityError:
    return IntegrityError(
        f"The savepoint {manifest.savepoint} of {manifest.job} cannot be brought back: a sweep has deleted "
        f"some of it. {error.message}",
        code="savepoint-swept",
        hint="Restore another savepoint, or this one from a replica.",
    )


def _listed(repository: Repository, reference: str, job: str | None) -> UndeleteResult | None:
    try:
        which = repository.find(reference, job)
    except NotFoundError:
        return None
    batch = catalog.read_head(repository.store, *which).batch
    return UndeleteResult(which[1], which[0], batch, already_listed=True, stored_again=0)
