"""The small logs of a query: `metadata`, `offsets/<batch>` and `commits/<batch>`.

Each parser takes the bytes of one file and the path for messages, and knows nothing of storage. Fields that
are not known are passed over, never a failure; versions that are not known are refused (Spark: OffsetSeqLog,
CommitLog).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.text import (
    METADATA_HINT,
    decode,
    empty_file,
    half_written,
    load_json,
    parse_version,
)
from streambank.core.errors import FormatError
from streambank.core.json_text import is_whole_number

MAX_OFFSETS_VERSION = 2
MAX_COMMITS_VERSION = 3

UniqueIds = Mapping[int, tuple[tuple[str, ...], ...]]
"""Unique ids of state versions: operator -> partition -> store, in the order of the operator metadata."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """What one batch reads (`offsets/<batch>`).

    Attributes:
        watermark_ms: Event-time watermark that the batch ran with, milliseconds since the epoch; 0 for none.
        timestamp_ms: When it was planned, milliseconds since the epoch.
        conf: The settings that win over the session's at a restart.
        sources: Source (index in v1, id in v2) -> its offset as the JSON text of the file; None where it has
            read nothing yet.
    """

    version: int
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: Mapping[str, str | None]
    source_metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Commit:
    """That a batch is durable (`commits/<batch>`).

    Attributes:
        next_watermark_ms: Watermark of the next batch, milliseconds since the epoch; 0 for none.
        unique_ids: Which state versions are the committed ones; None in version 1.
    """

    version: int
    next_watermark_ms: int
    unique_ids: UniqueIds | None


def parse_metadata(data: bytes, path: str = "metadata") -> str:
    """The query id in `metadata`.

    Raises:
        FormatError: `half-written`.
    """
    if not data.strip():
        raise empty_file(path)
    try:
        document = _json_object(decode(data, path), path)
    except FormatError as error:
        raise FormatError(error.message, code=error.code, hint=METADATA_HINT) from error
    query_id = document.get("id")
    if not isinstance(query_id, str) or not query_id:
        raise half_written(f"{path} names no query id.", METADATA_HINT)
    return query_id


def format_metadata(query_id: str) -> bytes:
    """The bytes of `metadata` for a query id, as Spark writes them."""
    return json.dumps({"id": query_id}, separators=(",", ":")).encode("utf-8")


def parse_offsets(data: bytes, path: str = "offsets") -> Offsets:
    """One entry of the offset log.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    lines = decode(data, path).split("\n")
    version = parse_version(lines[0], path, MAX_OFFSETS_VERSION)
    if len(lines) < 2 or not lines[1].strip():
        raise half_written(f"{path} ends after its version line.")
    batch = _json_object(lines[1], path)
    conf = batch.get("conf", {})
    if not isinstance(conf, dict):
        raise half_written(f"{path} has a conf that is not an object.")
    rest = [line for line in lines[2:] if line]
    if not rest:
        raise half_written(f"{path} names no source.")
    sources = (
        {str(number): _offset(line, path) for number, line in enumerate(rest)}
        if version == 1
        else _named(rest, path)
    )
    source_metadata = batch.get("sourceMetadataInfo") or {}
    return Offsets(
        version=version,
        watermark_ms=_integer(batch, "batchWatermarkMs", path),
        timestamp_ms=_integer(batch, "batchTimestampMs", path),
        conf={str(key): str(value) for key, value in conf.items()},
        sources=sources,
        source_metadata=source_metadata if isinstance(source_metadata, dict) else {},
    )


def parse_commit(data: bytes, path: str = "commits") -> Commit:
    """One entry of the commit log.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    lines = decode(data, path).split("\n")
    version = parse_version(lines[0], path, MAX_COMMITS_VERSION)
    text = "\n".join(lines[1:]).strip()
    if not text:
        raise half_written(f"{path} ends after its version line.")
    document = _json_object(text, path)
    raw = document.get("stateUniqueIds")
    unique_ids = _unique_ids(raw, path) if raw is not None else ({} if version > 1 else None)
    return Commit(
        version=version,
        next_watermark_ms=_integer(document, "nextBatchWatermarkMs", path),
        unique_ids=unique_ids or None,
    )


def _json_object(text: str, path: str) -> dict[str, Any]:
    document = load_json(text, path)
    if not isinstance(document, dict):
        raise half_written(f"{path} holds no JSON object.")
    return document


def _integer(document: Mapping[str, Any], field: str, path: str) -> int:
    value = document.get(field, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise half_written(f"{path} has a {field} that is not a whole number.")
    return value


def _named(lines: list[str], path: str) -> dict[str, str | None]:
    sources: dict[str, str | None] = {}
    for line in lines:
        name, colon, offset = line.partition(":")
        if not colon or not name or name in sources:
            raise half_written(f"{path} has a source line without a name: {line[:40]!r}.")
        sources[name] = _offset(offset, path)
    return sources


def _offset(text: str, path: str) -> str | None:
    text = text.strip()
    if text == "-":
        return None
    load_json(text, path)
    return text


def _unique_ids(raw: Any, path: str) -> dict[int, tuple[tuple[str, ...], ...]]:
    result: dict[int, tuple[tuple[str, ...], ...]] = {}
    for operator, partitions in raw.items() if isinstance(raw, dict) else [("", None)]:
        if (
            not is_whole_number(operator)
            or not isinstance(partitions, list)
            or not all(map(_names, partitions))
        ):
            raise half_written(f"{path} has stateUniqueIds of an unknown shape.")
        result[int(operator)] = tuple(tuple(stores) for stores in partitions)
    return result


def _names(stores: Any) -> bool:
    return isinstance(stores, list) and all(isinstance(store, str) for store in stores)
