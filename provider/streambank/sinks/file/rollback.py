"""Taking a file sink back to a savepoint's batch: nothing is destroyed, and a second try finishes the first.

What later batches wrote is moved below `_streambank_aside/<savepoint>-<n>/` in the output directory, under
the path it had. The order of steps, and what a crash after each one leaves:

| step | after a crash here |
|---|---|
| 1. the journal `_rollback.json` is created there | nothing has changed; the sink counts as unfinished |
| 2. data files of the savepoint that an earlier rollback set aside come back | readers do not see them yet |
| 3. missing or different entries of the log up to N are written | readers see what they saw |
| 4. every other entry of the log moves aside, newest first | readers see fewer and fewer batches |
| 5. data files that the log no longer names move aside | readers of the log see batches up to N |
| 6. `_done.json` is created beside the journal | the sink is at N |

A second try plans again from what it finds, and from the journals of those that did not finish: those know
the data files whose entries are gone from the log already. No query may write to the sink meanwhile; the
caller holds the job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from streambank.checkpoint.compactible import LogName
from streambank.core.errors import ConflictError, FormatError, NotFoundError, RefusedError
from streambank.core.json_text import MOST_MEMORY_BYTES, loads, memory_bytes
from streambank.core.python310 import UTC
from streambank.core.shape import JsonObject
from streambank.core.units import from_json_time, say_count
from streambank.sinks.file.comparison import ASIDE_DIRECTORY
from streambank.sinks.file.log import list_log, log_key
from streambank.sinks.file.position import Chunks, FileSinkStanding, SavedLog, assess, compare
from streambank.sinks.table import BeforeChange, sink_moved
from streambank.storage.store import FileInfo, Store, chunks, undamaged

_JOURNAL = "_rollback.json"
_DONE = "_done.json"
JOURNAL_FILES = (_JOURNAL, _DONE)
"""What says, in a folder of what was set aside, that it is one; in the order in which it may go."""
_JOURNAL_FORMAT = 1
_MOST_BYTES = 64 << 20
_LEAST_MEMORY_BYTES = 300
"""What a file in the journal takes at least when it is read again (`memory_bytes`)."""


@dataclass(frozen=True, slots=True)
class RollbackReport(JsonObject):
    """What a rollback did.

    Attributes:
        aside: Where later files lie now, relative to `path`; empty where there was nothing to do.
        files_forgotten: How many data files the log no longer names that is written: see `FileSinkStanding`.
    """

    path: str
    batch: int
    aside: str = ""
    files_aside: int = 0
    bytes_aside: int = 0
    rows_aside: int | None = 0
    files_back: int = 0
    files_forgotten: int = 0
    log_written: tuple[str, ...] = ()
    log_aside: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.aside)


@dataclass(frozen=True, slots=True)
class SetAside:
    """What one rollback of an output directory set aside.

    Attributes:
        folder: Where it lies, relative to the output directory.
        called: Whose rollback it was, as `job` or `job/query`; None where the journal does not say.
    """

    folder: str
    batch: int
    begun_at: datetime
    finished: bool
    called: object


def set_aside(store: Store) -> list[SetAside]:
    """What rollbacks of an output directory set aside, for as long as it lies there.

    Raises:
        FormatError: A journal cannot be understood (code `bad-rollback-journal`).
    """
    return [
        _journal(store, f"{ASIDE_DIRECTORY}/{name}")
        for name in rollbacks(store)
        if store.exists(f"{ASIDE_DIRECTORY}/{name}/{_JOURNAL}")
    ]


def _is_same(store: Store, info: FileInfo, saved: Chunks | None) -> bool:
    if saved is None:
        return False

    def there() -> bytes:
        with store.open(info.path) as reader:
            return _digest(chunks(reader))

    return undamaged(there) == _digest(saved())


def _digest(data: Iterable[bytes]) -> bytes:
    hasher = blake2b()
    for piece in data:
        hasher.update(piece)
    return hasher.digest()


def _journal(store: Store, folder: str) -> SetAside:
    key = f"{folder}/{_JOURNAL}"
    try:
        journal = loads(store.read(key, 0, _MOST_BYTES))
        batch, begun_at = int(journal["batch"]), from_json_time(journal["begun_at"])
        called = journal.get("job")
    except (ValueError, KeyError, TypeError) as error:
        raise _bad_journal(store, key) from error
    return SetAside(folder, batch, begun_at, store.exists(f"{folder}/{_DONE}"), called)


def stand(saved: SavedLog, store: Store, was_uri: str) -> FileSinkStanding:
    """Where the sink stands, unfinished rollbacks included. Reads only.

    Raises:
        FormatError: The journal of an unfinished rollback cannot be understood.
    """
    _, later = _unfinished(store)
    return assess(saved, store, was_uri, unfinished_later=later)


def rollbacks(store: Store) -> Sequence[str]:
    """Names of the rollbacks of an output directory that were ever begun, finished or not."""
    return store.names(ASIDE_DIRECTORY)


def was_rolled_back(store: Store, before: Collection[str]) -> bool:
    """Whether a rollback was begun that `before` does not name, or is not finished: its journal is first.

    Raises:
        FormatError: The journal of an unfinished rollback cannot be understood.
    """
    return not set(rollbacks(store)) <= set(before) or bool(_unfinished(store)[0])


def roll_back(
    saved: SavedLog,
    store: Store,
    was_uri: str,
    savepoint: str,
    before_change: BeforeChange = lambda: None,
    *,
    accept_missing: bool = False,
    called: str | None = None,
) -> RollbackReport:
    """Take the sink back to the savepoint's batch.

    Args:
        savepoint: Id of the savepoint, for the name of the folder of what is set aside.
        accept_missing: Data files of the savepoint that are gone stay so. The log goes on naming those that
            it names now.
        called: Of which query the savepoint is, as `job` or `job/query`: only its job removes what is set
            aside.

    Raises:
        RefusedError: `sink-cannot-roll-back`: files of the savepoint are gone, or files outside would have
            to move.
        ConflictError: `sink-moved`: somebody wrote to the sink meanwhile.
        StorageError: The environment failed; the same call goes on where this one stopped.
    """
    journals, pending = _unfinished(store)
    standing, saved = compare(saved, store, was_uri, pending, accepted=accept_missing)
    if standing.safe or (accept_missing and standing.nothing_later):
        return RollbackReport(path=store.uri, batch=saved.batch)
    if not standing.can_roll_back or (standing.missing and not accept_missing):
        raise RefusedError(
            standing.sentence() or f"The file sink {store.uri} cannot be rolled back.",
            code="sink-cannot-roll-back",
            hint=cannot_roll_back_hint(standing),
        )
    there = list_log(store)
    same = {name for name, info in there.items() if _is_same(store, info, saved.content.get(name))}
    write = sorted(name for name in saved.content if name not in same)
    remove = sorted((name for name in there if name not in same), reverse=True)
    whose = {"job": called, "savepoint": savepoint, "batch": saved.batch}
    aside = _begin(store, whose, standing, write, remove, journals, before_change)

    for key, lies in standing.aside.items():
        _move(store, lies, key)
    for name in write:
        if name in there:  # a copy: what is written may be read from the entry itself
            _copy(store, log_key(name), f"{aside}/{log_key(name)}")
        _drop_hidden_checksum(store, log_key(name))
        store.write(log_key(name), saved.content[name]())
    for name in remove:
        if name not in saved.content:
            _move(store, log_key(name), f"{aside}/{log_key(name)}")
            _drop_hidden_checksum(store, log_key(name))
    for key in standing.later:
        _move(store, key, f"{aside}/{key}")
        _drop_hidden_checksum(store, key)

    after = assess(saved, store, was_uri)
    if not (after.safe or (accept_missing and after.nothing_later)):
        raise sink_moved(f"The file sink {store.uri} changed while it was rolled back: {after.sentence()}")
    for journal in (*journals, aside):
        _finish(store, journal)
    return RollbackReport(
        path=store.uri,
        batch=saved.batch,
        aside=aside,
        files_aside=len(standing.later),
        bytes_aside=sum(standing.later.values()),
        rows_aside=standing.later_rows,
        files_back=len(standing.aside),
        files_forgotten=standing.forgotten,
        log_written=tuple(str(name) for name in write),
        log_aside=tuple(str(name) for name in remove),
    )


def cannot_roll_back_hint(standing: FileSinkStanding) -> str:
    """What a person can do who chose `rollback`, and the sink cannot be rolled back so."""
    if not standing.can_roll_back:
        bring = "Bring back what is missing, use" if standing.missing else "Use"
        return f"{bring} another savepoint, or use --sink accept."
    return (
        "Bring back what is missing, or use another savepoint. --sink rollback-accept sets later files "
        "aside, and accepts that the missing ones are gone."
    )


def _begin(
    store: Store,
    whose: Mapping[str, Any],
    standing: FileSinkStanding,
    write: Sequence[LogName],
    remove: Sequence[LogName],
    supersedes: Sequence[str],
    before_change: BeforeChange,
) -> str:
    files = len(standing.later) + len(standing.aside)
    if files * _LEAST_MEMORY_BYTES > MOST_MEMORY_BYTES:
        raise _too_many(store, files)
    journal = {
        "format": _JOURNAL_FORMAT,
        **whose,
        "begun_at": _now(),
        "supersedes": list(supersedes),
        "log_written": [str(name) for name in write],
        "log_aside": [str(name) for name in remove],
        "files_aside": dict(standing.later),
        "files_back": dict(standing.aside),
    }
    text = json.dumps(journal, indent=1)
    if memory_bytes(text) > MOST_MEMORY_BYTES or len(text) > _MOST_BYTES:
        raise _too_many(store, files)
    data = text.encode()
    before_change()
    number = len(store.names(ASIDE_DIRECTORY)) + 1
    while True:
        folder = f"{ASIDE_DIRECTORY}/{whose['savepoint']}-{number}"
        try:
            store.write(f"{folder}/{_JOURNAL}", data, exclusive=True)
        except ConflictError:
            number += 1
        else:
            return folder


def _too_many(store: Store, files: int) -> RefusedError:
    return RefusedError(
        f"{say_count(files, 'file')} of the file sink {store.uri} are too many for one rollback.",
        code="sink-cannot-roll-back",
        hint="Go on in a new output directory instead (--new-sink), or give --sink accept.",
    )


def _finish(store: Store, folder: str) -> None:
    store.write(f"{folder}/{_DONE}", json.dumps({"done_at": _now()}).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _unfinished(store: Store) -> tuple[list[str], dict[str, int] | None]:
    """Folders of rollbacks that did not finish, and the data files that they were about to set aside."""
    folders: list[str] = []
    later: dict[str, int] = {}
    for name in store.names(ASIDE_DIRECTORY):
        folder = f"{ASIDE_DIRECTORY}/{name}"
        if store.exists(f"{folder}/{_JOURNAL}") and not store.exists(f"{folder}/{_DONE}"):
            folders.append(folder)
            later |= _read_journal(store, f"{folder}/{_JOURNAL}")
    return folders, later if folders else None


def _read_journal(store: Store, key: str) -> dict[str, int]:
    try:
        journal = loads(store.read(key, 0, _MOST_BYTES))
        files = journal["files_aside"] if journal["format"] == _JOURNAL_FORMAT else None
    except (ValueError, KeyError, TypeError) as error:
        raise _bad_journal(store, key) from error
    if not isinstance(files, Mapping) or not all(
        isinstance(path, str) and isinstance(size, int) for path, size in files.items()
    ):
        raise _bad_journal(store, key)
    return dict(files)


def _bad_journal(store: Store, key: str) -> FormatError:
    return FormatError(
        f"The journal {key} of a rollback of the file sink {store.uri} cannot be understood.",
        code="bad-rollback-journal",
        hint="Look at what lies beside it; rename the journal once the output directory is as it should be.",
    )


def _move(store: Store, key: str, to: str) -> None:
    """Rename; where a crash left both names (stores that copy and delete), finish it."""
    try:
        store.rename(key, to)
    except NotFoundError as error:
        if not store.exists(to):
            raise sink_moved(
                f"{key} of the file sink {store.uri} disappeared while the sink was rolled back."
            ) from error
    except ConflictError:
        if store.stat(to).size_bytes != store.stat(key).size_bytes:
            raise
        store.delete(key)


def _copy(store: Store, key: str, to: str) -> None:
    if not store.copy_from(store, key, to):
        with store.open(key) as reader:
            store.write(to, chunks(reader))


def _drop_hidden_checksum(store: Store, key: str) -> None:
    """Remove Hadoop's `.name.crc` of a file that is not there any more or has other bytes."""
    if store.features.hidden_checksums:
        folder, _, name = key.rpartition("/")
        store.delete(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
