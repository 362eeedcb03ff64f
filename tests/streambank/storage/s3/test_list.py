"""Listings: whole, however many pages they have, and without what is no file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streambank.storage.s3 import list
from streambank.storage.s3.client import S3Address
from streambank.storage.s3.store import S3Store
from tests.support.storage.s3_objects import key_of
from tests.support.storage.s3_servers import BUCKET


def test_a_listing_of_many_pages_is_whole(store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list, "PAGE_KEYS", 40)
    wanted = [f"a/{number % 2}/{number}" for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        pool.map(lambda key: raw.put_object(Bucket=BUCKET, Key=key_of(store, key), Body=b""), wanted)

    assert sorted(info.path for info in store.list("a")) == sorted(wanted)
    assert [*store.names("a")] == ["0", "1"]
    assert len(store.names("a/0")) == 50


def test_a_long_listing_goes_directory_by_directory(
    store: S3Store, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And holds every file once: files beside directories, long directories, short ones, one of each name."""
    wanted = [f"state/0/{number % 3}/{number}" for number in range(45)]
    wanted += [f"commits/{number}" for number in range(25)] + ["metadata", "state/x", "state/0/y"]
    with ThreadPoolExecutor(16) as pool:
        assert all(
            pool.map(lambda key: raw.put_object(Bucket=BUCKET, Key=key_of(store, key), Body=b""), wanted)
        )
    monkeypatch.setattr(list, "PAGE_KEYS", 10)
    monkeypatch.setattr(list, "FLAT_PAGES", 2)
    asked = []
    pages = list.pages

    def asking(root: S3Address, prefix: str, delimiter: str = "") -> Iterator[Any]:
        asked.append((prefix.removeprefix(key_of(store, "")), delimiter))
        return pages(root, prefix, delimiter)

    monkeypatch.setattr(list, "pages", asking)

    assert sorted(info.path for info in store.list()) == sorted(wanted)
    assert {("", "/"), ("state/", "/"), ("state/0/", "/"), ("state/0/1/", ""), ("commits/", "/")} <= {*asked}

    first = next(iter(store.list()))  # whoever stops in the middle waits for nothing and leaves nothing
    assert first.path in wanted


def test_directory_markers_and_our_temporary_files_are_no_files(store: S3Store, raw: Any) -> None:
    for key in ("commits/", "commits/0", "state/", "state/0/", "commits/.streambank-x.tmp", ".1.x.tmp"):
        raw.put_object(Bucket=BUCKET, Key=key_of(store, key), Body=b"")

    assert sorted(info.path for info in store.list()) == [".1.x.tmp", "commits/0"]
    assert [*store.names("commits")] == ["0"]

    store.prune()
    assert [*store.names()] == [".1.x.tmp", "commits"]
    assert store.read("commits/0") == b""
