"""Listing objects, page by page. Nothing relies on their order, in which services differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

from streambank.core.errors import FormatError
from streambank.storage.names import is_key, is_temporary
from streambank.storage.s3.client import S3Address

PAGE_KEYS = 1000
"""How many objects a page may have; services give no more."""
FLAT_PAGES = 4
"""A listing of at most so many pages is asked for one page after the other."""
LISTINGS_AT_ONCE = 16


def pages(root: S3Address, prefix: str, delimiter: str = "") -> Iterator[Any]:
    """Every page of what begins with a prefix, as the service answers it."""
    level = {"Delimiter": delimiter} if delimiter else {}
    token = {"NextContinuationToken": "ContinuationToken"}
    return root.pages("list_objects_v2", token, Prefix=prefix, MaxKeys=PAGE_KEYS, **level)


def items(root: S3Address, prefix: str) -> Iterator[tuple[str, Any]]:
    """Key below the root, and what the listing says, of every file whose full key begins with a prefix."""
    for item in _contents(root, prefix):
        key = item["Key"].removeprefix(root.key)
        if is_marker(item) or is_temporary(key.rpartition("/")[2]):
            continue
        if not is_key(key):
            raise FormatError(
                f"{root.uri} holds an object whose name cannot be used: {key!r}.",
                code="bad-key",
                hint="Rename or remove it: no empty part, '.', '..', backslash or control character.",
            )
        yield key, item


class _Walk:
    """A listing on its way: of all below a prefix, or (with a delimiter) of one level."""

    def __init__(self, root: S3Address, prefix: str, delimiter: str = "") -> None:
        self.prefix = prefix
        self.delimiter = delimiter
        self.pages = pages(root, prefix, delimiter)
        self.seen: list[Any] = []


def _contents(root: S3Address, prefix: str) -> Iterator[Any]:
    """All objects below a prefix: page by page, and where they are many, directory by directory at once.

    No order is relied on, so a listing that turns out to be long is begun again one level deeper, without the
    few pages that were seen of it.
    """
    seen = list(islice(pages(root, prefix), FLAT_PAGES))
    if not seen[-1].get("IsTruncated"):
        for page in seen:
            yield from page.get("Contents", ())
        return
    del seen
    todo, running = deque([_Walk(root, prefix, "/")]), dict[Future[Any], _Walk]()
    with ThreadPoolExecutor(LISTINGS_AT_ONCE, thread_name_prefix="streambank-list") as pool:
        while todo or running:
            # No more are begun than are read, so that little waits in memory.
            while todo and len(running) < LISTINGS_AT_ONCE:
                walk = todo.popleft()
                running[pool.submit(next, walk.pages)] = walk
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                walk = running.pop(future)
                yield from _take(root, future.result(), walk, todo)


def _take(root: S3Address, page: Any, walk: _Walk, todo: deque[_Walk]) -> Iterator[Any]:
    """The objects that a page settles; what is still to be asked for goes to `todo`, the nearest first."""
    more = bool(page.get("IsTruncated"))
    ready = [page]
    if walk.delimiter:
        todo.extend(_Walk(root, each["Prefix"]) for each in page.get("CommonPrefixes", ()))
    else:
        walk.seen.append(page)
        ready = [] if more else walk.seen
        if len(walk.seen) == FLAT_PAGES:
            walk = _Walk(root, walk.prefix, "/")
    if more:
        todo.appendleft(walk)
    for each in ready:
        yield from each.get("Contents", ())


def is_marker(item: Any) -> bool:
    """Whether an object stands for a directory: empty, and named with a slash at its end."""
    return bool(item["Key"].endswith("/") and item["Size"] == 0)


def names(root: S3Address, prefix: str) -> set[str]:
    """Names of files and directories directly below a prefix, which ends with a slash or is empty."""
    found = set()
    for page in pages(root, prefix, delimiter="/"):
        for item in page.get("Contents", ()):
            if not is_marker(item):
                found.add(item["Key"].removeprefix(prefix))
        for each in page.get("CommonPrefixes", ()):
            found.add(each["Prefix"].removeprefix(prefix).removesuffix("/"))
    return {name for name in found if name and not is_temporary(name)}


def prune(root: S3Address, prefix: str) -> bool:
    """Remove the directories below a prefix in which there is nothing, and it itself; whether it is gone.

    Real object stores have none. Spark writes markers for them, and servers that keep objects in a file
    system leave empty ones behind.
    """
    empty, marked = True, False
    directories: list[str] = []
    for page in pages(root, prefix, delimiter="/"):
        for item in page.get("Contents", ()):
            marked = marked or (is_marker(item) and item["Key"] == prefix)
            empty = empty and is_marker(item)
        directories += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
    for directory in directories:
        empty = prune(root, directory) and empty
    if empty and prefix and (marked or directories):
        root.ask("delete_object", Key=prefix)
    return empty
