"""Damage to the repository of a simulated job, and whether taking the same batch again heals it."""

from __future__ import annotations

from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from tests.support.jobs.simulated_job import JOB, SimulatedJob


def keys(shop: SimulatedJob, folder: str) -> list[str]:
    return sorted(info.path for info in shop.repository_store.list(folder))


def flip(shop: SimulatedJob, key: str, where: int = 100) -> None:
    """Let one bit of a file of the repository be another one."""
    data = bytearray(shop.repository_store.read(key))
    data[where] ^= 4
    shop.repository_store.write(key, bytes(data))


def reopen(shop: SimulatedJob) -> None:
    """Open the repository again, as another process that remembers nothing."""
    shop.repository = Repository.open(shop.repository_store)


def is_whole(shop: SimulatedJob, savepoint: str) -> bool:
    """Whether every byte of a savepoint is there, read by somebody who knows nothing."""
    return verify(Repository.open(shop.repository_store), JOB, savepoint, "full", record=False).ok


def heals(shop: SimulatedJob, savepoint: str) -> int:
    """Take the same batch again; how many bytes came back."""
    assert not is_whole(shop, savepoint)
    reopen(shop)
    again = shop.take()
    assert (again.savepoint, again.already_there) == (savepoint, True)
    assert is_whole(shop, savepoint)
    return again.new_bytes
