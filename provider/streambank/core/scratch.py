"""Tables of one computation, on disk where they outgrow a fixed room in memory.

SQLite keeps a database without a name in memory up to its cache, and above that in a temporary file which has
no name any more, so that nothing is left of it whatever ends the process
(https://www.sqlite.org/inmemorydb.html, "Temporary Databases").
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from streambank.core.errors import StorageError

MEMORY_BYTES = 16 << 20
"""What one set of tables keeps in memory; sorting takes as much again."""
Value = str | int | bytes | None


class Scratch:
    """A set of tables, by a `CREATE TABLE` statement each, that only this object sees; they go with it.

    Raises:
        StorageError: From each method: the temporary directory has no room (code `disk-full`).
    """

    def __init__(self, *tables: str) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        # Nothing is ever rolled back, so that one transaction without a journal is enough.
        settings = ("journal_mode = OFF", f"cache_size = -{MEMORY_BYTES >> 10}", "temp_store = FILE")
        for statement in (*(f"PRAGMA {setting}" for setting in settings), "BEGIN", *tables):
            self.run(statement)

    def run(self, statement: str, *values: Value) -> None:
        with _translated():
            self._database.execute(statement, values)

    def rows(self, statement: str, *values: Value) -> Iterator[tuple[Value, ...]]:
        with _translated():
            yield from self._database.execute(statement, values)

    def number(self, statement: str, *values: Value) -> int:
        with _translated():
            (found,) = self._database.execute(statement, values).fetchone()
        return int(found)

    def insert(self, statement: str, rows: Iterable[Sequence[Value]]) -> None:
        with _translated():
            self._database.executemany(statement, rows)

    def fill(self, table: str, rows: Iterable[Sequence[Value]]) -> None:
        """Append rows to a table; where the iterable raises, none of them stays."""
        last = self.number(f"SELECT coalesce(max(rowid), 0) FROM {table}")
        columns = self.number("SELECT count(*) FROM pragma_table_info(?)", table)
        try:
            self.insert(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)
        except BaseException as error:
            if not isinstance(error.__cause__, sqlite3.Error):  # after that the tables are of no more use
                self.run(f"DELETE FROM {table} WHERE rowid > ?", last)
            raise


class DistinctNames:
    """Names in the order in which they came, each once, with their number and by their place.

    Raises:
        StorageError: From each method, as `Scratch`.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._tables = Scratch("CREATE TABLE came (name BLOB)", "CREATE TABLE kept (name BLOB)")
        self._tables.fill("came", ((blob(name),) for name in names))
        self._tables.run(
            "INSERT INTO kept SELECT name FROM (SELECT name, min(rowid) AS first FROM came GROUP BY name) "
            "ORDER BY first"
        )
        self._tables.run("DROP TABLE came")

    def __len__(self) -> int:
        return self._tables.number("SELECT count(*) FROM kept")

    def __getitem__(self, place: int) -> str:
        for (name,) in self._tables.rows("SELECT name FROM kept WHERE rowid = ?", place + 1):
            return name_of(name)
        raise IndexError(place)


def blob(name: str) -> bytes:
    """A name as tables keep it: file names may hold bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogatepass")


def name_of(value: Value) -> str:
    """The name that `blob` stands for."""
    assert isinstance(value, bytes)
    return value.decode("utf-8", "surrogatepass")


def _directory() -> str:
    """Where SQLite keeps temporary tables (SQLite: Temporary Files Used By SQLite, section 5)."""
    named = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp")
    return next((one for one in named if one and os.access(one, os.W_OK | os.X_OK)), "/tmp")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            f"The temporary directory {_directory()} cannot take what a long log needs: {error}.",
            code="disk-full" if "full" in str(error) else "storage",
            hint="Free some space there, or let TMPDIR name another directory.",
        ) from error
