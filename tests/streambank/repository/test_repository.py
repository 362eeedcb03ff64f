from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import (
    ConflictError,
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    StorageError,
)
from streambank.repository import repository as repositories
from streambank.repository.coverage import Coverage
from streambank.repository.digest import digest_of
from streambank.repository.marks import VERIFIED
from streambank.repository.objects.objects import Objects
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.repository.trash import MIN_GRACE_S
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.repository.repositories import FILES, LARGE, manifest_of, save
from tests.support.storage.contents import keys
from tests.support.storage.faulty_store import Fault, FaultyStore


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "repository", fsync=False)


@pytest.fixture
def repository(store: Store) -> Repository:
    return Repository.open(store, create=True)


def test_is_made_once_and_opened_again(store: Store) -> None:
    with refuses(NotFoundError, "no-repository") as raised:
        Repository.open(store)
    assert raised.value.hint

    made = Repository.open(store, create=True)
    header = store.read("repository.json")

    assert Repository.open(store, create=True).id == Repository.open(store).id == made.id
    assert store.read("repository.json") == header
    record = json.loads(header)
    assert (record["format"], record["digest"], record["id"]) == (1, "blake3", made.id)
    assert record["created_at"].endswith("Z")


def test_sha256_is_a_setting_of_the_repository(store: Store) -> None:
    repository = Repository.open(store, create=True, digest="sha256")
    manifest = save(repository)

    assert Repository.open(store).digest_name == "sha256"
    assert all(digest.startswith("sha256:") for digest in manifest.objects())
    assert repository.objects.read(digest_of("sha256", LARGE)) == LARGE
    assert Repository.open(store).load("flights", manifest.savepoint).digest == "sha256"
    with pytest.raises(FormatError):
        Repository.open(MemoryStore(), create=True, digest="md5")


def test_a_live_checkpoint_never_becomes_a_repository(store: Store) -> None:
    store.write("metadata", b"{}")
    with refuses(InputError, "not-empty"):
        Repository.open(store, create=True)
    assert keys(store, "") == ["metadata"]


def test_job_records_may_be_there_first(store: Store) -> None:
    store.write("jobs/flights/desired/0000000001.json", b"{}")
    Repository.open(store, create=True)
    assert keys(store, "jobs") == ["jobs/flights/desired/0000000001.json"]


@pytest.mark.parametrize("create", [False, True])
def test_a_repository_without_its_header_is_not_made_again(repository: Repository, create: bool) -> None:
    save(repository)
    repository.store.delete("repository.json")
    with refuses(IntegrityError, "header-missing"):
        Repository.open(repository.store, create=create)
    assert not repository.store.exists("repository.json")


def test_every_damage_of_the_header_is_found(repository: Repository) -> None:
    good = repository.store.read("repository.json")
    damages = [good[:where] + bytes([good[where] ^ 1]) + good[where + 1 :] for where in range(len(good))]
    damages += [good[:end] for end in range(len(good))] + [good + b"x", b"", b"null"]
    for bad in damages:
        repository.store.write("repository.json", bad)
        with pytest.raises((IntegrityError, FormatError)):
            Repository.open(repository.store)


def test_a_newer_repository_is_named(repository: Repository) -> None:
    header = repository.store.read("repository.json")
    repository.store.write("repository.json", header.replace(b'"format": 1', b'"format": 2'))
    for create in (False, True):
        with refuses(FormatError, "unknown-format", match="format 2"):
            Repository.open(repository.store, create=create)


def test_keeps_small_objects_in_packs_and_large_ones_as_files(repository: Repository) -> None:
    manifest = save(repository)

    assert len(keys(repository.store, "packs")) == len(keys(repository.store, "index")) == 1
    assert len(keys(repository.store, "objects")) == 1
    for path, data in FILES.items():
        digest = digest_of("blake3", data)
        location = repository.objects.locate(digest)
        assert location.kind == ("object" if len(data) > SMALL_BYTES else "pack"), path
        assert repository.objects.read(digest) == data
        assert repository.objects.size(digest) == len(data)
        assert b"".join(repository.objects.chunks(digest)) == data
        assert location.file_bytes == repository.store.stat(location.key).size_bytes
        assert repository.objects.has(digest)
        assert repository.objects.has(digest, len(data))
        assert not repository.objects.has(digest, len(data) + 1)
    assert dict(repository.objects.read_many(manifest.objects())) == {
        digest_of("blake3", d): d for d in FILES.values()
    }


