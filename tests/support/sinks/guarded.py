"""What the suite of all guards needs of a table of each kind."""

from __future__ import annotations

from typing import Any, TypeVar

from streambank.sinks.delta import DeltaGuard
from streambank.sinks.iceberg import IcebergGuard
from streambank.sinks.ledger import LedgerGuard
from streambank.sinks.table import TableGuard
from streambank.sinks.tags import TagScope
from tests.support.sinks.books import ROWS, Books
from tests.support.sinks.iceberg import IceTable
from tests.support.sinks.lake import Lake

QUERY = "051c7676-82ba-42c3-8085-6b157703ac5f"
SCOPE = TagScope("5f2c0f5e-0000-4000-8000-000000000000", "shop.orders/main")
LEDGER_PATH = "${ORDERS_URL}#streambank_batches"
Table = TypeVar("Table", bound=Any)


def batch_rows(batch: int, *rows: str) -> list[str]:
    return list(rows) or [f"{batch}-{row}" for row in range(3)]


def with_batches(table: Table, *batches: int) -> Table:
    """The same table with batches of three rows each, 0 to 4 where none is named."""
    for batch in batches or range(5):
        table.write(batch, batch_rows(batch))
    return table


def guard_of(table: Lake | IceTable | Books) -> TableGuard:
    if isinstance(table, Lake):
        return DeltaGuard(str(table.folder), QUERY)
    if isinstance(table, IceTable):
        return IcebergGuard(table.place, QUERY, scope=SCOPE)
    return LedgerGuard(LEDGER_PATH, table.url, QUERY, rows=ROWS)


def captured(table: Lake | IceTable | Books, batch: int = 4) -> dict[str, Any]:
    found = guard_of(table).capture(batch)
    assert not found.warning
    return dict(found.record)
