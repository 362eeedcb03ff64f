"""Recorded checkpoints with another source: Delta or Iceberg, as their connectors write it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from tests.support.checkpoint.recorded import Checkpoint, checkpoint

TABLE = "3bffe7c2-e334-4419-a150-f6f47b565c78"
SCHEMA_LOG = f"_schema_log_{TABLE}"
ICEBERG_BEGINNING = "sources/0/offsets/0"
_FILE_OFFSET = re.compile(rb'\{"logOffset":(\d+)\}')


def reading_delta(entries: Mapping[int, int], *, folder: str = "", table: str = TABLE) -> Checkpoint:
    """A query without state that reads version n of a Delta table in batch n, and tracks its schemas.

    Args:
        entries: Number of each entry of the schema log -> the version of the table that it is of.
        folder: Where below the checkpoint the log is.
    """
    found = _with_offsets(
        lambda batch: {
            "sourceVersion": 1,
            "reservoirId": table,
            "reservoirVersion": batch,
            "index": -1,
            "isStartingVersion": False,
        }
    )
    log = {f"{folder}{SCHEMA_LOG}/{number}": schema_entry(version) for number, version in entries.items()}
    return found.having(log)


def schema_entry(version: int, *, bound: str | None = "file:/old/ck/sources/0") -> bytes:
    """An entry of a schema log (Delta: PersistedMetadata)."""
    fields = {
        "tableId": TABLE,
        "deltaCommitVersion": version,
        "dataSchemaJson": '{"type":"struct","fields":[{"name":"größe","type":"long"}]}',
        "partitionSchemaJson": '{"type":"struct","fields":[]}',
        **({} if bound is None else {"sourceMetadataPath": bound}),
        "tableConfigurations": {"delta.columnMapping.mode": "name"},
        "protocolJson": '{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}',
    }
    return b"v1\n" + json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def reading_iceberg() -> Checkpoint:
    """A query without state that reads an Iceberg table (Iceberg: StreamingOffset, SparkMicroBatchStream)."""
    found = _with_offsets(
        lambda batch: {"version": 1, "snapshot_id": 15 + batch, "position": 3, "scan_all_files": False}
    )
    first = b'{"version":1,"snapshot_id":15,"position":0,"scan_all_files":true}'
    return found.having({ICEBERG_BEGINNING: first})


def _with_offsets(offset_of: Callable[[int], Mapping[str, object]]) -> Checkpoint:
    found = checkpoint("4.3.0/stateless")
    files = {path: data for path, data in found.files.items() if not path.startswith("sources/")}
    for path in files:
        if re.fullmatch(r"offsets/\d+", path):
            batch = int(path.rpartition("/")[2])
            text = json.dumps(offset_of(batch), separators=(",", ":")).encode()
            files[path] = _FILE_OFFSET.sub(text, files[path])
    return Checkpoint(files)
