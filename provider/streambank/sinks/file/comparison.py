"""The data files of a savepoint's log against those of the sink as it is, on disk where they are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, TypeVar

from streambank.core.scratch import Scratch, Value, blob, name_of
from streambank.sinks.file.log import DataFile
from streambank.sinks.file.named import NamedFiles
from streambank.storage.store import FileInfo

ASIDE_DIRECTORY = "_streambank_aside"
"""Below the output directory: what a rollback set aside. Spark's readers skip names that begin with `_`."""

T = TypeVar("T")
_TABLES = (
    "CREATE TABLE ours (name BLOB, inside, size, written, place, PRIMARY KEY (name, inside)) WITHOUT ROWID",
    "CREATE TABLE listed (path BLOB, size)",
    "CREATE TABLE disk (path BLOB PRIMARY KEY, size) WITHOUT ROWID",
    "CREATE TABLE set_aside (name BLOB, size, path BLOB)",
    "CREATE TABLE absent (name BLOB, size, there)",
    "CREATE TABLE foreign_files (name BLOB, inside)",
    "CREATE TABLE unfinished (name BLOB)",
    "CREATE TABLE later (name BLOB PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE back (name BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID",
    "CREATE TABLE seen (name BLOB, inside, written)",
    "CREATE TABLE forgotten (name BLOB PRIMARY KEY, value) WITHOUT ROWID",
)


