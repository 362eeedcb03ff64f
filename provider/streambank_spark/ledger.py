"""Each batch once in a database: rows and a line of a ledger of batches are written in one transaction.

    ledger = Ledger(os.environ["ORDERS_DATABASE_URL"])

    @ledger.once
    def write(batch):
        return batch.insert("orders")

    orders.writeStream.foreachBatch(write).start()

A batch that Spark runs again, as it does after a driver was killed, has a line, and is not written again. A
restore to an older batch deletes later lines, and the rows that carry their numbers, if the job declares it:

    [jobs.orders]
    env = ["ORDERS_DATABASE_URL"]

    [[jobs.orders.sinks]]
    kind = "ledger"
    url = "${ORDERS_DATABASE_URL}"
    rows = ["orders"]

SQLAlchemy 2 and a driver for the database have to be installed where the application runs (extra
`ledger`). All rows of a batch pass through the memory of the driver, unless the function writes otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from streambank.core.errors import ConflictError, StorageError
from streambank.core.names import LEDGER
from streambank.sinks.ledger import database_says, open_engine
from streambank_spark.private.foreach_batch import compute, query_id_of, run_id_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Table
    from sqlalchemy.engine import Connection, Engine

_log = logging.getLogger(__name__)
_ID = 64


@dataclass(frozen=True)
class Batch:
    """One batch of a query that is written now.

    Attributes:
        run_id: The run of the query; None where Spark does not tell.
        connection: A transaction in the ledger's database. It is committed after the function has returned,
            together with the line of the ledger, and rolled back if it raises.
    """

    frame: DataFrame
    query_id: str
    batch_id: int
    run_id: str | None
    connection: Connection

    def rows(self) -> list[dict[str, Any]]:
        """Its rows with `query_id` and `batch_id` as further columns, as a rollback needs them."""
        own = {"query_id": self.query_id, "batch_id": self.batch_id}
        return [{**row.asDict(), **own} for row in self.frame.collect()]

    def insert(self, table: str) -> int:
        """Insert its rows into a table that has the same columns, and `query_id` and `batch_id` besides.

        Args:
            table: Its name, with its schema where it has one (`sales.orders`).

        Raises:
            sqlalchemy.exc.SQLAlchemyError: The database refuses them.
        """
        import sqlalchemy

        schema, _, name = table.rpartition(".")
        columns: list[sqlalchemy.ColumnClause[Any]] = [
            sqlalchemy.column(one) for one in (*self.frame.columns, "query_id", "batch_id")
        ]
        rows = self.rows()
        if rows:
            into = sqlalchemy.table(name, *columns, schema=schema or None)
            self.connection.execute(sqlalchemy.insert(into), rows)
        return len(rows)


class Ledger:
    """A ledger of batches in a database.

    The table has the columns query_id, batch_id (together its key), run_id, rows and committed_at. It is made
    at the first batch if it is not there.

    Args:
        database: Where the database is, as SQLAlchemy reads it, or an engine.
        table: The ledger, with its schema where it has one (`sales.streambank_batches`).

    Raises:
        RefusedError: The URL leads to no database, or SQLAlchemy or the driver that it names is not installed
            (code `sink-not-known`).
    """

    def __init__(self, database: str | Engine, table: str = LEDGER) -> None:
        self._engine = open_engine(database, table, pooled=True) if isinstance(database, str) else database
        self._name = table
        self._table = _definition(table)
        self._made = False

    def once(self, write: Callable[[Batch], int | None]) -> Callable[[DataFrame, int], None]:
        """Make a function for `foreachBatch` that writes each batch of a query once.

        A batch that has a line is computed, since Spark writes the state of a batch while it computes it, and
        not written.

        Args:
            write: Writes a batch by its connection. It may return how many rows it wrote, for the ledger.

        Returns:
            The function. It raises
            * StorageError: the database cannot be reached, or the line cannot be written (code
              `sink-not-reachable`),
            * ConflictError: another driver wrote the batch meanwhile; nothing of it is written twice (code
              `sink-moved`),
            * InputError: no streaming query calls it (code `no-streaming-query`),
            * whatever `write` raises.
        """

        def function(frame: DataFrame, batch_id: int) -> None:
            if not self._write(write, frame, batch_id):
                _log.info(
                    "Batch %d has a line in the ledger %s: it is not written again", batch_id, self._name
                )
                compute(frame)

        return function

    def _write(self, write: Callable[[Batch], int | None], frame: DataFrame, batch_id: int) -> bool:
        """Write a batch and its line; false where it has one."""
        query_id, run_id = query_id_of(frame), run_id_of(frame)
        self._make()
        with self._connected() as connection, connection.begin():
            if self._has_line(connection, query_id, batch_id):
                return False
            rows = write(Batch(frame, query_id, batch_id, run_id, connection))
            self._add_line(
                connection,
                query_id=query_id,
                batch_id=batch_id,
                run_id=run_id,
                rows=rows,
                committed_at=datetime.now(timezone.utc),
            )
        return True

    def _connected(self) -> Connection:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return self._engine.connect()
        except SQLAlchemyError as error:
            raise self._failed("cannot be reached", error) from None  # it may hold the password

    def _make(self) -> None:
        from sqlalchemy import inspect
        from sqlalchemy.exc import SQLAlchemyError

        if self._made:
            return
        with self._connected() as connection:
            try:
                with connection.begin():
                    self._table.create(connection, checkfirst=True)
            except SQLAlchemyError as error:
                with connection.begin():  # another query may have made it at the same time
                    if not inspect(connection).has_table(self._table.name, schema=self._table.schema):
                        raise self._failed("is not there and cannot be made", error) from error
        self._made = True

    def _has_line(self, connection: Connection, query_id: str, batch_id: int) -> bool:
        from sqlalchemy import select
        from sqlalchemy.exc import SQLAlchemyError

        columns = self._table.c
        asked = select(columns.batch_id).where(columns.query_id == query_id, columns.batch_id == batch_id)
        try:
            return connection.execute(asked).first() is not None
        except SQLAlchemyError as error:
            raise self._failed("cannot be read", error) from error

    def _add_line(self, connection: Connection, **line: Any) -> None:
        from sqlalchemy import insert
        from sqlalchemy.exc import IntegrityError, SQLAlchemyError

        try:
            connection.execute(insert(self._table), line)
        except IntegrityError as error:
            raise ConflictError(
                f"Another driver has written batch {line['batch_id']} of the query {line['query_id']} by the "
                f"ledger {self._name} meanwhile: nothing of it is written twice.",
                code="sink-moved",
                hint="Two drivers must not run one query: stop one of them.",
            ) from error
        except SQLAlchemyError as error:
            raise self._failed("cannot be written", error) from error

    def _failed(self, how: str, error: Exception) -> StorageError:
        return StorageError(
            f"The ledger {self._name} {how}: {database_says(error)}",
            code="sink-not-reachable",
            hint="Look at its URL, at the database, at the columns of the table, and at the rights of that "
            "user.",
        )


def _definition(table: str) -> Table:
    from sqlalchemy import BigInteger, Column, DateTime, MetaData, String, Table

    schema, _, name = table.rpartition(".")
    return Table(
        name,
        MetaData(schema=schema or None),
        Column("query_id", String(_ID), primary_key=True),
        Column("batch_id", BigInteger, primary_key=True, autoincrement=False),
        Column("run_id", String(_ID)),
        Column("rows", BigInteger),
        Column("committed_at", DateTime(timezone=True), nullable=False),
    )
