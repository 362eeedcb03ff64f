"""A Delta table as a sink: which version is that of a batch, who has written since, and restoring it.

Delta remembers the newest batch of each writer in its log, as a transaction identifier: Spark's own sink
(`DeltaSink`) writes the query's id and the batch, `foreachBatch` what its `txnAppId` and `txnVersion` say, or
what delta-rs is given as `Transaction`. A batch that is not above the newest one is skipped. `RESTORE` does
not take that back, so a restore of the table alone loses more rows than none: the commit that restores has to
write the older identifier, too, which delta-rs can do.

Only restoring needs `deltalake`; there is no JVM.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from typing import Any

from streambank.core.errors import (
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.units import say_count_are
from streambank.sinks.delta_log import MARK, RESTORE, DeltaCommit, DeltaFile, DeltaLog, each
from streambank.sinks.rights import lacks_right, no_right_to_roll_back
from streambank.sinks.secrets import without_values
from streambank.sinks.table import (
    ANEW,
    AskedTable,
    Changing,
    TableRollback,
    TableStanding,
    same_or_unknown,
    sink_moved,
)
from streambank.storage import normalize_location, open_store, scheme_of

KIND = "delta"


class DeltaGuard(AskedTable):
    """A Delta table that a query writes to.

    Args:
        writer: Under which id the query's batches are in the log: the query id, or the application's own.
        by_connector: Spark's own sink writes it, which does not compute a batch that it takes for done.
        own_name: The id is the application's own: another query id does not change it.
    """

    kind = KIND
    keeps = ("version", "table_id")

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
        self.skips_computing = by_connector

    def _capture(self, batch: int, record: dict[str, Any]) -> str:
        """The version that holds the query's batches up to `batch` and none after it."""
        record["writer"] = self._writer
        log = self._log()
        newest = log.newest()
        if newest is None:
            return f"There is no Delta table at {self.path} yet."
        found = log.newest_with(newest, self._writer, batch)
        if found is None:
            why = f"The log of the Delta table {self.path} names no batch of the writer {self._writer}"
            record["not_asked"] = f"{why}."
            return f"{why}: {_WRITER}"
        version, holds = found
        record |= {"version": version, "sink_batch": holds, "table_id": log.table_id()}
        return ""

    def _stand(self, batch: int, record: Mapping[str, Any]) -> TableStanding:
        log = self._log()
        newest = log.newest()
        if newest is None:
            return self._not_known(batch, "It is not there.", "Name its directory in the declaration.")
        version, holds = record.get("version"), record.get("sink_batch")
        known = isinstance(version, int) and isinstance(holds, int)
        if not isinstance(version, int) or not isinstance(holds, int):
            found = log.newest_with(newest, self._writer, batch)
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
        ids = {record.get("table_id"), log.table_id()} - {None}
        held = self._held(log, version) if known and newest >= version else holds
        if newest < version or len(ids) > 1 or held not in (None, holds):
            return self._not_known(
                batch,
                f"Its version {version} is not that of the savepoint, which held batch {holds}: it was "
                "created again, or the log no longer has that version.",
                ANEW,
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

    def _judge(self, batch: int, version: int, holds: int, later: Sequence[DeltaCommit]) -> TableStanding:
        since = self._rolled_back_at(batch, version, holds, later)
        after = [commit for commit in later if commit.version > since]
        own = [commit for commit in after if self._writer in commit.transactions]
        # What was restored by hand before the first later batch; later ones a rollback undoes in any case.
        until = own[0].version if own else after[-1].version + 1 if after else 0
        by_hand = [commit for commit in after if commit.version < until and commit.operation == RESTORE]
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
            commit
            for commit in undone
            if self._writer not in commit.transactions and commit.changes and commit.operation != RESTORE
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
            later_rows=None if None in rows else sum(filter(None, rows)),
            others=tuple(f"version {other.version} ({other.operation or 'unknown'})" for other in others),
            cannot=" ".join(filter(None, (self._files_gone(undone), _package_lacks()))),
            seen=seen,
            target=str(target),
            skips_computing=self.skips_computing,
            own_name=self._own_name,
        )

    def _rolled_back_at(self, batch: int, version: int, holds: int, later: Sequence[DeltaCommit]) -> int:
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
        found = log.newest_with(version, self._writer, None)
        return None if found is None else found[1]

    def _same_batch(self, batch: int, at: datetime) -> bool | None:
        """By the log, back to the newest entry that is not later."""
        log = self._log()
        newest = log.newest()
        if newest is None:
            return None
        entries = _Entries(log, newest)
        now, then = self._written(entries, newest, batch), None
        if now is not None and (version := entries.at(at)) is not None:
            then = self._written(entries, version, batch)
        return same_or_unknown(now, then)

    def _written(self, entries: _Entries, version: int, batch: int) -> int | None:
        """Which version wrote the batch that a version holds; None where the log does not tell."""
        while (commit := entries.get(version)) is not None:
            holds = commit.transactions.get(self._writer)
            if commit.operation == RESTORE:
                target = commit.mark.get("version", commit.restored)
                if holds is None or not isinstance(target, int) or target >= version:
                    return None  # by hand: what it holds and what it remembers are of different batches
                version = target
            elif holds is not None and holds <= batch:
                return version if holds == batch else None
            else:
                version -= 1
        return None

    def _files_gone(self, undone: Sequence[DeltaCommit]) -> str:
        added = frozenset[DeltaFile]().union(*(commit.added for commit in undone))
        removed = frozenset[DeltaFile]().union(*(commit.removed for commit in undone)) - added
        needed = sorted(
            {file for data_file in removed for file in (data_file.path, data_file.vector_file) if file}
        )
        inside = [path for path in needed if "://" not in path and not path.startswith("/")]
        store = open_store(self.path)
        there = each(store.exists, inside)
        gone = [path for path, is_there in zip(inside, there, strict=True) if not is_there]
        if not gone:
            return ""
        some = gone[0] if len(gone) == 1 else f"such as {gone[0]}"
        return f"Of that version {say_count_are(len(gone), 'file')} gone ({some}), as after VACUUM."

    def lost(self) -> list[str]:
        """Data files of the newest version that are gone, by a listing of delta-rs. Reads only.

        Raises:
            StorageError: It cannot be listed, or the package is not there (code `sink-not-reachable`).
        """
        if self._log().newest() is None:
            return []
        cannot = _package_lacks()
        if cannot:
            raise StorageError(cannot, code="sink-not-reachable", hint="Install it where doctor runs.")
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        location, options = delta_place(self.path, self._options)
        try:
            with _access_of(location, options):
                found = DeltaTable(location, storage_options=options).repair(dry_run=True)
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(
                f"The files of the Delta table {self.path} could not be listed: "
                f"{without_values(str(error), {**options, **self._options})}",
                code="sink-not-reachable",
                hint="Look at `options` of the job's sinks.",
            ) from None  # what the library keeps of it may hold credentials
        return sorted(found["files_removed"])

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        """Restore the version of the savepoint's batch, and its transaction identifier with it."""
        batch, target = standing.savepoint_batch, standing.target
        now = self._log().newest()
        if str(now) != standing.seen:
            raise sink_moved(
                f"The Delta table {self.path} has version {now} now, and had {standing.seen} when it was "
                "compared with the savepoint."
            )
        if standing.position == "even":
            return TableRollback(KIND, self.path, batch, target=target)
        standing.require_possible()
        self._restore(int(standing.seen), int(target), batch, changing)
        after = self.stand(batch, {"version": int(target), "sink_batch": self._holds(int(target))})
        after.require_even()
        return TableRollback(
            KIND,
            self.path,
            batch,
            f"Version {target} is restored as version {after.seen}.",
            standing.later_rows,
            target,
        )

    def _holds(self, version: int) -> int:
        found = self._log().newest_with(version, self._writer, None)
        if found is None:
            raise RefusedError(
                f"The log of the Delta table {self.path} names no batch of the writer {self._writer} up to "
                f"version {version}.",
                code="sink-cannot-roll-back",
                hint=_WRITER,
            )
        return found[1]

    def _restore(self, current: int, target: int, batch: int, changing: Changing) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        location, options = delta_place(self.path, self._options)
        own = uuid.uuid4().hex
        properties = CommitProperties(
            custom_metadata={MARK: {"batch": batch, "writer": self._writer, "version": target, "id": own}},
            max_commit_retries=0,  # what another writer did meanwhile is judged again, never merged
            app_transactions=[Transaction(self._writer, self._holds(target))],
        )
        with self._reached(target, options), _access_of(location, options):
            table = DeltaTable(location, version=current, storage_options=options)
        with changing():
            try:
                with self._reached(target, options, changes=True):
                    table.restore(target, commit_properties=properties)
            except StreambankError:
                # Our own commit may be there all the same: storage lost its answer and refused it when it was
                # sent again; or what delta-rs does after a commit failed, such as deleting old entries.
                if not self._is_committed(current + 1, own):
                    raise

    def _is_committed(self, version: int, own: str) -> bool:
        try:
            return self._log().commit(version).mark.get("id") == own
        except NotFoundError:
            return False

    @contextmanager
    def _reached(self, target: int, options: Mapping[str, str], *, changes: bool = False) -> Iterator[None]:
        """The errors of delta-rs as ours, while it restores the table to a version, or opens it for that."""
        secret = {name: options[name] for name in _CREDENTIALS if name in options} | self._options
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise sink_moved(
                f"Another writer changed the Delta table {self.path} while it was rolled back: "
                f"{without_values(str(error), secret)}"
            ) from None
        except (DeltaError, OSError, ValueError) as error:
            if changes and lacks_right(error):
                raise no_right_to_roll_back(
                    f"Delta table {self.path}", without_values(str(error), secret)
                ) from None
            raise StorageError(
                f"The Delta table {self.path} could not be restored to version {target}: "
                f"{without_values(str(error), secret)}",
                code="sink-not-reachable",
                hint="Look at `options` of the job's sinks, and remove the cause. Then restore again: it "
                "goes on from what the table is then.",
            ) from None  # what the library keeps of it may hold credentials

    def _log(self) -> DeltaLog:
        return DeltaLog(open_store(self.path))