class LogComparison:
    """What is there of the files that a savepoint's log names, and what else the sink's own log names.

    Fill `log` with the entries of the sink's own log, then call `find_later`.

    Attributes:
        later: Files there that the savepoint does not know, by key, with their sizes in bytes.
        aside: Files of the savepoint that an earlier rollback set aside: key to where each lies.

    Raises:
        StorageError: From each method: the temporary directory has no room (code `disk-full`).
    """

    def __init__(self, saved: NamedFiles, listing: Iterable[FileInfo]) -> None:
        self._saved = saved
        self.log = NamedFiles(*_TABLES)
        self._tables = self.log.scratch
        self.later: Mapping[str, int] = _Column(self._tables, "later", int)
        self.aside: Mapping[str, str] = _Column(self._tables, "back", name_of)
        self._forgotten: Mapping[str, int] = _Column(self._tables, "forgotten", int)
        self._fill(saved, listing)
        self._find_absent()

    def _fill(self, saved: NamedFiles, listing: Iterable[FileInfo]) -> None:
        found = saved.scratch.rows("SELECT name, inside, size, written, max(rowid) FROM named GROUP BY 1, 2")
        self._tables.insert("INSERT INTO ours VALUES (?, ?, ?, ?, ?)", found)
        self._tables.fill("listed", ((blob(one.path), one.size_bytes) for one in listing))
        self._tables.run("INSERT OR REPLACE INTO disk SELECT path, size FROM listed ORDER BY path")
        self._tables.run("DROP TABLE listed")
        self._tables.fill("set_aside", self._lying_aside())
        self._tables.run("CREATE INDEX of_name ON set_aside (name)")

    def _lying_aside(self) -> Iterator[tuple[Value, ...]]:
        first = blob(f"{ASIDE_DIRECTORY}/")
        for path, size in self._tables.rows(
            "SELECT path, size FROM disk WHERE path > ? AND path < ?", first, first[:-1] + b"0"
        ):
            _, slash, name = name_of(path)[len(first) :].partition("/")
            if slash:
                yield blob(name), size, path

    def _find_absent(self) -> None:
        self._tables.run(
            "INSERT INTO absent SELECT ours.name, ours.size, disk.path IS NOT NULL FROM ours "
            "LEFT JOIN disk ON disk.path = ours.name WHERE ours.inside AND disk.size IS NOT ours.size"
        )
        self._tables.run(
            "INSERT OR REPLACE INTO back SELECT absent.name, set_aside.path FROM absent JOIN set_aside "
            "USING (name, size) WHERE NOT absent.there ORDER BY set_aside.rowid"
        )

    def forget_log(self) -> None:
        """Count nothing that the sink's own log names, since it is damaged."""
        self._tables.run("DELETE FROM named")

    def find_later(self, unfinished: Iterable[str]) -> None:
        """Find the files that the savepoint does not know, and those that a rollback was about to move."""
        self._tables.run(
            "INSERT INTO foreign_files SELECT name, inside FROM named "
            "EXCEPT SELECT name, inside FROM ours ORDER BY 1, 2"
        )
        self._tables.fill("unfinished", ((blob(key),) for key in unfinished))
        for table, known in (
            ("foreign_files", "NOT one.inside"),
            ("unfinished", "EXISTS (SELECT 1 FROM ours WHERE ours.name = one.name AND ours.inside)"),
        ):
            self._tables.run(
                f"INSERT OR IGNORE INTO later SELECT disk.path, disk.size FROM {table} AS one "
                f"JOIN disk ON disk.path = one.name WHERE NOT {known}"
            )
        self._tables.run("DROP TABLE disk")

    def any_later(self) -> bool:
        """Whether the sink's own log names a file that the savepoint does not know, there or not."""
        return self._tables.number("SELECT EXISTS (SELECT 1 FROM foreign_files)") == 1

    def later_outside(self) -> int:
        return self._tables.number("SELECT count(*) FROM foreign_files WHERE NOT inside")

    def missing(self) -> int:
        return self._tables.number(
            "SELECT (SELECT count(*) FROM ours WHERE NOT inside) + (SELECT count(*) FROM absent) "
            "- (SELECT count(*) FROM back)"
        )

    def some_missing(self, most: int) -> Iterator[str]:
        found = self._tables.rows(
            "SELECT name FROM absent WHERE name NOT IN (SELECT name FROM back) "
            "UNION ALL SELECT name FROM ours WHERE NOT inside LIMIT ?",
            most,
        )
        return (name_of(name) for (name,) in found)

    def forgotten(self, seen: Iterable[DataFile], *, accepted: bool = False) -> Mapping[str, int]:
        """Missing files that the sink's own log has forgotten by age, as the option `retention` makes it.

        Retention drops what was written before a moment: all that is older than what the log still names.
        What is missing of a later age, it has not dropped: files of another timeline, which a rollback has
        set aside, are no longer named either. A log that names none of the savepoint's files proves nothing:
        the output may have been deleted, and begun again.

        Args:
            seen: The files that readers of the sink see, by a log that was compacted since the savepoint.
            accepted: A person has accepted that files are missing: no proof is asked for.
        """
        self._tables.fill("seen", ((blob(one.name), one.key is not None, one.written_ms) for one in seen))
        self._tables.run("CREATE INDEX of_seen ON seen (name, inside)")
        self._tables.run("CREATE TABLE shared (place)")
        self._tables.run("INSERT INTO shared SELECT place FROM ours JOIN seen USING (name, inside)")
        if not (accepted or self._tables.number("SELECT EXISTS (SELECT 1 FROM shared)")):
            return self._forgotten
        oldest = "(SELECT min(coalesce(written, -1)) FROM seen)"
        first = "(SELECT min(place) FROM shared)"
        self._tables.run(
            "INSERT OR IGNORE INTO forgotten SELECT ours.name, 0 FROM ours "
            "LEFT JOIN absent ON absent.name = ours.name AND ours.inside "
            "WHERE (absent.there = 0 OR NOT ours.inside) AND ours.name NOT IN (SELECT name FROM back) "
            "AND NOT EXISTS (SELECT 1 FROM seen WHERE seen.name = ours.name AND seen.inside = ours.inside) "
            f"AND ({oldest} IS NULL OR ours.written < {oldest} OR (ours.written = {oldest} "
            f"AND ({first} IS NULL OR ours.place < {first})))"
        )
        return self._forgotten

    def leave_out_forgotten(self, saved: NamedFiles) -> None:
        """Compare from now on with the savepoint's log without what the sink's own log has forgotten."""
        self._saved = saved
        for table in ("ours", "absent"):
            self._tables.run(f"DELETE FROM {table} WHERE name IN (SELECT name FROM forgotten)")

    def same_files(self) -> bool:
        """Whether the sink's own log names every file of the savepoint, where it names no other."""
        theirs = self._tables.number("SELECT count(*) FROM (SELECT 1 FROM named GROUP BY name, inside)")
        return theirs == self._tables.number("SELECT count(*) FROM ours")

    def same_uris(self) -> bool:
        """Whether both logs spell the files in the same way."""
        ours, theirs = (
            one.scratch.rows("SELECT uri FROM named GROUP BY uri") for one in (self._saved, self.log)
        )
        return all(one == other for one, other in zip_longest(ours, theirs))


class _Column(Mapping[str, T]):
    def __init__(self, tables: Scratch, table: str, read: Callable[[Any], T]) -> None:
        self._tables = tables
        self._table = table
        self._read = read

    def __getitem__(self, name: str) -> T:
        for (value,) in self._tables.rows(f"SELECT value FROM {self._table} WHERE name = ?", blob(name)):
            return self._read(value)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name_of(name) for (name,) in self._tables.rows(f"SELECT name FROM {self._table}"))

    def __len__(self) -> int:
        return self._tables.number(f"SELECT count(*) FROM {self._table}")
