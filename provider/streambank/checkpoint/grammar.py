"""The path grammar: what every file of a Structured Streaming checkpoint is, told from its path alone.

Covers what Spark 3.5 to 4.3 write (docs/formats/checkpoint.md). Nothing here reads a file, and no path makes
it fail: what is not understood is `Kind.UNKNOWN`, for the caller to report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streambank.checkpoint.compactible import parse_log_name
from streambank.checkpoint.position import is_batch
from streambank.core.python310 import StrEnum


class Kind(StrEnum):
    """What a path is."""

    METADATA = "metadata"
    """`metadata`: the query id."""
    OFFSETS = "offsets"
    """`offsets/<batch>`: what a batch reads; written when it is planned."""
    COMMITS = "commits"
    """`commits/<batch>`: written when everything of a batch is durable."""
    SOURCE_LOG = "source-log"
    """`sources/<source>/<batch>` or `<batch>.compact`: a source's own log."""
    SOURCE_OTHER = "source-other"
    """Anything else that a source keeps below `sources/<source>/`."""
    SCHEMA_LOG = "schema-log"
    """`[<folder>/]_schema_log_<table>[_<tracking id>]/<n>`: the schemas that a Delta source has read with."""
    OPERATOR_V1 = "operator-v1"
    """`state/<operator>/_metadata/metadata`."""
    OPERATOR_V2 = "operator-v2"
    """`state/<operator>/_metadata/v2/<batch>`."""
    SCHEMA_V2 = "schema-v2"
    """`state/<operator>/<partition>/[<store>/]_metadata/schema`; Spark writes it in partition 0 only."""
    SCHEMA_V3 = "schema-v3"
    """`state/<operator>/_stateSchema/<store>/<batch>_<uuid>`."""
    SNAPSHOT = "snapshot"
    """`<version>.snapshot`: HDFS-backed, the whole of a partition's store."""
    DELTA = "delta"
    """`<version>.delta`: HDFS-backed, what one batch changed."""
    ZIP = "zip"
    """`<version>[_<unique id>].zip`: RocksDB, the whole of a store together with the SST files it names."""
    CHANGELOG = "changelog"
    """`<version>[_<unique id>].changelog`: RocksDB, what one batch changed."""
    SST = "sst"
    """`SSTs/<name>.sst`: RocksDB, named by zips."""
    WAL = "wal"
    """`logs/<name>.log`: RocksDB, archived write-ahead log, named by zips."""
    CHECKSUM = "checksum"
    """Visible `<name>.crc`: Spark's own checksum of the file beside it."""
    HIDDEN_CHECKSUM = "hidden-checksum"
    """`.<name>.crc`: Hadoop's local checksum; Spark does not need it, and it is never carried along."""
    TEMPORARY = "temporary"
    """`.<name>.<uuid>[.TID<task>].tmp`: a file being written, or left by a killed writer."""
    HARMLESS = "harmless"
    """What other programs leave, and no query reads (`HARMLESS`)."""
    UNKNOWN = "unknown"
    """Nothing that Spark 3.5 to 4.3, or a connector that is known, writes."""


@dataclass(frozen=True, slots=True)
class Part:
    """A path and what its parts say; a field is None where the kind has no such thing.

    Attributes:
        batch: Batch id of a log entry or of operator metadata; of an entry of a schema log its number.
        source: Name of the source's folder below `sources/`: an index, or a name where sources evolve.
        store: State store name, `default` where the path names none.
        version: State store version, which is batch + 1.
        name: File name of an SST, WAL or schema file.
        of: The path that a checksum or a temporary file is about.
    """

    kind: Kind
    path: str
    batch: int | None = None
    compact: bool = False
    source: str | None = None
    operator: int | None = None
    partition: int | None = None
    store: str | None = None
    version: int | None = None
    unique_id: str | None = None
    name: str | None = None
    of: str | None = None


DEFAULT_STORE = "default"
"""Name of an operator's only store; the path does not show it."""

HARMLESS = (
    r"(.*/)?(_temporary|__MACOSX|lost\+found|\.Trash[^/]*|\.snapshot)/.+",
    r"(.*/)?(_SUCCESS|\.DS_Store|Thumbs\.db|desktop\.ini|\.directory|\.gitkeep|\.keep)",
    r"(.*/)?(\.nfs[0-9a-fA-F]+|\.fuse_hidden[0-9a-fA-F]+|\._[^/]+|[^/]*_\$folder\$)",
    r"(.*/)?[^/]+(\.crc|\.tmp|\.swp|~|\._COPYING_)",
    r"sources/[^/]+",
)
"""Files that a savepoint may lack, as patterns of whole paths.

Leftovers of writers and copies, Hadoop's local checksums, what file systems and editors add, markers of
folders in object stores. `sources/<source>` as a file is MongoDB's: its connector writes it again with each
batch, and reads it only before the first one.

The one list of such names: whatever else is not understood is named by take, verify and restore.
"""

