"""Where a file sink stands against a savepoint: how far it is, what is missing, what going on would lose.

Spark skips every batch that the sink's log already has. So a query that resumes at a savepoint's batch N
loses, in silence, whatever its new batches N+1, N+2, ... carry and the old ones of the same number did not.

How many rows a data file holds, where its format tells without a query engine.

Parquet says it in its footer; a line of JSON or text is a row. CSV (quoted line ends, headers), ORC, Avro
and compressed text are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streambank.checkpoint.compactible import LogName, entries_up_to, parse_log_name
from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.core.lines import pieces
from streambank.sinks.file.log import (
    LOG_DIRECTORY,
    DataFile,
    Log,
    Roots,
    chain,
    list_log,
    log_key,
    parse_entry,
    read_log,
    relocate_entry,
)
from streambank.storage.store import CHUNK_BYTES, Store

Standing = Literal["even", "ahead", "behind", "diverged", "damaged", "moved"]

ASIDE_DIRECTORY = "_streambank_aside"
"""Below the output directory: what a rollback set aside. Spark's readers skip names that begin with `_`."""


@dataclass(frozen=True, slots=True)
class SavedLog:
    """The log as a savepoint keeps it, in terms of where the sink is now.

    Attributes:
        batch: The savepoint's batch.
        content: The bytes of each entry.
        files: The data files that were the output up to `batch`, by key.
        outside: URIs of data files outside the output directory.
        moved: The sink is elsewhere than it was when the savepoint was taken.
    """

    batch: int
    content: Mapping[LogName, bytes]
    files: Mapping[str, DataFile]
    outside: tuple[str, ...]
    moved: bool


@dataclass(frozen=True, slots=True)
class FileSinkStanding:
    """Where the sink stands.

    Attributes:
        path: The output directory.
        standing: `even`: it ends at the savepoint's batch with the same files; `ahead`: it has later
            batches; `behind`: it has fewer; `diverged`: it has other files for the same batches; `damaged`:
            its log cannot be read; `moved`: it is even, but its log still points to where it was.
        savepoint_batch: The savepoint's batch.
        sink_batch: The newest batch of the sink's log; None where it has none.
        later: Data files of later batches or of another timeline, by key, with their sizes.
        later_outside: The same for files outside the output directory.
        later_rows: Rows in `later`, where each file tells.
        missing: Data files up to the savepoint's batch that are gone or have another size, and are nowhere
            aside.
        aside: Data files up to the savepoint's batch that an earlier rollback set aside: key to where it
            lies.
        unfinished: A rollback was begun here and not finished.
        problem: What is wrong with the log, for `damaged`.
        gap: Which entry the log lacks that Spark looks for when it goes on after the savepoint's batch, as a
            sentence; empty where it lacks none.
        unread: Its storage does not answer, so that nothing of it is known; `problem` says why.
    """

    path: str
    standing: Standing
    savepoint_batch: int
    sink_batch: int | None
    later: Mapping[str, int] = field(default_factory=dict)
    later_outside: tuple[str, ...] = ()
    later_rows: int | None = None
    missing: tuple[str, ...] = ()
    aside: Mapping[str, str] = field(default_factory=dict)
    unfinished: bool = False
    problem: str = ""
    gap: str = ""
    unread: bool = False

    @property
    def safe(self) -> bool:
        """Whether a query that resumes at the savepoint's batch neither loses nor repeats a row here."""
        return self.standing == "even" and not self.missing and not self.aside and not self.unfinished

    @property
    def can_roll_back(self) -> bool:
        """Whether a rollback can make it safe."""
        return not self.missing and not self.later_outside and self.standing != "damaged"

    def sentence(self) -> str:
        """What is wrong, for a person who decides; empty where nothing is."""
        if self.missing:
            some = ", ".join(self.missing[:3]) + (", ..." if len(self.missing) > 3 else "")
            return (
                f"The file sink {self.path} lacks {len(self.missing)} data files of batches up to "
                f"{self.savepoint_batch} ({some})."
            )
        if self.safe:
            return ""
        if self.unfinished:
            return f"A rollback of the file sink {self.path} was started but not finished."
        at = "has no log" if self.sink_batch is None else f"is at batch {self.sink_batch}"
        tail = {
            "ahead": f": Spark would skip what the query writes again, and lose rows of {self._amount()}",
            "behind": ": rows of the batches between are missing from its log",
            "diverged": f": another timeline wrote it, and {self._amount()} do not belong to this savepoint",
            "damaged": f", and its log cannot be read: {self.problem.rstrip('.')}",
            "moved": ", and its log still names the files at their old location",
            "even": f", and {len(self.aside)} of its data files are set aside",
        }[self.standing]
        return f"The file sink {self.path} {at} and the savepoint at batch {self.savepoint_batch}{tail}."

    def _amount(self) -> str:
        rows = "" if self.later_rows is None else f" with {self.later_rows} rows"
        return f"{len(self.later) + len(self.later_outside)} files{rows}"

    def to_dict(self) -> dict[str, Any]:
        """The standing as JSON, for plans and reports."""
        return {
            "kind": "file",
            "path": self.path,
            "guarded": True,
            "standing": self.standing,
            "safe": self.safe,
            "can_roll_back": self.can_roll_back,
            "savepoint_batch": self.savepoint_batch,
            "sink_batch": self.sink_batch,
            "later_files": len(self.later) + len(self.later_outside),
            "later_bytes": sum(self.later.values()),
            "later_rows": self.later_rows,
            "missing_files": len(self.missing),
            "aside_files": len(self.aside),
            "unfinished_rollback": self.unfinished,
            "log_gap": self.gap or None,
            "says": self.sentence(),
        }


