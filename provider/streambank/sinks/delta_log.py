"""The log of a Delta table: one file of JSON lines for each version.

As the protocol describes it (delta-io/delta, PROTOCOL.md, "Delta Log Entries"). It is read without a JVM and
without delta-rs, which holds all files of a table in memory to answer the same.
"""

from __future__ import annotations

import base64
import string
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote

from streambank.core.errors import FormatError, NotFoundError
from streambank.core.json_text import loads
from streambank.core.python310 import UTC
from streambank.storage.store import Store

Item = TypeVar("Item")
Result = TypeVar("Result")

LOG = "_delta_log"
RESTORE = "RESTORE"
MARK = "streambank"
"""What a commit of a rollback has in its `commitInfo`, beside what Delta writes there."""

MOST_VERSIONS = 10_000
"""Of a log that are read to find a batch."""
_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
_MOST_COMMIT_BYTES = 256 << 20
_MOST_LINE_BYTES = 16 << 20
_READERS = 16
_BLOCK, _FIRST_BLOCK = 128, 4
"""How many entries are read together; few at first, since mostly the newest one tells."""
_DIGITS = 20
_UUID_CHARS = 20
_Z85 = str.maketrans(
    string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#",
    string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~",
)
"""From the letters of ZeroMQ's base 85 (Z85), which Delta uses, to those of `base64.b85decode`."""
_MOST_MS = 253_402_300_800_000
"""The end of the year 9999."""


