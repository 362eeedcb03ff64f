"""What all small text files of a checkpoint share: UTF-8, a version line, JSON behind it.

Whatever is wrong with the bytes, one `FormatError` says so, with the path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from streambank.core.errors import FormatError
from streambank.core.json_text import loads

HALF_WRITTEN_HINT = "The file is damaged or was cut off while it was written."
METADATA_HINT = (
    "Spark does not start from this checkpoint. Restore a savepoint, or bring the file back: it holds the "
    "query's id."
)


def half_written(message: str, hint: str = HALF_WRITTEN_HINT) -> FormatError:
    """That the bytes of a file are not all there, or not those that were written (code `half-written`)."""
    return FormatError(message, code="half-written", hint=hint)


def empty_file(path: str) -> FormatError:
    """That a file of Spark has no byte."""
    why = "Spark never leaves an empty file: a disk was full, or the machine went down."
    hint = f"{METADATA_HINT} {why}" if path == "metadata" else why
    return half_written(f"{path} is empty.", hint)


def decode(data: bytes, path: str) -> str:
    """The text of a file.

    Raises:
        FormatError: `half-written`.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise half_written(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error


def encode(text: str, path: str) -> bytes:
    """The bytes of a text that came from a file.

    Raises:
        FormatError: `half-written`: JSON in it names a half of a character.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise half_written(f"{path} names a character that there is not: {error.reason}.") from error


def load_json(text: str, path: str = "the text") -> Any:
    """A JSON value.

    Raises:
        FormatError: `half-written`.
    """
    try:
        return loads(text)
    except ValueError as error:
        raise half_written(f"{path} holds no valid JSON: {error}.") from error


def with_document(data: bytes, path: str, change: Callable[[Any], object]) -> bytes:
    """A file of a version line and a JSON document in which that was changed; every other byte stays.

    Raises:
        FormatError: `half-written`.
    """
    first, _, rest = decode(data, path).partition("\n")
    document = load_json(rest, path)
    change(document)
    return encode(f"{first}\n{compact(document)}", path)


def compact(document: Any) -> str:
    """JSON as Spark writes it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def parse_version(line: str, path: str, max_version: int) -> int:
    """The number behind `v` in the first line of a log file.

    Raises:
        FormatError: `half-written` where there is none, `unknown-version` above `max_version`.
    """
    if not line.strip():
        raise half_written(f"{path} is empty, or its first line is.")
    found = re.fullmatch(r"v([0-9]{1,6})", line.strip())
    if not found or int(found[1]) < 1:
        raise half_written(f"{path} does not begin with a version line such as v1 but with {line[:40]!r}.")
    version = int(found[1])
    if version > max_version:
        raise FormatError(
            f"{path} has version {version}, and the newest that is understood is {max_version}.",
            code="unknown-version",
            hint="A newer Spark wrote it: upgrade Streambank, or report the Spark version.",
        )
    return version
