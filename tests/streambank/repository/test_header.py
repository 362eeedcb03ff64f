from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.core.errors import FormatError, InputError, IntegrityError, NotFoundError, StorageError
from streambank.repository.header import HEADER_KEY, check_apart, check_new, create_header, read_header
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.storage.interrupting_store import interrupting


def test_it_is_made_once_and_read_again() -> None:
    store = MemoryStore()
    made = create_header(store, "blake3", "one")
    assert (made.id, made.digest) == ("one", "blake3")
    assert read_header(store) == made
    assert create_header(store, "sha256", "two") == made, "it was there already"


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_of_many_creators_one_wins(call: int) -> None:
    store = MemoryStore()
    mine, calls = interrupting(store, {call: lambda: create_header(store, "blake3", "other")})
    assert create_header(mine, "blake3", "mine").id == read_header(store).id == "other"
    assert calls.happened == [call]


@pytest.mark.parametrize("before", ["jobs/flights/lease/1.json", "lost+found/x"])
def test_records_of_jobs_may_be_there_before(before: str) -> None:
    store = MemoryStore()
    store.write(before, b"")
    assert create_header(store, "blake3", "one").id == "one"


def test_none_is_made_where_other_files_are() -> None:
    store = MemoryStore()
    store.write("offsets/0", b"v1")
    with refuses(InputError, "not-empty", match="offsets"):
        create_header(store, "blake3", "one")
    assert not store.exists(HEADER_KEY)


@pytest.mark.parametrize("part", ["savepoints/flights/a.json", "objects/aa/a", "packs/aa/a", "marks/a"])
def test_none_is_made_in_a_repository_that_has_lost_its_own(part: str) -> None:
    store = MemoryStore()
    store.write(part, b"")
    acts: list[Callable[[], object]] = [
        lambda: create_header(store, "blake3", "one"),
        lambda: read_header(store),
    ]
    for act in acts:
        with refuses(IntegrityError, "header-missing"):
            act()
    assert not store.exists(HEADER_KEY)


@pytest.mark.parametrize("act", [check_new, lambda store: create_header(store, "blake3", "one")])
def test_where_none_can_be_made_the_error_says_that_of_the_repository(
    act: Callable[[Store], object], tmp_path: Path
) -> None:
    with refuses(InputError, "no-repository", match="No repository can be made at file:///proc/x/y: no dir"):
        act(open_store("/proc/x/y"))
    (tmp_path / "file").write_text("mine")
    with refuses(StorageError, "storage", match="^No repository can be made at .*: .*Not a directory"):
        act(open_store(tmp_path / "file"))


def test_a_look_whether_one_can_be_made_leaves_nothing_and_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for place in ("new/deep", "mine", "mine/below"):
        check_new(open_store(tmp_path / place))
    assert [one.relative_to(tmp_path).as_posix() for one in tmp_path.rglob("*")] == ["mine"]


def test_where_there_is_none_the_error_says_so() -> None:
    with refuses(NotFoundError, "no-repository"):
        read_header(MemoryStore())


def test_damage_is_found() -> None:
    store = MemoryStore()
    create_header(store, "blake3", "one")
    record = json.loads(store.read(HEADER_KEY))
    store.write(HEADER_KEY, json.dumps({**record, "id": "another"}).encode())
    with pytest.raises((IntegrityError, FormatError)) as caught:
        read_header(store)
    assert caught.value.code == "record-damaged"


def test_no_new_repository_is_made_inside_the_checkpoint() -> None:
    inside = MemoryStore().child("ck/savepoints")
    checkpoint = inside.uri.removesuffix("/savepoints")
    with refuses(InputError, "inside-checkpoint"):
        check_apart(inside, checkpoint)
    check_apart(inside, f"{checkpoint}2")
    create_header(inside, "blake3", "one")
    check_apart(inside, checkpoint)  # one that is there goes on being used
