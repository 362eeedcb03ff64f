"""A Delta table as a sink: which version is that of a batch, who has written since, and restoring it.

Delta remembers the newest batch of each writer in its log, as a transaction identifier: Spark's own sink
(`DeltaSink`) writes the query's id and the batch, `foreachBatch` what its `txnAppId` and `txnVersion` say, or
what delta-rs is given as `Transaction`. A batch that is not above the newest one is skipped. `RESTORE` does
not take that back, so a restore of the table alone loses more rows than none: the commit that restores has to
write the older identifier, too, which delta-rs can do.

The log is read as the protocol describes it (delta-io/delta, PROTOCOL.md, "Delta Log Entries"): one file of
JSON lines for each version. Only restoring needs `deltalake`; there is no JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from streambank.core.errors import (
    ConflictError,
    FormatError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.json_text import loads
from streambank.savepoint.sinks import Captured
from streambank.sinks.table import TableRollback, TableStanding
from streambank.storage import normalize_location, open_store, scheme_of
from streambank.storage.store import Store

Item = TypeVar("Item")
Result = TypeVar("Result")

KIND = "delta"
LOG = "_delta_log"
RESTORE = "RESTORE"
MARK = "streambank"
"""What a commit of a rollback has in its `commitInfo`, beside what Delta writes there."""

_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
_MOST_COMMIT_BYTES = 256 << 20
_MOST_LINE_BYTES = 16 << 20
_READERS = 16
_BLOCK = 128
MOST_VERSIONS = 10_000
"""Of a log that are read to find a batch."""
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table, as its entry of the log tells.

    Attributes:
        version: Its number.
        transactions: The newest batch of each writer that the commit names, by the writer's id.
        operation: What Delta calls it, such as `STREAMING UPDATE` or `OPTIMIZE`.
        rows: Rows that it added; None where a file does not tell.
        added: Paths of data files that it added.
        removed: Paths of data files that it removed.
        restored: Which version it restores; None for another operation, or where it does not tell.
        changes: Whether rows, schema or properties are others after it; compaction changes none of them.
        table: The table's id, where the commit tells.
        mark: What a rollback of Streambank left.
    """

    version: int
    transactions: Mapping[str, int] = field(default_factory=dict)
    operation: str = ""
    rows: int | None = 0
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    changes: bool = False
    restored: int | None = None
    table: str | None = None
    mark: Mapping[str, Any] = field(default_factory=dict)


class DeltaLog:
    """The log of a table.

    Args:
        store: The table's directory.
    """

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

    def commit(self, version: int) -> Commit:
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

    def commits(self, first: int, last: int) -> list[Commit]:
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
        found: list[Commit] = []
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

    def commits_there(self, first: int, last: int) -> list[Commit]:
        """Those entries of a range of versions that are still there, oldest first.

        Raises:
            FormatError: See `commit`.
        """
        found = _each(self._commit_there, range(first, last + 1))
        return [one for one in found if one is not None]

    def _commit_there(self, version: int) -> Commit | None:
        try:
            return self.commit(version)
        except NotFoundError:
            return None


def _each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What the work gives for each item, in their order, by threads that keep no process alive.

    A caller that has given up (`bounded.within`) must not wait for a store that hangs when it ends.

    Raises:
        StreambankError: The first error of the work.
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


def _read(version: int, actions: Iterable[tuple[str, Mapping[str, Any]]]) -> Commit:
    transactions: dict[str, int] = {}
    added: set[str] = set()
    removed: set[str] = set()
    rows: int | None = 0
    operation, changes = "", False
    table: str | None = None
    mark: Mapping[str, Any] = {}
    restored: int | None = None
    for name, action in actions:
        if name == "txn":
            transactions[str(action["appId"])] = int(action["version"])
        elif name == "commitInfo":
            operation = str(action.get("operation", ""))
            restored = _restored(action) if operation == RESTORE else None
            mark = action[MARK] if isinstance(action.get(MARK), Mapping) else {}
        elif name == "metaData":
            table, changes = str(action["id"]), True
        elif name == "protocol":
            changes = True
        elif name in ("add", "remove"):
            path = unquote(str(action["path"]))
            (added if name == "add" else removed).add(path)
            if action.get("dataChange", True):
                changes = True
                if name == "add":
                    rows = _sum(rows, action.get("stats"))
    return Commit(
        version,
        transactions,
        operation,
        rows,
        frozenset(added),
        frozenset(removed),
        changes,
        restored,
        table,
        mark,
    )


