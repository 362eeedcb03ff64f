"""An Iceberg table as a sink: which snapshot is that of a batch, who has written since, and going back to it.

Iceberg remembers the batches of a query in the summaries of its snapshots, as Spark's own sink writes them:
`spark.sql.streaming.queryId` and `spark.sql.streaming.epochId`. An application that writes by `foreachBatch`
can write the same two (PyIceberg's `snapshot_properties`, or the option `snapshot-property.NAME` of Spark's
writer), and skip a batch that is not above the newest one. Only the ancestors of the current snapshot count,
so a rollback takes the memory back with the rows.

A rollback changes which snapshot is the current one, and nothing else: columns that were added since stay,
as do a changed partitioning and properties. Only the branch `main` is guarded.

A snapshot expires (`expire_snapshots`) unless a tag holds it. Each savepoint leaves one, which goes with it:
see `sinks/tags.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streambank.core.errors import ConflictError, StreambankError
from streambank.core.json_text import is_whole_number
from streambank.sinks.iceberg_catalog import IcebergTable
from streambank.sinks.table import (
    ANEW,
    AskedTable,
    Changing,
    TableRollback,
    TableStanding,
    same_or_unknown,
    sink_moved,
)
from streambank.sinks.tags import TagScope, add_tag

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

KIND = "iceberg"
QUERY = "spark.sql.streaming.queryId"
BATCH = "spark.sql.streaming.epochId"

_CHANGES = ("added-", "deleted-", "removed-")
"""How the fields of a summary begin that count what a snapshot changed."""
_WRITER = (
    f"An application that writes with foreachBatch has to give each commit the properties {QUERY} and "
    f"{BATCH}. Without them the table remembers no batches: declare it as `append`."
)
_GONE = "snapshots that have expired"
_EXPIRED = "Use another savepoint. A tag holds the snapshot of a savepoint: declare `tag = true`."


@dataclass(frozen=True, slots=True)
class _Entry:
    id: int
    parent: int | None
    sequence: int | None
    batch: int | None
    rows: int | None
    operation: str
    changes: bool

    def __str__(self) -> str:
        return f"snapshot {self.id} ({self.operation or 'unknown'})"


class _History:
    def __init__(self, table: Table, query_id: str) -> None:
        metadata = table.metadata
        self.uuid = str(metadata.table_uuid)
        self.current: int | None = metadata.current_snapshot_id
        self._entries = {snapshot.snapshot_id: _entry(snapshot, query_id) for snapshot in metadata.snapshots}
        self._log = [(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log]

    @property
    def seen(self) -> str:
        return f"{self.uuid}/{self.current}"

    def get(self, snapshot: int) -> _Entry | None:
        return self._entries.get(snapshot)

    def line(self, snapshot: int | None) -> list[_Entry]:
        """A snapshot and its ancestors, as far as they have not expired; the newest first."""
        found: dict[int, _Entry] = {}
        while snapshot is not None and snapshot not in found and snapshot in self._entries:
            found[snapshot] = self._entries[snapshot]
            snapshot = self._entries[snapshot].parent
        return list(found.values())

    def written(self, snapshot: int | None, batch: int) -> int | None:
        """Which snapshot wrote the batch that a snapshot holds; None where that is not known."""
        own = (entry for entry in self.line(snapshot) if entry.batch is not None and entry.batch <= batch)
        found = next(own, None)
        return found.id if found is not None and found.batch == batch else None

    def current_at(self, moment: datetime) -> int | None:
        """Which snapshot was the current one; None where that is not known.

        An entry of the table's log of current snapshots goes with its snapshot. Two equal ones in a row are
        left where one between them has gone.
        """
        if any(one == other for (_, one), (_, other) in pairwise(self._log)):
            return None
        at_ms = int(moment.timestamp() * 1000)
        return next((snapshot for since_ms, snapshot in reversed(self._log) if since_ms <= at_ms), None)

    def newest_with(self, batch: int) -> tuple[_Entry, int] | None:
        """The snapshot right before the first later batch, and the batch that it holds; None for none."""
        line = self.line(self.current)
        last = 0
        for number, entry in enumerate(line):
            if entry.batch is not None and entry.batch <= batch:
                return line[last], entry.batch
            if entry.batch is not None:
                last = number + 1
        return None


def _entry(snapshot: Snapshot, query_id: str) -> _Entry:
    summary = snapshot.summary
    fields = {} if summary is None else summary.additional_properties
    operation = "" if summary is None else str(summary.operation.value)
    own = fields.get(QUERY) == query_id
    return _Entry(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        _number(fields.get(BATCH)) if own else None,
        _number(fields.get("added-records", "0")),
        operation,
        summary is None
        or (
            operation != "replace"
            and any(name.startswith(_CHANGES) and _number(value) != 0 for name, value in fields.items())
        ),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and is_whole_number(text) else None


class IcebergGuard(AskedTable):
    """An Iceberg table that a query writes to; it leaves tags of savepoints of `scope`."""

    kind = KIND
    keeps = ("snapshot", "table_uuid", "sink_batch", "tag")

    def __init__(self, place: IcebergTable, query_id: str, *, scope: TagScope | None = None) -> None:
        self.path = place.path
        self._place = place
        self._query_id = query_id
        self._scope = scope

    def _history(self) -> _History | None:
        with self._place.opened() as table:
            return None if table is None else _History(table, self._query_id)

    def _capture(self, batch: int, record: dict[str, Any]) -> str:
        """The snapshot that holds the query's batches up to `batch` and none after it.

        A tag is put on it. One of a savepoint that then fails is found and removed with the next.
        """
        history = self._history()
        if history is None:
            return f"There is no Iceberg table {self.path} yet."
        found = history.newest_with(batch)
        if found is None:
            why = f"No snapshot of the Iceberg table {self.path} is of the query {self._query_id}"
            record["not_asked"] = f"{why}."
            return f"{why}, batch {batch} or before: {_WRITER}"
        entry, holds = found
        record |= {"snapshot": str(entry.id), "table_uuid": history.uuid, "sink_batch": holds}
        if self._scope is None:
            return ""
        name = self._scope.name(batch, entry.id)
        try:
            add_tag(self._place, name, entry.id)
        except StreambankError as error:
            return (
                f"Snapshot {entry.id} of the Iceberg table {self.path} got no tag, and may expire before the "
                f"savepoint does: {error.message}"
            )
        record["tag"] = name
        return ""

    def _stand(self, batch: int, record: Mapping[str, Any]) -> TableStanding:
        history = self._history()
        if history is None:
            return self._not_known(batch, "It is not there.", "Look at `table` and `catalog`.")
        snapshot, holds = _number(record.get("snapshot")), record.get("sink_batch")
        if record.get("table_uuid") not in (None, history.uuid):
            return self._not_known(
                batch, "It is another table than that of the savepoint: it was made again.", ANEW
            )
        if snapshot is None or not isinstance(holds, int):
            found = history.newest_with(batch)
            if found is None:
                return self._not_known(batch, f"No snapshot is of the query {self._query_id}.", _WRITER)
            snapshot, holds = found[0].id, found[1]
            if holds < batch:
                return self._not_known(
                    batch,
                    f"The savepoint was taken without it, and its snapshots have batch {holds} and not "
                    f"{batch} of the query.",
                    "If batches without rows are not written, this is as it should be: --sink accept.",
                )
        return self._judge(batch, snapshot, holds, history)

    def _judge(self, batch: int, snapshot: int, holds: int, history: _History) -> TableStanding:
        saved = history.get(snapshot)
        current = history.line(history.current)
        there = {entry.id for entry in current}
        saved_line = history.line(snapshot)
        common = next((entry.id for entry in saved_line if entry.id in there), None)
        left = (
            saved_line if common is None else saved_line[: [entry.id for entry in saved_line].index(common)]
        )
        after = current if common is None else current[: [entry.id for entry in current].index(common)]
        own = [entry for entry in after if entry.batch is not None]
        # What others wrote to the savepoint's snapshot is no batch: without it the table is as far.
        as_far = common is not None and all(entry.batch is None for entry in left)
        if as_far and not own:
            return TableStanding(
                KIND, self.path, batch, "even", sink_batch=holds, seen=history.seen, target=str(common)
            )
        # A snapshot whose parent has expired may name none: only that of sequence number 1 never had one.
        expired = common is None and bool(current) and current[-1].sequence != 1
        newest = next((entry.batch for entry in current if entry.batch is not None), None)
        if expired and newest is None:
            return self._not_known(
                batch,
                "Its snapshots since the savepoint's batch have expired, and what it remembered of the "
                "query's batches with them: rows of later batches, if there were any, come twice.",
                _EXPIRED,
            )
        target = snapshot
        undone = after
        if as_far:  # what others wrote before the first later batch stays
            first = own[-1]
            undone = after[: after.index(first) + 1]
            target = first.parent if first.parent is not None else snapshot
        others = [str(entry) for entry in undone if entry.batch is None and entry.changes]
        rows = [entry.rows for entry in own]
        if expired:
            others += _expired_between(saved, after, batch)
            rows.append(None)
        ahead = newest is not None and newest > batch
        return TableStanding(
            KIND,
            self.path,
            batch,
            "ahead" if ahead else "diverged",
            sink_batch=newest,
            later_batches=(newest or 0) - batch if ahead and expired else len({entry.batch for entry in own}),
            later_rows=None if None in rows else sum(filter(None, rows)),
            others=tuple(others),
            cannot=f"snapshot {snapshot} has expired." if history.get(target) is None else "",
            seen=history.seen,
            target=str(target),
        )

    def roll_back(self, standing: TableStanding, changing: Changing = nullcontext) -> TableRollback:
        """Make the snapshot of the savepoint's batch the current one."""
        batch, target = standing.savepoint_batch, standing.target
        standing.require_possible()
        with self._place.opened() as table:
            history = None if table is None else _History(table, self._query_id)
            if table is None or history is None or history.seen != standing.seen:
                now = "is not there" if history is None else f"is at snapshot {history.current} now"
                raise sink_moved(
                    f"The Iceberg table {self.path} {now}, and was at "
                    f"{standing.seen.rpartition('/')[2] or 'an unknown one'} when it was compared with the "
                    "savepoint."
                )
            if standing.position == "even":
                return TableRollback(KIND, self.path, batch, target=target)
            # The catalog commits it only if the current snapshot still is the one that was compared.
            changes = table.manage_snapshots()
            if int(target) in {entry.id for entry in history.line(history.current)}:
                changes = changes.rollback_to_snapshot(int(target))
            else:
                changes = changes.set_current_snapshot(int(target))
            with changing():
                before = _times_current(table, int(target))
                try:
                    with self._place.committing():
                        changes.commit()
                except ConflictError:
                    # The catalog's answer to our own commit may be lost, and that refused when it came again.
                    with self._place.opened() as again:
                        if again is None or _times_current(again, int(target)) == before:
                            raise
        kept = {"snapshot": target, "sink_batch": self._holds(int(target), batch)}
        self.stand(batch, kept).require_even()
        done = f"Snapshot {target} is the current one."
        return TableRollback(KIND, self.path, batch, done, standing.later_rows, target)

    def _same_batch(self, batch: int, at: datetime) -> bool | None:
        """By the ancestors of the current snapshot, then and now."""
        history = self._history()
        if history is None:
            return None
        now = history.written(history.current, batch)
        return same_or_unknown(now, history.written(history.current_at(at), batch))

    def _holds(self, snapshot: int, batch: int) -> int:
        history = self._history()
        line = [] if history is None else history.line(snapshot)
        return next((entry.batch for entry in line if entry.batch is not None), batch)


def _times_current(table: Table, snapshot: int) -> int:
    """How often a snapshot became the current one (Iceberg's specification, `snapshot-log`)."""
    return sum(entry.snapshot_id == snapshot for entry in table.metadata.snapshot_log)


def _expired_between(saved: _Entry | None, after: Sequence[_Entry], batch: int) -> list[str]:
    """Commits between the savepoint's snapshot and the oldest there is that may be those of others.

    Each commit has the next sequence number (Iceberg's specification, "Sequence Numbers"; version 1 of the
    format has none), and each batch is one commit: where more are missing than batches, others have written.
    """
    oldest = after[-1]
    first_own = next((entry.batch for entry in reversed(after) if entry.batch is not None), None)
    if saved is None or not saved.sequence or not oldest.sequence or first_own is None:
        return [_GONE]
    missing = oldest.sequence - saved.sequence - 1
    own = max(0, first_own - 1 - batch)
    if missing == own:
        return []
    return [f"{missing - own} snapshots that have expired" if missing > own else _GONE]
