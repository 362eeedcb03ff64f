"""Objects of a repository in pieces of work: what is checked, and what is moved to another repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.work.grouping import grouped


@dataclass(frozen=True, slots=True)
class ObjectsTask:
    """One large object, or small ones that lie near each other.

    Attributes:
        objects: Digest and size of each.
    """

    objects: tuple[tuple[str, int], ...]

    @property
    def files(self) -> int:
        """How many objects."""
        return len(self.objects)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(size_bytes for _, size_bytes in self.objects)

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON."""
        return {"objects": dict(self.objects)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The task in JSON."""
        return cls(tuple(data["objects"].items()))


def object_tasks(repository: Repository, objects: Mapping[str, int]) -> list[ObjectsTask]:
    """The tasks that read every byte of some objects, each once: small ones first, then the large ones.

    Args:
        repository: Where they are.
        objects: Digest and size of each.
    """
    small = {digest: size_bytes for digest, size_bytes in objects.items() if size_bytes <= SMALL_BYTES}
    near = grouped(repository, [(digest, size_bytes, digest) for digest, size_bytes in small.items()])
    tasks = [ObjectsTask(tuple((digest, small[digest]) for digest in group)) for group in near]
    tasks += [ObjectsTask(((digest, size),)) for digest, size in objects.items() if size > SMALL_BYTES]
    return tasks
