"""Whether files that a query read after a savepoint are still there, as they were: they are read again.

Spark's file source lists its directory, so a file that `cleanSource` or a person took away after its
batch is in no batch after a restore, and Spark does not say so; of a file that was written again since, the
restored query reads other rows than the query did. The log keeps the time of each file. Which files a query
read, the log of its source in the live checkpoint says; where that is gone, it is not known.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from streambank.checkpoint.compactible import entries_up_to, parse_log_entry, parse_log_name
from streambank.checkpoint.sources import file_log_offset
from streambank.core.errors import FormatError, NotFoundError, StorageError, StreambankError
from streambank.core.scratch import DistinctNames
from streambank.core.units import say_are, say_count, say_were, utc_now
from streambank.inputs.clean_source import OPTION, Cleaning
from streambank.kafka.retention import KafkaReplay
from streambank.repository.manifest import Manifest
from streambank.storage import open_store
from streambank.storage.store import Store, chunks

MOST_FILES = 40
"""At most so many of a source's files are checked, spread evenly over those that would be read again."""
Exists = Callable[[str], bool]
Look = Callable[[str], int | None]
"""When a file was written, by its URI, in ms since 1970; None where it is not there."""
_PATIENCE_S = 30.0
_NO_TIME_MS = 0
_FIRST_MS = 365 * 86_400_000
"""A time in the first year says that the storage has none."""
_NOTHING_SAYS = "Nothing says how long the files stay where they are."
_BEGINNING = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class FilesStanding:
    """The files that a file source was read from after a savepoint.

    Attributes:
        read: How many files were read after it.
        checked: For how many of these it was checked whether they are there.
        changed: Those of them that were written again since they were read, or are other files.
        cleaning: What the application says of `cleanSource`; None if that was not read.
    """

    source: str
    read: int = 0
    checked: int = 0
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    not_known: str = ""
    cleaning: Cleaning | None = None
    at: datetime = field(default_factory=utc_now, compare=False)

    @property
    def safe(self) -> bool | None:
        """Whether all checked files are there as they were; None if that is not known."""
        return None if self.not_known else not self.gone and not self.changed

    def sentence(self) -> str:
        """What is gone or changed, for a person who decides; empty where nothing is known to be."""
        said = " ".join(filter(None, (self.says_gone(), self.says_changed())))
        return self.after(said) if said else ""

    def after(self, said: str) -> str:
        """What was found of the files, after how many they are."""
        return f"Source {self.source} has read {say_count(self.read, 'file')} after the savepoint. {said}"

    def says_gone(self) -> str:
        if not self.gone:
            return ""
        return (
            f"Of {self._share()} {say_are(len(self.gone))} not there any more, such as {self.gone[0]}: their "
            "rows would be lost, and Spark does not say so."
        )

    def says_changed(self) -> str:
        if not self.changed:
            return ""
        return (
            f"Of {self._share()} {say_were(len(self.changed))} changed since, such as {self.changed[0]}: the "
            "restored query computes other rows than the query did."
        )

    def _share(self) -> str:
        return f"{self.checked:,} of them" if self.checked < self.read else "them"

    def replay(self) -> KafkaReplay:
        """How long they can be read again: files stay where nothing takes them away."""
        if self.gone:
            return KafkaReplay(self.source, (), "gone", None, self.sentence())
        why = self.not_known or (self.cleaning.not_known if self.cleaning is not None else _NOTHING_SAYS)
        if why or self.cleaning is None:
            return KafkaReplay(self.source, (), "not-known", None, why)
        if self.cleaning.settings:
            line, value = self.cleaning.settings[0]
            why = f"the application sets {OPTION} to {value} in line {line}, so files go after their batch"
            return KafkaReplay(self.source, (), "until", self.at, why)
        why = f"its files are there, and the application does not set {OPTION}"
        return KafkaReplay(self.source, (), "for-ever", None, why)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "file",
            "source": self.source,
            "safe": self.safe,
            "files_to_read_again": None if self.not_known else self.read,
            "files_looked_for": self.checked,
            "files_gone": list(self.gone),
            "files_changed": list(self.changed),
            "records_to_read_again": None,
            "replay": self.replay().to_dict(),
            "says": self.sentence(),
        }


def look_at_files(
    manifest: Manifest,
    live: str,
    named: Iterable[str] = (),
    *,
    cleaning: Cleaning | None = None,
    patience_s: float | None = None,
) -> tuple[FilesStanding, ...]:
    """Look for the files that each file source of a savepoint was read from after it. Reads only.

    Args:
        live: The location of the checkpoint in which the query has gone on, which may be out of reach here.
        patience_s: After so many seconds of reading and looking it is not known; None for no limit.
    """
    found = []
    in_time = _Deadline(live, patience_s)
    for record in manifest.sources:
        if not isinstance(record, Mapping) or record.get("kind") != "file":
            continue
        source, offset = str(record.get("source")), record.get("offset")
        before = file_log_offset(offset, bare=True) if isinstance(offset, str) else None
        try:
            log = _read_after(open_store(live), source, -1 if before is None else before, in_time)
            found.append(standing_of(source, DistinctNames(log), named, look=in_time.look))
        except FormatError as error:
            said = (
                f"It is not known which files source {source} has read after the savepoint, as its log at "
                f"{live} is damaged: {error.message}"
            )
            found.append(FilesStanding(source, not_known=said))
        except StreambankError as error:
            found.append(FilesStanding(source, not_known=error.message))
    return tuple(replace(one, cleaning=cleaning) for one in found)


def input_changed(manifest: Manifest, live: str, named: Iterable[str]) -> str:
    """Why a copy of a savepoint cannot be expected to compute what the live query did; empty if it can."""
    found = look_at_files(manifest, live, named, patience_s=_PATIENCE_S)
    changed = next((one.says_changed() for one in found if one.changed), "")
    return f"its input is not what the live query has read. {changed}" if changed else ""


