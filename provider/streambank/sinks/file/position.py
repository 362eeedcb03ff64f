"""Where a file sink stands against a savepoint: how far it is, what is missing, what going on would lose.

Spark skips every batch that the sink's log already has. So a query that resumes at a savepoint's batch N
loses, in silence, whatever its new batches N+1, N+2, ... carry and the old ones of the same number did not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from streambank.checkpoint.compactible import LogName, entries_up_to, parse_log_name
from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.core.units import say_count
from streambank.sinks.file.comparison import LogComparison
from streambank.sinks.file.log import (
    LOG_DIRECTORY,
    Roots,
    chain,
    list_log,
    log_key,
    parse_entry,
    read_entry,
    relocate_entry,
    without_files,
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
    """The log as a savepoint keeps it, in terms of where the sink is now: it may have moved since."""

    batch: int
    content: Mapping[LogName, Chunks]
    files: NamedFiles
    moved: bool


@dataclass(frozen=True, slots=True)
class FileSinkStanding:
    """Where the sink stands.

    Attributes:
        standing: `even`: it ends at the savepoint's batch with the same files; `ahead`: it has later
            batches; `behind`: it has fewer; `diverged`: it has other files for the same batches; `damaged`:
            its log cannot be read; `moved`: it is even, but its log still points to where it was.
        sink_batch: The newest batch of the sink's log; None where it has none.
        later: Data files of later batches or of another timeline, by key, with their sizes.
        later_rows: Rows in `later`, where each file tells.
        missing: How many data files up to the savepoint's batch are gone or have another size, and are
            nowhere aside. Those that the log has forgotten since do not count.
        forgotten: How many data files up to the savepoint's batch are gone, and the log has forgotten since
            (`retention`): a rollback leaves them out of the log that it writes.
        aside: Data files up to the savepoint's batch that an earlier rollback set aside: key to where it
            lies.
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
    forgotten: int = 0
    aside: Mapping[str, str] = field(default_factory=dict)
    unfinished: bool = False
    problem: str = ""
    gap: str = ""
    unread: bool = False

    @property
    def nothing_later(self) -> bool:
        """Whether it stands where the savepoint is, but for files that are missing."""
        return self.standing == "even" and not self.aside and not self.unfinished

    @property
    def safe(self) -> bool:
        """Whether a query that resumes at the savepoint's batch neither loses nor repeats a row here."""
        return self.nothing_later and not self.missing

    @property
    def can_roll_back(self) -> bool:
        """Whether a rollback can take it back, but for files that are missing: those stay so.

        A log that only names more of what is missing is no help.
        """
        no_help = self.standing == "behind" and self.missing and not self.unfinished
        return not (self.later_outside or self.standing == "damaged" or no_help)

    def sentence(self) -> str:
        """Everything that is wrong, for a person who decides; empty where nothing is."""
        begun, compared, lacks = self._begun(), self._compared(), self._lacks()
        said = (begun, compared, lacks, self._forgot(), self._set_aside(), self._gap())
        return " ".join(filter(None, said))

    def _begun(self) -> str:
        return f"A rollback of the file sink {self.path} was started but not finished." * self.unfinished

    def _compared(self) -> str:
        if self.standing == "even":
            return ""
        at = "has no log" if self.sink_batch is None else f"is at batch {self.sink_batch}"
        tail = {
            "ahead": f": Spark would skip what the query writes again, and lose {self._rows_of_later()}",
            "behind": ": rows of the batches between are missing from its log",
            "diverged": f": another timeline wrote it{self._not_of_it()}",
            "damaged": f", and its log cannot be read: {self.problem.rstrip('.')}",
            "moved": ", and its log still names the files at their old location",
        }[self.standing]
        outside = (
            f" {say_count(self.later_outside, 'later file')} outside of it cannot be set aside."
            if self.later_outside
            else ""
        )
        at = f"{at} and the savepoint at batch {self.savepoint_batch}"
        return f"The file sink {self.path} {at}{tail}.{outside}"

    def _lacks(self) -> str:
        if not self.missing:
            return ""
        some = ", ".join(self.such_as) + (", ..." if self.missing > len(self.such_as) else "")
        return (
            f"The file sink {self.path} lacks {say_count(self.missing, 'data file')} of batches up to "
            f"{self.savepoint_batch} ({some})."
        )

    def _forgot(self) -> str:
        if not self.forgotten or self.safe:
            return ""
        files = say_count(self.forgotten, "data file")
        are = "is" if self.forgotten == 1 else "are"
        return (
            f"{files} of batches up to {self.savepoint_batch} {are} gone from the file sink {self.path}. Its "
            "log has dropped what is as old (`retention`), and a rollback leaves them out of it."
        )

    def _set_aside(self) -> str:
        if not self.aside:
            return ""
        are = "is" if len(self.aside) == 1 else "are"
        return (
            f"{say_count(len(self.aside), 'data file')} of batches up to {self.savepoint_batch} {are} set "
            f"aside in the file sink {self.path}."
        )

    def _gap(self) -> str:
        if not self.gap or self.safe or self.gap == self.problem:
            return ""
        return f"The log of the file sink {self.path} has a gap: {self.gap}"

    def _rows_of_later(self) -> str:
        return f"rows of {self._amount()}" if self._files and self.later_rows != 0 else "its rows"

    def _not_of_it(self) -> str:
        do = "does" if self._files == 1 else "do"
        return f", and {self._amount()} {do} not belong to this savepoint" if self._files else ""

    @property
    def _files(self) -> int:
        return len(self.later) + self.later_outside

    def _amount(self) -> str:
        rows = "" if self.later_rows is None else f" with {say_count(self.later_rows, 'row')}"
        return f"{say_count(self._files, 'file')}{rows}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "file",
            "path": self.path,
            "guarded": True,
            "standing": self.standing,
            "safe": self.safe,
            "can_roll_back": self.can_roll_back,
            "savepoint_batch": self.savepoint_batch,
            "sink_batch": self.sink_batch,
            "later_files": self._files,
            "later_bytes": sum(self.later.values()),
            "later_rows": self.later_rows,
            "missing_files": self.missing,
            "forgotten_files": self.forgotten,
            "aside_files": len(self.aside),
            "unfinished_rollback": self.unfinished,
            "log_gap": self.gap or None,
            "says": self.sentence(),
        }


