"""Is each object that a savepoint needs there, in a file of the right size? Hardly anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from streambank.core.errors import FormatError, IntegrityError, StorageError, StreambankError
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository

Flaw = tuple[str, StreambankError]
"""Digest of an object, and what is wrong with it."""


def flaws(
    repository: Repository,
    objects: Mapping[str, int],
    *,
    also: Set[str] = frozenset(),
    shared: list[str] | None = None,
) -> Iterator[Flaw]:
    """What is wrong with objects, as far as their names and sizes and the tables of packs tell.

    Args:
        repository: Where they should be.
        objects: Digest and size of each.
        also: Codes of storage errors that are flaws too; any other one is raised.
        shared: Gets the digests of objects whose file has a name elsewhere too.
    """
    packs: dict[str, StreambankError | None] = {}
    files = repository.objects.look_up(objects)
    for digest, size_bytes in objects.items():
        try:
            place = repository.objects.locate(digest, file=files.get(digest))
        except (IntegrityError, FormatError, StorageError) as error:
            if isinstance(error, StorageError) and error.code not in also:
                raise
            yield digest, error
            continue
        while place.kind == "pack" and place.key not in packs:
            problem = packs[place.key] = _pack_error(repository, place.key, also)
            if problem is not None and problem.code == "pack-missing":
                place = repository.objects.locate(digest, gone=place.key)
        if shared is not None and place.names > 1:
            shared.append(digest)
        if place.length != size_bytes:
            yield (
                digest,
                IntegrityError(
                    f"{place.key} holds {place.length} bytes of a file that has {size_bytes}.",
                    code="object-damaged",
                    hint="Use another savepoint, or `streambank repair` this one from a replica.",
                ),
            )
            continue
        if place.kind == "pack" and (problem := packs[place.key]) is not None:
            yield digest, problem


def _pack_error(repository: Repository, key: str, also: Set[str] = frozenset()) -> StreambankError | None:
    try:
        repository.check_pack(key.rpartition("/")[2])
    except (IntegrityError, FormatError, StorageError) as error:
        if isinstance(error, StorageError) and error.code not in also:
            raise
        return error
    return None


def whole_objects(repository: Repository, manifest: Manifest) -> set[str]:
    """The digests of a savepoint's objects that are there with the right size."""
    objects = manifest.objects()
    return set(objects) - {digest for digest, _ in flaws(repository, objects)}


def healed_objects(repository: Repository, manifest: Manifest) -> set[str]:
    """`whole_objects`, once damaged tables of contents are written again that the index knows."""
    whole = whole_objects(repository, manifest)
    if _repair_tables(repository, manifest.objects().keys() - whole):
        whole = whole_objects(repository, manifest)
    return whole


def _repair_tables(repository: Repository, digests: Iterable[str]) -> bool:
    """Whether any table of contents was repaired, of the packs with objects that are not whole."""
    packs = set()
    for digest in digests:
        try:
            place = repository.object_location(digest)
        except (IntegrityError, FormatError):
            continue  # it is nowhere, and no table would help
        if place.kind == "pack" and place.key not in packs and _pack_error(repository, place.key) is not None:
            packs.add(place.key)
    return any([repository.repair_pack(key.rpartition("/")[2]) for key in sorted(packs)])
