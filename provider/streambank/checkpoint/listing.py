"""List a checkpoint that may be live, in the one order in which nothing needed can seem to be missing."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from streambank.core.errors import FormatError, NotFoundError
from streambank.storage import FileInfo, Store
from streambank.storage.names import is_part
from streambank.storage.store import Row, scanning

LISTING_ORDER = ("commits", "sources", "offsets", "metadata", "state")
"""Commits first: everything of a batch is durable before its commit, so what is listed later is there unless
Spark itself deleted it. Sources before offsets: a batch is planned after its files are logged, so a source
log does not seem to be ahead of the offsets only because time went by between the two.
"""
_SHARED_CHARACTERS = 24
"""Names up to this length (`17.delta`) are the same in every partition; longer ones are mostly unique."""


class _Folder:
    """The files directly in one folder: names, and a row of numbers for each."""

    __slots__ = ("identities", "mtimes_ns", "numbers", "rows", "sizes")

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.sizes = array("Q")
        self.mtimes_ns = array("q")
        self.numbers = array("Q")
        self.identities: dict[int, str] = {}


class Listing(Mapping[str, FileInfo]):
    """Files by path, in a tenth of the memory that a `FileInfo` each would take.

    Files are kept folder by folder. Of an identity like those of local stores, `<number>-<size>-<mtime>`,
    only the number is kept; any other one as it is.
    """

    def __init__(self, files: Iterable[FileInfo] = ()) -> None:
        self._folders: dict[str, _Folder] = {}
        self._names: dict[str, str] = {}
        self._count = 0
        self.add_all(files)

    @classmethod
    def of(cls, files: Mapping[str, FileInfo]) -> Listing:
        return files if isinstance(files, cls) else cls(files.values())

    def add_all(self, files: Iterable[FileInfo]) -> None:
        """Take in files, the later one where a path is there twice."""
        last, folder = None, _Folder()
        for info in files:
            path, _, name = info.path.rpartition("/")
            if path != last:
                last, folder = path, self._folders.setdefault(path, _Folder())
            row = self._row(folder, name)
            folder.sizes[row], folder.mtimes_ns[row] = info.size_bytes, info.mtime_ns
            number = _number(info)
            if number is None:
                folder.identities[row] = info.identity
            else:
                folder.numbers[row] = number

    def add_rows(self, path: str, rows: Sequence[Row]) -> None:
        """Take in the files of one folder as `ScanningStore.scan` gives them."""
        folder = self._folders.setdefault(path, _Folder())
        if not folder.rows:  # the usual case, and there may be a million files
            places = {self._shared(row[0]): place for place, row in enumerate(rows)}
            if len(places) == len(rows):
                folder.rows = places
                folder.sizes.extend([row[2] for row in rows])
                folder.mtimes_ns.extend([row[3] for row in rows])
                folder.numbers.extend([row[1] for row in rows])
                self._count += len(rows)
                return
        for name, number, size_bytes, mtime_ns, _ in rows:
            row = self._row(folder, name)
            folder.sizes[row], folder.mtimes_ns[row], folder.numbers[row] = size_bytes, mtime_ns, number

    def folders(self) -> Iterator[str]:
        return iter(self._folders)

    def names(self, folder: str) -> Collection[str]:
        found = self._folders.get(folder)
        return found.rows.keys() if found is not None else ()

    @property
    def bytes(self) -> int:
        return sum(sum(folder.sizes) for folder in self._folders.values())

    def __getitem__(self, path: str) -> FileInfo:
        place, _, name = path.rpartition("/")
        folder = self._folders[place]
        row = folder.rows[name]
        size_bytes, mtime_ns = folder.sizes[row], folder.mtimes_ns[row]
        identity = folder.identities.get(row)
        if identity is None:
            identity = f"{folder.numbers[row]}-{size_bytes}-{mtime_ns}"
        return FileInfo(path, size_bytes, mtime_ns, identity)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        place, _, name = path.rpartition("/")
        folder = self._folders.get(place)
        return folder is not None and name in folder.rows

    def __iter__(self) -> Iterator[str]:
        for place, folder in self._folders.items():
            for name in folder.rows:
                yield f"{place}/{name}" if place else name

    def __len__(self) -> int:
        return self._count

    def _row(self, folder: _Folder, name: str) -> int:
        row = folder.rows.get(name)
        if row is None:
            row = folder.rows[self._shared(name)] = len(folder.sizes)
            self._count += 1
            for column in (folder.sizes, folder.mtimes_ns, folder.numbers):
                column.append(0)
        elif folder.identities:
            folder.identities.pop(row, None)
        return row

    def _shared(self, name: str) -> str:
        """The same name, as one object for all folders that have a file of it."""
        return self._names.setdefault(name, name) if len(name) <= _SHARED_CHARACTERS else name


def _number(info: FileInfo) -> int | None:
    number, _, rest = info.identity.partition("-")
    if rest != f"{info.size_bytes}-{info.mtime_ns}" or not (number.isascii() and number.isdecimal()):
        return None
    return int(number) if len(number) < 20 and (number == "0" or number[0] != "0") else None


def list_checkpoint(store: Store) -> Listing:
    """Every file below a checkpoint, path -> file; temporary and hidden ones too.

    Raises:
        FormatError: A name in it cannot be used (code `bad-key`).
    """
    names = store.names()
    for name in names:
        if not is_part(name):
            raise FormatError(
                f"{store.uri} holds a file whose name cannot be used: {name!r}.",
                code="bad-key",
                hint="Rename or remove it: names are UTF-8 without backslashes and control characters.",
            )
    listing = Listing()
    fast = scanning(store)
    for name in [*LISTING_ORDER, *(name for name in names if name not in LISTING_ORDER)]:
        before = len(listing)
        if fast is not None:
            for folder, rows in fast.scan(name):
                listing.add_rows(folder, rows)
        else:
            listing.add_all(store.list(name))
        if len(listing) == before and name in names:
            with suppress(NotFoundError):  # an empty directory, or it is gone
                listing.add_all([store.stat(name)])
    return listing
