"""Which files make one version of one state store: a snapshot and every change after it.

A version is loaded from the newest snapshot at or below it and the changes up to it, one file a version. The
walk goes down from the wanted version until it stands on a snapshot that is whole; for the safe closure it
goes on to the next one, so that Spark can repair a snapshot that turns out to be damaged
(docs/formats/checkpoint.md, "State").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from streambank.checkpoint.grammar import Kind
from streambank.checkpoint.index import StoreFiles, VersionKey
from streambank.checkpoint.state.changelog import LineageItem, UnreadableLineageError
from streambank.checkpoint.state.rocksdb import SnapshotFile, ZipMetadata
from streambank.checkpoint.text import empty_file, half_written
from streambank.core.errors import FormatError, NotFoundError, StreambankError
from streambank.storage import FileInfo

MAX_SAFE_CHANGES = 500
"""How many changes Spark replays at most to repair a snapshot (autoSnapshotRepair.maxChangeFileReplay)."""
_DAMAGED = "The file is damaged."


@dataclass(frozen=True, slots=True)
class ChainFile:
    """One file of a chain; `version` is the state version it belongs to."""

    path: str
    role: str
    version: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of one version of one store in one partition.

    Attributes:
        base_version: The version of the newest snapshot used; 0 where all changes from the first on are.
        base_rows: Rows of that version where its snapshot counts them; RocksDB: 0 where there is none.
        newest: Those of the files that Spark loads if nothing is damaged: the newest snapshot, and the
            changes after it.
        notes: Snapshots that were passed over, and why.
    """

    files: tuple[ChainFile, ...]
    rows: int | None
    base_version: int
    base_rows: int | None
    newest: tuple[ChainFile, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainReaders:
    """How the walk looks into files; `committed_id` is None where a commit is not retained any more."""

    listing: Mapping[str, FileInfo]
    zip_metadata: Callable[[str], ZipMetadata]
    lineage: Callable[[str], list[LineageItem]]
    committed_id: Callable[[int], str | None]


@dataclass(slots=True)
class _Base:
    key: VersionKey | None
    files: list[ChainFile]
    rows: int | None
    changes: int


def plan_chain(store: StoreFiles, rocksdb: bool, key: VersionKey, safe: bool, readers: ChainReaders) -> Chain:
    """The files that make a version of a store; `safe` with one older snapshot and the changes after it.

    Raises:
        NotFoundError: `missing-state-file`, naming it.
        FormatError: A file that is needed is damaged or of an unknown version.
    """
    walk = _Walk(store, rocksdb, readers, key)
    try:
        walk.go_down(key, 2 if safe else 1)
    except FormatError as error:
        if not walk.bases:
            raise
        walk.problems.append(error)
    if not walk.bases:
        raise walk.nothing_to_stand_on()
    first, last = walk.bases[0], walk.bases[-1]
    files = walk.changes[: last.changes] + [file for base in walk.bases for file in base.files]
    return Chain(
        files=tuple({file.path: file for file in files}.values()),
        rows=first.rows if first.key == key else None,
        base_version=first.key[0] if first.key else 0,
        base_rows=first.rows if first.key or not rocksdb else 0,
        newest=tuple(walk.changes[: first.changes] + first.files),
        notes=tuple(problem.message for problem in walk.problems),
    )


@dataclass(slots=True)
class _Walk:
    store: StoreFiles
    rocksdb: bool
    readers: ChainReaders
    lowest: VersionKey
    bases: list[_Base] = field(default_factory=list)
    changes: list[ChainFile] = field(default_factory=list)
    problems: list[StreambankError] = field(default_factory=list)

    def go_down(self, key: VersionKey, most_bases: int) -> None:
        snapshots = self.store.of(Kind.ZIP if self.rocksdb else Kind.SNAPSHOT)
        changes = self.store.of(Kind.CHANGELOG if self.rocksdb else Kind.DELTA)
        for step in _versions(key, changes, self.readers):
            self.lowest = step
            snapshot = snapshots.get(step)
            if snapshot is not None:
                self._try_base(snapshot, step)
                if len(self.bases) == most_bases:
                    return
            change = changes.get(step)
            if change is None or (self.bases and len(self.changes) > MAX_SAFE_CHANGES):
                return
            self._refuse_empty(change)
            self.changes.append(ChainFile(change, "state-changelog", step[0]))
        if self.lowest[0] == 1:
            self.bases.append(_Base(None, [], None, len(self.changes)))

    def _try_base(self, path: str, key: VersionKey) -> None:
        try:
            self._refuse_empty(path)
            files = [ChainFile(path, "state-snapshot", key[0])]
            rows = None
            if self.rocksdb:
                metadata = self.readers.zip_metadata(path)
                rows = metadata.keys
                for folder, named, there in (
                    ("SSTs", metadata.ssts, self.store.ssts),
                    ("logs", metadata.wals, self.store.wals),
                ):
                    for file in named:
                        found = self._named_file(folder, file, there, path)
                        files.append(ChainFile(found, "state-sst", key[0]))
            self.bases.append(_Base(key, files, rows, len(self.changes)))
        except (FormatError, NotFoundError) as error:
            if error.code not in ("half-written", "missing-state-file"):
                raise
            self.problems.append(error)

    def _named_file(self, folder: str, file: SnapshotFile, there: Mapping[str, str], snapshot: str) -> str:
        path, found = f"{self.store.folder}/{folder}/{file.name}", there.get(file.name)
        if found is None:
            raise missing_state(f"{path} is missing, and {snapshot} needs it.")
        size_bytes = self.readers.listing[found].size_bytes
        if size_bytes != file.size_bytes:
            raise half_written(
                f"{path} has {size_bytes} bytes, and {snapshot} says {file.size_bytes}.", _DAMAGED
            )
        return found

    def _refuse_empty(self, path: str) -> None:
        if self.readers.listing[path].size_bytes == 0:
            raise empty_file(path)

    def nothing_to_stand_on(self) -> StreambankError:
        if self.problems:
            return self.problems[0]
        store, (version, unique_id) = self.store, self.lowest
        stem = str(version) if unique_id is None else f"{version}_{unique_id}"
        snapshot, change = (Kind.ZIP, Kind.CHANGELOG) if self.rocksdb else (Kind.SNAPSHOT, Kind.DELTA)
        return missing_state(
            f"{store.folder}/{stem}.{change.value} is missing, and so is {stem}.{snapshot.value}. "
            f"{store.folder} has {_versions_there(store.of(snapshot), snapshot)}, and "
            f"{_versions_there(store.of(change), change)}."
        )


def _versions(
    key: VersionKey, changes: Mapping[VersionKey, str], readers: ChainReaders
) -> Iterator[VersionKey]:
    """The wanted version and those that it builds on, newest first."""
    version, unique_id = key
    if unique_id is None:
        for number in range(version, 0, -1):
            yield number, None
        return
    yield key
    while (changelog := changes.get(key)) is not None and key[0] > 1:
        try:
            earlier = readers.lineage(changelog)
        except UnreadableLineageError as error:
            yield from _committed_versions(key, changelog, str(error), readers)
            return
        for item in reversed(earlier):
            if item.version != key[0] - 1:
                raise half_written(
                    f"{changelog} names version {item.version} before version {key[0]} in its lineage.",
                    _DAMAGED,
                )
            key = (item.version, item.unique_id)
            yield key
        if not earlier:
            return


def _committed_versions(
    key: VersionKey, changelog: str, codec: str, readers: ChainReaders
) -> Iterator[VersionKey]:
    for number in range(key[0] - 1, 0, -1):
        unique_id = readers.committed_id(number)
        if unique_id is None:
            raise FormatError(
                f"The lineage in {changelog} is compressed with a codec that cannot be read here ({codec}), "
                f"and commits/{number - 1}, which would hold the same, is no longer retained.",
                code="unreadable-lineage",
                hint="Install the package zstandard for the codec zstd, or use the codec lz4.",
            )
        yield number, unique_id


_MOST_RUNS = 5
"""So many ranges of versions are named, the newest."""
_MISSING_HINT = (
    "Take a newer batch, or restore the checkpoint from a savepoint if Spark cannot read it either."
)


def missing_state(message: str, effect: str = "") -> NotFoundError:
    """That state is gone which a batch needs (code `missing-state-file`)."""
    return NotFoundError(message, code="missing-state-file", hint=effect + _MISSING_HINT)


def _versions_there(files: Mapping[VersionKey, str], kind: Kind) -> str:
    """Of which versions there are files of a kind: `.zip files of versions 1 to 4, 8`."""
    runs: list[list[int]] = []
    for version in sorted({version for version, _ in files}):
        if runs and version == runs[-1][-1] + 1:
            runs[-1][1:] = [version]
        else:
            runs.append([version])
    if not runs:
        return f"no .{kind.value} file"
    more = f" and {len(runs) - _MOST_RUNS} more ranges" if len(runs) > _MOST_RUNS else ""
    shown = ", ".join(" to ".join(map(str, run)) for run in runs[-_MOST_RUNS:])
    return f".{kind.value} files of versions {shown}{more}"