def read_saved_log(record: Mapping[str, Any], content: Mapping[str, bytes], now_uri: str) -> SavedLog:
    """Understand the log that a savepoint keeps.

    Args:
        record: The sink in the manifest.
        content: Its files, by their names in the manifest (`_spark_metadata/12`).
        now_uri: Where the output directory is now.

    Raises:
        IntegrityError: The savepoint does not hold the whole log.
        FormatError: An entry cannot be understood.
    """
    was_uri, batch = record.get("path"), record.get("batch")
    if not isinstance(was_uri, str) or not isinstance(batch, int):
        raise IntegrityError(
            f"The savepoint's record of its file sink is incomplete: {dict(record)!r:.200}.",
            hint="Somebody edited it, or another version wrote it: use another savepoint.",
        )
    moved = was_uri != now_uri
    old, roots = Roots(was_uri), Roots(now_uri, was_uri)
    bytes_by_name: dict[LogName, bytes] = {}
    for path, data in content.items():
        folder, _, file_name = path.rpartition("/")
        name = parse_log_name(file_name)
        if folder != LOG_DIRECTORY or name is None:
            raise IntegrityError(
                f"The savepoint holds {path}, which is not an entry of the log of {was_uri}.",
                hint="Somebody edited it, or another version wrote it: use another savepoint.",
            )
        bytes_by_name[name] = relocate_entry(data, path, old, now_uri) if moved else data
    try:
        names = chain(bytes_by_name, batch, was_uri)
    except NotFoundError as error:
        raise IntegrityError(
            f"The savepoint does not hold the whole log of its file sink: {error}",
            hint="Use another savepoint, or repair this one from a replica.",
        ) from error
    files = [
        file for name in names for file in parse_entry(pieces(bytes_by_name[name]), log_key(name), roots)
    ]
    if record.get("data_files", len(files)) != len({file.uri for file in files}):
        raise IntegrityError(
            f"The log that the savepoint keeps of {was_uri} names {len(files)} data files instead of "
            f"{record['data_files']}.",
            hint="Somebody edited it, or another version wrote it: use another savepoint.",
        )
    return SavedLog(
        batch=batch,
        content={name: bytes_by_name[name] for name in names},
        files={file.key: file for file in files if file.key is not None},
        outside=tuple(file.uri for file in files if file.key is None),
        moved=moved,
    )


def assess(
    saved: SavedLog, store: Store, was_uri: str, *, unfinished_later: Mapping[str, int] | None = None
) -> FileSinkStanding:
    """Compare an output directory with what a savepoint knows of it. Reads only.

    Args:
        saved: The log of the savepoint.
        store: The output directory.
        was_uri: Where it was when the savepoint was taken.
        unfinished_later: Where a rollback was begun and not finished: the data files that it was about to
            set aside, with their sizes. Its log may be half rewound then, and is judged entry by entry.
    """
    there = list_log(store)
    sink_batch = max((name.batch for name in there), default=None)
    on_disk = {info.path: info.size_bytes for info in store.list()}
    back, missing = _absent(saved, on_disk)
    later: dict[str, DataFile] = {}
    problem = ""
    standing: Standing
    try:
        log = read_log(store, there, Roots(store.uri, was_uri))
        current = _current(log, store.uri, tolerant=unfinished_later is not None)
        later = _later(saved, log, current)
        standing = _standing(saved, current, sink_batch, later)
    except (FormatError, NotFoundError) as error:
        standing, problem = "damaged", error.message
    sizes = {file.key: on_disk[file.key] for file in later.values() if file.key in on_disk}
    sizes |= {
        key: on_disk[key] for key in unfinished_later or {} if key in on_disk and key not in saved.files
    }
    rows = [count_rows(store, key) for key in sizes]
    return FileSinkStanding(
        path=store.uri,
        standing=standing,
        savepoint_batch=saved.batch,
        sink_batch=sink_batch,
        later=sizes,
        later_outside=tuple(file.uri for file in later.values() if file.key is None),
        later_rows=None if None in rows else sum(row for row in rows if row is not None),
        missing=missing,
        aside=back,
        unfinished=unfinished_later is not None,
        problem=problem,
        gap=_gap(there, saved.batch if sink_batch is None else max(saved.batch, sink_batch)),
    )


def _gap(there: Iterable[LogName], batch: int) -> str:
    """Spark reads the log from its newest compacted entry on, or from entry 0; never from where it begins."""
    try:
        entries_up_to(there, batch, LOG_DIRECTORY)
    except NotFoundError as error:
        return error.message
    return ""


