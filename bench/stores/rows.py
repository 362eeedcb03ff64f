"""Files of rows that queries read."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "id bigint, amount bigint, at timestamp"
"""As Spark calls it."""
_BEGAN_S = 1_700_000_000


def write_rows(target: Path, rows: int, keys: int, at_s: tuple[float, float] = (0.0, 86_400.0)) -> None:
    """One file of rows; each key once where there are as many rows, and else keys drawn at random.

    Args:
        target: The file.
        rows: How many.
        keys: Ids go from 0 to this.
        at_s: From when to when the rows are, in seconds since a fixed moment.
    """
    chance = np.random.default_rng(crc32(f"{target.name} {rows} {keys}".encode()))
    ids = np.arange(rows) if rows == keys else chance.integers(0, keys, rows)
    times = _BEGAN_S + np.linspace(*at_s, rows, endpoint=False)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array(np.arange(rows) % 1000, pa.int64()),
            "at": pa.array((times * 1e6).astype("int64"), pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, target)
