"""From a location as people write it to a store: `open_store`, and the canonical spelling of a location.

A location is a path (`/data/ck`, `ck`, `~/ck`) or a URI (`file:///data/ck`, Spark's `file:/data/ck`,
`memory://name`, `s3://bucket/prefix`, `gs://bucket/prefix`, `hdfs://namenode:8020/path`). As in Hadoop,
nothing in a location is percent-encoded: `file:///a%20b` is a directory whose name holds a percent sign.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from streambank.core.errors import InputError
from streambank.core.text import CONTROL
from streambank.storage.store import Opener, Store

OPENERS: dict[str, str] = {
    "file": "streambank.storage.local.store:open_location",
    "memory": "streambank.storage.memory:open_location",
    "s3": "streambank.storage.s3.store:open_location",
    "s3a": "streambank.storage.s3.store:open_location",
}
"""Scheme -> dotted path of its `Opener`, imported when a location asks for it."""
OTHERS = "streambank.storage.fsspec.opening:open_location"
"""The `Opener` of every other scheme."""

_SAME_SERVICE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs", "wasbs": "wasb"}
_HOSTS = {"hdfs": "8020", "webhdfs": "9870", "swebhdfs": "9871", "sftp": "22", "abfs": "", "wasb": ""}
"""Schemes whose location names a host, by any capitals, and the port that it has by default."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://|(?<=file:)/)")


def scheme_of(location: str | os.PathLike[str]) -> str:
    """The scheme of a location in lower case; `file` for a plain path."""
    match = _SCHEME.match(os.fspath(location))
    return match[1].lower() if match else "file"


def normalize_location(location: str | os.PathLike[str]) -> str:
    """The canonical absolute URI of a location: `file:///a/b`, `memory://name/x`; no `.`, `..`, last slash.

    Symbolic links are left as they are, since Spark records paths the way it was given them.

    Raises:
        InputError: The location is empty, climbs above its own root, is not UTF-8, or has control characters
            or line breaks (code `bad-location`).
    """
    return _utf8(_normalized(os.fspath(location)))


def _utf8(uri: str) -> str:
    """The same URI, if manifests and records, which are UTF-8, can hold it."""
    if any("\ud800" <= character <= "\udfff" for character in uri):
        raise InputError(
            f"{uri!r} is not UTF-8.",
            code="bad-location",
            hint="Rename the directory, or reach it through a symbolic link whose path is UTF-8.",
        )
    return uri


def _normalized(text: str) -> str:
    if not text:
        raise InputError(
            f"{text!r} is not a location.",
            code="bad-location",
            hint="Give a directory or a URI such as file:///data.",
        )
    if CONTROL.search(text):
        raise InputError(
            f"{text!r} has a line break or another control character, which a location cannot have.",
            code="bad-location",
            hint="Rename the directory, or reach it through a symbolic link whose path has none.",
        )
    match = _SCHEME.match(text)
    if match is None:
        return "file://" + _absolute(os.path.expanduser(text))  # noqa: PTH111 - a location may not be a Path yet
    scheme = match[1].lower()
    if scheme == "file":
        return "file://" + _absolute("/" + _without_host(text[match.end(1) + 1 :]).lstrip("/"))
    parts = [part for part in text[match.end() :].split("/") if part and part != "."]
    nameless = scheme not in OPENERS and text[match.end() :].startswith("/")
    if not parts or ".." in parts or nameless:
        raise InputError(
            f"{text!r} is not a location.",
            code="bad-location",
            hint=f"Write it as {scheme}://name or {scheme}://name/path.",
        )
    return f"{scheme}://" + "/".join(parts)


def _absolute(path: str) -> str:
    absolute = os.path.abspath(path)  # noqa: PTH100 - unlike Path.resolve it leaves symbolic links alone
    return "/" + absolute.lstrip("/")


def _without_host(rest: str) -> str:
    """The path of `//host/path`, `///path` or `/path`."""
    if not rest.startswith("//"):
        return rest
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost"):
        raise InputError(
            f"'file:{rest}' names the host {host!r}; only files of this machine can be opened.",
            code="bad-location",
            hint=f"Write file:///{host}{slash}{path} for the path /{host}{slash}{path}.",
        )
    return slash + path


def local_path(location: str | os.PathLike[str]) -> Path | None:
    """The directory that a location means on this machine; None for every scheme but `file`."""
    uri = normalize_location(location)
    return Path(uri.removeprefix("file://")) if uri.startswith("file://") else None


def is_inside(location: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether a location is another one or lies below it; on this machine symbolic links are followed."""
    place, root = (followed(each) for each in (location, other))
    return place == root or place.startswith(root.rstrip("/") + "/")


def same_place(location: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two locations are one, by whichever of its names; on this machine links are followed.

    What is no location is only itself.
    """
    try:
        return followed(location) == followed(other)
    except InputError:
        return location == other


def is_below(location: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether a location lies below another one, and is not that one; links are followed."""
    return is_inside(location, other) and not is_inside(other, location)


def is_beside(location: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two locations have the same parent; neither bucket nor server has one. Links are followed."""
    parent = _parent(normalize_location(other))
    place = followed(location)
    return parent is not None and _parent(place) == followed(parent) and place != followed(other)


def _parent(uri: str) -> str | None:
    above, _, name = uri.rpartition("/")
    if not name or above.endswith(":/"):
        return None
    return "file:///" if above == "file://" else above


def followed(location: str | os.PathLike[str]) -> str:
    """A location as a canonical URI: on this machine without symbolic links, elsewhere as `service_name`."""
    path = local_path(location)
    if path is not None:
        return "file://" + os.path.realpath(path)
    return _service(normalize_location(location))


def service_name(location: str | None) -> str | None:
    """A location as it is compared, by whichever of its names; links are left as they are.

    What is no location is only itself.
    """
    try:
        return None if location is None else _service(normalize_location(location))
    except InputError:
        return location


def _service(uri: str) -> str:
    """One service by one name: S3 as `s3`, a host in small letters and without its usual port."""
    scheme, mark, rest = uri.partition("://")
    scheme = _SAME_SERVICE.get(scheme, scheme)
    host, slash, path = rest.partition("/")
    if scheme in _HOSTS:
        user, at, name = host.rpartition("@")
        host = f"{user}{at}{name.lower().removesuffix(f':{_HOSTS[scheme]}')}"
    return f"{scheme}{mark}{host}{slash}{path}"


def upwards(place: str) -> Iterator[str]:
    """A location as `followed` gives it, and then each that holds it, up to its server or the root."""
    scheme, mark, path = place.partition("://")
    parts = path.rstrip("/").split("/")
    for length in range(len(parts), 0, -1):
        yield f"{scheme}{mark}{'/'.join(parts[:length])}"


def open_store(location: str | os.PathLike[str]) -> Store:
    """The store at a location. Nothing is created or read yet.

    Raises:
        InputError: The location is malformed (code `bad-location`).
        FormatError: Nobody knows such a scheme (code `unknown-scheme`).
        StorageError: The package for it is not installed (code `missing-package`).
    """
    uri = normalize_location(location)
    module, _, name = OPENERS.get(scheme_of(uri), OTHERS).partition(":")
    opener = cast("Opener", getattr(importlib.import_module(module), name))
    return opener(uri)
