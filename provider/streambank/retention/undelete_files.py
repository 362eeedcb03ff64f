"""Bringing back files that were deleted in a bucket with versions, where a delete only lays a marker on them.

Under S3 Object Lock all of a locked savepoint stays there, with whatever credentials it was deleted. Markers
are removed and nothing else, never a version of a file. Objects come back before manifests, so that each
savepoint that is listed is complete; a process that dies in between leaves the rest to the next one. The
index is made again from the packs: it is not locked, and what of it was replaced long ago would come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from itertools import islice
from typing import Any

from streambank.core.errors import RefusedError, StorageError
from streambank.core.shape import encode
from streambank.repository.header import HEADER_KEY
from streambank.repository.holds import is_hold
from streambank.repository.repository import Repository
from streambank.storage.store import Covered, Store, Versioned
from streambank.storage.threads import at_once, each
from streambank.work.pace import Meter, Progress

_SAVEPOINTS = "savepoints/"
_IN_ORDER = (
    HEADER_KEY,
    "objects/",
    "packs/",
    "jobs/",
    "expired/",
    "signatures/",
    "marks/",
    "names/",
    _SAVEPOINTS,
)
"""What comes back of a repository, manifests last. What a sweep notes for itself (`condemned/`) and how far
verification is (`sampling/`) do not."""
_AT_A_TIME = 1000


@dataclass(slots=True)
class UndeleteFilesReport:
    """What comes back, or came back.

    Attributes:
        since: Only what was deleted then or later; None for everything.
        savepoints: The savepoints whose manifests are among them, as `job/savepoint`.
        first_deleted_at: When the first of them was deleted; None where there is none.
        days: Files by the day, in UTC, on which they were deleted.
        indexed_packs: How many packs the index names now; None where it was not made again.
    """

    location: str
    since: datetime | None
    dry_run: bool
    files: int = 0
    bytes: int = 0
    savepoints: list[str] = field(default_factory=list)
    first_deleted_at: datetime | None = None
    last_deleted_at: datetime | None = None
    days: Counter[date] = field(default_factory=Counter)
    undeleted: int = 0
    indexed_packs: int | None = None

    def add(self, file: Covered) -> None:
        """Count a file."""
        self.files += 1
        self.bytes += file.size_bytes
        self.days[file.deleted_at.date()] += 1
        self.first_deleted_at = min(self.first_deleted_at or file.deleted_at, file.deleted_at)
        self.last_deleted_at = max(self.last_deleted_at or file.deleted_at, file.deleted_at)
        if file.key.startswith(_SAVEPOINTS):
            self.savepoints.append(file.key.removeprefix(_SAVEPOINTS).removesuffix(".json"))

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "savepoints": sorted(self.savepoints),
            "days": {f"{day:%Y-%m-%d}": files for day, files in sorted(self.days.items())},
        }


def undelete_files(
    store: Store, *, since: datetime | None = None, dry_run: bool = False, progress: Progress | None = None
) -> UndeleteFilesReport:
    """Bring back the deleted files of a repository, or of any other location, such as a job's records.

    Args:
        store: Where. The repository need not have its header any more.
        since: Only what was deleted then or later, by the service's clock.

    Raises:
        RefusedError: Nothing that is deleted there is kept (code `no-versions`).
        IntegrityError: The index cannot be made again.
    """
    versions = _require_versions(store)
    report = UndeleteFilesReport(store.uri, since, dry_run)
    whole = store.exists(HEADER_KEY) or any(versions.covered(HEADER_KEY))
    prefixes = _IN_ORDER if whole else ("",)

    def covered(prefix: str) -> Iterator[Covered]:
        return (
            file
            for file in versions.covered(prefix)
            if (since is None or file.deleted_at >= since) and not is_hold(file.key)
        )

    for prefix in prefixes:
        for file in covered(prefix):
            report.add(file)
    if not dry_run:
        meter = Meter(progress, "undelete", report.files, report.bytes)
        for prefix in prefixes:
            report.undeleted += _uncover(store, versions, partial(covered, prefix), meter)
        if whole:
            report.indexed_packs = Repository.open(store).objects.index.rebuild().packs
    return report


def _require_versions(store: Store) -> Versioned:
    if isinstance(store, Versioned) and store.keeps_versions():
        return store
    raise RefusedError(
        f"What is deleted in {store.uri} is not kept: it is in no S3 bucket with versioning.",
        code="no-versions",
        hint="Bring it back from a replica (`streambank replicate`) or a backup. A bucket keeps what is "
        "deleted only from the moment on at which it has versioning, or Object Lock.",
    )


def _uncover(
    store: Store, versions: Versioned, covered: Callable[[], Iterator[Covered]], meter: Meter
) -> int:
    """Remove markers until nothing is covered: below one marker there may be another."""
    back: set[str] = set()
    removed: set[tuple[str, str]] = set()
    while True:
        files, found = covered(), False
        while some := list(islice(files, _AT_A_TIME)):
            found = True
            if again := [file for file in some if (file.key, file.marker) in removed]:
                raise StorageError(
                    f"{store.uri}/{again[0].key} is still covered by a delete marker that was removed.",
                    code="storage",
                    hint="Report it to the maker of the service.",
                )
            for file, _ in zip(some, each(versions.uncover, some, at_once(store)), strict=True):
                removed.add((file.key, file.marker))
                meter.add(file.key not in back, 0 if file.key in back else file.size_bytes)
                back.add(file.key)
        if not found:
            return len(back)