_HARMLESS = re.compile("|".join(HARMLESS), re.DOTALL)
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,18})\Z")
_SCHEMA_LOG = re.compile(r"_schema_log_[^/]+\Z")
_TEMPORARY = re.compile(r"\.(?P<of>.+)\.[0-9a-fA-F-]{36}(\.TID[0-9]+)?\.tmp\Z", re.DOTALL)
_VERSION = re.compile(
    r"(?P<version>0|[1-9][0-9]{0,18})(?:_(?P<uid>[0-9A-Za-z-]{1,64}))?\.(?P<ext>delta|snapshot|zip|changelog)\Z"
)
_SCHEMA_NAME = re.compile(r"(?P<batch>0|[1-9][0-9]{0,18})_[0-9A-Za-z-]{1,64}\Z")
_STORE_KINDS = {
    "delta": Kind.DELTA,
    "snapshot": Kind.SNAPSHOT,
    "zip": Kind.ZIP,
    "changelog": Kind.CHANGELOG,
}


def classify(path: str) -> Part:
    """What a path below a checkpoint directory is; never fails."""
    part = _classify(path)
    if part.kind in (Kind.UNKNOWN, Kind.SOURCE_OTHER) and _HARMLESS.fullmatch(path):
        return Part(Kind.HARMLESS, path)
    return part


_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{16,}")
_DIGITS = re.compile(r"[0-9]+")


def name_pattern(path: str) -> str:
    """A path without what differs between files of one kind: its ids and numbers."""
    return _DIGITS.sub("<n>", _ID.sub("<id>", path))


def _classify(path: str) -> Part:
    folder, _, name = path.rpartition("/")
    if name.startswith("."):
        return _hidden(path, folder, name)
    if name.endswith(".crc"):
        of = path[: -len(".crc")]
        target = _classify(of)
        if target.kind in (Kind.UNKNOWN, Kind.CHECKSUM, Kind.SOURCE_OTHER):
            return Part(Kind.UNKNOWN, path)
        return Part(
            Kind.CHECKSUM,
            path,
            operator=target.operator,
            partition=target.partition,
            store=target.store,
            version=target.version,
            unique_id=target.unique_id,
            source=target.source,
            of=of,
        )
    parts = path.split("/")
    match parts:
        case [*_, log, number] if _SCHEMA_LOG.match(log) and _NUMBER.match(number):
            return Part(Kind.SCHEMA_LOG, path, batch=int(number), name=log)
        case ["metadata"]:
            return Part(Kind.METADATA, path)
        case ["offsets", number] if is_batch(number):
            return Part(Kind.OFFSETS, path, batch=int(number))
        case ["commits", number] if is_batch(number):
            return Part(Kind.COMMITS, path, batch=int(number))
        case ["sources", source, entry] if source and (log_name := parse_log_name(entry)):
            batch, is_compact = log_name.batch, log_name.compact
            return Part(Kind.SOURCE_LOG, path, batch=batch, compact=is_compact, source=source, name=entry)
        case ["sources", source, _, *_] if source:
            return Part(Kind.SOURCE_OTHER, path, source=source, name=name)
        case ["state", operator, *rest] if rest and _NUMBER.match(operator):
            return _state(path, int(operator), rest)
    return Part(Kind.UNKNOWN, path)


def _hidden(path: str, folder: str, name: str) -> Part:
    prefix = f"{folder}/" if folder else ""
    if name.endswith(".crc") and len(name) > len("..crc"):
        return Part(Kind.HIDDEN_CHECKSUM, path, of=prefix + name[1 : -len(".crc")])
    if found := _TEMPORARY.match(name):
        return Part(Kind.TEMPORARY, path, of=prefix + found["of"])
    return Part(Kind.UNKNOWN, path)


def _state(path: str, operator: int, rest: list[str]) -> Part:
    match rest:
        case ["_metadata", "metadata"]:
            return Part(Kind.OPERATOR_V1, path, operator=operator)
        case ["_metadata", "v2", number] if _NUMBER.match(number):
            return Part(Kind.OPERATOR_V2, path, operator=operator, batch=int(number))
        case ["_stateSchema", store, name] if store and (found := _SCHEMA_NAME.match(name)):
            return Part(
                Kind.SCHEMA_V3, path, operator=operator, store=store, batch=int(found["batch"]), name=name
            )
        case [number, *inner] if inner and _NUMBER.match(number):
            return _store_file(path, operator, int(number), inner)
    return Part(Kind.UNKNOWN, path)


def _store_file(path: str, operator: int, partition: int, inner: list[str]) -> Part:
    store = DEFAULT_STORE
    if len(inner) > 1 and inner[0] not in ("_metadata", "SSTs", "logs"):
        store, inner = inner[0], inner[1:]
    if not store or store.startswith((".", "_")):
        return Part(Kind.UNKNOWN, path)
    match inner:
        case [name] if found := _VERSION.match(name):
            return Part(
                _STORE_KINDS[found["ext"]],
                path,
                operator=operator,
                partition=partition,
                store=store,
                version=int(found["version"]),
                unique_id=found["uid"],
            )
        case ["_metadata", "schema"]:
            return Part(Kind.SCHEMA_V2, path, operator=operator, partition=partition, store=store)
        case ["SSTs", name] if name.endswith(".sst"):
            return Part(Kind.SST, path, operator=operator, partition=partition, store=store, name=name)
        case ["logs", name] if name.endswith(".log"):
            return Part(Kind.WAL, path, operator=operator, partition=partition, store=store, name=name)
    return Part(Kind.UNKNOWN, path)
