"""Row counts of a join that Spark has written: its `StateRewriter` counts secondary families, too.

A join of state format 3 or 4 has its rows in some column families, and in others only what leads to them.
Spark marks the latter as internal and counts them apart. The rewriter (4.3.0) marks none, so `numKeys` of
each snapshot, and `numRowsTotal` of the query from then on, would have rows twice. Here the snapshots are put
right before they become a checkpoint: which families are internal, and both counts, by the rows that are
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.shape import Closure
from streambank.checkpoint.state.rocksdb import (
    SECONDARY_OF_JOINS,
    read_zip_metadata,
    with_secondary_families,
)
from streambank.savepoint.spark_checksums import checksum_of
from streambank.storage.store import Store
from streambank_spark.rewrite.check import differs
from streambank_spark.state.store_rows import StoreRows

_FAMILY = "column_family_name"


def count_once(target: Store, closure: Closure, stores: Sequence[StoreRows]) -> None:
    """Let snapshots that were just written count each row of a join once.

    Raises:
        IntegrityError: A snapshot does not count what it holds (code `rewrite-differs`).
        FormatError: A snapshot is not understood.
    """
    for store in stores:
        zips = dict(_zips(target, closure, store))
        if not zips:
            continue
        rows = _rows(store)
        for path, partition in zips.items():
            data = target.read(path)
            mended = with_secondary_families(data, path, rows.get((partition, True), 0))
            target.write(path, mended)
            folder, _, name = path.rpartition("/")
            hidden = f"{folder}/.{name}.crc"  # Hadoop's own, on a local disk: of the bytes before
            if target.exists(hidden):
                target.delete(hidden)
            checksum = f"{path}.crc"
            if target.exists(checksum):
                target.write(checksum, checksum_of(mended, target.read(checksum)))
            _check(target, path, len(mended), rows.get((partition, False), 0))


def _zips(target: Store, closure: Closure, store: StoreRows) -> list[tuple[str, int]]:
    """Snapshots of a store that count rows twice, each with its partition."""
    found = []
    for file in closure.files:
        part = classify(file.path)
        if part.kind is not Kind.ZIP or (part.operator, part.store) != store.named or part.partition is None:
            continue
        if read_zip_metadata(file.path, file.size_bytes, target.read).counted_twice:
            found.append((file.path, part.partition))
    return found


def _rows(store: StoreRows) -> dict[tuple[int, bool], int]:
    """How many keys each partition has, in secondary families and in the others."""
    secondary = F.lit(False)
    for end in SECONDARY_OF_JOINS:
        secondary = secondary | F.col(_FAMILY).endswith(end)
    keys = store.frame.select(
        F.spark_partition_id().alias("_partition"), secondary.alias("_secondary"), _FAMILY, "key_bytes"
    ).distinct()
    counted = keys.groupBy("_partition", "_secondary").count().collect()
    return {(row["_partition"], row["_secondary"]): row["count"] for row in counted}


def _check(target: Store, path: str, size_bytes: int, rows: int) -> None:
    written = read_zip_metadata(path, size_bytes, target.read)
    if written.counted_twice or (written.keys is not None and written.keys != rows):
        raise differs(f"{path} counts {written.keys} rows, and has {rows}")
