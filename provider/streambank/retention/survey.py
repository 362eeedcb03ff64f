"""What a sweep has to know before it touches anything: what is needed, and which file holds what."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.repository.catalog import check_place, listed, manifest_name
from streambank.repository.digest import digest_of, split_digest
from streambank.repository.manifest import FileEntry, decode_each
from streambank.repository.objects.index import index_ids, read_index
from streambank.repository.objects.packs import SMALL_BYTES, Pack, read_pack
from streambank.repository.objects.read import part_chunks
from streambank.repository.repository import Repository
from streambank.retention.expired import UNUSABLE, expired_savepoints
from streambank.storage.store import FileInfo, Store, chunks
from streambank.work.pace import Meter, Progress

_CONTENT = re.compile(r"(objects|packs)/([0-9a-f]{2})/(\2[0-9a-f]{62})")
_LINE_BYTES = 150  # of an object in a pack's table of contents
_REFUSED = "Nothing is swept, because it is not known which objects are needed: "


@dataclass(frozen=True, slots=True)
class ContentFile:
    """One file with objects in it.

    Attributes:
        mtime_ns: When it was written, by the clock of the storage.
        objects: Hex digits and size of each object in it; None where that cannot be found out.
    """

    key: str
    size_bytes: int
    mtime_ns: int
    objects: tuple[tuple[str, int], ...] | None


@dataclass(slots=True)
class Survey:
    """The files with objects in them, by key.

    Attributes:
        lost_packs: What index files say about packs that are gone.
        unindexed: Keys of packs that no index names: a killed writer left them, or an index file is lost.
        unreadable: Packs that no index names and whose table of contents is damaged.
    """

    files: dict[str, ContentFile] = field(default_factory=dict)
    lost_packs: dict[str, Pack] = field(default_factory=dict)
    unindexed: set[str] = field(default_factory=set)
    unreadable: dict[str, StreambankError] = field(default_factory=dict)


def is_content(key: str) -> bool:
    """Whether a key may be that of an object or a pack; nothing else is ever deleted as one."""
    return _CONTENT.fullmatch(key) is not None


def needed_objects(
    repository: Repository, removed: Container[str] = frozenset(), progress: Progress | None = None
) -> set[str]:
    """Hex digits of every object that a listed or an expired savepoint names.

    Args:
        removed: Keys of copies of expired manifests that are too old and do not count any more.

    Raises:
        IntegrityError, FormatError: A manifest cannot be used; its objects are not known.
    """
    store = repository.store
    needed: set[str] = set()
    readable: set[tuple[str, str]] = set()
    damaged: list[tuple[str, tuple[str, str], StreambankError]] = []
    # An expire copies a manifest aside before it deletes it: read in this order, one of the two is seen.
    for find in (_listed, _copies):
        names = find(store, removed)
        meter = Meter(progress, "read", len(names), 0)
        for key, which in names:
            try:
                needed |= named_objects(store, key, *which)
                readable.add(which)
            except NotFoundError:
                continue  # it was expired, or a copy was found too old, since it was listed
            except UNUSABLE as error:
                damaged.append((key, which, error))
            meter.add(1, 0)
    for key, which, cause in damaged:
        if key.startswith("savepoints/") or which not in readable:
            raise _refused(cause, key) from cause
    return needed


def _listed(store: Store, removed: Container[str]) -> list[tuple[str, tuple[str, str]]]:
    return [(f"savepoints/{job}/{savepoint}.json", (job, savepoint)) for job, savepoint in listed(store)]


def _copies(store: Store, removed: Container[str]) -> list[tuple[str, tuple[str, str]]]:
    return [(copy.key, copy.which) for copy in expired_savepoints(store) if copy.key not in removed]


def named_objects(store: Store, key: str, job: str, savepoint: str) -> set[str]:
    """Hex digits of what one manifest names; known only once its seal is checked.

    Args:
        key: Where the manifest lies, or a copy of it.

    Raises:
        NotFoundError: It is gone.
        IntegrityError, FormatError: It cannot be used.
    """
    found: set[str] = set()

    def each(entry: FileEntry) -> None:
        found.add(entry.digest[-64:])

    with store.open(key) as reader:
        manifest = decode_each(chunks(reader), manifest_name(job, savepoint), each)
    check_place(manifest, job, savepoint)
    return found | {entry.digest[-64:] for entry in manifest.sink_files()}


def survey(repository: Repository, old_ns: int, progress: Progress | None = None) -> Survey:
    """Which file holds which objects.

    Args:
        old_ns: Packs that no index names are looked into where they are older; others are being written.

    Raises:
        IntegrityError: An index file is damaged (code `index-damaged`): `streambank reindex` first.
        FormatError: A newer Streambank wrote one.
    """
    store = repository.store
    packs = _indexed(store, repository.digest_name)  # before the files are listed: what it names was there
    found = Survey()
    strangers: list[FileInfo] = []
    present: set[str] = set()
    for info in store.list("objects"):
        if is_content(info.path):
            digits = info.path[-64:]
            found.files[info.path] = _file(info, ((digits, info.size_bytes),))
    for info in store.list("packs"):
        if is_content(info.path):
            pack_id = info.path[-64:]
            present.add(pack_id)
            if pack_id in packs:
                found.files[info.path] = _file(info, _objects(packs[pack_id]))
            else:
                strangers.append(info)
    found.lost_packs = {pack_id: pack for pack_id, pack in packs.items() if pack_id not in present}
    found.unindexed = {info.path for info in strangers}
    telling = progress if strangers else None
    meter = Meter(telling, "packs", len(strangers), sum(info.size_bytes for info in strangers))
    for info in strangers:
        found.files[info.path] = _file(info, _contents(store, info, old_ns, found))
        meter.add(1, info.size_bytes)
    return found


def digests(file: ContentFile, needed: set[str], digest_name: str) -> list[str]:
    """Digests of the needed objects in a file."""
    return [f"{digest_name}:{digits}" for digits, _ in file.objects or () if digits in needed]


def dead_share(file: ContentFile, needed: set[str]) -> float:
    """Which part of a file no savepoint needs; 0 where its contents are not known."""
    if file.objects is None:
        return 0.0
    if not any(digits in needed for digits, _ in file.objects):
        return 1.0
    alive = sum(size_bytes + _LINE_BYTES for digits, size_bytes in file.objects if digits in needed)
    return 1.0 - alive / sum(size_bytes + _LINE_BYTES for _, size_bytes in file.objects)


def total_bytes(files: Iterable[ContentFile]) -> int:
    """Size of some files."""
    return sum(file.size_bytes for file in files)


def _contents(store: Store, info: FileInfo, old_ns: int, found: Survey) -> tuple[tuple[str, int], ...] | None:
    if info.mtime_ns > old_ns:
        return None
    try:
        return _objects(read_pack(store, info.path[-64:]))
    except NotFoundError:
        return None
    except (IntegrityError, FormatError) as error:
        found.unreadable[info.path] = error
        return None


def _indexed(store: Store, digest_name: str) -> Mapping[str, Pack]:
    """What the index files say; files that vanish while they are read were replaced by others."""
    packs: dict[str, Pack] = {}
    seen: set[str] = set()
    while True:
        present = [index_id for index_id in index_ids(store) if index_id not in seen]
        vanished = False
        for index_id in present:
            found = read_index(store, index_id, digest_name)
            if found is None:
                vanished = True
                continue
            seen.add(index_id)
            packs.update({pack.id: pack for pack in found})
        if not vanished:
            return packs


def _file(info: FileInfo, objects: tuple[tuple[str, int], ...] | None) -> ContentFile:
    return ContentFile(info.path, info.size_bytes, info.mtime_ns, objects)


def _objects(pack: Pack) -> tuple[tuple[str, int], ...]:
    return tuple((entry.digest[-64:], entry.length) for entry in pack.entries)


def _refused(error: StreambankError, key: str) -> StreambankError:
    return type(error)(
        f"{_REFUSED}{error.message}",
        code=error.code,
        hint=f"Put {key} back from a replica or a backup; or delete that one file, and lose the savepoint.",
    )


@dataclass(slots=True)
class Rescued:
    """What was stored again.

    Attributes:
        failed: Objects that could not be read, and why.
    """

    objects: int = 0
    bytes: int = 0
    failed: dict[str, IntegrityError] = field(default_factory=dict)

    def add(self, other: Rescued) -> None:
        """Count another rescue in."""
        self.objects += other.objects
        self.bytes += other.bytes
        self.failed |= other.failed


def rescue(repository: Repository, digests: Iterable[str]) -> Rescued:
    """Store objects where they last, from wherever they still are; those that last already stay."""
    done = Rescued()
    with repository.objects.writer() as writer:
        wanted: dict[str, int] = {}
        for digest in digests:
            if not repository.objects.lasting_places(digest):
                try:
                    wanted[digest] = repository.objects.size(digest)
                except IntegrityError as error:
                    done.failed[digest] = error
        small = [digest for digest, size_bytes in wanted.items() if size_bytes <= SMALL_BYTES]
        for digest, data in repository.objects.read_many(small):
            if isinstance(data, IntegrityError):
                done.failed[digest] = data
            else:
                writer.add(data, len(data))
        for digest, size_bytes in wanted.items():
            if size_bytes > SMALL_BYTES:
                try:
                    writer.add(repository.objects.chunks(digest), size_bytes)
                except IntegrityError as error:
                    done.failed[digest] = error
    done.objects, done.bytes = writer.new_objects, writer.new_bytes
    return done


def is_intact(repository: Repository, digest: str) -> bool:
    """Whether an object lies, with each of its bytes, in a place that no sweep has condemned."""
    algorithm = split_digest(digest)[0]
    for place in repository.objects.lasting_places(digest):
        try:
            if digest_of(algorithm, part_chunks(repository.store, place)) == digest:
                return True
        except NotFoundError:
            continue  # it went away since it was looked for
    return False