def _restored(info: Mapping[str, Any]) -> int | None:
    parameters = info.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, Mapping) else ""
    return int(version) if version.isdecimal() and len(version) <= _DIGITS else None


def _sum(rows: int | None, stats: Any) -> int | None:
    if rows is None or not isinstance(stats, str):
        return None
    told = loads(stats)
    number = told.get("numRecords") if isinstance(told, Mapping) else None
    return rows + number if isinstance(number, int) else None


class DeltaGuard:
    """A Delta table that a query writes to.

    Args:
        location: The table's directory.
        writer: Under which id the query's batches are in the log: the query id, or the application's own.
        options: Options of delta-rs for the storage, besides what the environment says.
        by_connector: Spark's own sink writes it, which does not compute a batch that it takes for done.
        own_name: The id is the application's own: another query id does not change it.
    """

    kind = KIND
    keeps_files = False

    def __init__(
        self,
        location: str,
        writer: str,
        *,
        options: Mapping[str, str] | None = None,
        by_connector: bool = False,
        own_name: bool = False,
    ) -> None:
        self._own_name = own_name
        self.path = normalize_location(location)
        self._writer = writer
        self._options = dict(options or {})
        self._by_connector = by_connector

    def capture(self, batch: int) -> Captured:
        """The version that holds the query's batches up to `batch` and none after it. Never raises."""
        record: dict[str, Any] = {"kind": KIND, "path": self.path, "guarded": True, "batch": batch}
        record |= {"writer": self._writer, "version": None, "table_id": None, "not_asked": None}
        try:
            log = self._log()
            newest = log.newest()
            if newest is None:
                return Captured(record, warning=f"There is no Delta table at {self.path} yet.")
            found = _newest_with(log, newest, self._writer, batch)
            if found is None:
                why = f"The log of the Delta table {self.path} names no batch of the writer {self._writer}"
                record["not_asked"] = f"{why}."
                return Captured(record, warning=f"{why}: {_WRITER}")
            version, holds = found
            record |= {"version": version, "sink_batch": holds, "table_id": _table_id(log)}
        except StreambankError as error:
            record["not_asked"] = error.message
            return Captured(
                record, warning=f"The savepoint does not say how far its sink is: {error.message}"
            )
        return Captured(record)

    def stand(self, batch: int, record: Mapping[str, Any] | None) -> TableStanding:
        """Where the table stands against the savepoint's batch. Reads only, and never raises."""
        try:
            return self._stand(batch, record or {})
        except StreambankError as error:
            return self._not_known(
                batch, error.message, error.hint, transient=isinstance(error, StorageError)
            )

    def _stand(self, batch: int, record: Mapping[str, Any]) -> TableStanding:
        log = self._log()
        newest = log.newest()
        if newest is None:
            return self._not_known(batch, "It is not there.", "Name its directory in the declaration.")
        version, holds = record.get("version"), record.get("sink_batch")
        known = isinstance(version, int) and isinstance(holds, int)
        if not isinstance(version, int) or not isinstance(holds, int):
            found = _newest_with(log, newest, self._writer, batch)
            if found is None:
                return self._not_known(
                    batch, f"Its log names no batch of the writer {self._writer}.", _WRITER
                )
            version, holds = found
            if holds < batch:
                return self._not_known(
                    batch,
                    f"The savepoint was taken without it, and its log has batch {holds} and not {batch} of "
                    f"the writer {self._writer}.",
                    "If batches without rows are not written, this is as it should be: --sink accept.",
                )
        ids = {record.get("table_id"), _table_id(log)} - {None}
        held = self._held(log, version) if known and newest >= version else holds
        if newest < version or len(ids) > 1 or held not in (None, holds):
            return self._not_known(
                batch,
                f"Its version {version} is not that of the savepoint, which held batch {holds}: it was made "
                "anew, or the log no longer has that version.",
                _ANEW,
            )
        try:
            later = log.commits(version + 1, newest)
        except NotFoundError as error:
            return self._not_known(
                batch,
                f"Its log no longer has every version after {version}: {error.message}",
                "Restore a newer savepoint. `delta.logRetentionDuration` says how long the log is kept.",
            )
        return self._judge(batch, version, holds, later)

    def _judge(self, batch: int, version: int, holds: int, later: Sequence[Commit]) -> TableStanding:
        """By the commits since the version of the savepoint."""
        since = self._rolled_back_at(batch, version, holds, later)
        after = [commit for commit in later if commit.version > since]
        own = [commit for commit in after if self._writer in commit.transactions]
        # What somebody restored before the first later batch; later ones a rollback undoes in any case.
        until = own[0].version if own else after[-1].version + 1 if after else 0
        by_hand = [one for one in after if one.version < until and one.operation == RESTORE]
        if by_hand and not _is_as_before(by_hand, since):
            return self._not_known(
                batch,
                f"Version {by_hand[-1].version} restored it by hand since the savepoint: the batches that it "
                "holds and those that it takes for done are no longer the same.",
                f"Restore version {since} of it by hand.",
            )
        seen = str(later[-1].version if later else version)
        if not own:
            return TableStanding(
                KIND,
                self.path,
                batch,
                "even",
                sink_batch=holds,
                seen=seen,
                target=str(since),
                own_name=self._own_name,
            )
        # What others wrote before the first later batch stays.
        target = own[0].version - 1
        undone = [commit for commit in after if commit.version > target]
        others = [
            one
            for one in undone
            if self._writer not in one.transactions and one.changes and one.operation != RESTORE
        ]
        rows = [commit.rows for commit in own]
        holds = own[-1].transactions[self._writer]
        return TableStanding(
            KIND,
            self.path,
            batch,
            "ahead" if holds > batch else "diverged",
            sink_batch=holds,
            later_batches=len({commit.transactions[self._writer] for commit in own}),
            later_rows=None if None in rows else sum(row for row in rows if row is not None),
            others=tuple(f"version {one.version} ({one.operation or 'unknown'})" for one in others),
            cannot=self._cannot(undone),
            seen=seen,
            target=str(target),
            skips_computing=self._by_connector,
            own_name=self._own_name,
        )

    def _rolled_back_at(self, batch: int, version: int, holds: int, later: Sequence[Commit]) -> int:
        """The version as which the savepoint's was last restored by us; that itself where it never was.

        A rollback to a batch of the same number in another line of the query's life has led elsewhere: only
        what was restored from before the first later batch counts.
        """
        since, first = version, None
        for commit in later:
            if self._writer not in commit.transactions:
                continue
            target = commit.mark.get("version") if commit.mark.get("batch") == batch else None
            is_same = isinstance(target, int) and since <= target and (first is None or target < first)
            if is_same and commit.transactions[self._writer] == holds:
                since, first = commit.version, None
            elif first is None:
                first = commit.version
        return since

    def _held(self, log: DeltaLog, version: int) -> int | None:
        found = _newest_with(log, version, self._writer, None)
        return None if found is None else found[1]

    def _cannot(self, undone: Sequence[Commit]) -> str:
        if find_spec("deltalake") is None:
            return "the package deltalake is not installed here (extra `delta`)."
        added = frozenset[str]().union(*(commit.added for commit in undone))
        needed = sorted(frozenset[str]().union(*(commit.removed for commit in undone)) - added)
        inside = [path for path in needed if "://" not in path and not path.startswith("/")]
        store = open_store(self.path)
        there = _each(store.exists, inside)
        gone = [path for path, is_there in zip(inside, there, strict=True) if not is_there]
        if gone:
            return f"{len(gone)} files of that version are gone ({gone[0]}), as after VACUUM."
        return ""

    def roll_back(self, standing: TableStanding) -> TableRollback:
        """Restore the table to the version of the savepoint's batch, and its transaction identifier with it.

        Raises:
            ConflictError, RefusedError, StorageError: See `TableGuard.roll_back`.
        """
        batch, target = standing.savepoint_batch, standing.target
        now = self._log().newest()
        if str(now) != standing.seen:
            raise ConflictError(
                f"The Delta table {self.path} has version {now} now, and had {standing.seen} when it was "
                "compared with the savepoint.",
                code="sink-moved",
                hint="Stop whatever writes to it, then restore again.",
            )
        if standing.position == "even":
            return TableRollback(KIND, self.path, batch, target=target)
        if not standing.can_roll_back:
            raise RefusedError(
                standing.why_not(), code="sink-cannot-roll-back", hint="Use another savepoint, or accept."
            )
        self._restore(int(standing.seen), int(target), batch)
        after = self.stand(batch, {"version": int(target), "sink_batch": self._holds(int(target))})
        if after.position != "even":
            raise ConflictError(
                f"The Delta table {self.path} changed while it was rolled back: {after.sentence()}",
                code="sink-moved",
                hint="Stop whatever writes to it, then restore again.",
            )
        return TableRollback(
            KIND,
            self.path,
            batch,
            f"Version {target} is restored as version {after.seen}.",
            standing.later_rows,
            target,
        )

    def _holds(self, version: int) -> int:
        found = _newest_with(self._log(), version, self._writer, None)
        if found is None:
            raise RefusedError(
                f"The log of the Delta table {self.path} names no batch of the writer {self._writer} up to "
                f"version {version}.",
                code="sink-cannot-roll-back",
                hint=_WRITER,
            )
        return found[1]

    def _restore(self, current: int, target: int, batch: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        location, options = delta_place(self.path, self._options)
        properties = CommitProperties(
            custom_metadata={MARK: {"batch": batch, "writer": self._writer, "version": target}},
            max_commit_retries=0,  # what somebody else wrote meanwhile is judged anew, never merged
            app_transactions=[Transaction(self._writer, self._holds(target))],
        )
        try:
            table = DeltaTable(location, version=current, storage_options=options)
            table.restore(target, commit_properties=properties)
        except CommitFailedError as error:
            raise ConflictError(
                f"Somebody wrote to the Delta table {self.path} while it was rolled back: {error}",
                code="sink-moved",
                hint="Stop whatever writes to it, then restore again.",
            ) from error
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(
                f"The Delta table {self.path} could not be restored to version {target}: {error}",
                code="sink-not-reachable",
                hint="The table is as it was. Remove the cause, and restore again.",
            ) from error

    def _log(self) -> DeltaLog:
        return DeltaLog(open_store(self.path))

    def _not_known(self, batch: int, why: str, hint: str, *, transient: bool = False) -> TableStanding:
        return TableStanding(
            KIND,
            self.path,
            batch,
            "not-known",
            not_known=why,
            hint=hint,
            transient=transient,
            skips_computing=self._by_connector,
        )


def _is_as_before(by_hand: Sequence[Commit], since: int) -> bool:
    """Whether the last restore by hand led to what the table was, with what others had added by then."""
    restored = by_hand[-1].restored
    return restored is not None and since <= restored < by_hand[0].version


_WRITER = (
    "Declare its `writer`: what foreachBatch gives as txnAppId, or as the id of delta-rs' Transaction. "
    "Without one the table remembers no batches: declare it as `append`."
)
_ANEW = "Restore into a new table with another query id, or use --sink accept."


def _table_id(log: DeltaLog) -> str | None:
    """The table's id, by the first entry; None where Delta has removed that."""
    try:
        return log.commit(0).table
    except NotFoundError:
        return None


def _newest_with(log: DeltaLog, newest: int, writer: str, batch: int | None) -> tuple[int, int] | None:
    """The version right before the first later batch of a writer, and the batch that it holds.

    Args:
        log: The log.
        newest: The newest version.
        writer: Whose batches.
        batch: Up to which batch; None for the newest there is.

    Returns:
        None where no entry of the log names a batch of the writer up to that one.
    """
    last = newest
    oldest = max(0, newest - MOST_VERSIONS + 1)
    for end in range(newest, oldest - 1, -_BLOCK):
        expected = end
        for commit in reversed(log.commits_there(max(oldest, end - _BLOCK + 1), end)):
            if commit.version != expected:
                return None  # below a gap nothing says what holds which batch
            expected -= 1
            holds = commit.transactions.get(writer)
            if holds is None:
                continue
            if batch is None or holds <= batch:
                return last, holds
            last = commit.version - 1
        if expected >= max(oldest, end - _BLOCK + 1):
            return None
    return None


def delta_place(location: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A table as delta-rs wants it: its URI, and how its storage is reached.

    Credentials come from where the rest of Streambank takes them; what is declared comes first.

    Args:
        location: The table's directory.
        options: What is declared.
    """
    scheme = scheme_of(location)
    if scheme == "file":
        return location, dict(options)
    if scheme in ("s3", "s3a"):
        from streambank.storage.s3.client import object_store_options

        return f"s3://{location.partition('://')[2]}", {**object_store_options(location), **options}
    return location, dict(options)
