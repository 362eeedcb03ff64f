"""Data files that the log of an output names and that are gone: readers fail, and a restore is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.compactible import LogName
from streambank.core.units import say_count
from streambank.sinks.file.comparison import LogComparison
from streambank.sinks.file.log import Roots
from streambank.sinks.file.named import NamedFiles
from streambank.storage.store import FileInfo, Store, stat_or_none

MOST_LOOKED_FOR = 40
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Lacking:
    """What an output lacks of what its log names: files that are gone, have another size, or lie outside."""

    missing: int
    such_as: tuple[str, ...]
    checked: int
    named: int

    def sentence(self, path: str) -> str:
        """What is missing from the output at a location, as a sentence; empty where nothing is."""
        if not self.missing:
            return ""
        some = ", ".join(self.such_as) + (", ..." if self.missing > len(self.such_as) else "")
        of = f" of {self.checked} that were looked for" if self.checked < self.named else ""
        return f"The file sink {path} lacks {say_count(self.missing, 'data file')}{of} ({some})."

    def to_dict(self) -> dict[str, Any]:
        return {"files": self.missing, "such_as": list(self.such_as), "checked": self.checked}


def lacking(store: Store, entries: Iterable[LogName]) -> Lacking:
    """Look for every data file that readers of an output would read.

    Raises:
        NotFoundError, FormatError: An entry went away, or cannot be understood.
        StorageError: A long log does not fit into the temporary directory.
    """
    named = NamedFiles()
    named.add_log(store, entries, Roots(store.uri))
    return _compared(named, store.list(), named.totals()[0])


def look_for(store: Store, named: NamedFiles) -> Lacking:
    """Look for some data files, few whatever size the output has, and list nothing."""
    chosen = list(named.spread(MOST_LOOKED_FOR))
    gone = [
        key
        for key, size_bytes in chosen
        if (info := stat_or_none(store, key)) is None or info.size_bytes != size_bytes
    ]
    return Lacking(len(gone), tuple(gone[:MOST_NAMED]), len(chosen), named.totals()[0])


def _compared(named: NamedFiles, listing: Iterable[FileInfo], count: int) -> Lacking:
    compared = LogComparison(named, listing)
    return Lacking(compared.missing(), tuple(compared.some_missing(MOST_NAMED)), count, count)
