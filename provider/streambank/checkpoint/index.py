"""A listing of a checkpoint, sorted by what its files are; made once for any number of batches."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streambank.checkpoint.grammar import DEFAULT_STORE, Kind, Part, classify, name_pattern
from streambank.checkpoint.listing import Listing
from streambank.checkpoint.shape import LeftOut
from streambank.storage import FileInfo

VersionKey = tuple[int, str | None]
"""A version of a store, and its unique id in checkpoint format v2."""

_VERSIONED = frozenset({Kind.SNAPSHOT, Kind.DELTA, Kind.ZIP, Kind.CHANGELOG})
_DATA = {"SSTs": ".sst", "logs": ".log"}
_STORE_FOLDER = re.compile(
    r"state/(0|[1-9][0-9]{0,18})/(0|[1-9][0-9]{0,18})(?:/(?P<store>[^/._][^/]*))?(?:/(?P<data>SSTs|logs))?\Z"
)
_SHARED_CHARACTERS = 24
_MOST_PATTERNS = 20
_MOST_SORTED = 1024
"""Of so many stores the files stay sorted at a time."""


class NamesKnown:
    """What names in the folders of stores are: the same in each partition, so each is looked at once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Kind, VersionKey | None]] = {}
        self._sorted: deque[StoreFiles] = deque()

    def of(self, folder: str, name: str) -> tuple[Kind, VersionKey | None]:
        """What a file directly in a store's folder is, and its version."""
        known = self._known.get(name)
        if known is None:
            part = classify(f"{folder}/{name}")
            known = part.kind, (part.version, part.unique_id) if part.version is not None else None
            if len(name) <= _SHARED_CHARACTERS:
                self._known[name] = known
        return known

    def remember(self, store: StoreFiles) -> None:
        """Keep a store's files sorted, and forget the oldest ones."""
        self._sorted.append(store)
        if len(self._sorted) > _MOST_SORTED:
            self._sorted.popleft().forget()


class StoreFiles:
    """The files of one store in one partition; sorted when they are asked for, since there may be a million.

    Attributes:
        schema: Path of its schema of version 2, in partition 0 only.
    """

    __slots__ = ("_listing", "_names", "_versions", "folder", "schema")

    def __init__(self, folder: str, listing: Listing, names: NamesKnown) -> None:
        self.folder = folder
        self.schema: str | None = None
        self._listing = listing
        self._names = names
        self._versions: dict[Kind, dict[VersionKey, str]] | None = None

    @property
    def versions(self) -> Mapping[Kind, Mapping[VersionKey, str]]:
        """Kind (snapshot, delta, zip, changelog) -> version -> path."""
        if self._versions is None:
            self._versions = {}
            for name in self._listing.names(self.folder):
                kind, key = self._names.of(self.folder, name)
                if kind in _VERSIONED and key is not None:
                    self._versions.setdefault(kind, {})[key] = f"{self.folder}/{name}"
            self._names.remember(self)
        return self._versions

    @property
    def ssts(self) -> Mapping[str, str]:
        return self._data("SSTs")

    @property
    def wals(self) -> Mapping[str, str]:
        return self._data("logs")

    def of(self, kind: Kind) -> Mapping[VersionKey, str]:
        return self.versions.get(kind, {})

    def forget(self) -> None:
        self._versions = None

    def _data(self, kind: str) -> Mapping[str, str]:
        folder = f"{self.folder}/{kind}"
        return {name: f"{folder}/{name}" for name in self._listing.names(folder) if _is_data(kind, name)}


@dataclass(slots=True)
class OperatorFiles:
    """The files of one stateful operator.

    Attributes:
        metadata_v2: Batch -> path of its metadata of version 2.
        schemas_v3: Path below the operator's `_stateSchema/` -> path.
        stores: (partition, store) -> files.
    """

    metadata_v1: str | None = None
    metadata_v2: dict[int, str] = field(default_factory=dict)
    schemas_v3: dict[str, str] = field(default_factory=dict)
    stores: dict[tuple[int, str], StoreFiles] = field(default_factory=dict)

    def store_names(self) -> list[str]:
        """Names of the stores that have files in any partition, sorted."""
        return sorted({store for (_, store), files in self.stores.items() if files.versions})

    @property
    def has_schema(self) -> bool:
        """Whether there is a state schema, without which Spark's state reader cannot read the state.

        Spark of before 3.1 wrote none; a query that is started writes it again.
        """
        return bool(self.schemas_v3) or any(store.schema for store in self.stores.values())