class _Deadline:
    """Ends a look that takes too long: the log of a source may name millions of files."""

    def __init__(self, where: str, patience_s: float | None) -> None:
        self._where = where
        self._patience_s = patience_s
        self._began = time.monotonic()

    def check(self) -> None:
        if self._patience_s is not None and time.monotonic() - self._began > self._patience_s:
            raise StorageError(
                f"The source's log at {self._where} and its files could not be checked within "
                f"{self._patience_s:g} s.",
                hint="Take a savepoint: then less of the log comes after it.",
            )

    def pieces(self, data: Iterable[bytes]) -> Iterator[bytes]:
        for piece in data:
            self.check()
            yield piece

    def look(self, uri: str) -> int | None:
        self.check()
        return _written_ms(uri)


def _read_after(live: Store, source: str, before: int, in_time: _Deadline) -> Iterator[str]:
    folder = f"sources/{source}"
    names = [name for name in map(parse_log_name, live.names(folder)) if name is not None]
    if not names:
        raise NotFoundError(
            f"The log of source {source} is not at {live.uri} any more, so it is not known which files were "
            "read after the savepoint.",
            code="missing-log-entry",
            hint="Look whether the source still has them.",
        )
    for name in entries_up_to(names, max(one.batch for one in names), folder):
        if name.batch > before:
            path = f"{folder}/{name}"
            with live.open(path) as reader:
                yield from names_after(in_time.pieces(chunks(reader)), path, before)


def files_after(data: Iterable[bytes], path: str, before: int) -> Iterator[str]:
    """The files in an entry of a source's log that belong to later entries than `before`, by their URIs.

    Raises:
        FormatError: It is no entry.
    """
    return (_uri_of(name) for name in names_after(data, path, before))


def names_after(data: Iterable[bytes], path: str, before: int) -> Iterator[str]:
    """The same, each with the time that the log keeps of it in front, for `standing_of`."""
    for entry in parse_log_entry(data, path)[1]:
        if isinstance(entry.get("batchId"), int) and entry["batchId"] > before and "path" in entry:
            at = entry.get("timestamp")
            at_ms = at if isinstance(at, int) and not isinstance(at, bool) else _NO_TIME_MS
            yield f"{at_ms} {entry['path']}"


def _uri_of(name: str) -> str:
    return name.partition(" ")[2]


def standing_of(
    source: str,
    read: DistinctNames,
    named: Iterable[str] = (),
    exists: Exists | None = None,
    look: Look | None = None,
) -> FilesStanding:
    """Look for files of a source.

    Args:
        named: Locations that the job names. Who writes into the checkpoint writes the log of the source, too:
            a file is only checked if its scheme is that of one of these, or if it is a local path.
    """
    count = len(read)
    checked = min(count, MOST_FILES)
    chosen = [read[number * count // checked] for number in range(checked)]
    if foreign := sorted({_scheme(_uri_of(one)) for one in chosen} - _schemes(named)):
        said = f"The log of {source} names files of {foreign[0]}://, and the job names no such location."
        return FilesStanding(source, count, not_known=said)
    try:
        if exists is not None:
            gone = tuple(uri for uri in map(_uri_of, chosen) if not exists(uri))
            return FilesStanding(source, count, checked, gone)
        at = {one: (look or _written_ms)(_uri_of(one)) for one in chosen}
    except StreambankError as error:
        return FilesStanding(source, count, not_known=error.message)
    gone = tuple(_uri_of(one) for one, now_ms in at.items() if now_ms is None)
    changed = tuple(
        _uri_of(one) for one, now_ms in at.items() if now_ms is not None and _is_changed(one, now_ms)
    )
    return FilesStanding(source, count, checked, gone, changed)


def _is_changed(name: str, now_ms: int) -> bool:
    """Whether the time of a file is not that of which the log says that it was read.

    A log has whole seconds where the storage does, as an object store or an older Hadoop; what copies a file
    with its time may cut that to whole seconds, too.
    """
    read_ms = int(name.partition(" ")[0])
    if read_ms < _FIRST_MS or now_ms < _FIRST_MS:
        return False
    whole = read_ms % 1000 == 0 or _scheme(_uri_of(name)) != "file"
    newer = now_ms // 1000 > read_ms // 1000 if whole else now_ms > read_ms
    return newer or now_ms // 1000 + 1 < read_ms // 1000


def _scheme(uri: str) -> str:
    scheme = urlsplit(uri).scheme.lower()
    return {"": "file", "s3a": "s3"}.get(scheme, scheme)


def _schemes(named: Iterable[str]) -> Set[str]:
    return {"file", *(_scheme(one) for text in named for one in _BEGINNING.findall(text))}


def _written_ms(uri: str) -> int | None:
    """When a file of a source was written, as `Look`; Spark writes paths percent-encoded."""
    if urlsplit(uri).scheme in ("", "file"):
        path = Path(unquote(urlsplit(uri).path))
        try:
            if path.exists():
                return path.stat().st_mtime_ns // 1_000_000
            if path.parent.exists():
                return None
        except OSError as error:
            raise StorageError(
                f"This machine cannot look for a file that a source's log names: {error.strerror}.",
                hint="Look at sources/ of the checkpoint, and at the rights on the source's directory.",
            ) from error
        raise StorageError(
            f"This machine has no directory {path.parent}, from which a source has read: it may not see it.",
            hint="Plan the restore where the source's directory is mounted.",
        )
    place, _, name = unquote(uri).rpartition("/")
    try:
        return open_store(place).stat(name).mtime_ns // 1_000_000
    except NotFoundError:
        return None
