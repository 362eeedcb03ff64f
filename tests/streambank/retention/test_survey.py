from __future__ import annotations

import sys

import pytest

from streambank.core.errors import FormatError, IntegrityError
from streambank.repository.digest import digest_of
from streambank.repository.objects.large import object_key
from streambank.repository.repository import Repository
from streambank.retention.survey import is_content, is_intact, needed_objects, rescue, survey
from streambank.storage.memory import MemoryStore
from tests.support.repository.repositories import FILES, LARGE, flip, save
from tests.support.repository.retention import drop
from tests.support.storage.contents import keys

ALL = {digest_of("blake3", data)[-64:] for data in FILES.values()}
BIG = digest_of("blake3", LARGE)
OLD_NS = sys.maxsize


@pytest.fixture
def repository() -> Repository:
    made = Repository.open(MemoryStore(), create=True)
    save(made)
    return made


def test_only_objects_and_packs_under_their_own_names_are_content(repository: Repository) -> None:
    found = [key for key in keys(repository.store) if is_content(key)]
    assert found == keys(repository.store, "objects") + keys(repository.store, "packs")
    name = "ab" * 32
    assert is_content(f"objects/ab/{name}")
    for key in (f"objects/cd/{name}", f"index/ab/{name}", f"objects/ab/{name}.tmp", f"x/objects/ab/{name}"):
        assert not is_content(key)


def test_what_listed_and_expired_savepoints_name_is_needed(repository: Repository) -> None:
    assert needed_objects(repository) == ALL
    other = save(repository, {"offsets/4": b"another one"}, batch=4)
    only = digest_of("blake3", b"another one")[-64:]
    copy = drop(repository, other)
    assert needed_objects(repository) == ALL | {only}
    assert needed_objects(repository, removed={copy.key}) == ALL, "the copy is too old and does not count"


def test_a_manifest_that_cannot_be_read_refuses_the_sweep(repository: Repository) -> None:
    (key,) = keys(repository.store, "savepoints")
    flip(repository.store, key, 40)
    with pytest.raises((IntegrityError, FormatError), match="Nothing is swept") as caught:
        needed_objects(repository)
    assert key in caught.value.hint


def test_each_file_is_known_with_its_objects(repository: Repository) -> None:
    found = survey(repository, OLD_NS)
    assert sorted(found.files) == keys(repository.store, "objects") + keys(repository.store, "packs")
    held = {digits for file in found.files.values() for digits, _ in file.objects or ()}
    assert held == ALL
    assert not (found.lost_packs or found.unindexed or found.unreadable)


def test_a_pack_that_no_index_names_is_looked_into_once_it_is_old(repository: Repository) -> None:
    for key in keys(repository.store, "index"):
        repository.store.delete(key)
    (pack,) = keys(repository.store, "packs")
    young, old = survey(repository, 0), survey(repository, OLD_NS)
    assert young.unindexed == old.unindexed == {pack}
    assert young.files[pack].objects is None, "somebody may be writing it"
    assert {digits for digits, _ in old.files[pack].objects or ()} == ALL - {BIG[-64:]}
    flip(repository.store, pack, -200)
    damaged = survey(repository, OLD_NS)
    assert list(damaged.unreadable) == [pack] and damaged.files[pack].objects is None


def test_a_pack_that_is_gone_is_known_by_the_index(repository: Repository) -> None:
    (pack,) = keys(repository.store, "packs")
    repository.store.delete(pack)
    found = survey(repository, OLD_NS)
    assert list(found.lost_packs) == [pack[-64:]] and pack not in found.files


def test_an_object_is_intact_with_all_of_its_bytes_only(repository: Repository) -> None:
    assert is_intact(repository, BIG)
    flip(repository.store, object_key(BIG), 1000)
    assert not is_intact(repository, BIG)


def test_what_lasts_already_is_not_stored_again(repository: Repository) -> None:
    done = rescue(repository, [BIG])
    assert (done.objects, done.bytes, done.failed) == (0, 0, {})
    nowhere = digest_of("blake3", b"nowhere")
    assert list(rescue(repository, [BIG, nowhere]).failed) == [nowhere]
