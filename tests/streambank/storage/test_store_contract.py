"""The contract of a store, as one suite that each store passes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, InputError, NotFoundError
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store, chunks, scanning
from tests.support.refuses import refuses
from tests.support.storage.contents import keys


def test_is_a_store(store: Store) -> None:
    assert isinstance(store, Store)
    assert "://" in store.uri
    assert not store.uri.endswith("/")


def test_gives_back_what_was_written(store: Store) -> None:
    store.write("state/0/1/3.zip", b"bytes")

    assert store.read("state/0/1/3.zip") == b"bytes"
    info = store.stat("state/0/1/3.zip")
    assert (info.path, info.size_bytes) == ("state/0/1/3.zip", 5)
    assert info.identity


def test_writes_chunks_and_empty_files(store: Store) -> None:
    store.write("chunks", iter([b"a" * 10, b"", b"b" * 5]))
    store.write("empty", b"")
    store.write("none", iter([]))

    assert store.read("chunks") == b"a" * 10 + b"b" * 5
    assert store.read("empty") == store.read("none") == b""
    assert store.stat("empty").size_bytes == 0


def test_reads_ranges(store: Store) -> None:
    store.write("f", b"0123456789")

    assert store.read("f", 3, 4) == b"3456"
    assert store.read("f", 8) == b"89"
    assert store.read("f", 8, 100) == b"89"
    assert store.read("f", 100) == b""
    assert store.read("f", 0, 0) == b""


def test_opens_a_reader(store: Store) -> None:
    data = bytes(range(256)) * 10_000
    store.write("f", data)

    with store.open("f") as reader:
        assert b"".join(chunks(reader, 1000)) == data


def test_a_write_replaces_the_whole_file_and_its_identity(store: Store) -> None:
    store.write("f", b"a longer text than the next")
    before = store.stat("f")
    store.write("f", b"short")

    assert store.read("f") == b"short"
    assert before.identity != store.stat("f").identity


def test_an_equal_rewrite_has_another_identity(store: Store) -> None:
    identities = set()
    for _ in range(2):
        store.write("f", b"same")
        identities.add(store.stat("f").identity)
    assert len(identities) == 2 or store.features.identity_of_bytes


@pytest.mark.parametrize("call", ["stat", "read", "open", "hold"])
def test_what_is_not_there_is_not_found(store: Store, call: str) -> None:
    store.write("directory/file", b"x")

    for key in ("nothing", "no/such/place", "directory", "directory/file/below"):
        with pytest.raises(NotFoundError):
            if call == "open":
                with store.open(key):
                    pass
            else:
                getattr(store, call)(key)
        assert not store.exists(key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "./a",
        "a/.",
        "a\\b",
        "a\nb",
        "a\0b",
        "\x85",
    ],
)
def test_no_key_can_climb_or_break_a_line(store: Store, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.read(key),
        lambda: store.stat(key),
        lambda: store.exists(key),
        lambda: store.hold(key),
        lambda: store.write(key, b"x"),
        lambda: store.write_named([b"x"], lambda: key),
        lambda: store.delete(key),
        lambda: store.child(key),
        lambda: store.rename("a", key),
    ]
    store.write("a", b"x")
    for call in calls:
        with refuses(InputError, "bad-key"):
            call()
    assert keys(store) == ["a"]


def test_odd_but_allowed_keys(store: Store) -> None:
    odd = [".hidden", "..a", "a..", "a b", "date=2013-01-01 10%3A00", "ü/é", "#?&", "~", "-", "a/.b.crc"]
    for key in odd:
        store.write(key, key.encode())

    assert keys(store) == sorted(odd)
    assert [store.read(key).decode() for key in odd] == odd


def test_lists_recursively_below_a_prefix(store: Store) -> None:
    for key in ("offsets/1", "offsets/2", "offsets-old/1", "state/0/0/1.delta", "metadata"):
        store.write(key, key.encode())

    assert keys(store) == ["metadata", "offsets-old/1", "offsets/1", "offsets/2", "state/0/0/1.delta"]
    assert keys(store, "offsets") == ["offsets/1", "offsets/2"]
    assert keys(store, "state/0") == ["state/0/0/1.delta"]
    assert keys(store, "nothing") == keys(store, "metadata") == keys(store, "off") == []
    assert {info.path: info for info in store.list()}["metadata"] == store.stat("metadata")


def test_names_are_sorted_and_one_level_deep(store: Store) -> None:
    for key in ("b/1", "b/2", "a/x/y", "c"):
        store.write(key, b"")

    assert [*store.names()] == ["a", "b", "c"]
    assert [*store.names("b")] == ["1", "2"]
    assert [*store.names("a")] == ["x"]
    assert [*store.names("nothing")] == [*store.names("c")] == []


def test_an_empty_store_lists_nothing(store: Store) -> None:
    assert [*store.names()] == keys(store) == []


def test_an_exclusive_write_refuses_what_is_there(store: Store) -> None:
    store.write("f", b"first", exclusive=True)

    with refuses(ConflictError, "exists"):
        store.write("f", b"second", exclusive=True)
    assert store.read("f") == b"first"
    assert keys(store) == ["f"]


@pytest.mark.race
def test_of_many_exclusive_writers_one_wins(store: Store) -> None:
    writers = 12
    for attempt in range(2 if store.features.remote else 5):
        key = f"race/{attempt}"
        barrier = threading.Barrier(writers)

        def race(number: int, key: str = key, barrier: threading.Barrier = barrier) -> int | None:
            barrier.wait()
            try:
                store.write(key, [b"%d" % number] * 50, exclusive=True)
            except ConflictError:
                return None
            return number

        with ThreadPoolExecutor(writers) as pool:
            winners = [number for number in pool.map(race, range(writers)) if number is not None]
        assert len(winners) == 1
        assert store.read(key) == b"%d" % winners[0] * 50


def test_readers_see_the_old_bytes_or_the_new_ones(store: Store) -> None:
    versions = [bytes([number]) * 50_000 for number in range(2)]
    store.write("f", versions[0])
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number = 1 - number
            store.write("f", (versions[number][i : i + 1000] for i in range(0, 50_000, 1000)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            assert store.read("f") in versions
            assert keys(store) == ["f"]
    finally:
        stop.set()
        writer.join()


def test_a_write_whose_data_fails_leaves_nothing(store: Store) -> None:
    class BrokenError(Exception):
        pass

    def data() -> Iterator[bytes]:
        yield b"half"
        raise BrokenError

    store.write("old", b"whole")
    for key, exclusive in (("new", False), ("newer", True), ("old", False)):
        with pytest.raises(BrokenError):
            store.write(key, data(), exclusive=exclusive)
    with pytest.raises(BrokenError):
        store.write_named(data(), lambda: "named")

    assert keys(store) == ["old"]
    assert store.read("old") == b"whole"


def test_a_name_may_come_after_the_bytes(store: Store) -> None:
    passed = []

    def data() -> Iterator[bytes]:
        for chunk in (b"one", b"two"):
            passed.append(chunk)
            yield chunk

    store.write_named(data(), lambda: f"objects/{len(passed)}")

    assert keys(store) == ["objects/2"]
    assert store.read("objects/2") == b"onetwo"


def test_no_name_drops_the_bytes(store: Store) -> None:
    store.write_named([b"x"], lambda: None)
    assert keys(store) == []


def test_deletes_what_is_there_and_what_is_not(store: Store) -> None:
    store.write("a/b", b"x")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")

    assert keys(store) == []
    assert not store.exists("a/b")


def test_renames_without_replacing(store: Store) -> None:
    store.write("a", b"x")
    store.rename("a", "deep/er/b")
    assert (keys(store), store.read("deep/er/b")) == (["deep/er/b"], b"x")

    store.write("c", b"y")
    with refuses(ConflictError, "exists"):
        store.rename("c", "deep/er/b")
    with pytest.raises(NotFoundError):
        store.rename("nothing", "d")
    with pytest.raises(ConflictError):
        store.rename("c", "c")
    assert (store.read("c"), store.read("deep/er/b")) == (b"y", b"x")


def test_a_child_is_the_same_files_by_shorter_names(store: Store) -> None:
    child = store.child("a/b")
    child.write("c", b"x")

    assert store.read("a/b/c") == b"x"
    assert keys(child) == ["c"]
    assert child.uri == f"{store.uri}/a/b"
    assert store.child("a").child("b").read("c") == b"x"


def test_a_held_file_says_what_it_was(store: Store) -> None:
    store.write("f", b"bytes")
    info = store.stat("f")

    with closing(store.hold("f")) as held:
        assert held.info == held.current() == info
        with held.open() as one, held.open() as other:
            assert (one.read(2), other.read(), one.read()) == (b"by", b"bytes", b"tes")
    held.close()


def test_a_held_file_outlives_its_name_where_the_store_holds(store: Store) -> None:
    store.write("f", b"bytes")

    with closing(store.hold("f")) as held:
        store.delete("f")
        if store.features.holds:
            with held.open() as reader:
                assert reader.read() == b"bytes"
            assert held.current().size_bytes == 5
        else:
            with pytest.raises(NotFoundError), held.open():
                pass
            with pytest.raises(NotFoundError):
                held.current()


def test_copies_or_says_that_it_cannot(store: Store, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    for source in (store, MemoryStore(), LocalStore(tmp_path / "other")):
        source.write("from", data)
        if store.copy_from(source, "from", "x/to"):
            assert store.read("x/to") == data
            store.write("x/to", b"other")
            assert source.read("from") == data
            store.delete("x/to")
        else:
            assert not store.exists("x/to")


def test_links_or_says_that_it_cannot(store: Store) -> None:
    store.write("from", b"bytes")

    linked = store.link_from(store, "from", "x/to")

    assert linked == (store.features.links and store.exists("x/to"))
    if linked:
        assert store.read("x/to") == b"bytes"
        with pytest.raises(ConflictError):
            store.link_from(store, "from", "x/to")


def test_pruning_keeps_every_file(store: Store) -> None:
    store.write("a/b/c", b"x")
    store.write("a/d/e", b"y")
    store.delete("a/b/c")

    store.prune("a")

    assert [*store.names("a")] == ["d"]
    store.delete("a/d/e")
    store.prune()
    assert [*store.names()] == []


def test_what_a_scan_says_is_what_a_listing_says(store: Store) -> None:
    for key in ("a", "folder/b", "folder/below/c"):
        store.write(key, [key.encode()])
    fast = scanning(store)
    assert (fast is not None) is store.features.scans
    if fast is None:
        return
    listed = {(info.path, info.size_bytes, info.mtime_ns, info.names) for info in store.list("folder")}
    scanned = {
        (f"{folder}/{name}", size_bytes, mtime_ns, names)
        for folder, rows in fast.scan("folder")
        for name, _, size_bytes, mtime_ns, names in rows
    }
    assert scanned == listed and len(listed) == 2
    assert fast.look(["a", "folder/b", "folder/gone"]) == {key: store.stat(key) for key in ("a", "folder/b")}
