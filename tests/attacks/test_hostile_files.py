"""Who can write into a checkpoint or a repository fills the memory, or hangs whoever reads."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.compatibility import _avro
from streambank.checkpoint.state.rocksdb import read_zip_metadata
from streambank.control.records import decode_json
from streambank.core.errors import FormatError, StreambankError
from streambank.core.units import from_json_time
from streambank.storage import open_store
from streambank_spark.rewrite.hdfs_files import _apply
from tests.support.checkpoint.recorded import unpack

MANY = 200 << 20


def bomb(method: int) -> bytes:
    """A snapshot of some KB whose metadata says that it is small, and is 200 MiB."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        archive.writestr("metadata", b"v1\n" + bytes(MANY))
    raw = bytearray(data.getvalue())
    at = raw.rindex(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", 100)  # the size that the directory names
    return bytes(raw)


@pytest.mark.parametrize(
    "method",
    [zipfile.ZIP_BZIP2, pytest.param(zipfile.ZIP_LZMA, marks=pytest.mark.storm), zipfile.ZIP_DEFLATED],
)
def test_no_snapshot_unpacks_into_all_memory(method: int) -> None:
    data = bomb(method)
    assert len(data) < 400_000
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            read_zip_metadata("1.zip", len(data), lambda _, at, end: data[at : at + (end or len(data))])
        assert tracemalloc.get_traced_memory()[1] < MANY
    finally:
        tracemalloc.stop()
    assert caught.value.code == "half-written" and "1.zip" in caught.value.message


def closure_with(number: str, folder: Path) -> list[str]:
    """What belongs to the newest batch of a checkpoint with a forged offset, by paths."""
    checkpoint = unpack("4.3.0/hdfs-window", folder) / "checkpoint"
    (checkpoint / "offsets" / number).touch()
    numbers = sorted(int(one.name) for one in checkpoint.glob("commits/*") if one.name.isdigit())
    for commit in numbers[:-1]:
        (
            checkpoint / "commits" / str(commit)
        ).unlink()  # so that the batches are not known to have been committed one by one
    return sorted(one.path for one in CheckpointReader(open_store(checkpoint)).closure().files)


@pytest.mark.parametrize("number", ["999999999", "9223372036854775807"])
def test_a_number_in_a_name_is_no_endless_loop(tmp_path: Path, number: str) -> None:
    with pytest.raises(StreambankError):
        closure_with(number, tmp_path)


def test_a_number_that_no_batch_can_have_is_passed_over(tmp_path: Path) -> None:
    """Spark's numbers are of 64 bits."""
    found = closure_with("9999999999999999999", tmp_path)
    assert found and "offsets/9999999999999999999" not in found


@pytest.mark.parametrize("size", [-4, -2, -(2**31)])
def test_a_row_of_a_negative_size_is_damage(size: int) -> None:
    pack = struct.Struct(">i").pack
    for data in (pack(size), pack(1) + b"k" + pack(size) + pack(-1)):
        if size == -1:
            continue
        with pytest.raises(FormatError) as caught:
            _apply({}, data, "1.delta")
        assert caught.value.code == "half-written" and "1.delta" in caught.value.message


def test_a_decimal_of_many_digits_is_no_type() -> None:
    for name in ("decimal(99999999,0)", f"decimal({'9' * 5000},0)"):
        assert _avro(name) is None
    assert _avro("decimal(38,2)") is not None


@pytest.mark.parametrize("data", [b"[" * 50_000, b'{"at": 1e999}', b'{"number": ' + b"9" * 400 + b"}"])
def test_a_record_that_nobody_can_work_with_is_named(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        decode_json(data, "jobs/orders/desired/0000000001.json")
    assert caught.value.code == "damaged-record" and "0000000001.json" in caught.value.message


def test_a_time_beyond_the_calendar_is_no_time() -> None:
    with pytest.raises(ValueError):
        from_json_time("0001-01-01T00:00:00+14:00")
