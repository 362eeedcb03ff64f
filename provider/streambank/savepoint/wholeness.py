"""Is each object that a savepoint needs there, in a file of the right size? Hardly anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streambank.errors import FormatError, IntegrityError
from streambank.savepoint.manifest import Manifest
from streambank.savepoint.repository import Repository

Flaw = tuple[str, IntegrityError | FormatError]
"""Digest of an object, and what is wrong with it."""


def flaws(
    repository: Repository, objects: Mapping[str, int], shared: list[str] | None = None
) -> Iterator[Flaw]:
    """What is wrong with objects, as far as their names and sizes and the tables of packs tell.

    Args:
        repository: Where they should be.
        objects: Digest and size of each.
        shared: Gets the digests of objects whose file has a name elsewhere too.
    """
    packs: dict[str, IntegrityError | FormatError | None] = {}
    for digest, size_bytes in objects.items():
        try:
            place = repository.object_location(digest)
        except (IntegrityError, FormatError) as error:
            yield digest, error
            continue
        if shared is not None and place.names > 1:
            shared.append(digest)
        if place.length != size_bytes:
            yield (
                digest,
                IntegrityError(
                    f"{place.key} holds {place.length} bytes of a file that has {size_bytes}.",
                    code="object-damaged",
                ),
            )
            continue
        if place.kind == "pack":
            if place.key not in packs:
                packs[place.key] = _pack_error(repository, place.key)
            problem = packs[place.key]
            if problem is not None:
                yield digest, problem


def _pack_error(repository: Repository, key: str) -> IntegrityError | FormatError | None:
    try:
        repository.check_pack(key.rpartition("/")[2])
    except (IntegrityError, FormatError) as error:
        return error
    return None


def whole_objects(repository: Repository, manifest: Manifest) -> set[str]:
    """The digests of a savepoint's objects that are there with the right size."""
    objects = manifest.objects()
    return set(objects) - {digest for digest, _ in flaws(repository, objects)}
