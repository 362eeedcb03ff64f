"""Snapshots of joins whose secondary column families are counted as rows, and put right."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from streambank.checkpoint.inspection import inspect_listing
from streambank.checkpoint.state.rocksdb import (
    ZipMetadata,
    parse_zip_metadata,
    read_zip_metadata,
    with_secondary_families,
)
from streambank.core.errors import FormatError
from streambank.savepoint.spark_checksums import checksum_of, crc32c
from tests.support.checkpoint.recorded import Checkpoint, checkpoint

JOINS = ["4.3.0/rocksdb-changelog-join3", "4.3.0/ids-changelog-join3"]


def zips(found: Checkpoint) -> list[str]:
    return sorted(path for path in found.plan(None, "safe").paths if path.endswith(".zip"))


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def as_rewritten(data: bytes) -> bytes:
    """As Spark's StateRewriter leaves it: no family is internal, and all rows are counted as such."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.infolist():
            content = old.read(member)
            if member.filename == "metadata":
                first, _, rest = content.decode().partition("\n")
                fields = json.loads(rest)
                fields["numKeys"] += fields["numInternalKeys"]
                fields["numInternalKeys"] = 0
                fields["columnFamilyTypeMap"] = dict.fromkeys(fields["columnFamilyTypeMap"], False)
                content = f"{first}\n{json.dumps(fields)}".encode()
            new.writestr(member, content)
    return buffer.getvalue()


def read(data: bytes) -> ZipMetadata:
    return read_zip_metadata(
        "1.zip", len(data), lambda _, at, n: data[at:] if n is None else data[at : at + n]
    )


@pytest.mark.parametrize("name", JOINS)
def test_what_the_rewriter_counts_twice_is_put_right_to_the_byte(name: str) -> None:
    found = checkpoint(name)
    for path in zips(found):
        right = found.files[path]
        wrong = as_rewritten(right)
        fields = json.loads(members(right)["metadata"].partition(b"\n")[2])
        assert not read(right).counted_twice and fields["numInternalKeys"] > 0
        assert read(wrong).counted_twice == ("left-keyToNumValues", "right-keyToNumValues")
        mended = with_secondary_families(wrong, path, fields["numInternalKeys"])
        assert json.loads(members(mended)["metadata"].partition(b"\n")[2]) == fields
        assert {**members(mended), "metadata": b""} == {**members(right), "metadata": b""}
        assert read(mended).keys == fields["numKeys"]


def test_of_state_that_spark_does_not_count_only_the_families_change() -> None:
    found = checkpoint(JOINS[0])
    uncounted = as_rewritten(found.files[zips(found)[0]]).replace(b"", b"")
    metadata = members(uncounted)["metadata"]
    fields = json.loads(metadata.partition(b"\n")[2]) | {"numKeys": -1, "numInternalKeys": -1}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", b"v1\n" + json.dumps(fields).encode())
    mended = json.loads(
        members(with_secondary_families(buffer.getvalue(), "x", 7))["metadata"].partition(b"\n")[2]
    )
    assert (mended["numKeys"], mended["numInternalKeys"]) == (-1, -1)
    assert mended["columnFamilyTypeMap"]["left-keyToNumValues"] is True


def test_more_secondary_rows_than_rows_are_refused() -> None:
    found = checkpoint(JOINS[0])
    with pytest.raises(FormatError, match="secondary families alone have 999"):
        with_secondary_families(as_rewritten(found.files[zips(found)[0]]), "x.zip", 999)


@pytest.mark.parametrize("name", JOINS)
def test_a_checkpoint_that_counts_rows_twice_is_named(name: str) -> None:
    found = checkpoint(name)
    right = inspect_listing("ck", found.listing(), found.read)
    assert "rows-counted-twice" not in {one.code for one in right.findings}
    wrong = found.having({path: as_rewritten for path in zips(found)})
    (finding,) = [
        one
        for one in inspect_listing("ck", wrong.listing(), wrong.read).findings
        if one.code == "rows-counted-twice"
    ]
    assert finding.severity == "warning" and finding.file in zips(found)
    assert "results are right" in finding.effect and "state rescale" in finding.hint


def test_families_of_others_are_never_secondary() -> None:
    families = {
        "default": False,
        "last": False,
        "$ttl_last": True,
        "keyToNumValues": False,
        "x-tsWithKeys": False,
    }
    data = f'v1\n{{"numKeys":1,"columnFamilyTypeMap":{json.dumps(families)}}}'.encode()
    assert not parse_zip_metadata(data, "x").counted_twice
    data = data.replace(b'"default": false', b'"left-tsWithKey": false')
    assert parse_zip_metadata(data, "x").counted_twice == ("left-tsWithKey",)


def test_sparks_checksum_of_a_snapshot_that_was_written_again() -> None:
    found = checkpoint(JOINS[1])
    path = next(path for path in zips(found) if f"{path}.crc" in found.files)
    before = found.files[f"{path}.crc"]
    assert json.loads(checksum_of(found.files[path], before)) == json.loads(before)
    after = json.loads(checksum_of(b"other", before))
    assert after["value"] & 0xFFFFFFFF == crc32c(b"other") and -(1 << 31) <= after["value"] < 1 << 31
    assert after["mainFileSize"] == 5 and after["creator"] == json.loads(before)["creator"]
