from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streambank.sinks.file.position import count_rows
from streambank.storage.local.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, fsync=False)


@pytest.mark.parametrize("rows", [0, 1, 127, 128, 100_000])
def test_parquet(store: LocalStore, rows: int) -> None:
    table = pa.table(
        {
            "a": range(rows),
            "a long name": [str(n) for n in range(rows)],
            "nested": [{"x": [n]} for n in range(rows)],
        }
    )
    pq.write_table(table, store.root / "part.snappy.parquet", row_group_size=1000)
    assert count_rows(store, "part.snappy.parquet") == rows


def test_every_cut_and_every_changed_byte_of_a_footer_is_survived(store: LocalStore) -> None:
    pq.write_table(pa.table({"a": range(10)}), store.root / "whole.parquet")
    data = store.read("whole.parquet")
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in range(start, len(data)):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        store.write("changed.parquet", bytes(changed))
        found = count_rows(store, "changed.parquet")
        assert found is None or isinstance(found, int)
        store.write("cut.parquet", data[:place])
        assert count_rows(store, "cut.parquet") in (None, 10)


def test_lines(store: LocalStore) -> None:
    for text, rows in ((b"", 0), (b"{}\n{}\n", 2), (b"{}\n{}", 2), (b"x" * (3 << 20) + b"\n", 1)):
        store.write("part.json", text)
        assert count_rows(store, "part.json") == rows


@pytest.mark.parametrize("name", ["part.csv", "part.orc", "part.json.gz", "part.avro"])
def test_what_does_not_tell(store: LocalStore, name: str) -> None:
    store.write(name, b"1\n2\n")
    assert count_rows(store, name) is None
    assert count_rows(store, "not-there.json") is None
