"""A Delta table as an application writes it by delta-rs: each batch once, by its transaction identifier."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


class Lake:
    """A table.

    Args:
        writer: Under which id its batches are in the log.
        location: Where it is instead, such as `s3://bucket/lake`.
        options: What delta-rs needs for that.
    """

    def __init__(
        self,
        folder: Path,
        writer: str,
        *,
        location: str | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.writer = folder, writer
        self.location, self._options = location or str(folder), options

    def write(self, batch: int, rows: Iterable[str]) -> bool:
        """Write a batch, as foreachBatch does; false where the table takes it for done."""
        if DeltaTable.is_deltatable(self.location, self._options):
            done = self.open().transaction_version(self.writer)
            if done is not None and done >= batch:
                return False
        write_deltalake(
            self.location,
            pa.table({"k": list(rows)}),
            mode="append",
            storage_options=self._options,
            commit_properties=CommitProperties(app_transactions=[Transaction(self.writer, batch)]),
        )
        return True

    def write_other(self, rows: Iterable[str]) -> None:
        table = pa.table({"k": list(rows)})
        write_deltalake(self.location, table, mode="append", storage_options=self._options)

    def of(self, writer: str) -> Lake:
        return Lake(self.folder, writer, location=self.location, options=self._options)

    def compact(self) -> None:
        self.open().optimize.compact()

    def make_again(self) -> None:
        """Remove it; its next batch makes another one."""
        shutil.rmtree(self.folder)

    def state(self) -> int:
        """What is another one after any change."""
        return self.open().version()

    def open(self) -> DeltaTable:
        return DeltaTable(self.location, storage_options=self._options)

    def rows(self) -> Counter[str]:
        return Counter(self.open().to_pyarrow_table()["k"].to_pylist())
