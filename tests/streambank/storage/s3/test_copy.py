"""A rename is a copy that replaces nothing, and a delete: what died in between is finished later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from streambank.core.errors import ConflictError
from streambank.storage.s3 import copy
from streambank.storage.s3 import store as s3
from streambank.storage.s3.store import S3Store
from tests.support.refuses import refuses


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_rename_that_died_is_finished_by_the_next(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(s3, "_RENAMED_BY_CREATE_BYTES", limit)
    store.write("a", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            store.rename("a", "b")
    assert (store.read("a"), store.read("b")) == (b"x", b"x")

    store.rename("a", "b")

    assert [info.path for info in store.list()] == ["b"]
    store.write("c", b"x")  # the same bytes, but another file
    with pytest.raises(ConflictError):
        store.rename("c", "b")
    store.write("a", b"other")
    with pytest.raises(ConflictError):
        store.rename("a", "b")
    assert (store.read("a"), store.read("b"), store.read("c")) == (b"other", b"x", b"x")


def test_a_copy_that_must_not_replace_does_not(store: S3Store) -> None:
    """As a rename of a large file makes it; of many that race one wins."""
    origin = {"streambank-renamed": "one"}
    for name in ("a", "b"):
        store.write(name, name.encode())
    copy.copy(store._place("a"), store._place("c"), origin, exclusive=True)
    copy.copy(store._place("a"), store._place("c"), origin, exclusive=True)  # its answer was lost
    with refuses(ConflictError, "exists"):
        copy.copy(store._place("b"), store._place("c"), {"streambank-renamed": "two"}, exclusive=True)
    assert store.read("c") == b"a"

    def race(number: int) -> bool:
        try:
            said = {"streambank-renamed": str(number)}
            copy.copy(store._place("b"), store._place("d"), said, exclusive=True)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(race, range(6))) == 1
