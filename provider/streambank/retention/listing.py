"""Listing expired savepoints: which can still be brought back, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from streambank.core.errors import NotFoundError, StreambankError
from streambank.core.times import to_json_time
from streambank.repository.manifest import Manifest
from streambank.retention.expired import UNUSABLE, expired_savepoints, may_be_pinned, read_copy, unlisted
from streambank.storage.store import Store


@dataclass(frozen=True, slots=True)
class ExpiredSummary:
    """One expired savepoint as a listing shows it.

    Attributes:
        savepoint: Its id.
        job: `job` or `job/query`.
        expired_at: When it was expired, by the clock of the storage, in UTC.
        until: Until then no sweep with the grace that was asked for removes it; None as long as it is pinned.
        manifest: What it is, without its files; None where the copy of its manifest cannot be used.
        error: Why not: it cannot be brought back then.
    """

    savepoint: str
    job: str
    expired_at: datetime
    until: datetime | None
    manifest: Manifest | None
    error: StreambankError | None = None

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        known = self.manifest
        return {
            "savepoint": self.savepoint,
            "job": self.job,
            "batch": known.batch if known else None,
            "taken_at": to_json_time(known.taken_at) if known else None,
            "bytes": known.bytes if known else None,
            "files": known.file_count if known else None,
            "note": known.note if known else None,
            "expired_at": to_json_time(self.expired_at),
            "until": to_json_time(self.until) if self.until else None,
            "error": self.error.message if self.error else None,
        }


def expired_summaries(store: Store, grace_s: float, job: str | None = None) -> list[ExpiredSummary]:
    """Every savepoint that is not listed and can be brought back, by job and then by batch.

    Args:
        store: The repository's root.
        grace_s: The grace of the sweeps that come.
        job: Only this one: for `job` its queries too, for `job/query` that query.
    """
    found = []
    for copy in unlisted(store, expired_savepoints(store)):
        if job is not None and copy.job != job and not copy.job.startswith(f"{job}/"):
            continue
        manifest: Manifest | None = None
        error: StreambankError | None = None
        try:
            manifest = read_copy(store, copy)
        except NotFoundError:
            continue  # a sweep was faster
        except UNUSABLE as unusable:
            error = unusable
        at = datetime.fromtimestamp(copy.expired_ns / 1e9, UTC)
        until = None if may_be_pinned(store, *copy.which) else at + timedelta(seconds=grace_s)
        found.append(ExpiredSummary(copy.savepoint, copy.job, at, until, manifest, error))
    return sorted(found, key=lambda each: (each.job, each.savepoint))
