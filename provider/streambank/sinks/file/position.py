"""Where a file sink stands against a savepoint: how far it is, what is missing, what going on would lose.

Spark skips every batch that the sink's log already has. So a query that resumes at a savepoint's batch N
loses, in silence, whatever its new batches N+1, N+2, ... carry and the old ones of the same number did not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from streambank.checkpoint.compactible import LogName, entries_up_to, parse_log_name
from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.sinks.file.comparison import Comparison
from streambank.sinks.file.log import (
    LOG_DIRECTORY,
    Roots,
    chain,
    list_log,
    log_key,
    parse_entry,
    read_entry,
    relocate_entry,
)
from streambank.sinks.file.named import NamedFiles
from streambank.sinks.file.rows import count_rows
from streambank.storage.store import Store, undamaged

Chunks = Callable[[], Iterable[bytes]]
"""Gives the bytes of an entry, from the beginning, as often as it is called."""
Standing = Literal["even", "ahead", "behind", "diverged", "damaged", "moved"]
_MOST_NAMED = 3
_LOOKS = 5
"""So often is a log read before it is called damaged, where the query goes on meanwhile."""


@dataclass(frozen=True, slots=True)
class SavedLog:
    """The log as a savepoint keeps it, in terms of where the sink is now.

    Attributes:
        batch: The savepoint's batch.
        content: Each entry, in chunks.
        files: The data files that were the output up to `batch`.
        moved: The sink is elsewhere than it was when the savepoint was taken.
    """

    batch: int
    content: Mapping[LogName, Chunks]
    files: NamedFiles
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
        later_outside: How many more lie outside the output directory.
        later_rows: Rows in `later`, where each file tells.
        missing: How many data files up to the savepoint's batch are gone or have another size, and are
            nowhere aside.
        such_as: Some of these.
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
    later_outside: int = 0
    later_rows: int | None = None
    missing: int = 0
    such_as: tuple[str, ...] = ()
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
            some = ", ".join(self.such_as) + (", ..." if self.missing > len(self.such_as) else "")
            return (
                f"The file sink {self.path} lacks {self.missing} data files of batches up to "
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
        return f"{len(self.later) + self.later_outside} files{rows}"

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
            "later_files": len(self.later) + self.later_outside,
            "later_bytes": sum(self.later.values()),
            "later_rows": self.later_rows,
            "missing_files": self.missing,
            "aside_files": len(self.aside),
            "unfinished_rollback": self.unfinished,
            "log_gap": self.gap or None,
            "says": self.sentence(),
        }


def read_saved_log(record: Mapping[str, Any], content: Mapping[str, Chunks], now_uri: str) -> SavedLog:
    """Understand the log that a savepoint keeps.

    Args:
        record: The sink in the manifest.
        content: Its files, by their names in the manifest (`_spark_metadata/12`).
        now_uri: Where the output directory is now.

    Raises:
        IntegrityError: The savepoint does not hold the whole log.
        FormatError: An entry cannot be understood.
        StorageError: A long log does not fit into the temporary directory.
    """
    was_uri, batch = record.get("path"), record.get("batch")
    if not isinstance(was_uri, str) or not isinstance(batch, int):
        raise IntegrityError(
            f"The savepoint's record of its file sink is incomplete: {dict(record)!r:.200}.",
            hint="Somebody edited it, or another version wrote it: use another savepoint.",
        )
    moved = was_uri != now_uri
    old, roots = Roots(was_uri), Roots(now_uri, was_uri)
    entries: dict[LogName, Chunks] = {}
    for path, kept in content.items():
        folder, _, file_name = path.rpartition("/")
        name = parse_log_name(file_name)
        if folder != LOG_DIRECTORY or name is None:
            raise IntegrityError(
                f"The savepoint holds {path}, which is not an entry of the log of {was_uri}.",
                hint="Somebody edited it, or another version wrote it: use another savepoint.",
            )
        entries[name] = partial(_relocated, kept, path, old, now_uri) if moved else kept
    try:
        names = chain(entries, batch, was_uri)
    except NotFoundError as error:
        raise IntegrityError(
            f"The savepoint does not hold the whole log of its file sink: {error}",
            hint="Use another savepoint, or repair this one from a replica.",
        ) from error
    files = NamedFiles()
    for name in names:
        try:
            files.add(parse_entry(entries[name](), log_key(name), roots))
        except FormatError:
            deque(content[log_key(name)](), 0)  # an object that is damaged says so at its end
            raise
    if "data_files" in record and record["data_files"] != files.totals()[0]:
        raise IntegrityError(
            f"The log that the savepoint keeps of {was_uri} names {files.rows()} data files instead of "
            f"{record['data_files']}.",
            hint="Somebody edited it, or another version wrote it: use another savepoint.",
        )
    return SavedLog(batch=batch, content={name: entries[name] for name in names}, files=files, moved=moved)


def _relocated(kept: Chunks, path: str, old: Roots, now_uri: str) -> Iterator[bytes]:
    return relocate_entry(kept(), path, old, now_uri)


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

    Raises:
        StorageError: A long log does not fit into the temporary directory.
    """
    for _ in range(_LOOKS):
        there = list_log(store)
        found = _assess(saved, store, was_uri, there, unfinished_later)
        if not (found.problem or found.gap) or list_log(store).keys() == there.keys():
            break  # else the query went on, and compacted its log while that was read
    return found


