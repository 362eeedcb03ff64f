from __future__ import annotations

import pytest

from streambank.checkpoint.state.cut_off import cut_off
from streambank.checkpoint.state.lz4 import HEADER_BYTES, MAGIC
from tests.support.checkpoint.recorded import Checkpoint, checkpoint

END = MAGIC + b"\x15" + bytes(12)
BLOCK = MAGIC + b"\x25" + b"data" * 50


def judged(data: bytes) -> tuple[str | None, int]:
    """What is said of a file, and how many reads that took."""
    files = Checkpoint({"1.delta": data})
    return cut_off("1.delta", len(data), files.read), len(files.reads)


@pytest.mark.parametrize("blocks", [1, 2000])
def test_a_stream_must_end_with_its_end_mark(blocks: int) -> None:
    stream, reads = BLOCK * blocks, 1 if blocks == 1 else 2
    assert len(END) == HEADER_BYTES
    assert judged(stream + END) == (None, reads)
    assert judged(b"v2\nhead" + stream + END) == (None, reads), "a changelog of format 2"
    for cut in (stream, (stream + END)[:-1], stream + END[:-1] + b"\1"):
        assert judged(cut) == ("is cut off: it ends without its end mark", reads)


def test_zeros_and_nothing_are_no_state() -> None:
    assert judged(b"") == ("is empty", 0)
    assert judged(bytes(100)) == ("begins and ends with zeros", 1)
    assert judged(bytes(1 << 20)) == ("begins and ends with zeros", 2)
    assert judged(bytes(100) + b"\1" + bytes(10))[0] is None, "something is in it"


def test_other_codecs_are_not_judged() -> None:
    assert judged(b"\x28\xb5\x2f\xfd" + b"zstd" * 9)[0] is None


@pytest.mark.parametrize(
    "name", ["4.3.0/hdfs-window", "4.3.0/rocksdb-changelog-window", "4.3.0/ids-changelog-zstd"]
)
def test_what_spark_wrote_is_whole(name: str) -> None:
    files = checkpoint(name)
    found = [
        path
        for path in files.files
        if path.startswith("state/") and path.endswith((".delta", ".snapshot", ".changelog"))
    ]
    assert found
    assert [cut_off(path, len(files.files[path]), files.read) for path in found] == [None] * len(found)