def test_an_empty_object_next_to_another_is_read_with_it(repository: Repository) -> None:
    contents = [b"first", b"", b"second"]
    with repository.objects.writer() as writer:
        digests = [writer.add(data, len(data)) for data in contents]
    for wanted in (digests, digests[:2], digests[1:], digests[::-1]):
        assert dict(repository.objects.read_many(wanted)) == {
            digest_of("blake3", d): d for d in contents if digest_of("blake3", d) in wanted
        }


def test_large_objects_are_read_in_steps(repository: Repository) -> None:
    save(repository)
    with repository.objects.open(digest_of("blake3", LARGE)) as reader:
        assert reader.read(10) == LARGE[:10]
        buffer = bytearray(6)
        assert reader.readinto(buffer) == 6  # type: ignore[attr-defined]  # BinaryIO does not know it
        assert bytes(buffer) == LARGE[10:16]
        assert reader.read() == LARGE[16:]


def test_a_large_object_on_a_local_disk_is_found_and_opened_in_one_go(tmp_path: Path) -> None:
    save(Repository.open(LocalStore(tmp_path), create=True))
    store = FaultyStore(LocalStore(tmp_path))
    repository = Repository.open(store)
    digest = digest_of("blake3", LARGE)
    before = len(store.calls)

    place = repository.objects.hash(digest)

    assert (place.kind, place.key, place.length) == ("object", keys(store, "objects")[0], len(LARGE))
    about_it = [call.operation for call in store.calls[before:] if call.key == place.key]
    assert about_it == ["hold", "held.open"]


@pytest.mark.parametrize("operation", ["held.open", "open"])
def test_a_flipped_bit_of_a_large_object_is_found_however_it_is_opened(
    tmp_path: Path, operation: str
) -> None:
    inner = LocalStore(tmp_path) if operation == "held.open" else MemoryStore(holds=False)
    save(Repository.open(inner, create=True))
    digest = digest_of("blake3", LARGE)
    for read in (Objects.read, Objects.hash):
        faulty = FaultyStore(inner, Fault("flip", operations=frozenset({operation}), key="objects/"))
        with refuses(IntegrityError, "object-damaged"):
            read(Repository.open(faulty).objects, digest)
        faulty.assert_fired()


def test_a_large_object_that_the_disk_does_not_give_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.open(LocalStore(tmp_path), create=True)
    save(repository)

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    digest = digest_of("blake3", LARGE)
    for call, read in (("preadv", Objects.hash), ("pread", Objects.read)):
        with monkeypatch.context() as patch, pytest.raises(StorageError) as raised:
            patch.setattr(os, call, broken)
            read(repository.objects, digest)
        assert raised.value.code == "io-error"
        assert repository.objects.locate(digest).key in raised.value.message
    assert repository.objects.read(digest) == LARGE


def test_nothing_is_stored_twice(repository: Repository) -> None:
    save(repository)
    before = (
        keys(repository.store, "objects") + keys(repository.store, "packs") + keys(repository.store, "index")
    )

    for other in (repository, Repository.open(repository.store)):
        with other.objects.writer() as writer:
            for data in (*FILES.values(), *FILES.values()):
                assert writer.add(iter([data[:3], data[3:]]), len(data)) == digest_of("blake3", data)
        assert (writer.new_objects, writer.new_bytes, writer.known_objects) == (0, 0, 2 * len(FILES))
    assert before == keys(repository.store, "objects") + keys(repository.store, "packs") + keys(
        repository.store, "index"
    )


def test_counts_what_is_new(repository: Repository) -> None:
    with repository.objects.writer() as writer:
        for data in (b"a", b"bb", b"a", LARGE, LARGE):
            writer.add(data, len(data))
    assert (writer.new_objects, writer.new_bytes, writer.known_objects) == (3, 3 + len(LARGE), 2)


def test_a_file_that_changed_its_size_is_a_conflict(repository: Repository) -> None:
    with repository.objects.writer() as writer:
        for data, size_bytes in (
            (b"four", 3),
            (b"four", 5),
            (LARGE, len(LARGE) - 1),
            (LARGE, len(LARGE) + 1),
        ):
            with refuses(ConflictError, "size-changed"):
                writer.add(iter([data]), size_bytes)
    assert keys(repository.store, "objects") == keys(repository.store, "packs") == []


