"""The manifest: one savepoint's list of files, and everything that must be known to bring it back.

A manifest is a sealed file (`sealed.py`) whose files stand one on a line, so that both a person and a program
of little memory can read it. Its existence under `savepoints/` is what makes a savepoint exist.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Annotated, Any

from streambank.core.errors import InputError, IntegrityError
from streambank.core.json_text import loads
from streambank.core.names import QueryRef, check_name
from streambank.core.shape import Between
from streambank.core.shape import decode as decode_fields
from streambank.core.units import to_json_time
from streambank.repository.digest import DEFAULT_DIGEST, is_digest
from streambank.repository.sealed import (
    FORMAT,
    damaged,
    dumps,
    field_line,
    head_lines,
    parse_field,
    quoted,
    seal,
    split_lines,
    unseal,
)
from streambank.storage.names import is_key

NOTHING: Mapping[str, Any] = {}
"""What a mapping is where there is nothing in it; shared, never changed."""


def nothing() -> Mapping[str, Any]:
    """The empty mapping, as the default of a field."""
    return NOTHING


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a checkpoint or of a sink's log.

    Attributes:
        path: Relative to the checkpoint or the sink, with `/` between parts.
        digest: Of its bytes: `blake3:<hex>`.
        mtime_ns: Last change at its source, in nanoseconds since the epoch.
        identity: The source's token for these bytes (`FileInfo.identity`).
        role: What the file is to Spark: metadata, offsets, commits, state-snapshot, ...
        extra: Fields that a newer Streambank wrote; kept.
    """

    path: str
    size_bytes: int
    digest: str
    mtime_ns: int = 0
    identity: str = ""
    role: str = ""
    extra: Mapping[str, Any] = field(default_factory=nothing)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "digest": self.digest,
            "mtime_ns": self.mtime_ns,
            "identity": self.identity,
            "role": self.role,
            **self.extra,
        }

    def to_json(self) -> str:
        """`to_dict` as JSON on one line, several times as fast as the general way."""
        if self.extra:
            return dumps(self.to_dict())
        return (
            f'{{"path": {quoted(self.path)}, "size_bytes": {self.size_bytes}, '
            f'"digest": {quoted(self.digest)}, "mtime_ns": {self.mtime_ns}, '
            f'"identity": {quoted(self.identity)}, "role": {quoted(self.role)}}}'
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> FileEntry:
        """The entry that `to_dict` gave.

        Raises:
            IntegrityError: A field is missing or of another type, or the path could climb out of its root.
        """
        extra = None
        if len(fields) > len(_KNOWN):
            extra = {name: value for name, value in fields.items() if name not in _KNOWN}
        try:
            entry = cls(
                path=fields["path"],
                size_bytes=fields["size_bytes"],
                digest=fields["digest"],
                mtime_ns=fields["mtime_ns"],
                identity=fields["identity"],
                role=_shared(fields["role"]),
                extra=extra or NOTHING,
            )
        except KeyError as error:
            raise _bad(f"A file of the savepoint has no field {error}.", "bad-entry") from error
        return check_entry(entry)


def _shared(role: Any) -> Any:
    """The same text as one object for all files: there are but a few roles."""
    return sys.intern(role) if type(role) is str else role


_KNOWN = frozenset({"path", "size_bytes", "digest", "mtime_ns", "identity", "role"})


def check_entry(entry: FileEntry) -> FileEntry:
    """The same entry, if each of its fields is what it should be.

    Raises:
        IntegrityError: One is not (code `bad-path` or `bad-entry`).
    """
    if not isinstance(entry.path, str) or not is_key(entry.path):
        raise _bad(f"The savepoint lists a file whose path is not allowed: {entry.path!r}.", "bad-path")
    # Spelled out, since this is done for each of perhaps a million files.
    if not (
        type(entry.size_bytes) is int
        and type(entry.mtime_ns) is int
        and entry.size_bytes >= 0
        and entry.mtime_ns >= 0
        and isinstance(entry.identity, str)
        and isinstance(entry.role, str)
        and is_digest(entry.digest)
    ):
        raise _bad(f"The savepoint's entry for the file {entry.path} is malformed.", "bad-entry")
    return entry


def sort_key(path: str) -> str:
    """What entries are sorted by: path part by path part, so that a directory's files follow each other."""
    return path.replace("/", "\0")


def in_order(entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
    """The same entries, checked to be sorted and to fit together in one directory tree.

    Raises:
        IntegrityError: A path is there twice (code `duplicate-path`), is both a file and a directory (code
            `path-clash`), or is out of order (code `bad-entry`).
    """
    before: str | None = None
    for entry in entries:
        key = sort_key(entry.path)
        if before is not None and key <= before:
            code = "duplicate-path" if key == before else "bad-entry"
            why = "listed twice" if key == before else "out of order"
            raise _bad(f"The savepoint's file {entry.path} is {why}.", code)
        if before is not None and key.startswith(before + "\0"):
            parent = before.replace("\0", "/")
            raise _bad(f"The savepoint lists {parent} both as a file and as a directory.", "path-clash")
        before = key
        yield entry


def _bad(message: str, code: str) -> IntegrityError:
    return IntegrityError(message, code=code, hint="The manifest was changed. Use another savepoint.")


MANIFEST_SEAL = "manifest_digest"
_LINES_AT_ONCE, _BYTES_AT_ONCE = 256, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A savepoint. Field names are those of the JSON (docs/formats/repository.md).

    Attributes:
        digest: The algorithm of every digest in the manifest.
        savepoint: Its id, `savepoint_id` of what it holds.
        job: `job` or `job/query`.
        query_id: The id in the checkpoint's `metadata`.
        batch: The committed batch after which a restored query goes on.
        taken_at: When, in UTC.
        taken_by: Who: user, host, and for Airflow dag_id, run_id, reason.
        name: The name that it was taken with; which savepoint has it, records say (`names.py`).
        checkpoint: URI of the checkpoint it was taken from.
        closure: `safe` or `minimal`.
        watermark_ms: Event-time watermark in milliseconds since the epoch, where the query has one.
        operators: Stateful operators: operator, name, stores (store, partitions, rows, bytes).
        spark_version: Spark that wrote the checkpoint, as far as known.
        application: Fingerprint of the application's code, as far as known.
        conf: Fingerprint of its configuration, as far as known.
        offset_conf: Settings that Spark wrote into the offset log of the batch.
        sources: How far each source is.
        sinks: How far each sink is: kind, path, ..., `files` (entries of the sink's own saved files).
        sinks_known: Whether any sink of the query was known. False in savepoints of older versions, which do
            not say it: `sinks` is empty where none was known.
        sink_candidates: Output directories that may be one, and are not saved.
        derived_from: The savepoint that this one was made from, by a compaction or a fork.
        parent: The savepoint whose unchanged files were used again without reading them.
        bytes: Sum of the files' sizes, sinks' included.
        file_count: How many files, sinks' included.
        stats: What taking it cost: new_bytes, new_files, replans, seconds.
        left_out: Files of the checkpoint that are not understood, and not in the savepoint: pattern, example,
            files. Written only where there are any.
        files: The checkpoint's files, sorted by path.
        extra: Fields that a newer Streambank wrote; kept.
    """

    savepoint: str
    job: str
    query_id: str
    batch: Annotated[int, Between(0)]
    taken_at: datetime
    digest: str = DEFAULT_DIGEST
    taken_by: Mapping[str, Any] = field(default_factory=nothing)
    note: str = ""
    name: str = ""
    checkpoint: str = ""
    closure: str = "safe"
    watermark_ms: int | None = None
    operators: tuple[Mapping[str, Any], ...] = ()
    spark_version: str | None = None
    application: Any = None
    conf: Any = None
    offset_conf: Mapping[str, Any] = field(default_factory=nothing)
    sources: tuple[Any, ...] = ()
    sinks: tuple[Mapping[str, Any], ...] = ()
    sinks_known: bool = False
    sink_candidates: tuple[str, ...] = ()
    derived_from: str | None = None
    parent: str | None = None
    bytes: Annotated[int, Between(0)] = 0
    file_count: Annotated[int, Between(0)] = 0
    stats: Mapping[str, Any] = field(default_factory=nothing)
    left_out: tuple[Mapping[str, Any], ...] = ()
    files: tuple[FileEntry, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=nothing)

    def sink_files(self) -> Iterator[FileEntry]:
        """The saved files of all sinks."""
        for sink in self.sinks:
            for entry in sink.get("files", ()):
                yield FileEntry.from_dict(entry)

    def all_files(self) -> Iterator[FileEntry]:
        """The files of the checkpoint, then those of the sinks."""
        yield from self.files
        yield from self.sink_files()

    def objects(self) -> dict[str, int]:
        """Digest and size of each object that this savepoint needs."""
        return {entry.digest: entry.size_bytes for entry in self.all_files()}

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON, `files` last; the seal is not part of it."""
        head = dict(_head_fields(self))
        files = [entry.to_dict() for entry in self.files]
        return {"format": FORMAT, "digest": self.digest, **head, "files": files}


def savepoint_id(job: str, query_id: str, batch: int, offsets_bytes: bytes, commits_bytes: bytes) -> str:
    """The id of a savepoint: the same batch of the same run of a query always gets the same one.

    So the conditional create of the manifest decides between takes that run at once, and a batch that ran
    again with other input after a restore gets another id.

    Args:
        query_id: The id in the checkpoint's `metadata`.
        offsets_bytes: The offset log's entry of the batch.
        commits_bytes: The commit log's entry of the batch.

    Returns:
        `b000042-` and 12 hex digits.
    """
    parts = (job.encode(), query_id.encode(), str(batch).encode(), offsets_bytes, commits_bytes)
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return f"b{batch:06d}-{hasher.hexdigest()[:12]}"


def other_savepoint(manifest: Manifest, path: str, where: str) -> IntegrityError:
    """The error of a savepoint that has the id of another one."""
    return IntegrityError(
        f"{where} has another savepoint {manifest.savepoint} of {manifest.job}, taken from "
        f"{manifest.checkpoint} at {to_json_time(manifest.taken_at)}: {path} has other bytes there.",
        code="other-savepoint",
        hint="Two lines of the query finished the same batch, or the file is damaged in one of the places: "
        "`streambank verify` looks at the savepoint, `streambank doctor` at the checkpoint. If neither is, "
        "look which line is the job's, and take the next batch of that one: it has another id.",
    )


def encode(manifest: Manifest) -> Iterator[bytes]:
    """The manifest as the bytes of its file, line by line; files are sorted on the way.

    Raises:
        IntegrityError: It breaks a rule that `decode` holds it to.
        InputError: A name in it is not allowed.
    """
    _to_manifest({"digest": manifest.digest, **dict(_head_fields(manifest))}, ())
    _check_head(manifest)
    return seal(_lines(manifest), MANIFEST_SEAL, manifest.digest)


def decode(data: bytes | Iterable[bytes], what: str = "savepoint's manifest") -> Manifest:
    """The manifest in a file's bytes.

    Raises:
        IntegrityError: It is cut off, was changed (code `record-damaged`), or lists paths that climb out of
            their root or clash (codes `bad-path`, `duplicate-path`, `path-clash`, `bad-entry`).
        FormatError: A newer Streambank wrote it (code `unknown-format`).
    """
    files: list[FileEntry] = []
    head = _parse((data,) if isinstance(data, bytes) else data, what, files.extend)
    return _to_manifest(head, tuple(in_order(files)), what)


def decode_head(chunks: Iterable[bytes], what: str = "savepoint's manifest") -> Manifest:
    """The manifest without its `files`, none of which is kept in memory; the seal is checked all the same.

    Raises:
        IntegrityError, FormatError: As `decode`, but for what the lines of the files say.
    """
    return _to_manifest(_parse(chunks, what, None), (), what)


def glance(beginning: bytes, what: str = "savepoint's manifest") -> Manifest | None:
    """The manifest without its `files`, from the beginning of its file alone; its seal is not checked.

    Good for choosing among savepoints, and for nothing that rests on what they say.

    Returns:
        None where the beginning does not reach the files, or cannot be read.
    """
    before, found, _ = beginning.partition(b'\n"files": [\n')
    if not found:
        return None
    head: dict[str, Any] = {}
    try:
        for line in split_lines(before.removeprefix(b"{\n") + b"\n"):
            name, value = parse_field(line, what)
            head[name] = value
        if head.pop("format", None) != FORMAT:
            return None
        return _to_manifest(head, (), what)
    except (IntegrityError, ValueError):
        return None


def decode_each(chunks: Iterable[bytes], what: str, each: Callable[[FileEntry], object]) -> Manifest:
    """The manifest without its `files`, each of which is handed on and not kept.

    Whether they are intact is known only once this has returned.

    Raises:
        IntegrityError, FormatError: As `decode`, but for the order of the files.
    """

    def hand_on(entries: list[FileEntry]) -> None:
        for entry in entries:
            each(entry)

    return _to_manifest(_parse(chunks, what, hand_on), (), what)


def _lines(manifest: Manifest) -> Iterator[bytes]:
    yield from head_lines(manifest.digest)
    for name, value in _head_fields(manifest):
        yield field_line(name, value)
    yield b'"files": [\n'
    before = b""
    for entry in in_order(sorted(manifest.files, key=lambda entry: sort_key(entry.path))):
        yield before + check_entry(entry).to_json().encode()
        before = b",\n"
    yield b"\n],\n" if before else b"],\n"


def _head_fields(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    for name in _FIELDS:
        value = getattr(manifest, name)
        if name == "left_out" and not value:
            continue
        if isinstance(value, datetime):
            yield name, to_json_time(value)
        elif isinstance(value, tuple):
            yield name, [dict(item) if isinstance(item, Mapping) else item for item in value]
        else:
            yield name, dict(value) if isinstance(value, Mapping) else value
    yield from manifest.extra.items()


def _parse(
    chunks: Iterable[bytes], what: str, keep: Callable[[list[FileEntry]], object] | None
) -> dict[str, Any]:
    """The fields but `files`, which go to `keep`, some at a time."""
    head: dict[str, Any] = {}
    lines = unseal(chunks, MANIFEST_SEAL, what)
    for line in lines:
        if line == b'"files": [\n':
            name, value = "files", None
            gathered: list[bytes] = []
            size_bytes = 0
            for entry in lines:
                if entry == b"],\n":
                    break
                if keep is None:
                    continue
                gathered.append(entry)
                size_bytes += len(entry)
                if len(gathered) == _LINES_AT_ONCE or size_bytes >= _BYTES_AT_ONCE:
                    keep(_parse_entries(gathered, what))
                    gathered, size_bytes = [], 0
            if gathered and keep is not None:
                keep(_parse_entries(gathered, what))
        else:
            name, value = parse_field(line, what)
        if name in head:
            raise damaged(what, f"its field {name} appears twice")
        head[name] = value
    if head.pop("files", 0) is not None:
        raise damaged(what, "it lists no files")
    return head


def _parse_entries(lines: list[bytes], what: str) -> list[FileEntry]:
    """The entries in some lines, which are parsed together: that is several times as fast as one by one."""
    try:
        parsed = loads(b"[" + b"".join(lines).rstrip().removesuffix(b",") + b"]")
    except ValueError as error:
        raise damaged(what, "the line of a file cannot be read") from error
    if len(parsed) != len(lines) or not all(isinstance(fields, dict) for fields in parsed):
        raise damaged(what, "the line of a file does not hold a file entry")
    return [FileEntry.from_dict(fields) for fields in parsed]


def _to_manifest(
    head: dict[str, Any], files: tuple[FileEntry, ...], what: str = "savepoint's manifest"
) -> Manifest:
    known = {name: head.pop(name) for name in ("digest", *_FIELDS) if name in head}
    manifest = replace(
        decode_fields(Manifest, known, what, refuse=damaged), files=files, extra=head or NOTHING
    )
    _check_head(manifest, what)
    for entry in manifest.sink_files():
        check_entry(entry)
    return manifest


def _check_head(manifest: Manifest, what: str = "savepoint's manifest") -> None:
    """Raise where a name is not allowed, or a sink's files are none."""
    for sink in manifest.sinks:
        entries = sink.get("files", [])
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, Mapping) for entry in entries):
            raise damaged(what, "the files of a sink have the wrong type")
    try:
        QueryRef.parse(manifest.job)
        check_name(manifest.savepoint, "savepoint")
    except InputError as error:
        raise damaged(what, error.message) from error
    if set(manifest.extra) & {"format", "digest", "files", MANIFEST_SEAL, *_FIELDS}:
        raise damaged(what, "an unknown field has the name of a known one")


_FIELDS = tuple(item.name for item in fields(Manifest) if item.name not in ("digest", "files", "extra"))
