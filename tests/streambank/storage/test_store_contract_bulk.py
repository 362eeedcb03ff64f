"""The contract of a store: writes that become durable together."""

from __future__ import annotations

import pytest

from streambank.core.errors import ConflictError, NotFoundError
from streambank.storage.store import Store
from tests.support.storage.contents import keys


def test_writes_in_bulk_are_writes(store: Store) -> None:
    store.write("old", b"old")

    with store.bulk() as files:
        assert isinstance(files, Store)
        assert files.uri == store.uri
        files.write("a/b", b"x")
        files.write_named([b"y"], lambda: "a/c")
        files.child("a").write("d", b"z", exclusive=True)
        files.rename("old", "new")
        with pytest.raises(ConflictError):
            files.write("a/b", b"other", exclusive=True)
        assert (store.read("a/b"), files.read("a/b")) == (b"x", b"x")

    assert {key: store.read(key) for key in keys(store)} == {
        "a/b": b"x",
        "a/c": b"y",
        "a/d": b"z",
        "new": b"old",
    }


def test_a_bulk_may_be_empty_or_inside_another(store: Store) -> None:
    with store.bulk():
        pass
    assert keys(store) == []

    with store.bulk() as files, files.bulk() as inner:
        inner.write("f", b"x")
    assert store.read("f") == b"x"


def test_names_may_be_settled_at_any_time(store: Store) -> None:
    store.write("a/b/c", b"x")
    store.settle_names(["a/b", "nowhere", ""])
    assert store.read("a/b/c") == b"x"


def test_an_error_inside_a_bulk_passes(store: Store) -> None:
    with pytest.raises(NotFoundError), store.bulk() as files:
        files.read("nothing")
    store.write("f", b"x")
    assert keys(store) == ["f"]