def test_packs_are_closed_when_they_are_full(repository: Repository) -> None:
    with repository.objects.writer() as writer:
        for number in range(80):
            data = number.to_bytes(4, "big") * (SMALL_BYTES // 4)
            writer.add(data, len(data))
    assert len(keys(repository.store, "packs")) == 2


def test_an_aborted_writer_leaves_no_index(repository: Repository) -> None:
    with pytest.raises(RuntimeError), repository.objects.writer() as writer:
        writer.add(b"x", 1)
        raise RuntimeError
    assert keys(repository.store, "packs") == keys(repository.store, "index") == []


def test_what_is_missing(repository: Repository) -> None:
    save(repository)
    there, absent = digest_of("blake3", b"delta" * 100), digest_of("blake3", b"absent")

    assert repository.objects.missing([there, absent]) == {absent}
    assert repository.objects.missing({there: 500, absent: 6}) == {absent}
    assert repository.objects.missing({there: 501}) == {there}
    for read in (repository.objects.read, repository.objects.size, repository.objects.locate):
        with refuses(IntegrityError, "object-missing"):
            read(absent)
    with refuses(IntegrityError, "bad-digest"):
        repository.objects.read("blake3:../../etc/passwd")
    ((digest, error),) = repository.objects.read_many([absent])
    assert digest == absent
    assert isinstance(error, IntegrityError)


def test_what_another_process_adds_is_found(repository: Repository) -> None:
    other = Repository.open(repository.store)
    assert not other.objects.has(digest_of("blake3", b"delta" * 100))
    save(repository)
    assert other.objects.read(digest_of("blake3", b"delta" * 100)) == b"delta" * 100


def test_a_savepoint_is_committed_once(repository: Repository) -> None:
    manifest = save(repository)

    assert repository.commit(manifest) is False
    assert repository.commit(replace(manifest, note="another")) is False
    assert repository.load("flights", manifest.savepoint).note == ""
    assert keys(repository.store, "savepoints") == [f"savepoints/flights/{manifest.savepoint}.json"]


def test_a_savepoint_is_not_committed_before_its_objects(repository: Repository) -> None:
    with repository.objects.writer() as writer:
        writer.add(b"delta" * 100, 500)
        with pytest.raises(IntegrityError) as raised:
            repository.commit(manifest_of())
    assert raised.value.code == "object-missing"
    assert list(repository.manifests()) == []


def test_a_pin_of_a_savepoint_that_is_expired_meanwhile_is_no_pin(repository: Repository) -> None:
    manifest = save(repository)

    class Expiring(FaultyStore):
        def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
            super().write(key, data, exclusive=exclusive)
            self.delete(f"savepoints/flights/{manifest.savepoint}.json")

    store = Expiring(repository.store)
    with pytest.raises(NotFoundError) as raised:
        Repository.open(store).pin("flights", manifest.savepoint)
    assert raised.value.code == "no-such-savepoint" and manifest.savepoint in str(raised.value)
    assert [call.operation for call in store.calls if call.key.startswith("marks/")].count("write") == 1


def test_a_verification_that_cannot_be_read_covers_nothing(repository: Repository) -> None:
    manifest = save(repository)
    mark = repository.record_verification("flights", manifest.savepoint, level="full", ok=True)
    key = f"marks/flights/{manifest.savepoint}/{VERIFIED}-{mark.number:010d}.json"
    repository.store.write(key, repository.store.read(key)[:-5])
    assert repository.coverage("flights", manifest.savepoint) == Coverage()


def test_a_commit_whose_looks_at_its_objects_all_take_too_long_lists_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifest_of(batch=4)
    save(repository)
    ticks = itertools.count(step=MIN_GRACE_S)
    monkeypatch.setattr(repositories, "boot_clock_s", lambda: next(ticks))
    with pytest.raises(ConflictError) as raised:
        repository.commit(manifest)
    assert raised.value.code == "commit-too-slow" and manifest.savepoint in str(raised.value)
    assert not repository.store.exists(f"savepoints/flights/{manifest.savepoint}.json")
    assert next(ticks) > MIN_GRACE_S  # the clock was asked
