"""A listing of a checkpoint, sorted by what its files are; made once for any number of batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streambank.checkpoint.grammar import Kind, Part, classify
from streambank.storage import FileInfo

VersionKey = tuple[int, str | None]
"""A version of a store, and its unique id in checkpoint format v2."""


@dataclass(slots=True)
class StoreFiles:
    """The files of one store in one partition.

    Attributes:
        folder: Their folder, relative to the checkpoint.
        versions: Kind (snapshot, delta, zip, changelog) -> version -> path.
        ssts: SST name -> path.
        wals: Archived write-ahead log name -> path.
        schema: Path of its schema of version 2, in partition 0 only.
    """

    folder: str
    versions: dict[Kind, dict[VersionKey, str]] = field(default_factory=dict)
    ssts: dict[str, str] = field(default_factory=dict)
    wals: dict[str, str] = field(default_factory=dict)
    schema: str | None = None

    def of(self, kind: Kind) -> dict[VersionKey, str]:
        """Paths of one kind by version."""
        return self.versions.get(kind, {})


@dataclass(slots=True)
class OperatorFiles:
    """The files of one stateful operator.

    Attributes:
        metadata_v1: Path of its metadata of version 1.
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


@dataclass(slots=True)
class CheckpointIndex:
    """A whole checkpoint.

    Attributes:
        listing: Path -> file, as it was listed.
        metadata: Whether `metadata` is there.
        offsets: Batch -> path.
        commits: Batch -> path.
        sources: Source -> its files.
        operators: Operator id -> its files.
        others: Temporary, hidden and unknown files, by kind.
    """

    listing: Mapping[str, FileInfo]
    metadata: bool = False
    offsets: dict[int, str] = field(default_factory=dict)
    commits: dict[int, str] = field(default_factory=dict)
    sources: dict[str, list[Part]] = field(default_factory=dict)
    operators: dict[int, OperatorFiles] = field(default_factory=dict)
    others: dict[Kind, list[str]] = field(default_factory=dict)

    @classmethod
    def build(cls, listing: Mapping[str, FileInfo]) -> CheckpointIndex:
        """Sort a listing."""
        index = cls(listing)
        for path in listing:
            index._add(classify(path))
        return index

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
            case Kind.CHECKSUM:
                pass  # found again by the name of the file that it is about
            case _ if part.operator is not None:
                self._add_state(part, self.operators.setdefault(part.operator, OperatorFiles()))
            case _:
                self.others.setdefault(part.kind, []).append(part.path)

    def _add_state(self, part: Part, operator: OperatorFiles) -> None:
        if part.kind is Kind.OPERATOR_V1:
            operator.metadata_v1 = part.path
        elif part.kind is Kind.OPERATOR_V2 and part.batch is not None:
            operator.metadata_v2[part.batch] = part.path
        elif part.kind is Kind.SCHEMA_V3:
            operator.schemas_v3[f"{part.store}/{part.name}"] = part.path
        elif part.partition is not None and part.store is not None:
            key = (part.partition, part.store)
            files = operator.stores.get(key)
            if files is None:
                files = operator.stores[key] = StoreFiles(store_folder(part.operator, *key))
            if part.kind is Kind.SST and part.name is not None:
                files.ssts[part.name] = part.path
            elif part.kind is Kind.WAL and part.name is not None:
                files.wals[part.name] = part.path
            elif part.kind is Kind.SCHEMA_V2:
                files.schema = part.path
            elif part.version is not None:
                files.versions.setdefault(part.kind, {})[part.version, part.unique_id] = part.path


def store_folder(operator: int | None, partition: int, store: str) -> str:
    """The folder of one store in one partition."""
    folder = f"state/{operator}/{partition}"
    return folder if store == "default" else f"{folder}/{store}"