class DeltaFile(NamedTuple):
    """A data file, with its deletion vector and the file of that, which is empty where the log has it."""

    path: str
    vector: str = ""
    vector_file: str = ""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version of a table, as its entry of the log tells.

    Attributes:
        transactions: The newest batch of each writer that the commit names, by the writer's id.
        rows: Rows that it added; None where a file does not tell.
        restored: Which version it restores; None for another operation, or where it does not tell.
        changes: Whether rows, schema or properties are others after it; compaction changes none of them.
        at: When it was committed, by the clock of its writer; None where it does not tell.
        mark: What a rollback of Streambank left.
    """

    version: int
    transactions: Mapping[str, int] = field(default_factory=dict)
    operation: str = ""
    rows: int | None = 0
    added: frozenset[DeltaFile] = frozenset()
    removed: frozenset[DeltaFile] = frozenset()
    changes: bool = False
    restored: int | None = None
    table: str | None = None
    at: datetime | None = None
    mark: Mapping[str, Any] = field(default_factory=dict)


class DeltaLog:
    """The log of a table."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self) -> int | None:
        """The newest version; None where there is no table.

        Entries older than the last checkpoint may be gone, later ones are not; they have no gap.
        """
        low = self._last_checkpoint()
        if low is None:
            if not self._has(0):
                return None
            low = 0
        step = 1
        while self._has(low + step):
            low += step
            step *= 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._has(middle) else (low, middle)
        return low

    def _has(self, version: int) -> bool:
        return self._store.exists(_key(version))

    def _last_checkpoint(self) -> int | None:
        try:
            found = loads(self._store.read(_LAST_CHECKPOINT, length=_MOST_LINE_BYTES))
        except NotFoundError:
            return None
        except ValueError as error:
            raise _damaged(self._store, _LAST_CHECKPOINT, error) from error
        version = found.get("version") if isinstance(found, Mapping) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise _damaged(self._store, _LAST_CHECKPOINT, ValueError("it names no version"))
        return version

    def commit(self, version: int) -> DeltaCommit:
        """One entry.

        Raises:
            NotFoundError: It is gone: Delta removes old entries that a checkpoint has summed up.
            FormatError: It cannot be understood, or is larger than 256 MiB.
        """
        key = _key(version)
        try:
            return _read(version, self._actions(key))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise _damaged(self._store, key, error) from error

    def _actions(self, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        room = _MOST_COMMIT_BYTES
        with self._store.open(key) as file:
            while line := file.readline(_MOST_LINE_BYTES + 1):
                room -= len(line)
                if room < 0:
                    raise ValueError(f"it is larger than {_MOST_COMMIT_BYTES >> 20} MiB")
                if len(line) > _MOST_LINE_BYTES:
                    raise ValueError("a line is too long")
                if not line.strip():
                    continue
                for name, action in loads(line).items():
                    if isinstance(action, Mapping):
                        yield name, action

    def table_id(self) -> str | None:
        """The table's id, by the first entry; None where Delta has removed that."""
        try:
            return self.commit(0).table
        except NotFoundError:
            return None

    def newest_with(self, newest: int, writer: str, batch: int | None) -> tuple[int, int] | None:
        """The version right before the first later batch of a writer, and the batch that it holds.

        None where none of the newest 10,000 entries names a batch of the writer up to that one, or one of
        them is gone before such an entry.
        """
        last = newest
        for commit in self.newest_first(newest):
            holds = commit.transactions.get(writer)
            if holds is None:
                continue
            if batch is None or holds <= batch:
                return last, holds
            last = commit.version - 1
        return None

    def newest_first(self, newest: int) -> Iterator[DeltaCommit]:
        """Entries from a version backwards, up to 10,000, until one is gone.

        Below a gap nothing says what holds which batch.
        """
        oldest = max(0, newest - MOST_VERSIONS + 1)
        end, size = newest, _FIRST_BLOCK
        while end >= oldest:
            begin = max(oldest, end - size + 1)
            expected = end
            for commit in reversed(self.commits_there(begin, end)):
                if commit.version != expected:
                    return
                expected -= 1
                yield commit
            if expected >= begin:
                return
            end, size = begin - 1, min(2 * size, _BLOCK)

    def commits(self, first: int, last: int) -> list[DeltaCommit]:
        """Entries of a range of versions, both included.

        Raises:
            NotFoundError: One is gone, or they are more than 10,000.
            FormatError: See `commit`.
        """
        if last - first >= MOST_VERSIONS:
            raise NotFoundError(
                f"Versions {first} to {last} of the Delta table {self._store.uri} are more than are read.",
                hint="Use a newer savepoint.",
            )
        found: list[DeltaCommit] = []
        for begin in range(first, last + 1, _BLOCK):
            end = min(last, begin + _BLOCK - 1)
            block = self.commits_there(begin, end)
            if len(block) <= end - begin:
                raise NotFoundError(
                    f"Some of the versions {begin} to {end} of the Delta table {self._store.uri} are gone.",
                    hint="Delta removes old entries of its log.",
                )
            found += block
        return found

    def commits_there(self, first: int, last: int) -> list[DeltaCommit]:
        """Those entries of a range of versions that are still there, oldest first."""
        found = each(self._commit_there, range(first, last + 1))
        return [commit for commit in found if commit is not None]

    def _commit_there(self, version: int) -> DeltaCommit | None:
        try:
            return self.commit(version)
        except NotFoundError:
            return None


def each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What the work gives for each item, in their order, by threads that keep no process alive.

    A caller that has given up (`bounded.within`) must not wait for a store that hangs when it ends.
    """
    found: dict[int, Result] = {}
    errors: list[Exception] = []
    waiting = iter(enumerate(items))
    lock = threading.Lock()

    def take() -> None:
        while not errors:
            with lock:
                number, item = next(waiting, (-1, None))
            if number < 0:
                return
            try:
                found[number] = work(cast("Item", item))
            except Exception as error:
                errors.append(error)

    workers = [threading.Thread(target=take, daemon=True) for _ in range(min(_READERS, len(items)) - 1)]
    for worker in workers:
        worker.start()
    take()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(items))]


def _key(version: int) -> str:
    return f"{LOG}/{version:0{_DIGITS}}.json"


def _damaged(store: Store, key: str, error: Exception) -> FormatError:
    return FormatError(
        f"The entry {key} of the log of the Delta table {store.uri} cannot be understood: {error}.",
        code="damaged-delta-log",
        hint="Look at the table with Delta itself: `DESCRIBE HISTORY`.",
    )


def _read(version: int, actions: Iterable[tuple[str, Mapping[str, Any]]]) -> DeltaCommit:
    transactions: dict[str, int] = {}
    added: set[DeltaFile] = set()
    removed: set[DeltaFile] = set()
    rows: int | None = 0
    operation, changes = "", False
    table: str | None = None
    mark: Mapping[str, Any] = {}
    restored: int | None = None
    at: datetime | None = None
    for name, action in actions:
        if name == "txn":
            transactions[str(action["appId"])] = int(action["version"])
        elif name == "commitInfo":
            operation = str(action.get("operation", ""))
            restored = _restored(action) if operation == RESTORE else None
            at = _time(action.get("inCommitTimestamp", action.get("timestamp")))
            mark = action[MARK] if isinstance(action.get(MARK), Mapping) else {}
        elif name == "metaData":
            table, changes = str(action["id"]), True
        elif name == "protocol":
            changes = True
        elif name in ("add", "remove"):
            (added if name == "add" else removed).add(_data_file(action))
            if action.get("dataChange", True):
                changes = True
                if name == "add":
                    rows = _sum(rows, action.get("stats"))
    return DeltaCommit(
        version,
        transactions,
        operation,
        rows,
        frozenset(added),
        frozenset(removed),
        changes,
        restored,
        table,
        at,
        mark,
    )


def _data_file(action: Mapping[str, Any]) -> DeltaFile:
    """The file of an `add` or a `remove` (PROTOCOL.md, "Deletion Vector Descriptor Schema")."""
    path = unquote(str(action["path"]))
    vector = action.get("deletionVector")
    if not isinstance(vector, Mapping):
        return DeltaFile(path)
    kind, where = str(vector["storageType"]), str(vector["pathOrInlineDv"])
    file = ""
    if kind == "p":
        file = where
    elif kind == "u":
        prefix, own = where[:-_UUID_CHARS], where[-_UUID_CHARS:]
        name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(own.translate(_Z85)))}.bin"
        file = f"{prefix}/{name}" if prefix else name
    return DeltaFile(path, f"{kind}{where}@{vector.get('offset')}", file)


def _time(ms: Any) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if isinstance(ms, int) and 0 <= ms < _MOST_MS else None


def _restored(info: Mapping[str, Any]) -> int | None:
    parameters = info.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, Mapping) else ""
    return int(version) if version.isdecimal() and len(version) <= _DIGITS else None


def _sum(rows: int | None, stats: Any) -> int | None:
    if rows is None or not isinstance(stats, str):
        return None
    known = loads(stats)
    number = known.get("numRecords") if isinstance(known, Mapping) else None
    return rows + number if isinstance(number, int) else None
