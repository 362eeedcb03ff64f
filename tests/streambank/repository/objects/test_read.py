"""Objects in a pack that are larger than one read: a sweep had condemned their own name."""

from __future__ import annotations

import pytest

from streambank.core.errors import IntegrityError
from streambank.repository.digest import digest_of
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import pack_key
from streambank.repository.objects.read import READ_BYTES
from streambank.repository.repository import Repository
from streambank.repository.trash import condemn
from streambank.storage import CHUNK_BYTES
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses

HUGE = b"0123456789abcdef" * (READ_BYTES // 8) + b"end"
DIGEST = digest_of("blake3", HUGE)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    Repository.open(store, create=True)
    condemn(store, "blake3", [object_key(DIGEST)], {})
    repository = Repository.open(store)
    repository.objects.condemned([DIGEST], refresh=True)
    with repository.objects.writer() as writer:
        writer.add(HUGE, len(HUGE))
    location = Repository.open(store).objects.locate(DIGEST)
    assert (location.kind, location.length) == ("pack", len(HUGE))
    return store


def test_it_is_read_in_steps(store: MemoryStore) -> None:
    chunks = [*Repository.open(store).objects.chunks(DIGEST)]
    assert b"".join(chunks) == HUGE
    assert max(map(len, chunks)) <= max(CHUNK_BYTES, READ_BYTES)
    assert Repository.open(store).objects.read(DIGEST) == HUGE


def test_a_changed_byte_is_found_at_its_end(store: MemoryStore) -> None:
    key = Repository.open(store).objects.locate(DIGEST).key
    data = bytearray(store.read(key))
    data[READ_BYTES + 5] ^= 1
    store.write(key, bytes(data))
    with refuses(IntegrityError, "object-damaged"):
        list(Repository.open(store).objects.chunks(DIGEST))


def test_a_pack_that_is_gone_is_named(store: MemoryStore) -> None:
    repository = Repository.open(store)
    key = repository.objects.locate(DIGEST).key
    store.delete(key)
    with pytest.raises(IntegrityError) as raised:
        list(repository.objects.chunks(DIGEST))
    assert raised.value.code == "pack-missing" and pack_key(key.rpartition("/")[2]) in raised.value.message
