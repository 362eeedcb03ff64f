"""What a sweep has condemned is as if it were not there, for whoever stores or lists something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO

import pytest

from streambank.core.errors import ConflictError, FormatError, IntegrityError
from streambank.repository.catalog import manifest_key
from streambank.repository.digest import digest_of
from streambank.repository.objects import read as reading
from streambank.repository.objects.large import object_key
from streambank.repository.repository import Repository
from streambank.repository.sealed import decode_record, encode_record
from streambank.repository.trash import condemn, condemned_records, forget, forget_orphans, mark_done
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses
from tests.support.repository.repositories import FILES, LARGE, manifest_of, save

DIGEST = digest_of("blake3", LARGE)


@pytest.fixture
def repository() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    save(repository)
    return repository


def keys(repository: Repository) -> list[str]:
    return [info.path for folder in ("objects", "packs") for info in repository.store.list(folder)]


def test_it_is_not_there_to_stay_and_can_still_be_read(repository: Repository) -> None:
    objects = manifest_of().objects()
    assert repository.objects.condemned(objects, refresh=True) == set()
    condemn(repository.store, "blake3", keys(repository), {})
    assert repository.objects.has(DIGEST)  # nobody has looked since
    assert repository.objects.condemned(objects, refresh=True) == set(objects)
    assert not repository.objects.has(DIGEST) and repository.objects.missing(objects) == set(objects)
    assert repository.objects.read(DIGEST) == LARGE
    assert all(
        isinstance(data, bytes) for _, data in Repository.open(repository.store).objects.read_many(objects)
    )


def test_nothing_that_counts_on_it_is_listed(repository: Repository) -> None:
    condemn(repository.store, "blake3", keys(repository), {})
    manifest = manifest_of(batch=4)
    with refuses(ConflictError, "objects-condemned"):
        repository.commit(manifest)
    assert not repository.store.exists(manifest_key(manifest.job, manifest.savepoint))


def test_a_record_that_was_read_wrong_once_is_believed_when_it_is_read_right(repository: Repository) -> None:
    class Misreading(MemoryStore):
        wrong = 1

        @contextmanager
        def open(self, key: str) -> Iterator[BinaryIO]:
            if key.startswith("condemned/") and self.wrong:
                self.wrong -= 1
                yield BytesIO(self.read(key)[:-1])
                return
            with super().open(key) as reader:
                yield reader

    store = Misreading()
    for info in repository.store.list():
        store.write(info.path, repository.store.read(info.path))
    condemn(store, "blake3", keys(repository), {})
    objects = manifest_of().objects()
    reader = Repository.open(store)
    assert reader.objects.condemned(objects, refresh=True) == set() and store.wrong == 0
    assert reader.objects.condemned(objects, refresh=True) == set(objects)


def test_it_is_stored_again_under_another_name(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(repository)
    condemn(repository.store, "blake3", before, {})
    repository = Repository.open(repository.store)
    save(repository, batch=4)
    for key in before:
        repository.store.delete(key)
    monkeypatch.setattr(reading, "READ_BYTES", 100_000)
    fresh = Repository.open(repository.store)
    place = fresh.objects.locate(DIGEST)
    assert place.kind == "pack" and fresh.objects.read(DIGEST) == LARGE
    found = dict(fresh.objects.read_many(manifest_of().objects()))
    assert set(found.values()) == set(FILES.values())
    assert fresh.objects.index.rebuild().damaged == ()

    data = bytearray(fresh.store.read(place.key))
    data[500_000] ^= 1
    fresh.store.write(place.key, bytes(data))
    with refuses(IntegrityError, "object-damaged"):
        fresh.objects.read(DIGEST)
    fresh.store.delete(place.key)
    with refuses(IntegrityError, "pack-missing"):
        fresh.objects.read(DIGEST)


def test_a_pack_that_is_gone_hides_no_object_of_the_same_bytes(repository: Repository) -> None:
    """An index file that was merged beside a sweep still names the pack."""
    condemn(repository.store, "blake3", [object_key(DIGEST)], {})
    again = Repository.open(repository.store)
    with again.objects.writer() as writer:
        writer.add(LARGE, len(LARGE))
    repository.store.delete(again.objects.locate(DIGEST).key)
    assert Repository.open(repository.store).objects.read(DIGEST) == LARGE


def test_a_record_that_a_newer_version_wrote_stops_takes(repository: Repository) -> None:
    record = condemn(repository.store, "blake3", keys(repository), {"user": "ann"})
    key = f"condemned/{record.id}.json"
    data = repository.store.read(key)
    repository.store.write(key, data.replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(FormatError):
        repository.commit(manifest_of(batch=4))
    repository.store.write(key, data[:-5])
    assert save(repository, batch=4).batch == 4  # no sweep can act on it either
    (found,) = condemned_records(repository.store)
    assert found.keys == () and found.error is not None


def test_the_life_of_a_record(repository: Repository) -> None:
    store = repository.store
    record = condemn(store, "blake3", ["objects/86/86c0"], {})
    (found,) = condemned_records(store)
    assert (found.id, found.keys, found.done_ns) == (record.id, ("objects/86/86c0",), None)
    assert 0 <= found.age_s(found.condemned_ns + 10**9) < 1 + 1
    mark_done(store, "blake3", found)
    mark_done(store, "blake3", found)
    assert condemned_records(store)[0].done_ns
    store.delete(f"condemned/{record.id}.json")
    forget_orphans(store)
    assert store.names("condemned") == []
    forget(store, record)


@pytest.mark.parametrize(
    "change",
    [{"kind": "pin"}, {"id": "0" * 32}, {"keys": [7]}, {"keys": "packs"}, {"boot": 7}, {"boot": {"id": ""}}],
    ids=str,
)
def test_a_record_with_a_right_seal_that_says_something_else_condemns_nothing(
    repository: Repository, change: dict[str, object]
) -> None:
    record = condemn(repository.store, "blake3", keys(repository), {})
    key = f"condemned/{record.id}.json"
    fields = decode_record(repository.store.read(key), "a record")
    del fields["digest"]
    repository.store.write(key, encode_record(fields | change, "blake3"))
    (found,) = condemned_records(repository.store)
    assert found.keys == () and found.error is not None and found.error.code == "record-damaged"
    assert record.id in str(found.error)
