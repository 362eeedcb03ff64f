"""Listing objects, page by page. Nothing relies on their order, in which services differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from streambank.core.errors import FormatError, StorageError
from streambank.storage.names import is_key, is_temporary
from streambank.storage.s3.client import Service, call

PAGE_KEYS = 1000
"""How many objects a page may have; services give no more."""
FLAT_PAGES = 4
"""A listing of at most so many pages is asked for one page after the other."""
LISTINGS_AT_ONCE = 16


def pages(service: Service, bucket: str, prefix: str, uri: str, delimiter: str = "") -> Iterator[Any]:
    """Every page of what begins with a prefix, as the service answers it."""
    walk: _Walk | None = _Walk(prefix, delimiter)
    while walk is not None:
        page = _ask(service, bucket, uri, walk)
        yield page
        walk = walk.following(page, uri)


def items(service: Service, bucket: str, root: str, prefix: str, uri: str) -> Iterator[tuple[str, Any]]:
    """Key below the root, and what the listing says, of every file whose full key begins with a prefix."""
    for item in _contents(service, bucket, prefix, uri):
        key = item["Key"].removeprefix(root)
        if is_marker(item) or is_temporary(key.rpartition("/")[2]):
            continue
        if not is_key(key):
            raise FormatError(
                f"{uri} holds an object whose name cannot be used: {key!r}.",
                code="bad-key",
                hint="Rename or remove it: no empty part, '.', '..', backslash or control character.",
            )
        yield key, item


@dataclass(frozen=True, slots=True)
class _Walk:
    """A listing on its way: of all below a prefix, or (with a delimiter) of one level."""

    prefix: str
    delimiter: str = ""
    token: str = ""
    pages: tuple[Any, ...] = ()

    def following(self, page: Any, uri: str) -> _Walk | None:
        """The next step after a page; None where that was the last one."""
        if not page.get("IsTruncated"):
            return None
        token = page.get("NextContinuationToken")
        if not token or token == self.token:
            raise StorageError(
                f"The service's listing of {uri} does not end.",
                code="storage",
                hint="Report it to the maker of the service.",
            )
        return replace(self, token=token)


def _ask(service: Service, bucket: str, uri: str, walk: _Walk) -> Any:
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": walk.prefix, "MaxKeys": PAGE_KEYS}
    if walk.delimiter:
        asked["Delimiter"] = walk.delimiter
    if walk.token:
        asked["ContinuationToken"] = walk.token
    return call(service, uri, "list_objects_v2", **asked)


def _contents(service: Service, bucket: str, prefix: str, uri: str) -> Iterator[Any]:
    """All objects below a prefix: page by page, and where they are many, directory by directory at once.

    No order is relied on, so a listing that turns out to be long is begun again one level deeper, without the
    few pages that were seen of it.
    """
    seen: list[Any] = []
    walk: _Walk | None = _Walk(prefix)
    while walk is not None and len(seen) < FLAT_PAGES:
        page = _ask(service, bucket, uri, walk)
        seen.append(page)
        walk = walk.following(page, uri)
    if walk is None:
        for page in seen:
            yield from page.get("Contents", ())
        return
    del seen
    todo, running = deque([_Walk(prefix, "/")]), dict[Future[Any], _Walk]()
    with ThreadPoolExecutor(LISTINGS_AT_ONCE, thread_name_prefix="streambank-list") as pool:
        while todo or running:
            # No more are begun than are read, so that little waits in memory.
            while todo and len(running) < LISTINGS_AT_ONCE:
                walk = todo.popleft()
                running[pool.submit(_ask, service, bucket, uri, walk)] = walk
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                walk = running.pop(future)
                yield from _take(future.result(), walk, todo, uri)


def _take(page: Any, walk: _Walk, todo: deque[_Walk], uri: str) -> Iterator[Any]:
    """The objects that a page settles; what is still to be asked for goes to `todo`, the nearest first."""
    following = walk.following(page, uri)
    if walk.delimiter:
        todo.extend(_Walk(each["Prefix"]) for each in page.get("CommonPrefixes", ()))
        ready: tuple[Any, ...] = (page,)
    elif following is None:
        ready = (*walk.pages, page)
    elif len(walk.pages) + 1 < FLAT_PAGES:
        ready, following = (), replace(following, pages=(*walk.pages, page))
    else:
        ready, following = (), _Walk(walk.prefix, "/")
    if following is not None:
        todo.appendleft(following)
    for each in ready:
        yield from each.get("Contents", ())


def is_marker(item: Any) -> bool:
    """Whether an object stands for a directory: empty, and named with a slash at its end."""
    return bool(item["Key"].endswith("/") and item["Size"] == 0)


def names(service: Service, bucket: str, prefix: str, uri: str) -> set[str]:
    """Names of files and directories directly below a prefix, which ends with a slash or is empty."""
    found = set()
    for page in pages(service, bucket, prefix, uri, delimiter="/"):
        for item in page.get("Contents", ()):
            if not is_marker(item):
                found.add(item["Key"].removeprefix(prefix))
        for each in page.get("CommonPrefixes", ()):
            found.add(each["Prefix"].removeprefix(prefix).removesuffix("/"))
    return {name for name in found if name and not is_temporary(name)}


def prune(service: Service, bucket: str, prefix: str, uri: str) -> bool:
    """Remove the directories below a prefix in which there is nothing, and it itself; whether it is gone.

    Real object stores have none. Spark writes markers for them, and servers that keep objects in a file
    system leave empty ones behind.
    """
    empty, marked = True, False
    directories: list[str] = []
    for page in pages(service, bucket, prefix, uri, delimiter="/"):
        for item in page.get("Contents", ()):
            marked = marked or (is_marker(item) and item["Key"] == prefix)
            empty = empty and is_marker(item)
        directories += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
    for directory in directories:
        empty = prune(service, bucket, directory, uri) and empty
    if empty and prefix and (marked or directories):
        call(service, uri, "delete_object", Bucket=bucket, Key=prefix)
    return empty
