"""A database as an application writes it from foreachBatch: rows of two tables and a line of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

LEDGER = "streambank_batches"
ROWS = ("orders", "items")


class Books:
    def __init__(self, url: str, query: str) -> None:
        self.url, self.query = url, query
        self._engine = create_engine(url, poolclass=NullPool)

    def create(self, *, run: bool = True) -> Books:
        """Make the tables; the ledger without the column `run_id` if so asked."""
        for name in (LEDGER, *ROWS):
            self.do(f"DROP TABLE IF EXISTS {name}")
        own = ", run_id VARCHAR(64)" if run else ""
        key = "PRIMARY KEY (query_id, batch_id)"
        self.do(f"CREATE TABLE {LEDGER} (query_id VARCHAR(64), batch_id BIGINT{own}, {key})")
        for name in ROWS:
            self.do(f"CREATE TABLE {name} (k VARCHAR(64), query_id VARCHAR(64), batch_id BIGINT)")
        return self

    def do(self, statement: str, **values: object) -> int:
        with self._engine.begin() as connection:
            return connection.execute(text(statement), values).rowcount

    def write(self, batch: int, keys: Iterable[str], *, query: str = "", run: str | None = "first") -> None:
        """A batch: its keys in each table, and its line, in one transaction."""
        batch_of = {"q": query or self.query, "b": batch}
        with self._engine.begin() as connection:
            for key in keys:
                for name in ROWS:
                    connection.execute(
                        text(f"INSERT INTO {name} VALUES (:k, :q, :b)"), {"k": key, **batch_of}
                    )
            if run is None:
                connection.execute(text(f"INSERT INTO {LEDGER} VALUES (:q, :b)"), batch_of)
            else:
                columns = "(query_id, batch_id, run_id) VALUES (:q, :b, :r)"
                connection.execute(text(f"INSERT INTO {LEDGER} {columns}"), {"r": run, **batch_of})

    def fail_at_delete(self, table: str) -> None:
        if self._engine.dialect.name == "sqlite":
            body = "BEGIN SELECT RAISE(ABORT, 'injected fault'); END"
            self.do(f"CREATE TRIGGER fault BEFORE DELETE ON {table} {body}")
            return
        body = "BEGIN RAISE EXCEPTION 'injected fault'; END"
        self.do(f"CREATE OR REPLACE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        self.do(f"CREATE TRIGGER fault BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION fault()")

    def mend(self, table: str) -> None:
        on = "" if self._engine.dialect.name == "sqlite" else f" ON {table}"
        self.do(f"DROP TRIGGER fault{on}")

    def rows(self, table: str = "orders") -> Counter[str]:
        """How often each key is in a table."""
        with self._engine.connect() as connection:
            return Counter(str(key) for (key,) in connection.execute(text(f"SELECT k FROM {table}")))

    def lines(self, query: str = "") -> list[int]:
        asked = f"SELECT batch_id FROM {LEDGER} WHERE query_id = :q ORDER BY batch_id"
        with self._engine.connect() as connection:
            return [int(batch) for (batch,) in connection.execute(text(asked), {"q": query or self.query})]

    def state(self) -> tuple[object, ...]:
        return (self.lines(), *(self.rows(name) for name in ROWS))
