"""Garbage in checkpoints, as killed drivers, failed attempts and repartitions leave it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from streambank.checkpoint.grammar import Kind, classify
from tests.support.checkpoint.recorded import Checkpoint

VERSIONED = {Kind.SNAPSHOT, Kind.DELTA, Kind.ZIP, Kind.CHANGELOG}


def garbage_for(checkpoint: Checkpoint) -> dict[str, tuple[bytes, str]]:
    """Files that a query with such a checkpoint may have left, and the reason why each is dead."""
    return dict(_garbage(checkpoint))


def _garbage(checkpoint: Checkpoint) -> Iterator[tuple[str, tuple[bytes, str]]]:
    newest = max(checkpoint.batches())
    unfinished = str(uuid.UUID(int=7))
    yield f"offsets/.{newest + 1}.{unfinished}.tmp", (b"half", "temporary")
    yield f"offsets/..{newest + 1}.{unfinished}.tmp.crc", (b"crc", "temporary")
    yield f"sources/0/.{newest}.{unfinished}.tmp", (b"half", "temporary")
    yield f"commits/.{newest + 7}.crc", (b"crc", "orphan-checksum")
    parts = [classify(path) for path in checkpoint.files]
    stores = {
        path.rpartition("/")[0]: part
        for path, part in zip(checkpoint.files, parts, strict=True)
        if part.kind in VERSIONED and part.version == newest + 1
    }
    for folder, part in sorted(stores.items()):
        suffix = part.path.rpartition(".")[2]
        identity = "" if part.unique_id is None else f"_{uuid.UUID(int=9)}"
        yield f"{folder}/{newest + 2}{identity}.{suffix}", (b"attempt", "abandoned-attempt")
        yield f"{folder}/.{newest + 2}.{suffix}.{unfinished}.TID7.tmp", (b"half", "temporary")
        if part.unique_id is not None:
            other = f"{folder}/{newest + 1}{identity}.{suffix}"
            yield other, (b"attempt", "other-attempt")
            yield f"{other}.crc", (b"{}", "other-attempt")
        if suffix in ("zip", "changelog"):
            yield f"{folder}/SSTs/000099-{uuid.UUID(int=5)}.sst", (b"rows", "unnamed-data")
            yield f"{folder}/SSTs/.000099-{uuid.UUID(int=5)}.sst.crc", (b"crc", "unnamed-data")
    schemas = [part for part in parts if part.kind is Kind.OPERATOR_V2]
    for part in schemas:
        older = f"state/{part.operator}/_metadata/v2/0"
        if part.batch and older not in checkpoint.files:
            yield older, (checkpoint.files[part.path], "old-operator-metadata")
