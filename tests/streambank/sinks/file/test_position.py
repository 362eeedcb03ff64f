from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streambank.sinks.file.rows import count_rows
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


def test_a_table_of_many_columns(store: LocalStore) -> None:
    """A list of 15 or more has its length in its own bytes."""
    table = pa.table({f"column {number}": range(7) for number in range(40)})
    pq.write_table(table, store.root / "wide.parquet")
    assert count_rows(store, "wide.parquet") == 7


ROWS = b"\x36\x0e"
"""Field 3 after a field 0, an integer of 7."""


@pytest.mark.parametrize(
    ("footer", "rows"),
    [
        (ROWS, 7),
        (b"\x19\x21\x01\x02" + b"\x26\x0e", 7),  # a list of two truths before it
        (b"\x19\xf1\xff\xff\xff\xff\x0f\x01", None),  # one of four billion, and no more bytes
        (b"\x15" + b"\xff" * 12, None),  # a number without an end
        (b"\x1c" * 100, None),  # a structure in a structure in a structure
        (b"", None),
    ],
)
def test_footers_made_by_hand(store: LocalStore, footer: bytes, rows: int | None) -> None:
    length = len(footer).to_bytes(4, "little")
    store.write(
        "made.parquet", b"PAR1" + footer + b"\x00" + (len(footer) + 1).to_bytes(4, "little") + b"PAR1"
    )
    assert count_rows(store, "made.parquet") == rows
    store.write("bare.parquet", b"PAR1" + footer + length + b"PAR1")
    assert count_rows(store, "bare.parquet") == rows
    store.write("short.parquet", b"PAR1")
    assert count_rows(store, "short.parquet") is None
