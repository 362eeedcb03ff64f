"""The data files that a file sink's log names: of millions no more is in memory than a fixed room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import blake2b

from streambank.checkpoint.compactible import LogName
from streambank.core.scratch import Scratch, Value, blob, name_of
from streambank.sinks.file.log import DataFile, Roots, chain, list_log, read_entry
from streambank.storage.store import Store, undamaged

_URI_BYTES = 16
"""Of a digest that stands for a URI: equal ones are the same URI."""


class NamedFiles:
    """Every data file that entries of a log name, in order.

    The table `named` of `scratch` has a row for each: its name as a blob (its key, or its URI where it lies
    outside of the output directory), whether it lies inside, a digest of its URI, its size in bytes, when
    it was written (in ms since 1970).

    Raises:
        StorageError: From each method: the temporary directory has no room (code `disk-full`).
    """

    def __init__(self, *tables: str) -> None:
        self.scratch = Scratch("CREATE TABLE named (name BLOB, inside, uri BLOB, size, written)", *tables)

    def add(self, files: Iterable[DataFile]) -> None:
        """More files; none of them where the iterable raises."""
        self.scratch.fill("named", map(_row, files))

    def add_log(self, store: Store, names: Iterable[LogName], roots: Roots) -> None:
        """What entries of an output directory's log name.

        Raises:
            FormatError: One of them cannot be understood.
            NotFoundError: One of them went away.
        """
        for name in names:
            undamaged(partial(self._add_entry, store, name, roots))

    def _add_entry(self, store: Store, name: LogName, roots: Roots) -> None:
        self.add(read_entry(store, name, roots))

    def rows(self) -> int:
        return self.scratch.number("SELECT count(*) FROM named")

    def totals(self) -> tuple[int, int]:
        """How many files they are, each URI once, and how many bytes those have."""
        files = size_bytes = 0
        for size, _ in self.scratch.rows("SELECT size, max(rowid) FROM named GROUP BY uri"):
            files, size_bytes = files + 1, size_bytes + int(size or 0)
        return files, size_bytes

    def spread(self, most: int) -> Iterator[tuple[str, int]]:
        """Key and size of some of those inside the output directory, spread evenly, with the newest."""
        last = self.scratch.number("SELECT coalesce(max(rowid), 0) FROM named")
        for place in range(1, min(last, most) + 1):
            found = self.scratch.rows(
                "SELECT name, size FROM named WHERE rowid = ? AND inside", place * last // min(last, most)
            )
            yield from ((name_of(name), int(size or 0)) for name, size in found)

    def index(self) -> None:
        self.scratch.run("CREATE INDEX of_uri ON named (uri)")

    def names(self, file: DataFile) -> bool:
        return self.scratch.number("SELECT EXISTS (SELECT 1 FROM named WHERE uri = ?)", _digest(file)) == 1


def _row(file: DataFile) -> tuple[Value, ...]:
    return blob(file.name), file.key is not None, _digest(file), file.size_bytes, file.written_ms


def _digest(file: DataFile) -> bytes:
    return blake2b(blob(file.uri), digest_size=_URI_BYTES).digest()


def added_by(store: Store, batch: int) -> tuple[DataFile, ...]:
    """The data files that one batch has written.

    Raises:
        NotFoundError: The log has no entry of it, or not those by which a compacted one tells (code
            `missing-log-entry`).
        FormatError: An entry is damaged.
    """
    names, roots = list_log(store), Roots(store.uri)
    if LogName(batch) in names:
        return undamaged(lambda: tuple(read_entry(store, LogName(batch), roots)))
    until = chain(names, batch, store.uri)
    before = chain(names, batch - 1, store.uri) if batch > 0 else []
    earlier = NamedFiles()
    earlier.add_log(store, before, roots)
    earlier.index()

    def later(name: LogName) -> dict[str, DataFile]:
        return {one.uri: one for one in read_entry(store, name, roots) if not earlier.names(one)}

    found: dict[str, DataFile] = {}
    for name in until:
        found |= undamaged(partial(later, name))
    return tuple(found.values())
