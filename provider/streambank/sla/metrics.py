"""The metrics that are measured of each batch, by name: the last part of a name is its unit.

What each one is, where Spark says it, and what stands for it without the runner: docs/reference/sla.md, whose
table a test holds to this one.
"""

from __future__ import annotations

METRICS = (
    *("input_rows", "state_rows", "state_bytes", "state_memory_bytes"),
    *("updated_rows", "removed_rows", "dropped_rows"),
    *("batch_s", "wal_s", "state_commit_s", "commit_s", "checkpoint_s", "get_ms", "put_ms"),
    *("snapshot_age_batches", "watermark_lag_s", "source_lag_rows", "gap_s"),
    *("checkpoint_bytes", "checkpoint_files", "oldest_snapshot_age_batches"),
)
"""In the order of the table."""


def unit_of(metric: str) -> str:
    """The unit of a metric: `rows`, `bytes`, `s`, `ms`, `batches` or `files`; a kB is 1000 bytes."""
    return metric.rpartition("_")[2]
