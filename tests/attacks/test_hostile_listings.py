"""Who answers in the place of a NameNode keeps a reader busy, leads it elsewhere, or has it end in a bug."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streambank.core.errors import FormatError, InternalError, StorageError, StreambankError
from streambank.storage.fsspec.store import MOST_FOLDERS
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.storage.webhdfs_answers import FOLDER, STATUS, Answers, answered


def listing(*there: dict[str, Any]) -> bytes:
    return json.dumps({"FileStatuses": {"FileStatus": there}}).encode()


def said(**of_file: Any) -> dict[str, bytes]:
    """What is said of one file, by a stat and by a listing."""
    status = json.dumps(STATUS | of_file).encode()
    return {
        "GETFILESTATUS 200": b'{"FileStatus": ' + status + b"}",
        "LISTSTATUS 200": b'{"FileStatuses": {"FileStatus": [' + status + b"]}}",
        "OPEN 200": b"data",
    }


WALKS: list[Callable[[Store], object]] = [
    lambda store: list(store.list()),
    lambda store: list(store.leftovers(1 << 62)),
    lambda store: store.prune(),
]


@pytest.mark.parametrize("walk", WALKS, ids=["list", "leftovers", "prune"])
def test_a_directory_that_lists_itself_ends(walk: Callable[[Store], object]) -> None:
    """A loop of links on another service looks the same; twice in itself it would be a tree without end."""
    directory = json.dumps({"FileStatus": FOLDER}).encode()
    twice = listing(STATUS, FOLDER, FOLDER | {"pathSuffix": "other"})
    store, answers = answered({"GETFILESTATUS 200": directory, "LISTSTATUS 200": twice})
    with refuses(FormatError, "bad-key", match=r"marks|other", hint="a link that leads back"):
        walk(store)
    assert MOST_FOLDERS < answers.asked < MOST_FOLDERS + 10


def test_what_lies_deep_is_listed() -> None:
    class Deep(Answers):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            deep = str(request.url).partition("?")[0].count("/d")
            self.bodies = {
                "LISTSTATUS 200": listing(STATUS, *[FOLDER | {"pathSuffix": f"d{deep}"}] * (deep < 20))
            }
            return super().send(request, *args, **kwargs)

    store, _ = answered({})
    store._opened()[0].session.mount("http://", Deep({}))  # type: ignore[attr-defined]
    found = [one.path for one in store.list()]
    assert len(found) == 21 and max(found, key=len) == "/".join([*(f"d{one}" for one in range(20)), "a.json"])


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "marks/../../x", ".", "a//b"])
def test_a_name_that_leads_elsewhere_is_none(name: str) -> None:
    for kind in (STATUS, FOLDER):
        store, answers = answered({"LISTSTATUS 200": listing(kind | {"pathSuffix": name})})
        for ask in (lambda one: one.names(), lambda one: list(one.list())):
            with refuses(FormatError, "bad-key"):
                ask(store)
        assert answers.asked == 2, "nothing there was asked for"
    store, _ = answered({"LISTSTATUS 200": listing(STATUS, FOLDER)})
    assert store.names() == ["a.json", "marks"]


@pytest.mark.parametrize("length", ["\x00", "x", -1, 1e308 * 10, float("nan"), [], {"a": 1}, None])
def test_a_size_that_is_none_is_no_bug(length: object) -> None:
    store, _ = answered(said(length=length))
    for ask in (lambda: store.stat("a.json"), lambda: list(store.list()), lambda: store.read("a.json")):
        try:
            ask()
        except StreambankError as error:
            assert isinstance(error, StorageError) and not isinstance(error, InternalError)
        else:
            assert length is None or length == [], "what is not there is empty"


@pytest.mark.parametrize("time", ["\x00", "yesterday", float("nan"), float("inf"), [], {}])
def test_a_time_that_is_none_is_no_bug(time: object) -> None:
    store, _ = answered(said(modificationTime=time, mtime=time))
    with pytest.raises(StorageError):
        store.stat("a.json")


@pytest.mark.parametrize("length", [5, 1 << 30, 1 << 63])
def test_a_file_that_is_never_read_to_its_end_ends(length: int) -> None:
    """Four bytes come, whatever was asked for."""
    store, answers = answered(said(length=length))
    with store.open("a.json") as reader, pytest.raises(StorageError) as caught:
        reader.read()
    assert caught.value.code == "corrupt-transfer" and answers.asked < 10
    with pytest.raises(StorageError):
        store.read("a.json")
    assert answers.asked < 40
    honest, _ = answered(said())
    assert honest.read("a.json") == b"data"


def test_an_answer_without_an_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.storage.fsspec.webhdfs.MOST_ANSWER_BYTES", 4 << 20)
    given = 0

    class Endless(Answers):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            response = super().send(request, *args, **kwargs)

            class Raw:
                def read(self, size: int = -1) -> bytes:
                    nonlocal given
                    given += size
                    return b" " * size

                def close(self) -> None:
                    """Nothing is open."""

            response.raw = Raw()
            return response

    store, _ = answered({})
    store._opened()[0].session.mount("http://", Endless({"LISTSTATUS 200": b""}))  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        store.names()
    assert 4 << 20 < given < 8 << 20
