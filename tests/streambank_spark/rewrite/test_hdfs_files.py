"""Files of HDFS-backed state, as Spark wrote them and as we do."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.rewritable import check_codec
from streambank.core.errors import FormatError, RefusedError
from streambank_spark.rewrite.hdfs_files import load_rows, snapshot
from tests.support.checkpoint.recorded import PLANNED, Checkpoint, checkpoint

CHECKPOINTS = [name for name in PLANNED if "/hdfs-" in name]


def chains(found: Checkpoint) -> dict[tuple[int, int, str], list[str]]:
    """The files of each partition of the newest batch, in the order in which they are read."""
    result: dict[tuple[int, int, str], list[tuple[int, str]]] = {}
    for path in found.plan().paths:
        part = classify(path)
        if part.kind in (Kind.SNAPSHOT, Kind.DELTA):
            assert part.operator is not None and part.partition is not None and part.store is not None
            assert part.version is not None
            place = (part.operator, part.partition, part.store)
            result.setdefault(place, []).append((part.version, path))
    return {place: [path for _, path in sorted(files)] for place, files in result.items()}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_spark_wrote_is_read_and_written_again(name: str) -> None:
    found = checkpoint(name)
    counted = {
        (operator.operator, store.store): store.rows
        for operator in found.plan().operators
        for store in operator.stores
    }
    rows: dict[tuple[int, str], int] = {}
    for (operator, _, store), paths in chains(found).items():
        held = load_rows(found.read, paths, "lz4")
        rows[operator, store] = rows.get((operator, store), 0) + len(held)
        for codec in ("lz4", "zstd"):
            again = {"x": snapshot(held, codec)}
            assert load_rows(again.__getitem__, ["x"], codec) == held
    for place, known in counted.items():
        assert known is None or known == rows[place]


def test_a_key_that_a_delta_removes_is_gone() -> None:
    kept, gone = (b"\0" * 8 + bytes([n]) + b"\0" * 7 for n in (1, 2))
    before = snapshot({kept: b"v" * 8, gone: b"w" * 8}, "zstd")
    removal = len(gone).to_bytes(4, "big") + gone + b"\xff" * 8
    import zstandard

    files = {"1.snapshot": before, "2.delta": zstandard.ZstdCompressor().compress(removal)}
    assert load_rows(files.__getitem__, list(files), "zstd") == {kept: b"v" * 8}


def test_any_damaged_byte_is_found() -> None:
    data = snapshot({bytes([n]) * 16: bytes([n]) * 400 for n in range(200)}, "lz4")
    whole = load_rows({"x": data}.__getitem__, ["x"], "lz4")
    found = 0
    for place in range(0, len(data), 7):
        damaged = data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]
        try:
            assert load_rows({"x": damaged}.__getitem__, ["x"], "lz4") == whole, "a byte that says nothing"
        except FormatError:
            found += 1
    assert found > len(data) / 7 * 0.8
    with pytest.raises(FormatError):
        load_rows({"x": data[:-30]}.__getitem__, ["x"], "lz4")


@pytest.mark.parametrize("codec", [None, "lz4", "zstd", "snappy"])
def test_codecs_that_cannot_be_written_are_refused_by_name(codec: str | None) -> None:
    closure: Any = SimpleNamespace(spark=SimpleNamespace(codec=codec), offset_conf={})
    with pytest.raises(RefusedError, match="snappy") if codec == "snappy" else nullcontext():
        check_codec(closure, elsewhere=True)
