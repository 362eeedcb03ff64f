"""What a NameNode, or who answers in its place, says to each call of a store of HDFS over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any
from zlib import crc32

from streambank.storage.names import is_key
from streambank.storage.store import Store
from tests.fuzz.inputs import Target, changed, named
from tests.support.storage.webhdfs_answers import FOLDER, STATUS, answered

ANSWERS: Mapping[str, bytes] = {
    "GETFILESTATUS 404": b'{"RemoteException": {"exception": "FileNotFoundException", "message": "no"}}',
    "RENAME 403": b'{"RemoteException": {"exception": "FileAlreadyExistsException", "message": "is there"}}',
    "GETFILESTATUS 200": json.dumps({"FileStatus": STATUS | {"pathSuffix": ""}}).encode(),
    "LISTSTATUS 200": json.dumps({"FileStatuses": {"FileStatus": [STATUS, FOLDER]}}).encode(),
    "LISTSTATUS below 200": json.dumps({"FileStatuses": {"FileStatus": [STATUS]}}).encode(),
    "OPEN 200": b"bytes",
    "CREATE 201": b"",
    "MKDIRS 200": b'{"boolean": true}',
    "RENAME 200": b'{"boolean": true}',
    "DELETE 200": b'{"boolean": true}',
}
"""By operation and status; of several for one operation the last counts."""


def _whole(found: Iterator[Any]) -> None:
    for one in islice(found, 10_000):
        assert is_key(getattr(one, "path", None) or one.key)


def _read(store: Store) -> None:
    assert isinstance(store.read("a.json"), bytes)


def _open(store: Store) -> None:
    with store.open("a.json") as reader:
        reader.read(1 << 20)


def _names(store: Store) -> None:
    # What is odd in a name stays, as on a local disk: whoever opens it is refused.
    assert all("/" not in one and one not in ("", ".", "..") for one in store.names())


def _hold(store: Store) -> None:
    with store.hold("a.json").open() as reader:
        reader.read(10)


LISTS: tuple[Callable[[Store], object], ...] = (
    lambda store: _whole(store.list()),
    lambda store: _whole(store.leftovers(1 << 62)),
    lambda store: store.prune("marks"),
    _names,
)
READS: tuple[Callable[[Store], object], ...] = (
    lambda store: store.stat("a.json"),
    lambda store: store.exists("a.json"),
    _read,
    lambda store: store.read("a.json", 1, 2),
    _open,
    _hold,
)
WRITES: tuple[Callable[[Store], object], ...] = (
    lambda store: store.write("a.json", b"x"),
    lambda store: store.write("a.json", b"x", exclusive=True),
    lambda store: store.delete("a.json"),
    lambda store: store.rename("a.json", "b.json"),
)
ASKS = {"LISTSTATUS": LISTS, "GETFILESTATUS": READS, "OPEN": READS}
CODES = ("200", "201", "307", "400", "401", "403", "404", "500", "503")


def _answers(data: bytes) -> None:
    # What was changed comes last, so it counts.
    name = data.partition(b"\n")[0].decode("utf-8", "replace")
    bodies = changed({one: said for one, said in ANSWERS.items() if one != name}, data)
    bodies = {one: said for one, said in bodies.items() if one[-3:] in CODES}
    asks = ASKS.get(data.split(maxsplit=1)[:1][0].decode("utf-8", "replace") if data.strip() else "", WRITES)
    asks[crc32(data) % len(asks)](answered(bodies)[0])


TARGETS: Mapping[str, Target] = {"webhdfs": Target(lambda: named(ANSWERS), _answers, is_tree=True)}
