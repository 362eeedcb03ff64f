from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from streambank.core.errors import ConflictError, IntegrityError, NotFoundError
from streambank.repository.marks import PIN, add_mark, latest, read_mark, split_mark_name
from streambank.repository.repository import Repository
from streambank.repository.sealed import decode_record, encode_record
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses
from tests.support.repository.repositories import manifest_of, save
from tests.support.storage.faulty_store import FaultyStore

ID = manifest_of().savepoint
PREFIX = f"marks/flights/{ID}"


@pytest.fixture
def repository() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    save(repository)
    return repository


def test_pins_and_unpins(repository: Repository) -> None:
    assert not repository.pinned("flights", ID)
    for pinned in (True, True, False, True):
        (repository.pin if pinned else repository.unpin)("flights", ID, by={"user": "ann"}, note="why")
        assert repository.pinned("flights", ID) is pinned
    assert [*repository.store.names(PREFIX)] == [f"pin-{number:010d}.json" for number in range(1, 5)]
    mark = read_mark(repository.store, "flights", ID, "pin-0000000004.json")
    assert (mark.by, mark.fields) == ({"user": "ann"}, {"pinned": True, "note": "why"})


def test_remembers_every_verification(repository: Repository) -> None:
    repository.record_verification("flights", ID, level="quick", ok=True, files=6, bytes=10, seconds=0.5)
    repository.record_verification("flights", ID, level="full", ok=False, findings=2, by={"dag_id": "d"})

    quick, full = repository.verifications("flights", ID)
    assert (quick.level, quick.ok, quick.files, quick.bytes, quick.seconds) == ("quick", True, 6, 10, 0.5)
    assert (full.level, full.ok, full.findings, full.by) == ("full", False, 2, {"dag_id": "d"})
    assert quick.at <= full.at


def test_only_savepoints_that_are_there_are_marked(repository: Repository) -> None:
    with refuses(NotFoundError, "no-such-savepoint"):
        repository.pin("flights", "b000099-000000000000")
    assert list(repository.store.list("marks")) == []


def test_marks_written_at_once_are_all_kept(repository: Repository) -> None:
    with ThreadPoolExecutor(8) as pool:
        marks = list(pool.map(lambda number: repository.pin("flights", ID, note=str(number)), range(24)))
    assert sorted(mark.number for mark in marks) == list(range(1, 25))
    assert len(repository.store.names(PREFIX)) == 24


def test_endless_competition_ends_in_a_conflict(repository: Repository) -> None:
    class Busy(FaultyStore):
        def names(self, prefix: str = "") -> list[str]:
            return []

    add_mark(repository.store, "blake3", "flights", ID, PIN)
    with refuses(ConflictError, "too-many-writers"):
        add_mark(Busy(repository.store), "blake3", "flights", ID, PIN)


def test_every_damage_of_a_mark_is_found(repository: Repository) -> None:
    repository.unpin("flights", ID)
    repository.record_verification("flights", ID, level="full", ok=True)
    key = f"{PREFIX}/pin-0000000001.json"
    good = repository.store.read(key)
    other = repository.store.read(f"{PREFIX}/verified-0000000001.json")
    damages = [good[:where] + bytes([good[where] ^ 2]) + good[where + 1 :] for where in range(len(good))]
    for bad in (*damages, b"", good[:-1], good + b"x", other):
        repository.store.write(key, bad)
        assert [name for name, _ in repository.damaged_marks("flights", ID)] == [key]
        assert len(repository.verifications("flights", ID)) == 1
        (summary,) = repository.manifests()
        assert summary.error is None
        assert summary.pinned  # nobody knows: retention leaves it alone
        assert len(summary.mark_errors) == 1
    with pytest.raises(IntegrityError):
        repository.pinned("flights", ID)

    repository.unpin("flights", ID)
    assert not repository.pinned("flights", ID)


def test_a_mark_of_another_savepoint_is_refused(repository: Repository) -> None:
    save(repository, batch=4)
    other = manifest_of(batch=4).savepoint
    repository.pin("flights", other)
    name = "pin-0000000001.json"
    repository.store.write(f"{PREFIX}/{name}", repository.store.read(f"marks/flights/{other}/{name}"))
    with pytest.raises(IntegrityError, match="another savepoint"):
        repository.pinned("flights", ID)


@pytest.mark.parametrize("change", [{"at": "yesterday"}, {"at": 7}, {"at": None}], ids=str)
def test_a_mark_that_does_not_say_when_it_was_made_is_refused(
    repository: Repository, change: dict[str, object]
) -> None:
    repository.pin("flights", ID)
    key = f"{PREFIX}/pin-0000000001.json"
    fields = decode_record(repository.store.read(key), "a mark")
    del fields["digest"]
    repository.store.write(key, encode_record(fields | change, "blake3"))
    with refuses(IntegrityError, "record-damaged", match=r"pin-0000000001\.json.*damaged: at is not a"):
        repository.pinned("flights", ID)


def test_names_of_marks() -> None:
    assert split_mark_name("pin-0000000012.json") == ("pin", 12)
    assert split_mark_name("pin-12.json") is None
    assert split_mark_name("notes.txt") is None
    names = ["pin-0000000002.json", "verified-0000000009.json", "pin-0000000010.json", "notes.txt"]
    assert latest(names, "pin") == "pin-0000000010.json"
    assert latest(names, "hold") is None
