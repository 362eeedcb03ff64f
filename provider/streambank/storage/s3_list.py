"""Listing objects, page by page. Nothing relies on their order, in which services differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streambank.errors import FormatError, StorageError
from streambank.storage.names import is_key, is_temporary
from streambank.storage.s3_client import Service, call


def pages(service: Service, bucket: str, prefix: str, uri: str, delimiter: str = "") -> Iterator[Any]:
    """Every page of what begins with a prefix, as the service answers it."""
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix}
    if delimiter:
        asked["Delimiter"] = delimiter
    while True:
        page = call(service, uri, "list_objects_v2", **asked)
        yield page
        if not page.get("IsTruncated"):
            return
        token = page.get("NextContinuationToken")
        if not token or token == asked.get("ContinuationToken"):
            raise StorageError(
                f"The service lists {uri} without an end.",
                code="storage",
                hint="Report it to whoever makes the service.",
            )
        asked["ContinuationToken"] = token


def items(service: Service, bucket: str, root: str, prefix: str, uri: str) -> Iterator[tuple[str, Any]]:
    """Key below the root, and what the listing says, of every file whose full key begins with a prefix."""
    for page in pages(service, bucket, prefix, uri):
        for item in page.get("Contents", ()):
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
