"""Skew of a whole checkpoint or savepoint: every store of every operator, from the files alone.

Spark is not needed. What is read: the listing, the logs of one batch, and of each partition the metadata in
the zip of its newest snapshot (RocksDB) or nothing (HDFS-backed). Files that hold rows are not opened.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import ConflictError
from streambank.core.shape import encode
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.view import SavedFiles
from streambank.sla.skew.skew import DEFAULT_LIMIT, StoreSkew
from streambank.storage import Store

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SkewReport:
    """How evenly the state of a query is spread.

    Attributes:
        location: The checkpoint's URI, or `job/savepoint`.
        provider: `hdfs` or `rocksdb`; None for a query without state.
        limit: From which skew on a store is uneven.
    """

    location: str
    batch: int
    provider: str | None
    limit: float
    stores: tuple[StoreSkew, ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> StoreSkew | None:
        """The store of the largest skew, of uneven ones where there are any; None where there is no row."""
        spread = [store for store in self.stores if store.skew is not None]
        return max(spread, key=lambda store: (store.uneven, store.skew), default=None)

    @property
    def uneven(self) -> bool:
        return any(store.uneven for store in self.stores)

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"ok": not self.uneven}


def skew_of_checkpoint(store: Store, batch: int | None = None, *, limit: float = DEFAULT_LIMIT) -> SkewReport:
    """The skew of a checkpoint, whether its query runs or not.

    Raises:
        NotFoundError, FormatError: As `checkpoint.closure.plan_closure`.
        ConflictError: `checkpoint-moved`, each of several times that it was read.
    """
    reader = CheckpointReader(store)
    for _ in range(_ATTEMPTS - 1):
        # The query went on and cleaned up behind itself: there is a newer batch by now.
        with suppress(ConflictError):
            return skew_of_closure(store.uri, reader.closure(batch, "minimal"), limit=limit)
    return skew_of_closure(store.uri, reader.closure(batch, "minimal"), limit=limit)


def skew_of_savepoint(
    repository: Repository, manifest: Manifest, *, limit: float = DEFAULT_LIMIT
) -> SkewReport:
    """The skew of a savepoint, read where it lies.

    Raises:
        IntegrityError: Bytes of it are gone or damaged.
        FormatError: As `checkpoint.closure.plan_closure`.
    """
    closure = SavedFiles(repository, manifest).closure()
    return skew_of_closure(f"{manifest.job}/{manifest.savepoint}", closure, limit=limit)


def skew_of_closure(location: str, closure: Closure, *, limit: float = DEFAULT_LIMIT) -> SkewReport:
    """The skew of what a closure holds."""
    return SkewReport(
        location=location,
        batch=closure.batch,
        provider=closure.spark.provider,
        limit=limit,
        stores=tuple(
            StoreSkew(operator.operator, operator.name, store.store, store.parts, closure.spark.codec, limit)
            for operator in closure.operators
            for store in operator.stores
        ),
        notes=closure.notes,
    )
