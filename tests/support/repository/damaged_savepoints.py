"""Two savepoints to be damaged, the ways to damage a file, and a repair of all that is listed."""

from __future__ import annotations

from collections.abc import Callable

from streambank.replicas.header_repair import open_for_repair
from streambank.replicas.repair import RepairReport, repair
from streambank.repository.catalog import listed
from streambank.repository.digest import digest_of
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage.store import Store
from tests.support.repository.repositories import FILES, flip, manifest_of
from tests.support.storage.contents import keys

NEXT = {**FILES, "offsets/4": b"v1\n{}\n{4}", "commits/4": b"v1\n{4}"}
FIRST, SECOND = manifest_of().savepoint, manifest_of(NEXT, batch=4).savepoint


def repair_all(
    store: Store, *replicas: Repository, dry_run: bool = False, job: str | None = None
) -> RepairReport:
    """Repair every savepoint that is listed."""
    repository, error = open_for_repair(store, dry_run=dry_run)
    return repair(repository, replicas, listed(store, job), header_error=error, dry_run=dry_run)


def damage(store: Store) -> int:
    """How many savepoints do not verify in full."""
    repository = Repository.open(store)
    return sum(not verify(repository, *each, "full", record=False).restorable for each in listed(store))


def contents(store: Store) -> dict[str, bytes]:
    """Every file but the marks, which a repair adds to."""
    return {key: store.read(key) for key in keys(store) if not key.startswith("marks/")}


def pack_of(store: Store, data: bytes) -> str:
    return Repository.open(store).objects.locate(digest_of("blake3", data)).key


def cut(store: Store, key: str) -> None:
    store.write(key, store.read(key)[:-1])


def grow(store: Store, key: str) -> None:
    store.write(key, store.read(key) + b"\0")


def empty(store: Store, key: str) -> None:
    store.write(key, b"")


def delete(store: Store, key: str) -> None:
    store.delete(key)


def flip_table(store: Store, key: str) -> None:
    flip(store, key, -200)


def flip_trailer(store: Store, key: str) -> None:
    flip(store, key, -5)


DAMAGES: list[Callable[[Store, str], None]] = [flip, cut, grow, empty, delete]


def damage_alone(repository: Repository, job: str, savepoint: str) -> None:
    """Change one bit of a file that this savepoint has and no other of its job."""
    others = {
        digest
        for of_job, one in listed(repository.store, job)
        if one != savepoint
        for digest in repository.load(of_job, one).objects()
    }
    own = sorted(set(repository.load(job, savepoint).objects()) - others)
    place = repository.objects.locate(own[0])
    flip(repository.store, place.key, place.offset)
    hurt = {
        one
        for of_job, one in listed(repository.store, job)
        if not verify(Repository.open(repository.store), of_job, one, "full", record=False).restorable
    }
    assert hurt == {savepoint}, "the fault was injected, where it was meant"
