"""The files that the browser loads: those of two folders `static`, read once, and no others.

What shows a job is in `streambank.overview`, which writes a page as a file, too; what asks Airflow is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable

TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""What a file is, by its suffix; others are not served."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file.

    Attributes:
        etag: Names these bytes, in quotes, as a response has it.
    """

    content: bytes
    type: str
    etag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """All files, by name."""
    found = {}
    for one in (*_static("streambank.overview"), *_static("streambank_airflow.page")):
        kind = TYPES.get(f".{one.name.rpartition('.')[2]}")
        if kind is not None and one.is_file():
            content = one.read_bytes()
            etag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
            found[one.name] = StaticFile(content, kind, etag)
    return found


def _static(package: str) -> Iterator[Traversable]:
    return files(package).joinpath("static").iterdir()
