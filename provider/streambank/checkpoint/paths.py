"""What has to be rewritten when a checkpoint moves, and nothing else: absolute paths in two kinds of files.

Operator metadata v2: a copy whose paths still lead to the original fails where the original is gone, and
makes directories in it where it is not (docs/formats/checkpoint.md, "Operators"). Entries of a Delta source's
schema log: Delta refuses to start where an entry is bound to the source of another checkpoint.
"""

from __future__ import annotations

import uuid
from typing import Any

from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.logs import format_metadata
from streambank.checkpoint.operators import flatten, parse_operator_metadata
from streambank.checkpoint.sources import SOURCE_FOLDER, parse_schema_log
from streambank.checkpoint.text import with_document
from streambank.core.errors import FormatError

_SCHEMAS = "/_stateSchema/"


def needs_rewrite(path: str) -> bool:
    """Whether a file of a checkpoint holds absolute paths, told from its own path."""
    return classify(path).kind in (Kind.OPERATOR_V2, Kind.SCHEMA_LOG)


def rewrite_paths(data: bytes, path: str, new_root: str) -> bytes:
    """A file whose paths lead into another checkpoint, a URI or an absolute path; other bytes stay.

    Raises:
        FormatError: `half-written`, `unknown-version`, or `foreign-path`.
    """
    if classify(path).kind is Kind.SCHEMA_LOG:
        return _rewrite_schema_log(data, path, new_root)
    return rewrite_operator_metadata(data, path, new_root)


def _rewrite_schema_log(data: bytes, path: str, new_root: str) -> bytes:
    entry = parse_schema_log(data, path)
    if entry.source is None or entry.source_path is None:
        return data
    if not entry.source or "/" in entry.source:
        raise FormatError(
            f"{path} is bound to {entry.source_path[:200]!r}, which is no source of a checkpoint.",
            code="foreign-path",
            hint="The file was edited, or a newer Delta wrote it.",
        )
    root = _hadoop_uri(new_root)
    if root.startswith("s3://") and not entry.source_path.startswith("s3://"):
        root = f"s3a{root[2:]}"  # Delta compares texts, and Spark's for S3 is s3a
    bound = f"{root}{SOURCE_FOLDER}{entry.source}"
    return with_document(data, path, lambda document: document.update(sourceMetadataPath=bound))


def rewrite_operator_metadata(data: bytes, path: str, new_root: str) -> bytes:
    """Operator metadata whose schema paths lead into another checkpoint directory; every other byte stays.

    Raises:
        FormatError: `half-written`, `unknown-version`, or `foreign-path` for no schema of this operator.
    """
    metadata = parse_operator_metadata(data, path)
    if not any(store.schema_paths for store in metadata.stores):
        return data
    folder = f"{_hadoop_uri(new_root)}/state/{metadata.operator}{_SCHEMAS}"

    def change(document: Any) -> None:
        for store in document["stateStoreInfo"]:
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = _moved(store["stateSchemaFilePaths"], folder, path)

    return with_document(data, path, change)


def schema_paths(data: bytes, path: str) -> list[str]:
    """The absolute paths in operator metadata; empty for version 1."""
    return [
        found
        for store in parse_operator_metadata(data, path).stores
        for found in flatten([*store.schema_paths])
    ]


def new_query_metadata() -> tuple[str, bytes]:
    """A new query id and the bytes of its `metadata`, for a fork."""
    query_id = str(uuid.uuid4())
    return query_id, format_metadata(query_id)


def _moved(value: Any, folder: str, path: str) -> Any:
    if isinstance(value, list):
        return [_moved(item, folder, path) for item in value]
    operator = folder.rpartition(_SCHEMAS)[0].rpartition("/")[2]
    before, found, tail = str(value).rpartition(_SCHEMAS)
    if not found or not before.endswith(f"/state/{operator}") or ".." in tail.split("/"):
        raise FormatError(
            f"{path} names {str(value)[:200]!r}, which is no schema of operator {operator}.",
            code="foreign-path",
            hint="The file was edited, or a newer Spark wrote it.",
        )
    return folder + tail


def _hadoop_uri(location: str) -> str:
    """A location as Hadoop prints it: local ones with one slash, `file:/data/ck`."""
    location = location.rstrip("/")
    if location.startswith("file://"):
        location = location.removeprefix("file://")
    return f"file:{location}" if location.startswith("/") else location
