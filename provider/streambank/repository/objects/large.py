"""The files of large objects: which of many are there, found out with few requests.

On a disk each is asked for by itself. A service takes as long for the answer about one file as for a page of
a listing, which tells of a thousand; so it is asked for the listing, unless that is mostly about others.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from itertools import islice

from streambank.core.errors import StreambankError
from streambank.repository.digest import split_digest
from streambank.storage.store import FileInfo, Store
from streambank.storage.threads import at_once, each

FOLDER = "objects"
MANY = 32
"""From so many on a listing may pay."""
LISTED_FOR_EACH = 50
"""So many files are listed, at most, for each that is looked for; then the rest are asked for one by one."""
REMEMBERED = 500_000
"""So many names `Absent` keeps, at most, in some 50 MB."""


def object_key(digest: str) -> str:
    """Where a large object lies in its repository."""
    digits = split_digest(digest)[1]
    return f"{FOLDER}/{digits[:2]}/{digits}"


def look_up(store: Store, digests: Collection[str]) -> dict[str, FileInfo]:
    """What a service says about the files of many large objects.

    Returns:
        For each digest whose file is there. One that is missing may be there all the same, where its file
        could not be asked for, or asking for each as it is needed is as good: on a disk, or for few.
    """
    if not store.features.remote or len(digests) < MANY:
        return {}
    wanted = {object_key(digest): digest for digest in digests}
    found: dict[str, FileInfo] = {}
    limit = LISTED_FOR_EACH * len(wanted)
    listed = 0
    for info in islice(store.list(FOLDER), limit):
        listed += 1
        if info.path in wanted:
            found[wanted[info.path]] = info
    if listed < limit:
        return found

    def ask(key: str) -> FileInfo | None:
        with suppress(StreambankError):  # whoever needs it asks again, and hears what is wrong
            return store.stat(key)
        return None

    rest = [key for key, digest in wanted.items() if digest not in found]
    for key, answer in zip(rest, each(ask, rest, at_once(store)), strict=True):
        if answer is not None:
            found[wanted[key]] = answer
    return found


class Absent:
    """Large objects that were not there when a writer looked around: it need not ask for each that it stores.

    After `MANY` questions it lists so many files as are worth it, and again after eight times as many where
    that was not all of them. Others may store an object meanwhile; then it is stored twice, with the same
    bytes under the same name. Safe to use from several threads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._asked = 0
        self._due = MANY if store.features.remote else 0
        self._there: frozenset[int] | None = None

    def __contains__(self, digest: object) -> bool:
        with self._lock:
            self._asked += 1
            look = self._there is None and self._asked == self._due
        if look:
            self._look()
        return self._there is not None and _number(object_key(str(digest))) not in self._there

    def _look(self) -> None:
        limit = min(REMEMBERED, self._asked * LISTED_FOR_EACH)
        names = [_number(info.path) for info in islice(self._store.list(FOLDER), limit)]
        if len(names) < limit:
            self._there = frozenset(names)
        elif limit < REMEMBERED:
            self._due *= 8


def _number(key: str) -> int:
    """A part of a name that tells it from all others, but for one in 10^19: that one is asked for."""
    try:
        return int(key[-64:][:16], 16)
    except ValueError:
        return -1  # no object of ours