def _assess(
    saved: SavedLog,
    store: Store,
    was_uri: str,
    there: Collection[LogName],
    unfinished_later: Mapping[str, int] | None,
) -> FileSinkStanding:
    sink_batch = max((name.batch for name in there), default=None)
    compared = Comparison(saved.files, store.list())
    problem = ""
    standing: Standing
    try:
        _read_log(compared.log, store, there, saved.batch, Roots(store.uri, was_uri), unfinished_later)
    except (FormatError, NotFoundError) as error:
        standing, problem = "damaged", error.message
        compared.forget_log()
    compared.find_later(unfinished_later or {})
    if not problem:
        standing = _standing(saved, compared, sink_batch)
    return FileSinkStanding(
        path=store.uri,
        standing=standing,
        savepoint_batch=saved.batch,
        sink_batch=sink_batch,
        later=compared.later,
        later_outside=compared.later_outside(),
        later_rows=_rows(store, compared.later),
        missing=compared.missing(),
        such_as=tuple(compared.some_missing(_MOST_NAMED)),
        aside=compared.aside,
        unfinished=unfinished_later is not None,
        problem=problem,
        gap=_gap(there, saved.batch if sink_batch is None else max(saved.batch, sink_batch)),
    )


def _rows(store: Store, keys: Iterable[str]) -> int | None:
    rows = 0
    for key in keys:
        if (found := count_rows(store, key)) is None:
            return None
        rows += found
    return rows


def _gap(there: Iterable[LogName], batch: int) -> str:
    """Spark reads the log from its newest compacted entry on, or from entry 0; never from where it begins."""
    try:
        entries_up_to(there, batch, LOG_DIRECTORY)
    except NotFoundError as error:
        return error.message
    return ""


def _read_log(
    log: NamedFiles,
    store: Store,
    there: Collection[LogName],
    saved_batch: int,
    roots: Roots,
    unfinished: Mapping[str, int] | None,
) -> None:
    """Every entry is read; kept is what readers of the sink see now, and what later batches wrote."""
    later = {name for name in there if name.batch > saved_batch}
    gap: NotFoundError | None = None
    newest: list[LogName] = []
    if there:
        try:
            newest = chain(there, max(there).batch, store.uri)
        except NotFoundError as error:
            gap = error if unfinished is None else None
    for name in sorted(there):
        # What a compacted entry holds, too, may go while this is read: the query goes on.
        with suppress(NotFoundError) if newest and name < newest[0] else nullcontext():
            if name in later or name in newest:
                log.add_log(store, [name], roots)
            else:
                undamaged(partial(_read_through, store, name, roots))
    if gap is not None:
        raise gap


def _read_through(store: Store, name: LogName, roots: Roots) -> None:
    """Read an entry to its end, from its beginning each time."""
    deque(read_entry(store, name, roots), 0)


def _standing(saved: SavedLog, compared: Comparison, sink_batch: int | None) -> Standing:
    if sink_batch is not None and sink_batch > saved.batch:
        return "ahead"
    if compared.any_later():
        return "diverged"
    if sink_batch is None or sink_batch < saved.batch:
        return "behind"
    if not compared.same_files():
        return "diverged"
    if saved.moved and not compared.same_uris():
        return "moved"
    return "even"
