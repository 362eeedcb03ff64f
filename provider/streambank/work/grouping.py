"""Small objects in groups that are worth a thread each, near each other as they lie in the packs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from streambank.core.errors import FormatError, IntegrityError
from streambank.repository.repository import Repository

GROUP_BYTES = 32 << 20
GROUP_FILES = 5000

W = TypeVar("W")


def grouped(repository: Repository, wanted: Sequence[tuple[str, int, W]]) -> Iterator[list[W]]:
    """Things that lie in small objects, in groups.

    Args:
        repository: Where the objects are; one that cannot be found is no matter here.
        wanted: Digest and size of an object, and the thing.
    """

    def place(item: tuple[str, int, W]) -> tuple[str, int]:
        try:
            location = repository.object_location(item[0])
        except (IntegrityError, FormatError):
            return "", 0  # whoever reads it says what is wrong
        return location.key, location.offset

    group: list[W] = []
    group_bytes = 0
    for _, size_bytes, thing in sorted(wanted, key=place):
        if group and (group_bytes + size_bytes > GROUP_BYTES or len(group) >= GROUP_FILES):
            yield group
            group, group_bytes = [], 0
        group.append(thing)
        group_bytes += size_bytes
    if group:
        yield group
