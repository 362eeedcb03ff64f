"""Damage to the repository of a workshop, and whether taking the same batch again heals it."""

from __future__ import annotations

from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from tests.support.workshop import JOB, Workshop


def keys(shop: Workshop, folder: str) -> list[str]:
    """Files of a folder of the repository."""
    return sorted(info.path for info in shop.repository_store.list(folder))


def flip(shop: Workshop, key: str, where: int = 100) -> None:
    """Let one bit of a file of the repository be another one."""
    data = bytearray(shop.repository_store.read(key))
    data[where] ^= 4
    shop.repository_store.write(key, bytes(data))


def anew(shop: Workshop) -> None:
    """Another process, which remembers nothing."""
    shop.repository = Repository.open(shop.repository_store)


def is_whole(shop: Workshop, savepoint: str) -> bool:
    """Whether every byte of a savepoint is there, read by somebody who knows nothing."""
    return verify(Repository.open(shop.repository_store), JOB, savepoint, "full", record=False).ok


def heals(shop: Workshop, savepoint: str) -> int:
    """Take the same batch again; how many bytes came back."""
    assert not is_whole(shop, savepoint)
    anew(shop)
    again = shop.take()
    assert (again.savepoint, again.already_there) == (savepoint, True)
    assert is_whole(shop, savepoint)
    return again.new_bytes
