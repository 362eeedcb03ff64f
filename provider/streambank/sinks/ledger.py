"""A ledger of batches in a database: the rows of a batch and its line are written in one transaction.

An application that writes by `foreachBatch` looks into the ledger first and skips a batch that has a line.
That makes a batch that Spark runs twice right, and a query that goes back wrong: it skips the batches
whose numbers have lines, though they carry other rows now. A rollback deletes those lines, and the rows that
carry their numbers, in one transaction. `streambank_spark.ledger` writes such a ledger.

The table has the columns `query_id` and `batch_id`, together its key. `run_id`, if there is one, says which
run of the query wrote the line: by it a savepoint recognises its own batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.core.names import LEDGER
from streambank.core.python310 import UTC
from streambank.core.units import say_count
from streambank.sinks.table import AskedTable, Changing, Position, TableRollback, TableStanding, sink_moved

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Select
    from sqlalchemy.sql.expression import TableClause

KIND = "ledger"
CONNECT_TIMEOUT_S = 10
_BEHIND_UTC = timedelta(hours=12)
"""How far a clock on a wall may be behind UTC."""
_TIMED = ("psycopg2", "psycopg", "pymysql", "mysqldb")
"""Drivers that take `connect_timeout`."""
_GONE = "the rows of the savepoint's batches were deleted from it then. Use a newer savepoint."
_NO_ROWS = (
    "its rows do not say of which batch they are. Declare as `rows` the tables whose rows have the columns "
    "query_id and batch_id, or `overwrites = true` if a batch that comes again overwrites its rows by key."
)


class LedgerGuard(AskedTable):
    """The ledger of a query.

    Args:
        path: How messages and records call it; without credentials.
        overwrites: A batch that comes again overwrites its rows by their key, so that only the ledger has to
            go back.
    """

    kind = KIND
    keeps = ("sink_batch", "run_id")

    def __init__(
        self,
        path: str,
        url: str,
        query_id: str,
        *,
        table: str = LEDGER,
        rows: Sequence[str] = (),
        overwrites: bool = False,
    ) -> None:
        self.path = path
        self._url = url
        self._query_id = query_id
        self._table = table
        self._rows = tuple(rows)
        self._overwrites = overwrites

    def _capture(self, batch: int, record: dict[str, Any]) -> str:
        with self._connected() as connection:
            record["sink_batch"] = self._newest(connection, up_to=batch)
            record["run_id"] = self._run(connection, record["sink_batch"])
        if record["sink_batch"] is not None:
            return ""
        warning = f"The ledger {self.path} has no line of the query {self._query_id} up to batch {batch}."
        return f"{warning} Does the application write it?"

    def _stand(self, batch: int, record: Mapping[str, Any]) -> TableStanding:
        with self._connected() as connection:
            return self._compared(connection, batch, record)

    def _compared(self, connection: Connection, batch: int, record: Mapping[str, Any]) -> TableStanding:
        newest = self._newest(connection)
        holds = self._newest(connection, up_to=batch)
        seen = self._seen(connection)
        # An application may write no line for a batch without rows: then the savepoint knows.
        asked = "sink_batch" in record and not record.get("not_asked")
        known = asked and record["sink_batch"] == holds
        if known and record.get("run_id") not in (None, self._run(connection, holds)):
            return TableStanding(
                KIND, self.path, batch, "diverged", sink_batch=newest, cannot=_GONE, seen=seen
            )
        if newest == holds:
            position: Position = "even" if known or holds == batch else "behind"
            return TableStanding(KIND, self.path, batch, position, sink_batch=holds, seen=seen)
        cannot, rows = self._later_rows(connection, batch)
        if not known and holds != batch:
            line = f"its line of batch {batch} is missing, and the savepoint does not say that it had none."
            cannot = f"{line} {cannot}".rstrip()
        return TableStanding(
            KIND,
            self.path,
            batch,
            "ahead",
            sink_batch=newest,
            later_batches=self._count(connection, self._ledger(), batch),
            later_rows=rows,
            cannot=cannot,
            seen=seen,
        )

    def _later_rows(self, connection: Connection, batch: int) -> tuple[str, int | None]:
        """Why they cannot be deleted, and how many they are."""
        if not self._rows:
            return ("" if self._overwrites else _NO_ROWS), None
        from sqlalchemy.exc import DBAPIError

        rows = 0
        for name in self._rows:
            try:
                with connection.begin_nested():
                    rows += self._count(connection, _table(name), batch)
            except DBAPIError as error:
                return (
                    f"the rows of {name} cannot be counted by query_id and batch_id: {database_says(error)}",
                    None,
                )
        return "", rows

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        """Delete the lines of later batches, and the rows that carry their numbers, in one transaction."""
        batch = standing.savepoint_batch
        standing.require_possible()
        with self._connected() as connection:
            if self._seen(connection) != standing.seen:
                raise self._moved("has other lines now than when it was compared with the savepoint")
            if standing.position == "even":
                return TableRollback(KIND, self.path, batch)
            # The lines first: of a batch that is committed between the two, the line stays and tells of it.
            lines = self._delete(connection, self._ledger(), batch)
            rows = sum(self._delete(connection, _table(name), batch) for name in self._rows)
            with changing():  # what failed until here is undone with the transaction
                connection.commit()
            newest = self._newest(connection)
        if newest is not None and newest > batch:
            raise self._moved(f"got a line of batch {newest} while it was rolled back")
        from_tables = f" and {say_count(rows, 'row')} from {', '.join(self._rows)}" if self._rows else ""
        are = "is" if lines == 1 and not self._rows else "are"
        return TableRollback(
            KIND,
            self.path,
            batch,
            f"{say_count(lines, 'line')} of later batches {are} deleted{from_tables}.",
            rows if self._rows else None,
        )

    def _moved(self, how: str) -> ConflictError:
        hint = "Stop the driver that writes to it, then restore again."
        return sink_moved(f"The ledger {self.path} {how}.", hint)

    def _seen(self, connection: Connection) -> str:
        from sqlalchemy import func, select

        ledger = self._ledger()
        asked = select(func.max(ledger.c.batch_id), func.count()).where(ledger.c.query_id == self._query_id)
        newest, lines = connection.execute(asked).one()
        return f"{newest} of {lines}"

    def _run(self, connection: Connection, batch: int | None) -> str | None:
        found = None if batch is None else self._value(connection, "run_id", batch)
        return None if found is None else str(found)

    def _value(self, connection: Connection, name: str, batch: int) -> Any:
        """A column of a line; None where there is no such line or column."""
        from sqlalchemy import column, select
        from sqlalchemy.exc import DBAPIError

        ledger = self._ledger()
        asked: Select[Any] = select(column(name)).select_from(ledger)
        asked = asked.where(ledger.c.query_id == self._query_id, ledger.c.batch_id == batch)
        try:
            with connection.begin_nested():
                return connection.execute(asked).scalar()
        except DBAPIError:
            return None  # it has no such column

    def _same_batch(self, batch: int, at: datetime) -> bool | None:
        """A line that was deleted is written again later, if at all.

        A time without a zone may be that of any zone.
        """
        with self._connected() as connection:
            found = self._value(connection, "committed_at", batch)
        if isinstance(found, str):
            try:
                found = datetime.fromisoformat(found)
            except ValueError:
                return None
        if not isinstance(found, datetime):
            return None
        if found.tzinfo is None:
            return True if found.replace(tzinfo=UTC) + _BEHIND_UTC <= at else None
        return found <= at

    def _newest(self, connection: Connection, up_to: int | None = None) -> int | None:
        from sqlalchemy import func, select

        ledger = self._ledger()
        asked = select(func.max(ledger.c.batch_id)).where(ledger.c.query_id == self._query_id)
        if up_to is not None:
            asked = asked.where(ledger.c.batch_id <= up_to)
        found = connection.execute(asked).scalar()
        return None if found is None else int(found)

    def _count(self, connection: Connection, table: TableClause, batch: int) -> int:
        from sqlalchemy import func, select

        asked = select(func.count()).select_from(table)
        return int(connection.execute(asked.where(*self._later(table, batch))).scalar_one())

    def _delete(self, connection: Connection, table: TableClause, batch: int) -> int:
        from sqlalchemy import delete

        return int(connection.execute(delete(table).where(*self._later(table, batch))).rowcount)

    def _later(self, table: TableClause, batch: int) -> tuple[Any, Any]:
        return table.c.query_id == self._query_id, table.c.batch_id > batch

    def _ledger(self) -> TableClause:
        return _table(self._table)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        engine = open_engine(self._url, self.path)
        try:
            if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").is_file():
                raise StorageError(  # SQLite would make an empty one
                    f"The ledger {self.path} cannot be asked: there is no such file.",
                    code="sink-not-reachable",
                    hint="Look at `url` of the job's sinks: sqlite:////data/orders.db has four slashes.",
                )
            with engine.connect() as connection:
                yield connection
        except StreambankError:
            raise
        except Exception as error:  # drivers have their own errors, and a column may hold no number
            raise StorageError(
                f"The ledger {self.path} cannot be asked: {database_says(error)}",
                code="sink-not-reachable",
                hint="Look at `url` of the job's sinks, at the database, and at the rights of that user.",
            ) from None  # what SQLAlchemy keeps of it may hold the password
        finally:
            engine.dispose()


def open_engine(url: str, ledger: str, *, pooled: bool = False) -> Engine:
    """An engine for a ledger's database; it connects when it is used, and `pooled` keeps connections.

    Raises:
        RefusedError: SQLAlchemy or the driver is not installed, or the URL names no database (code
            `sink-not-known`). The message does not repeat the URL.
    """
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        raise RefusedError(
            f"The ledger {ledger} cannot be asked: the package sqlalchemy is not installed here.",
            code="sink-not-known",
            hint="pip install 'airflow-provider-streambank[ledger]'",
        ) from error
    try:
        parsed = make_url(url)
        if "@" in (parsed.host or ""):
            raise ValueError("a user or a password holds an @ that is not escaped")
        timed = {"connect_timeout": CONNECT_TIMEOUT_S} if parsed.get_driver_name() in _TIMED else {}
        pool: dict[str, Any] = {"pool_pre_ping": True} if pooled else {"poolclass": NullPool}
        return create_engine(parsed, connect_args=timed, future=True, **pool)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        what = error if isinstance(error, ImportError) else type(error).__name__
        raise RefusedError(
            f"The ledger {ledger} cannot be asked: its url leads to no database ({what}).",
            code="sink-not-known",
            hint="Write it as SQLAlchemy does, such as postgresql+psycopg2://host/database, install the "
            "driver that it names, and escape special characters of a password (@ is %40).",
        ) from None


def _table(name: str) -> TableClause:
    from sqlalchemy import column, table

    schema, _, own = name.rpartition(".")
    return table(own, column("query_id"), column("batch_id"), schema=schema or None)


def database_says(error: Exception) -> str:
    """The first line of what a database says, without the statement and its values."""
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines()
    return lines[0] if lines else type(original).__name__
