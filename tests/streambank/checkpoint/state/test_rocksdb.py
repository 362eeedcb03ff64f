from __future__ import annotations

import io
import json
import random
import zipfile

import pytest

from streambank.checkpoint.state.rocksdb import (
    SnapshotFile,
    ZipMetadata,
    parse_zip_metadata,
    read_zip_metadata,
)
from streambank.core.errors import FormatError
from tests.support.checkpoint.recorded import Checkpoint, checkpoint
from tests.support.refuses import refuses

METADATA = {
    "sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": "1-uuid.sst", "sizeBytes": 10}],
    "logFiles": [{"localFileName": "2.log", "dfsLogFileName": "2-uuid.log", "sizeBytes": 20}],
    "numKeys": 7,
}


def metadata(version: str = "v1", **changes: object) -> bytes:
    return f"{version}\n{json.dumps({**METADATA, **changes})}".encode()


def snapshot(padding: int = 0) -> bytes:
    """A snapshot; its metadata lie before as many bytes of other files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("metadata", metadata())
        archive.writestr("OPTIONS-000007", random.Random(1).randbytes(padding))
    return packed.getvalue()


def test_what_a_snapshot_names() -> None:
    assert parse_zip_metadata(metadata(), "metadata") == ZipMetadata(
        (SnapshotFile("1-uuid.sst", 10),), (SnapshotFile("2-uuid.log", 20),), 7, version=1
    )
    empty = parse_zip_metadata(metadata("v2", sstFiles=[], logFiles=None, numKeys=-1), "metadata")
    assert empty == ZipMetadata((), (), None, version=2), "Spark did not count"


def test_a_large_snapshot_costs_its_end_and_one_member() -> None:
    data = snapshot(padding=1 << 20)
    read: list[int] = []

    def ranged(path: str, offset: int, length: int | None) -> bytes:
        found = data[offset : None if length is None else offset + length]
        read.append(len(found))
        return found

    assert read_zip_metadata("3.zip", len(data), ranged).keys == 7
    assert len(read) == 2 and sum(read) < len(data) / 4


@pytest.mark.parametrize("keep", [0, 1, 40, -1, -30])
def test_a_snapshot_that_was_cut_off_is_named(keep: int) -> None:
    data = snapshot()[:keep]
    with refuses(FormatError, "half-written", match=r"state/0/0/3\.zip is not a readable"):
        read_zip_metadata("state/0/0/3.zip", len(data), Checkpoint({"state/0/0/3.zip": data}).read)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "half-written"),
        (b"v1\n[]", "half-written"),
        (b"v1\n{", "half-written"),
        (metadata(sstFiles=[{"sizeBytes": 1}]), "half-written"),
        (metadata(sstFiles=[{"dfsSstFileName": "a", "sizeBytes": "x"}]), "half-written"),
        (metadata("v3"), "unknown-version"),
    ],
)
def test_metadata_that_are_not_understood(data: bytes, code: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_zip_metadata(data, "metadata in 3.zip")
    assert caught.value.code == code and "metadata in 3.zip" in caught.value.message


@pytest.mark.parametrize("name", ["4.3.0/rocksdb-window", "3.5.9/rocksdb-window"])
def test_every_file_that_a_snapshot_of_spark_names_is_there(name: str) -> None:
    files = checkpoint(name)
    zips = [path for path in files.files if path.startswith("state/") and path.endswith(".zip")]
    assert zips
    for path in zips:
        found = read_zip_metadata(path, len(files.files[path]), files.read)
        folder = path.rpartition("/")[0]
        for one in found.ssts:
            assert len(files.files[f"{folder}/SSTs/{one.name}"]) == one.size_bytes
