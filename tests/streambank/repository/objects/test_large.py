"""Which of many large objects are there: one answer, by a listing and one by one, with few requests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.repository.objects import large
from streambank.repository.objects.large import MANY, Absent, look_up, object_key
from streambank.repository.objects.packs import SMALL_BYTES
from streambank.repository.repository import Repository
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Features, FileInfo

LARGE = SMALL_BYTES + 1


class Service(MemoryStore):
    """A store whose every call is a request, and counted; what is `refused` cannot be asked for."""

    def __init__(self, *, remote: bool = True) -> None:
        super().__init__()
        self.asked = Counter[str]()
        self.listed = 0
        self.refused = set[str]()
        self._remote = remote

    @property
    def features(self) -> Features:
        return replace(super().features, remote=self._remote, at_once=3)

    def stat(self, key: str) -> FileInfo:
        self.asked["stat"] += 1
        if key in self.refused:
            raise StorageError("No.", code="no-permission")
        return super().stat(key)

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        self.asked["list"] += 1
        for info in super().list(prefix):
            self.listed += 1
            yield info

    def child(self, prefix: str) -> Any:
        raise AssertionError("nobody needs one here")


def digest(number: int) -> str:
    return f"sha256:{hashlib.sha256(str(number).encode()).hexdigest()}"


def store_objects(service: Service, numbers: range) -> None:
    for number in numbers:
        service.write(object_key(digest(number)), b"x" * (number + 1))


class TestLookingUp:
    def test_a_listing_tells_of_all(self) -> None:
        service = Service()
        store_objects(service, range(100))

        found = look_up(service, [digest(number) for number in range(50, 150)])

        assert {it: info.size_bytes for it, info in found.items()} == {
            digest(number): number + 1 for number in range(50, 100)
        }
        assert service.asked == {"list": 1}

    def test_where_it_is_mostly_about_others_the_rest_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(large, "LISTED_FOR_EACH", 2)
        service = Service()
        store_objects(service, range(1000))
        wanted = [digest(number) for number in range(960, 1010)]

        found = look_up(service, wanted)

        assert found.keys() == {digest(number) for number in range(960, 1000)}
        assert service.listed == 100
        assert 0 < service.asked["stat"] <= len(wanted)

    def test_what_cannot_be_asked_for_is_left_to_whoever_needs_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(large, "LISTED_FOR_EACH", 0)
        service = Service()
        store_objects(service, range(50))
        service.refused.add(object_key(digest(7)))

        found = look_up(service, [digest(number) for number in range(50)])

        assert found.keys() == {digest(number) for number in range(50) if number != 7}

    @pytest.mark.parametrize(("remote", "many"), [(False, 100), (True, MANY - 1)])
    def test_on_a_disk_and_for_few_nothing_is_asked(self, remote: bool, many: int) -> None:
        service = Service(remote=remote)
        store_objects(service, range(many))
        assert look_up(service, [digest(number) for number in range(many)]) == {}
        assert not service.asked


class TestAbsent:
    def test_after_some_questions_it_knows(self) -> None:
        service = Service()
        store_objects(service, range(100))
        absent = Absent(service)

        said = [digest(number) in absent for number in range(200)]

        assert not any(said[: MANY - 1])
        assert not any(said[:100]) and all(said[100:])
        assert service.asked == {"list": 1}

    def test_it_does_not_list_without_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(large, "LISTED_FOR_EACH", 1)
        service = Service()
        store_objects(service, range(100))
        absent = Absent(service)

        said = [digest(number) in absent for number in range(100, 100 + 8 * MANY)]

        assert not any(said[:-1]) and said[-1]
        assert service.asked == {"list": 2}
        assert service.listed == MANY + 100

    def test_nor_does_it_remember_without_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(large, "REMEMBERED", 10)
        service = Service()
        store_objects(service, range(100))
        absent = Absent(service)
        assert not any(digest(number) in absent for number in range(100, 100 + 64 * MANY))
        assert service.asked == {"list": 1}

    def test_a_disk_is_asked_each_time(self) -> None:
        service = Service(remote=False)
        absent = Absent(service)
        assert not any(digest(number) in absent for number in range(1000))
        assert not service.asked


class TestInARepository:
    @pytest.fixture
    def service(self) -> Service:
        return Service()

    @pytest.fixture
    def repository(self, service: Service) -> Repository:
        return Repository.open(service, create=True)

    def test_many_new_objects_cost_hardly_a_question(self, service: Service, repository: Repository) -> None:
        service.asked.clear()
        with repository.objects.writer() as writer:
            digests = [writer.add(number.to_bytes(2, "big") * LARGE, 2 * LARGE) for number in range(100)]
            assert [writer.add(bytes(2) * LARGE, 2 * LARGE)] == digests[:1]

        assert service.asked["stat"] < 2 * MANY
        assert (writer.new_objects, writer.known_objects) == (100, 1)

    def test_what_is_there_is_not_stored_again(self, service: Service, repository: Repository) -> None:
        for _ in range(2):
            with repository.objects.writer() as writer:
                for number in range(100):
                    writer.add(number.to_bytes(2, "big") * LARGE, 2 * LARGE)
        assert (writer.new_objects, writer.known_objects) == (0, 100)

    def test_missing_ones_and_those_of_another_size_are_found(
        self, service: Service, repository: Repository
    ) -> None:
        with repository.objects.writer() as writer:
            sizes = {writer.add(n.to_bytes(2, "big") * LARGE, 2 * LARGE): 2 * LARGE for n in range(100)}
        gone, cut, *_ = sizes
        service.delete(object_key(gone))
        service.write(object_key(cut), b"short")
        service.asked.clear()

        assert repository.objects.missing(sizes) == {gone, cut}
        assert repository.objects.missing(list(sizes)) == {gone}
        assert service.asked["stat"] <= 2

    def test_an_object_is_read_by_one_request(self, service: Service, repository: Repository) -> None:
        with repository.objects.writer() as writer:
            added = writer.add(b"x" * LARGE, LARGE)
        service.asked.clear()

        assert repository.objects.read(added) == b"x" * LARGE
        place = repository.objects.hash(added)

        assert not service.asked
        assert (place.key, place.length, place.file_bytes) == (object_key(added), LARGE, LARGE)
