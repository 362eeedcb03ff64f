"""What a target is, and what several of them share: a store that is filled, one file of it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streambank.core.errors import StreambankError
from streambank.storage import Store
from streambank.storage.memory import MemoryStore

MOST_BYTES = 64 << 10
"""Of a seed: a small file is mutated sooner."""


@dataclass(frozen=True)
class Target:
    """What is fed.

    Attributes:
        seeds: Inputs that are right. Those of a tree begin with a line that is the name of the file.
        feed: Reads one; a StreambankError is an answer.
        is_tree: Whether an input is one file of many, with its name.
    """

    seeds: Callable[[], Sequence[bytes]]
    feed: Callable[[bytes], object]
    is_tree: bool = False


def each(*parsers: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Feeds several; each of them answers for itself."""

    def feed(data: bytes) -> None:
        for parser in parsers:
            try:
                parser(data)
            except StreambankError:
                continue

    return feed


def filled(name: str, files: Mapping[str, bytes]) -> Store:
    """A store in memory with these files and no others."""
    store = MemoryStore(name)
    for info in list(store.list()):
        store.delete(info.path)
    for path, data in files.items():
        store.write(path, data)
    return store


def changed(files: Mapping[str, bytes], data: bytes) -> dict[str, bytes]:
    """The files with one of them changed, or one more."""
    name, _, content = data.partition(b"\n")
    return {**files, name.decode("utf-8", "replace"): content}


def named(files: Mapping[str, bytes], *, but: Iterable[str] = ()) -> Sequence[bytes]:
    """Each of these files with its name."""
    left_out = tuple(but)
    return [
        path.encode() + b"\n" + data
        for path, data in sorted(files.items())
        if len(data) <= MOST_BYTES and not (left_out and path.startswith(left_out))
    ]