def read_saved_log(record: Mapping[str, Any], content: Mapping[str, Chunks], now_uri: str) -> SavedLog:
    """Understand the log that a savepoint keeps.

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
            f"The log that the savepoint keeps of {was_uri} names {say_count(files.rows(), 'data file')} "
            f"instead of {record['data_files']}.",
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
        unfinished_later: Where a rollback was begun and not finished: the data files that it was about to
            set aside, with their sizes. Its log may be half rewound then, and is judged entry by entry.

    Raises:
        StorageError: A long log does not fit into the temporary directory.
    """
    return compare(saved, store, was_uri, unfinished_later)[0]


def compare(
    saved: SavedLog,
    store: Store,
    was_uri: str,
    unfinished_later: Mapping[str, int] | None = None,
    *,
    accepted: bool = False,
) -> tuple[FileSinkStanding, SavedLog]:
    """The same, with the log of the savepoint without the files that the sink has forgotten since.

    Where a person has accepted that files are missing (`accepted`), whatever the log no longer names is left
    out, so that it can be read.
    """
    for _ in range(_LOOKS):
        there = list_log(store)
        found, kept = _compare(saved, store, was_uri, there, unfinished_later, accepted)
        if not (found.problem or found.gap) or list_log(store).keys() == there.keys():
            break  # else the query went on, and compacted its log while that was read
    return found, kept


def _compare(
    saved: SavedLog,
    store: Store,
    was_uri: str,
    there: Collection[LogName],
    unfinished_later: Mapping[str, int] | None,
    accepted: bool,
) -> tuple[FileSinkStanding, SavedLog]:
    sink_batch = max((name.batch for name in there), default=None)
    compared = LogComparison(saved.files, store.list())
    roots = Roots(store.uri, was_uri)
    problem = ""
    standing: Standing
    try:
        _read_log(compared.log, store, there, saved.batch, roots, unfinished_later)
    except (FormatError, NotFoundError) as error:
        standing, problem = "damaged", error.message
        compared.forget_log()
    compared.find_later(unfinished_later or {})
    missing = compared.missing()
    forgotten: Mapping[str, int] = {}
    if missing and not problem and (seen := _compacted_since(saved, there)):
        named = (file for name in seen for file in read_entry(store, name, roots))
        try:
            forgotten = compared.forgotten(named, accepted=accepted)
        except NotFoundError as error:  # the query went on: the caller looks again
            standing, problem = "damaged", error.message
    if forgotten:
        saved = _without(saved, forgotten, roots)
        compared.leave_out_forgotten(saved.files)
        missing = compared.missing()
    if not problem:
        standing = _standing(saved, compared, sink_batch)
    found = FileSinkStanding(
        path=store.uri,
        standing=standing,
        savepoint_batch=saved.batch,
        sink_batch=sink_batch,
        later=compared.later,
        later_outside=compared.later_outside(),
        later_rows=_rows(store, compared.later),
        missing=missing,
        such_as=tuple(compared.some_missing(_MOST_NAMED)),
        forgotten=len(forgotten),
        aside=compared.aside,
        unfinished=unfinished_later is not None,
        problem=problem,
        gap=_gap(there, saved.batch if sink_batch is None else max(saved.batch, sink_batch)),
    )
    return found, saved


def _compacted_since(saved: SavedLog, there: Collection[LogName]) -> list[LogName]:
    """What readers go by, if that tells what was forgotten: a compaction since, or what a rollback wrote."""
    if not there:
        return []
    try:
        seen = chain(there, max(there).batch, LOG_DIRECTORY)
    except NotFoundError:
        return []
    since = seen[0].compact and seen[0].batch > saved.batch
    return seen if since or set(saved.content) <= set(seen) else []


def _without(saved: SavedLog, forgotten: Collection[str], roots: Roots) -> SavedLog:
    content, files = dict(saved.content), NamedFiles()
    for name in sorted(content):
        path, before = log_key(name), files.rows()
        left = partial(_left, content[name], path, roots, forgotten)
        every = sum(1 for _ in parse_entry(content[name](), path, roots))
        files.add(parse_entry(left(), path, roots))
        if files.rows() - before < every:
            content[name] = left
    return replace(saved, content=content, files=files)


def _left(kept: Chunks, path: str, roots: Roots, forgotten: Collection[str]) -> Iterator[bytes]:
    return without_files(kept(), path, roots, forgotten)


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


def _standing(saved: SavedLog, compared: LogComparison, sink_batch: int | None) -> Standing:
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