def _package_lacks() -> str:
    if find_spec("deltalake") is None:
        return "The package deltalake is not installed here (extra `delta`)."
    installed = installed_version("deltalake")
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < _OLDEST:
        return f"The package deltalake is {installed} here, and 1.6 or newer is needed (extra `delta`)."
    return ""


class _Entries:
    """Entries of a log from its newest version backwards, each read when it is asked for."""

    def __init__(self, log: DeltaLog, newest: int) -> None:
        self._left = log.newest_first(newest)
        self._read: dict[int, DeltaCommit] = {}

    def get(self, version: int) -> DeltaCommit | None:
        """One of them; None where it is gone, or older than those that are read."""
        while version not in self._read and (commit := next(self._left, None)) is not None:
            self._read[commit.version] = commit
        return self._read.get(version)

    def at(self, moment: datetime) -> int | None:
        """The newest version that is not later than a moment; None where that is not known."""
        version = max(self._read, default=0)
        while (commit := self.get(version)) is not None and commit.at is not None:
            if commit.at <= moment:
                return version
            version -= 1
        return None


def _is_as_before(by_hand: Sequence[DeltaCommit], since: int) -> bool:
    """Whether the last restore by hand led to what the table was, with what others had added by then."""
    restored = by_hand[-1].restored
    return restored is not None and since <= restored < by_hand[0].version


_WRITER = (
    "Declare its `writer`: what foreachBatch gives as txnAppId, or as the id of delta-rs' Transaction. "
    "Without one the table remembers no batches: declare it as `append`."
)
_OLDEST = (1, 6)
"""The first delta-rs whose commits take what a rollback leaves in them."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def delta_place(location: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A table as delta-rs wants it: its URI, and how its storage is reached.

    Credentials come from where the rest of Streambank takes them; what is declared comes first.
    """
    scheme = scheme_of(location)
    if scheme == "file":
        return location, dict(options)
    if scheme in ("s3", "s3a"):
        from streambank.storage.s3.client import object_store_options

        return f"s3://{location.partition('://')[2]}", {**object_store_options(location), **options}
    return location, dict(options)


def _access_of(location: str, options: Mapping[str, str]) -> AbstractContextManager[None]:
    """Inside its `with` delta-rs opens a table with these options, and no credentials besides."""
    if scheme_of(location) != "s3":
        return nullcontext()
    from streambank.storage.s3.client import credentials_alone

    return credentials_alone(options)
