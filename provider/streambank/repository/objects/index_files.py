"""The index files of one repository: read, written, merged, and made again from the packs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Set
from dataclasses import dataclass

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.repository.objects.index import (
    REINDEX_HINT,
    Index,
    IndexedObject,
    encode_index,
    index_ids,
    index_key,
    read_index,
)
from streambank.repository.objects.packs import Pack, pack_key, read_pack, repair_table
from streambank.storage.store import Store

MERGE_INDEX_FILES = 64
"""So many index files are merged into one by the next writer."""


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file of the repository that cannot be used."""

    key: str
    error: StreambankError


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What rebuilding the index found.

    Attributes:
        packs: How many packs are whole, and indexed now.
        added: How many of those packs no index file named.
        index_files: Index files that were damaged, and are replaced.
        repaired: Packs whose table of contents was damaged, and is written again from the index.
        damaged: Packs that could not be read and are left alone, with what the index says about them.
        lost: Packs that the index named and that are gone; it names them no more.
    """

    packs: int
    objects: int
    added: int
    repaired: tuple[str, ...]
    index_files: tuple[FileDamage, ...]
    damaged: tuple[FileDamage, ...]
    lost: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether an index file was written; where all was well there is no need."""
        return bool(self.added or self.index_files or self.lost)


class IndexFiles:
    """What all index files say, read when it is first asked for. Safe to use from several threads."""

    def __init__(self, store: Store, digest_name: str) -> None:
        self._store = store
        self._digest_name = digest_name
        self._lock = threading.Lock()
        self._index = Index()
        self._loaded: set[str] = set()
        self._damaged: dict[str, FileDamage] = {}
        self._ready = False
        self._unindexed: int | None = None

    def find(self, digest: str) -> list[IndexedObject]:
        """Every place where an object lies: several where it was stored again after a pack had been lost."""
        if not self._ready:
            self.load(refresh=False)
        place = self._index.find(digest)
        return [place, *self._index.find_others(digest)] if place else []

    def load(self, *, refresh: bool) -> None:
        """Read the index files, or with `refresh` those that came since."""
        with self._lock:
            if self._ready and not refresh:
                return
            while self._load_new():
                pass  # a file vanished: another one has taken its place
            self._ready = True

    def check(self) -> list[FileDamage]:
        """Index files that cannot be used, those among them that came since."""
        self.load(refresh=True)
        return self._known_damage()

    def _known_damage(self) -> list[FileDamage]:
        with self._lock:
            return list(self._damaged.values())

    def unindexed_packs(self) -> set[str]:
        """Packs that no index names: left by a writer that was killed, or their index file is gone."""
        found = self._pack_ids()
        self.load(refresh=True)
        with self._lock:
            return found - self._index.pack_ids()

    def known_packs(self) -> dict[str, Pack]:
        """The table of contents of each pack, by its id, as readable index files have it."""
        return self._read_all(index_ids(self._store))[0]

    def count_unindexed(self) -> int:
        """How many packs no index names; listed once, since it is asked for each object that is missing."""
        if self._unindexed is None:
            self._unindexed = len(self.unindexed_packs())
        return self._unindexed

    def missing_error(self, digest: str) -> IntegrityError:
        """The error of an object that cannot be found, and why that may be."""
        damaged = sorted(damage.key for damage in self._known_damage())
        if damaged:
            return IntegrityError(
                f"The object {digest} cannot be found, and {damaged[0]} is damaged.",
                code="index-damaged",
                hint=REINDEX_HINT,
            )
        if unindexed := self.count_unindexed():
            return IntegrityError(
                f"The object {digest} cannot be found; it may be in one of {unindexed} packs that no index "
                "file names.",
                code="index-incomplete",
                hint="Run `streambank reindex`, which rebuilds the index from the packs, then try again.",
            )
        return IntegrityError(
            f"The repository does not hold the object {digest} any more.",
            code="object-missing",
            hint="Savepoints that need it cannot be restored from here: use another one, or a replica.",
        )

    def publish(self, packs: list[Pack]) -> None:
        """Index packs that are stored; many small index files become one on the way."""
        present = index_ids(self._store)
        if len(present) >= MERGE_INDEX_FILES:
            self._merge(present, packs)
        else:
            self._write(packs)
        with self._lock:
            for pack in packs:
                self._index.add(pack)

    def rebuild(self) -> RebuildReport:
        """Make the index again from the packs, and replace all index files there were.

        Where a pack's table of contents is damaged and the index knows it, the pack is repaired. Writes
        nothing where the index says just what the packs do. Safe beside readers and writers: what is indexed
        meanwhile is kept.

        Raises:
            FormatError: A newer Streambank wrote an index file (code `unknown-format`); nothing is changed.
        """
        replaced = index_ids(self._store)  # before the packs are listed: so all packs they name are seen
        known, damaged_files = self._read_all(replaced)
        packs: list[Pack] = []
        kept: list[Pack] = []
        repaired: list[str] = []
        damages: list[FileDamage] = []
        for pack_id in sorted(self._pack_ids()):
            try:
                packs.append(read_pack(self._store, pack_id))
            except NotFoundError:
                continue  # it was deleted since it was listed
            except (IntegrityError, FormatError) as error:
                if pack_id in known and self._repair(known[pack_id], error):
                    packs.append(known[pack_id])
                    repaired.append(pack_key(pack_id))
                    continue
                damages.append(FileDamage(pack_key(pack_id), error))
                if pack_id in known:
                    kept.append(known[pack_id])  # most of its objects may be whole
        there = {pack.id for pack in (*packs, *kept)}
        report = RebuildReport(
            packs=len(packs),
            objects=sum(len(pack.entries) for pack in packs),
            added=sum(known.get(pack.id) != pack for pack in packs),
            repaired=tuple(repaired),
            index_files=tuple(damaged_files),
            damaged=tuple(damages),
            lost=tuple(pack_key(pack_id) for pack_id in sorted(known.keys() - there)),
        )
        if report.changed:
            self._replace([*packs, *kept], replaced, [known[each] for each in known.keys() - there])
        with self._lock:
            self._index, self._ready = Index(), False
            self._loaded.clear()
            self._damaged.clear()
            self._unindexed = None
        return report

    def repair(self, pack_id: str) -> bool:
        """Write the table of contents of a pack again where it is damaged and the index proves what it was.

        Returns:
            Whether the table is right now.
        """
        try:
            read_pack(self._store, pack_id)
        except (IntegrityError, FormatError) as error:
            known, _ = self._read_all(index_ids(self._store))
            return pack_id in known and self._repair(known[pack_id], error)
        except NotFoundError:
            return False
        return True

    def _repair(self, pack: Pack, error: StreambankError) -> bool:
        try:
            return isinstance(error, IntegrityError) and repair_table(self._store, pack, self._digest_name)
        except NotFoundError:
            return False  # it was deleted meanwhile

    def drop(self, pack_ids: Set[str]) -> bool:
        """Write the index without packs that are gone for good; whether there was anything to write.

        Safe beside readers and writers: whoever merges index files at the same time may name them once more,
        which does no harm, since nothing is ever read or counted on where the pack itself is not there. One
        that somebody has stored again, since it was looked for, stays in the index.
        """
        found: dict[str, list[Pack]] = {}
        for index_id in index_ids(self._store):
            packs = read_index(self._store, index_id, self._digest_name)
            if packs is not None and any(pack.id in pack_ids for pack in packs):
                found[index_id] = packs
        # Looked for after the index files were read: a writer indexes a pack after it has stored it.
        gone = pack_ids - self._pack_ids() if found else set()
        replaced = [each for each, packs in found.items() if any(pack.id in gone for pack in packs)]
        named = {pack.id: pack for each in replaced for pack in found[each]}
        if replaced:
            kept = [pack for pack in named.values() if pack.id not in gone]
            self._replace(kept, replaced, [named[each] for each in named.keys() & gone])
        return bool(replaced)

    def _pack_ids(self) -> set[str]:
        return {info.path.rpartition("/")[2] for info in self._store.list("packs")}

    def _read_all(self, present: list[str]) -> tuple[dict[str, Pack], list[FileDamage]]:
        """What index files say, and those that are damaged."""
        known: dict[str, Pack] = {}
        damages: list[FileDamage] = []
        for index_id in present:
            try:
                packs = read_index(self._store, index_id, self._digest_name)
            except IntegrityError as error:
                damages.append(FileDamage(index_key(index_id), error))
                continue
            known.update({pack.id: pack for pack in packs or ()})
        return known, damages

    def _merge(self, present: list[str], packs: list[Pack]) -> None:
        merged = {pack.id: pack for pack in packs}
        whole = []
        for index_id in present:
            try:
                found = read_index(self._store, index_id, self._digest_name)
            except (IntegrityError, FormatError):
                continue  # it stays where it is, and `damaged` names it
            if found is not None:
                merged.update({pack.id: pack for pack in found})
                whole.append(index_id)
        self._replace(list(merged.values()), whole)

    def _replace(self, packs: list[Pack], replaced: list[str], dropped: Collection[Pack] = ()) -> None:
        """Write one index file in place of others, which are deleted only after it is there.

        Args:
            dropped: What those name and this one does not, since it is gone.
        """
        index_id = self._write(packs)
        for old in replaced:
            if old != index_id:
                self._store.delete(index_key(old))
        # An index file that was written meanwhile, for a pack that is there again, has the name of a deleted
        # one where it says the very same.
        there = self._pack_ids() if dropped else set()
        if again := [pack for pack in dropped if pack.id in there]:
            self._write(again)

    def _write(self, packs: Collection[Pack]) -> str:
        index_id, data = encode_index(packs, self._digest_name)
        self._store.write(index_key(index_id), data)  # though it may be there: what is there may be damaged
        return index_id

    def _load_new(self) -> bool:
        """Take in index files not seen so far; whether one vanished between listing and reading."""
        vanished = False
        present = index_ids(self._store)
        self._damaged = {index_id: it for index_id, it in self._damaged.items() if index_id in present}
        for index_id in present:
            if index_id in self._loaded:
                continue
            try:
                packs = read_index(self._store, index_id, self._digest_name)
            except (IntegrityError, FormatError) as error:
                self._damaged[index_id] = FileDamage(index_key(index_id), error)
                continue
            if packs is None:
                vanished = True
                continue
            for pack in packs:
                self._index.add(pack)
            self._loaded.add(index_id)
            self._damaged.pop(index_id, None)
        return vanished