def _absent(saved: SavedLog, on_disk: Mapping[str, int]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Data files of the savepoint that are not in place: those lying aside, and those that are gone."""
    aside: dict[tuple[str, int], str] = {}
    for path, size in on_disk.items():
        parts = path.split("/", 2)
        if len(parts) == 3 and parts[0] == ASIDE_DIRECTORY:
            aside[parts[2], size] = path
    back: dict[str, str] = {}
    gone: list[str] = []
    for key, file in saved.files.items():
        if on_disk.get(key) == file.size_bytes:
            continue
        if key not in on_disk and (key, file.size_bytes) in aside:
            back[key] = aside[key, file.size_bytes]
        else:
            gone.append(key)
    return back, (*gone, *saved.outside)


def _current(log: Log, where: str, *, tolerant: bool) -> dict[str, DataFile]:
    """The data files that the sink's readers see now."""
    if log.latest is None:
        return {}
    try:
        return log.files(log.chain(log.latest, where))
    except NotFoundError:
        if tolerant:
            return {}
        raise


def _later(saved: SavedLog, log: Log, current: Mapping[str, DataFile]) -> dict[str, DataFile]:
    newer = log.files(name for name in log.entries if name.batch > saved.batch)
    ours = set(saved.files) | set(saved.outside)
    return {uri: file for uri, file in {**current, **newer}.items() if (file.key or uri) not in ours}


def _standing(
    saved: SavedLog, current: Mapping[str, DataFile], sink_batch: int | None, later: Mapping[str, DataFile]
) -> Standing:
    if sink_batch is not None and sink_batch > saved.batch:
        return "ahead"
    if later:
        return "diverged"
    if sink_batch is None or sink_batch < saved.batch:
        return "behind"
    if {file.key or file.uri for file in current.values()} != set(saved.files) | set(saved.outside):
        return "diverged"
    if saved.moved and set(current) != {file.uri for file in saved.files.values()} | set(saved.outside):
        return "moved"
    return "even"


_PARQUET_MAGIC = b"PAR1"
_PARQUET_TAIL_BYTES = 8
_MAX_FOOTER_BYTES = 64 << 20


def count_rows(store: Store, key: str) -> int | None:
    """Rows of one data file; None where its format does not tell, or the file is damaged or gone."""
    try:
        if key.endswith(".parquet"):
            return _parquet_rows(store, key)
        if key.endswith((".json", ".txt")):
            return _lines(store, key)
    except NotFoundError:
        return None
    return None


def _lines(store: Store, key: str) -> int:
    lines, last = 0, b"\n"
    with store.open(key) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def _parquet_rows(store: Store, key: str) -> int | None:
    size = store.stat(key).size_bytes
    if size < 2 * len(_PARQUET_MAGIC) + 4:
        return None
    tail = store.read(key, size - _PARQUET_TAIL_BYTES, _PARQUET_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _PARQUET_MAGIC or not 0 < length <= min(size - 12, _MAX_FOOTER_BYTES):
        return None
    footer = store.read(key, size - _PARQUET_TAIL_BYTES - length, length)
    try:
        rows = _Thrift(footer).field(_NUM_ROWS)
    except (IndexError, ValueError):
        return None
    return rows if rows is not None and rows >= 0 else None


_NUM_ROWS = 3
"""Field of Parquet's FileMetaData: version, schema, num_rows, ... (parquet.thrift)."""


class _Thrift:
    """Just enough of Thrift's compact protocol to step over fields until the one that is wanted."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def field(self, wanted: int) -> int | None:
        """An integer field of the outermost structure; None where there is none.

        Raises:
            IndexError, ValueError: These bytes are no such structure.
        """
        number = 0
        while (header := self._byte()) != 0:
            kind, delta = header & 0x0F, header >> 4
            number = number + delta if delta else self._zigzag()
            if number == wanted:
                if kind not in (4, 5, 6):
                    raise ValueError(f"field {wanted} is not an integer")
                return self._zigzag()
            self._skip(kind)
        return None

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > 32:
            raise ValueError("nested too deeply")
        if kind in (1, 2):  # true and false have no bytes of their own inside a structure
            return
        if kind == 3:
            self._at += 1
        elif kind in (4, 5, 6):
            self._varint()
        elif kind == 7:
            self._at += 8
        elif kind == 8:
            length = self._varint()  # moves on by itself, so it must be known before the next line
            self._at += length
        elif kind in (9, 10):
            self._skip_list(depth)
        elif kind == 12:
            self._skip_struct(depth)
        else:
            raise ValueError(f"unexpected type {kind}")

    def _skip_list(self, depth: int) -> None:
        header = self._byte()
        size, kind = header >> 4, header & 0x0F
        if size == 15:
            size = self._varint()
        for _ in range(size):
            if kind in (1, 2):
                self._at += 1
            else:
                self._skip(kind, depth + 1)
            if self._at > len(self._data):
                raise ValueError("cut off")

    def _skip_struct(self, depth: int) -> None:
        while (header := self._byte()) != 0:
            if header >> 4 == 0:
                self._zigzag()
            self._skip(header & 0x0F, depth + 1)