@dataclass(slots=True)
class CheckpointIndex:
    """A whole checkpoint.

    Attributes:
        schema_logs: Folder of a Delta source's schema log -> number of an entry -> path.
        others: Temporary, harmless and unknown files, by kind.
    """

    listing: Listing
    metadata: bool = False
    offsets: dict[int, str] = field(default_factory=dict)
    commits: dict[int, str] = field(default_factory=dict)
    sources: dict[str, list[Part]] = field(default_factory=dict)
    operators: dict[int, OperatorFiles] = field(default_factory=dict)
    schema_logs: dict[str, dict[int, str]] = field(default_factory=dict)
    others: dict[Kind, list[str]] = field(default_factory=dict)
    _names: NamesKnown = field(default_factory=NamesKnown)
    _left_out: dict[frozenset[str], tuple[LeftOut, ...]] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        return not (self.metadata or self.offsets or self.commits)

    @classmethod
    def build(cls, listing: Mapping[str, FileInfo]) -> CheckpointIndex:
        index = cls(Listing.of(listing))
        for folder in index.listing.folders():
            found = _STORE_FOLDER.match(folder)
            if found is None or not index._add_store(folder, found):
                for name in index.listing.names(folder):
                    index._add(classify(f"{folder}/{name}" if folder else name))
        return index

    def left_out(self, sources: Collection[str]) -> tuple[LeftOut, ...]:
        """Files that are not understood: one example for each pattern of names, the most files first.

        Args:
            sources: The sources that the offset log knows; what lies below `sources/` of others is unknown.
        """
        others = frozenset(self.sources) - frozenset(sources)
        if others not in self._left_out:
            self._left_out[others] = self._not_understood(others)
        return self._left_out[others]

    def _not_understood(self, others: Iterable[str]) -> tuple[LeftOut, ...]:
        unknown = [*self.others.get(Kind.UNKNOWN, ())]
        unknown += [part.path for name in others for part in self.sources[name]]
        by_pattern: dict[str, list[str]] = {}
        for path in sorted(unknown):
            by_pattern.setdefault(name_pattern(path), []).append(path)
        found = [LeftOut(pattern, paths[0], len(paths)) for pattern, paths in by_pattern.items()]
        return tuple(sorted(found, key=lambda one: (-one.files, one.pattern))[:_MOST_PATTERNS])

    def _add_store(self, folder: str, found: re.Match[str]) -> bool:
        """Take in a folder of state by its names alone; False for one that must be looked at path by path."""
        operator, partition = int(found[1]), int(found[2])
        store, data = found["store"] or DEFAULT_STORE, found["data"]
        if found["store"] in _DATA:
            if data is not None:
                return False
            store, data = DEFAULT_STORE, found["store"]
        ours = False
        for name in self.listing.names(folder):
            if data is not None:
                known = _is_data(data, name)
            else:
                kind, _ = self._names.of(folder, name)
                if kind in (Kind.CHECKSUM, Kind.HIDDEN_CHECKSUM):
                    continue
                known = kind in _VERSIONED
            if known:
                ours = True
            else:
                self._add(classify(f"{folder}/{name}"))
        if ours:
            self._store(operator, partition, store)
        return True

    def _store(self, operator: int, partition: int, store: str) -> StoreFiles:
        stores = self.operators.setdefault(operator, OperatorFiles()).stores
        files = stores.get((partition, store))
        if files is None:
            folder = store_folder(operator, partition, store)
            files = stores[partition, store] = StoreFiles(folder, self.listing, self._names)
        return files

    def _add(self, part: Part) -> None:
        match part.kind:
            case Kind.METADATA:
                self.metadata = True
            case Kind.OFFSETS if part.batch is not None:
                self.offsets[part.batch] = part.path
            case Kind.COMMITS if part.batch is not None:
                self.commits[part.batch] = part.path
            case Kind.SOURCE_LOG | Kind.SOURCE_OTHER if part.source is not None:
                self.sources.setdefault(part.source, []).append(part)
            case Kind.SCHEMA_LOG if part.batch is not None:
                folder = part.path.rpartition("/")[0]
                self.schema_logs.setdefault(folder, {})[part.batch] = part.path
            case Kind.CHECKSUM | Kind.HIDDEN_CHECKSUM:
                pass  # the one is found again by the name of the file that it is about, the other not needed
            case _ if part.operator is not None:
                self._add_state(part.operator, part)
            case _:
                self.others.setdefault(part.kind, []).append(part.path)

    def _add_state(self, operator: int, part: Part) -> None:
        files = self.operators.setdefault(operator, OperatorFiles())
        if part.kind is Kind.OPERATOR_V1:
            files.metadata_v1 = part.path
        elif part.kind is Kind.OPERATOR_V2 and part.batch is not None:
            files.metadata_v2[part.batch] = part.path
        elif part.kind is Kind.SCHEMA_V3:
            files.schemas_v3[f"{part.store}/{part.name}"] = part.path
        elif part.partition is not None and part.store is not None:
            store = self._store(operator, part.partition, part.store)
            if part.kind is Kind.SCHEMA_V2:
                store.schema = part.path


def store_folder(operator: int | None, partition: int, store: str) -> str:
    """The folder of one store in one partition."""
    folder = f"state/{operator}/{partition}"
    return folder if store == DEFAULT_STORE else f"{folder}/{store}"


def _is_data(folder: str, name: str) -> bool:
    return name.endswith(_DATA[folder]) and not name.startswith(".")
