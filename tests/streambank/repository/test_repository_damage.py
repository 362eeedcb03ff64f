"""Whatever is damaged in a repository is found, named, and healed where it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import FormatError, IntegrityError, StorageError
from streambank.repository.digest import digest_of
from streambank.repository.repository import Repository
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


def test_a_pack_that_is_gone_or_cut_is_written_again(repository: Repository) -> None:
    save(repository)
    (pack,) = keys(repository.store, "packs")
    (large,) = keys(repository.store, "objects")
    for damage in (b"", repository.store.read(pack)[:-1]):
        repository.store.write(pack, damage)
        repository.store.write(large, damage)
        again = Repository.open(repository.store)
        assert again.objects.missing(manifest_of().objects()) == set(manifest_of().objects())
        save(again)
        assert [again.objects.read(digest_of("blake3", data)) for data in FILES.values()] == list(
            FILES.values()
        )
        assert keys(repository.store, "packs") == [pack]


def test_every_damage_of_an_object_is_found(repository: Repository) -> None:
    save(repository)
    (large,) = keys(repository.store, "objects")
    good = repository.store.read(large)
    digest = digest_of("blake3", LARGE)
    for bad in (b"", good[:-1], good + b"x", b"\0" * len(good), good[:-1] + bytes([good[-1] ^ 1])):
        repository.store.write(large, bad)
        for read in (repository.objects.read, lambda digest: list(repository.objects.chunks(digest))):
            with refuses(IntegrityError, "object-damaged", match=large):
                read(digest)
        ((_, error),) = repository.objects.read_many([digest])
        assert isinstance(error, IntegrityError)


def test_every_damage_of_a_pack_is_found(repository: Repository) -> None:
    manifest = save(repository)
    (pack,) = keys(repository.store, "packs")
    pack_id = pack.rpartition("/")[2]
    good = repository.store.read(pack)
    for where in range(0, len(good), 7):
        repository.store.write(pack, good[:where] + bytes([good[where] ^ 4]) + good[where + 1 :])
        fresh = Repository.open(repository.store)
        found = [
            error
            for _, error in fresh.objects.read_many(manifest.objects())
            if isinstance(error, IntegrityError)
        ]
        try:
            fresh.objects.check_pack(pack_id)
        except (IntegrityError, FormatError) as error:
            found.append(error)  # type: ignore[arg-type]  # only counted
        assert found, where
    repository.store.delete(pack)
    fresh = Repository.open(repository.store)
    with refuses(IntegrityError, "pack-missing"):
        fresh.objects.check_pack(pack_id)
    with refuses(IntegrityError, "pack-missing"):
        fresh.objects.read(digest_of("blake3", b"delta" * 100))


def test_a_damaged_index_is_named_and_made_again(repository: Repository) -> None:
    manifest = save(repository)
    (index,) = keys(repository.store, "index")
    digest = digest_of("blake3", b"delta" * 100)
    repository.store.write(index, repository.store.read(index).replace(b'"none"', b'"zstd"', 1))
    fresh = Repository.open(repository.store)

    with refuses(IntegrityError, "index-damaged", match=index):
        fresh.objects.read(digest)
    assert [damage.key for damage in fresh.objects.index.check()] == [index]

    report = fresh.objects.index.rebuild()
    assert (report.packs, report.objects, report.damaged) == (1, len(FILES) - 1, ())
    assert fresh.objects.index.check() == []
    assert fresh.objects.read(digest) == b"delta" * 100
    assert Repository.open(repository.store).objects.missing(manifest.objects()) == set()


def test_a_lost_index_is_made_again(repository: Repository) -> None:
    manifest = save(repository)
    for key in keys(repository.store, "index"):
        repository.store.delete(key)
    fresh = Repository.open(repository.store)

    assert len(fresh.objects.missing(manifest.objects())) == len(FILES) - 1
    assert fresh.objects.index.unindexed_packs() == {keys(fresh.store, "packs")[0].rpartition("/")[2]}
    fresh.objects.index.rebuild()
    assert fresh.objects.missing(manifest.objects()) == set()
    assert fresh.objects.index.unindexed_packs() == set()


def test_rebuilding_names_damaged_packs_and_leaves_them(repository: Repository) -> None:
    save(repository)
    with repository.objects.writer() as writer:
        writer.add(b"another pack", 12)
    victim = repository.objects.locate(digest_of("blake3", b"another pack")).key
    repository.store.write(victim, b"junk")

    report = repository.objects.index.rebuild()

    assert [damage.key for damage in report.damaged] == [victim]
    assert report.packs == 1
    assert repository.store.read(victim) == b"junk"
    assert repository.objects.read(digest_of("blake3", b"delta" * 100)) == b"delta" * 100
    with pytest.raises(IntegrityError):
        repository.objects.read(digest_of("blake3", b"another pack"))


def test_many_index_files_become_one(repository: Repository) -> None:
    written = []
    for number in range(70):
        data = b"object %d" % number
        with Repository.open(repository.store).objects.writer() as writer:
            written.append(writer.add(data, len(data)))
    assert len(keys(repository.store, "index")) < 64
    fresh = Repository.open(repository.store)
    assert [fresh.objects.read(digest) for digest in written] == [
        b"object %d" % number for number in range(70)
    ]
    assert fresh.objects.index.unindexed_packs() == set()


def test_an_index_that_is_merged_away_while_it_is_read_is_no_error(repository: Repository) -> None:
    save(repository)
    (index,) = keys(repository.store, "index")

    class Merging(FaultyStore):
        def names(self, prefix: str = "") -> list[str]:
            names = list(super().names(prefix))
            if prefix == "index" and index.removeprefix("index/") in names:
                with Repository.open(self.inner).objects.writer() as writer:
                    writer.add(b"new", 3)
                self.inner.delete(index)
                Repository.open(self.inner).objects.index.rebuild()
            return names

    reader = Repository.open(Merging(repository.store))
    assert reader.objects.read(digest_of("blake3", b"delta" * 100)) == b"delta" * 100


@pytest.mark.parametrize("kind", ["short-read", "flip"])
@pytest.mark.parametrize("operation", ["read", "held.open"])
def test_bad_reads_are_found(repository: Repository, kind: str, operation: str) -> None:
    save(repository)
    data = LARGE if operation == "held.open" else b"delta" * 100
    prefix = "objects" if operation == "held.open" else "packs"
    store = FaultyStore(repository.store, Fault(kind, operations=frozenset({operation}), key=prefix))  # type: ignore[arg-type]
    with pytest.raises(IntegrityError):
        Repository.open(store).objects.read(digest_of("blake3", data))
    store.assert_fired()
    assert Repository.open(store).objects.read(digest_of("blake3", data)) == data


@pytest.mark.parametrize("kind", ["full", "denied", "error"])
@pytest.mark.parametrize("key", ["packs/", "index/", "savepoints/", "objects/"])
def test_a_full_disk_anywhere_lists_nothing_and_a_second_try_succeeds(
    store: Store, kind: str, key: str
) -> None:
    Repository.open(store, create=True)
    operation = "write_named" if key == "objects/" else "write"
    faulty = FaultyStore(
        store,
        Fault(kind, operations=frozenset({operation}), key="" if key == "objects/" else key),  # type: ignore[arg-type]
    )
    with pytest.raises(StorageError) as raised:
        save(Repository.open(faulty))
    faulty.assert_fired()
    assert raised.value.code in ("disk-full", "no-permission", "io-error")
    assert list(Repository.open(store).manifests()) == []

    manifest = save(Repository.open(store))
    assert Repository.open(store).objects.missing(manifest.objects()) == set()


def test_a_lost_reply_to_the_commit_is_no_second_savepoint(repository: Repository) -> None:
    with repository.objects.writer() as writer:
        for data in FILES.values():
            writer.add(data, len(data))
    store = FaultyStore(
        repository.store, Fault("lost-reply", operations=frozenset({"write"}), key="savepoints/")
    )
    with pytest.raises(StorageError):
        Repository.open(store).commit(manifest_of())
    store.assert_fired()
    assert Repository.open(store).commit(manifest_of()) is False
    assert len(list(repository.manifests())) == 1
