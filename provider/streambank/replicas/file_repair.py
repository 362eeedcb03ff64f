"""Mending files of objects: a damaged or missing one is made whole with bytes that a replica has whole.

Every byte is hashed before it replaces anything, a file is replaced at once or not at all, and nothing is
deleted. A pack keeps its name, which is made from the digests in it: so what is written is exactly what once
was there. Where not all of a pack can be had, what can be is saved all the same:

* a pack of the right length gets the objects that were found, and its table; the rest stays as it is
* of a pack that is cut off or gone, the objects that were found go into a new one, and the index names both
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streambank.core.errors import NotFoundError, StreambankError
from streambank.repository.digest import digest_of
from streambank.repository.objects.large import object_key
from streambank.repository.objects.packs import (
    ENCODING_NONE,
    SMALL_BYTES,
    Pack,
    PackBuilder,
    PackEntry,
    pack_key,
    read_pack,
)
from streambank.repository.repository import ObjectWriter, Repository
from streambank.storage.memory import MemoryStore
from streambank.storage.threads import each
from streambank.work.damage import DAMAGE, Reading, is_damage, read_small
from streambank.work.pace import UNLIMITED, Meter, Progress, RateLimit


@dataclass(frozen=True, slots=True)
class RepairedFile:
    """One file that is whole again, or would be.

    Attributes:
        kind: `object`, `pack`, `index`, `manifest` or `header`.
        objects: How many objects came from replicas.
        sources: The replicas that had them; empty where the repository itself had all.
    """

    kind: str
    file: str
    objects: int = 0
    bytes: int = 0
    sources: tuple[str, ...] = ()


@dataclass(slots=True)
class Mended:
    """What mending came to.

    Attributes:
        lost: Objects that no replica has whole, and why.
    """

    repaired: list[RepairedFile] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)


class Replicas:
    """Where whole bytes are looked for: each replica in turn.

    Args:
        repositories: The replicas, the preferred one first.
    """

    def __init__(self, repositories: Sequence[Repository], rate: RateLimit = UNLIMITED) -> None:
        self.repositories = repositories
        self.rate = rate

    def read(self, objects: Mapping[str, int]) -> tuple[dict[str, tuple[bytes, str]], dict[str, str]]:
        """Small objects, and where each was found; and why others were not."""
        found: dict[str, tuple[bytes, str]] = {}
        reasons: dict[str, list[str]] = {digest: [] for digest in objects}
        for replica in self.repositories:
            wanted = {digest: size for digest, size in objects.items() if digest not in found}
            for digest, data in read_small(replica, wanted, rate=self.rate):
                if isinstance(data, bytes):
                    found[digest] = data, replica.store.uri
                else:
                    reasons[digest].append(f"{replica.store.uri}: {data.message}")
        return found, {digest: " ".join(why) for digest, why in reasons.items() if digest not in found}


class FileRepair:
    """Makes the objects of one repository whole.

    Args:
        writer: Stores there; None to write nothing, and only say what would be.
    """

    def __init__(self, repository: Repository, replicas: Replicas, writer: ObjectWriter | None) -> None:
        self.repository = repository
        self.replicas = replicas
        self.writer = writer
        self.mended = Mended()
        if writer is not None:  # what is gathered may get the name of the very pack that is damaged
            writer.rewrite_packs = True

    def large(self, digest: str, size_bytes: int) -> None:
        """Bring back a large object, by streaming it from a replica."""
        reasons = []
        for replica in self.replicas.repositories:
            reading = Reading(replica, digest, rate=self.replicas.rate)
            try:
                if self.writer is None:
                    for _ in reading.chunks():
                        pass  # the last step compares the digest
                else:
                    self.writer.damaged.add(digest)
                    self.writer.add(reading.chunks(), size_bytes)
            except StreambankError as error:
                if reading.error is None:
                    raise
                reasons.append(f"{replica.store.uri}: {error.message}")
                continue
            self.mended.repaired.append(
                RepairedFile("object", object_key(digest), 1, size_bytes, (replica.store.uri,))
            )
            return
        self.mended.lost[digest] = " ".join(reasons)

    def nowhere(self, objects: Mapping[str, int]) -> None:
        """Bring back small objects that no pack of the repository is known to hold."""
        found, lost = self.replicas.read(objects)
        self._add(found)
        self.mended.lost |= lost
        if found:
            self._say("pack", "packs/", found)

    def pack(self, pack: Pack, wanted: Iterable[str]) -> None:
        """Make a pack whole that is damaged or gone.

        Args:
            pack: Its table of contents, as the index has it.
            wanted: Digests in it that savepoints need; others are no loss.
        """
        remains, whole = self._remains(pack)
        gaps = {entry.digest: entry.length for entry in pack.entries if entry.digest not in whole}
        found, lost = self.replicas.read(gaps)
        self.mended.lost |= {digest: lost[digest] for digest in wanted if digest in lost}
        pieces = {digest: (data, "") for digest, data in whole.items()} | found
        in_place = remains is not None and len(remains) == pack.size_bytes
        content = self._content(pack, pieces, remains or b"") if in_place or not lost else None
        if content is None and in_place:
            why = f"The table of {pack_key(pack.id)} is damaged, and cannot be rebuilt from the index."
            self.mended.lost |= dict.fromkeys(wanted, why)
        elif content is None:
            saved = {digest: pieces[digest] for digest in wanted if digest in pieces}
            self._add(saved)
            if saved:
                self._say("pack", "packs/", {digest: found[digest] for digest in saved if digest in found})
        elif content != remains:
            if self.writer is not None:
                self.repository.store.write(pack_key(pack.id), content)
            self._say("pack", pack_key(pack.id), found)

    def _content(self, pack: Pack, pieces: Mapping[str, tuple[bytes, str]], remains: bytes) -> bytes | None:
        """The file of a pack, what was lost left as it is; None where its table cannot be had.

        The table is made again from the index, or is the one that is there: it must have the pack's name.
        """
        builder = PackBuilder(self.repository.digest_name)
        for entry in pack.entries:
            builder.add(entry.digest, pieces.get(entry.digest, (_slice(remains, entry), ""))[0])
        content = b"".join(builder.finish()[1])
        if _is_pack(pack, content):
            return content
        content = content[: builder.size_bytes] + remains[builder.size_bytes :]
        return content if _is_pack(pack, content) else None

    def _remains(self, pack: Pack) -> tuple[bytes | None, dict[str, bytes]]:
        """What is there of a pack, and those of its objects that are whole in it."""
        try:
            remains = self.repository.store.read(pack_key(pack.id))
        except NotFoundError:
            return None, {}
        except StreambankError as error:
            if not is_damage(error):
                raise
            return None, {}
        self.replicas.rate.spend(len(remains))
        slices = {entry.digest: _slice(remains, entry) for entry in pack.entries if _plain(entry)}
        name = self.repository.digest_name
        return remains, {digest: data for digest, data in slices.items() if digest_of(name, data) == digest}

    def _add(self, found: Mapping[str, tuple[bytes, str]]) -> None:
        if self.writer is not None:
            for data, _ in found.values():
                self.writer.add(data, len(data))

    def _say(self, kind: str, file: str, found: Mapping[str, tuple[bytes, str]]) -> None:
        sources = tuple(sorted({source for _, source in found.values()}))
        size_bytes = sum(len(data) for data, _ in found.values())
        self.mended.repaired.append(RepairedFile(kind, file, len(found), size_bytes, sources))


def repair_files(
    mender: FileRepair, lacking: Mapping[str, int], *, parallel: int = 1, progress: Progress | None = None
) -> None:
    """Bring back objects, wherever each of them should be.

    Args:
        mender: Does it, and keeps what came of it.
        parallel: How many large ones are brought back at once.

    Raises:
        StorageError: A place failed as a whole; what is mended stays mended.
    """
    repository = mender.repository
    known = repository.objects.index.known_packs()
    packs: dict[str, dict[str, int]] = {}
    nowhere: dict[str, int] = {}
    large: dict[str, int] = {}
    for digest, size_bytes in lacking.items():
        try:
            place = repository.objects.locate(digest)
        except DAMAGE:
            place = None
        pack_id = place.key.rpartition("/")[2] if place is not None and place.kind == "pack" else None
        if pack_id in known:
            packs.setdefault(pack_id, {})[digest] = size_bytes
        elif size_bytes > SMALL_BYTES:
            large[digest] = size_bytes
        else:
            nowhere[digest] = size_bytes
    meter = Meter(progress, "repair", len(lacking), sum(lacking.values()))

    def bring(digest: str) -> None:
        mender.large(digest, large[digest])
        meter.add(1, large[digest])

    for pack_id, wanted in packs.items():
        mender.pack(known[pack_id], wanted)
        meter.add(len(wanted), sum(wanted.values()))
    if nowhere:
        mender.nowhere(nowhere)
        meter.add(len(nowhere), sum(nowhere.values()))
    for _ in each(bring, list(large), parallel):
        pass


def _is_pack(pack: Pack, content: bytes) -> bool:
    """Whether bytes are a file of this pack: length, trailer and table; not whether its objects are whole."""
    store = MemoryStore()
    store.write(pack_key(pack.id), content)
    try:
        return read_pack(store, pack.id) == pack
    except DAMAGE:
        return False


def _slice(data: bytes, entry: PackEntry) -> bytes:
    return data[entry.offset : entry.offset + entry.length]


def _plain(entry: PackEntry) -> bool:
    return entry.encoding == ENCODING_NONE
