"""An Iceberg table as an application writes it by PyIceberg: each batch once, by its snapshots' summaries."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from streambank.sinks.iceberg import BATCH, QUERY
from streambank.sinks.iceberg_catalog import IcebergTable
from tests.support.storage.s3_servers import ACCESS_KEY, SECRET_KEY, S3Server

NAME = "db.orders"


class IceTable:
    """A table in a catalog that is a file of SQLite.

    Args:
        warehouse: Where its files are instead.
        access: Properties by which the application reaches that.
        catalog: Properties of another catalog.
    """

    def __init__(
        self,
        folder: Path,
        query_id: str,
        *,
        warehouse: str | None = None,
        access: Mapping[str, str] | None = None,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.query_id = folder, query_id
        folder.mkdir(exist_ok=True)
        self.properties = dict(catalog or {}) or {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": warehouse or f"file://{folder / 'warehouse'}",
        }
        self._access = dict(access or {})
        self.place = IcebergTable(NAME, self.properties)

    def of(self, query_id: str) -> IceTable:
        return IceTable(self.folder, query_id, catalog=self.properties, access=self._access)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        own = {name: value for name, value in self.properties.items() if name != "name"}
        with load_catalog("lake", **own, **self._access) as found:
            yield found

    @contextmanager
    def opened(self) -> Iterator[Table]:
        with self.catalog() as catalog:
            yield catalog.load_table(NAME)

    def create(self) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists("db")
            catalog.create_table(NAME, schema=pa.schema([("k", pa.string())]))

    def make_again(self) -> None:
        with self.catalog() as catalog:
            catalog.drop_table(NAME)
        self.create()

    def state(self) -> str:
        """What is another one after any change."""
        with self.opened() as table:
            return table.metadata_location

    def write(self, batch: int, rows: Iterable[str]) -> bool:
        """Write a batch, as Spark's sink does; false where the table takes it for done."""
        with self.opened() as table:
            snapshot = table.current_snapshot()
            while snapshot is not None:
                fields = {} if snapshot.summary is None else snapshot.summary.additional_properties
                if fields.get(QUERY) == self.query_id:
                    if int(fields[BATCH]) >= batch:
                        return False
                    break
                parent = snapshot.parent_snapshot_id
                snapshot = None if parent is None else table.snapshot_by_id(parent)
            properties = {QUERY: self.query_id, BATCH: str(batch)}
            table.append(pa.table({"k": list(rows)}), snapshot_properties=properties)
        return True

    def write_other(self, rows: Iterable[str]) -> int:
        """Somebody else appends; the snapshot."""
        with self.opened() as table:
            table.append(pa.table({"k": list(rows)}))
            return self._current(table)

    def compact(self) -> int:
        """Commit what a compaction commits, the operation `replace`; the snapshot.

        PyIceberg has none, so its files are those that are there.
        """
        with self.opened() as table:
            before = table.current_snapshot()
            assert before is not None and before.sequence_number is not None
            summary = Summary(Operation.REPLACE, **{"added-data-files": "1", "deleted-data-files": "1"})
            snapshot = before.model_copy(
                update={
                    "snapshot_id": table.metadata.new_snapshot_id(),
                    "parent_snapshot_id": before.snapshot_id,
                    "sequence_number": max(one.sequence_number or 0 for one in table.metadata.snapshots) + 1,
                    "timestamp_ms": int(time.time() * 1000),
                    "summary": summary,
                }
            )
            table.catalog.commit_table(
                table,
                (),
                (
                    AddSnapshotUpdate(snapshot=snapshot),
                    SetSnapshotRefUpdate.model_validate(
                        {
                            "ref-name": MAIN_BRANCH,
                            "type": SnapshotRefType.BRANCH,
                            "snapshot-id": snapshot.snapshot_id,
                        }
                    ),
                ),
            )
            return snapshot.snapshot_id

    def expire(self, *snapshots: int) -> None:
        """Expire some snapshots, or all but the current one; tags hold theirs."""
        with self.opened() as table:
            held = {ref.snapshot_id for ref in table.refs().values()}
            wanted = snapshots or tuple(one.snapshot_id for one in table.metadata.snapshots)
            table.maintenance.expire_snapshots().by_ids([one for one in wanted if one not in held]).commit()

    def refuse_changes(self) -> None:
        """Let the catalog be read only, as for a user without the right to change tables."""
        with closing(sqlite3.connect(self.folder / "catalog.db")) as database:
            database.execute(
                "CREATE TRIGGER read_only BEFORE UPDATE ON iceberg_tables "
                "BEGIN SELECT RAISE(ABORT, 'this user may only read'); END"
            )

    def snapshots(self) -> list[int]:
        """All that there are, in order of their commits."""
        with self.opened() as table:
            return [one.snapshot_id for one in table.metadata.snapshots]

    def current(self) -> int:
        with self.opened() as table:
            return self._current(table)

    def tags(self) -> dict[str, int]:
        with self.opened() as table:
            return {name: ref.snapshot_id for name, ref in table.refs().items() if name != "main"}

    def rows(self) -> Counter[str]:
        with self.opened() as table:
            return Counter(table.scan().to_arrow()["k"].to_pylist())

    @staticmethod
    def _current(table: Table) -> int:
        found = table.current_snapshot()
        assert found is not None
        return found.snapshot_id


def s3_properties(server: S3Server) -> dict[str, str]:
    """Properties by which PyIceberg reaches S3."""
    return {
        "s3.endpoint": server.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }
