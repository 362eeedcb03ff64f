"""Savepoints as asset events: one asset for each job, one event for each savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "streambank"

EVENT_FIELDS = (
    "savepoint",
    "job",
    "batch",
    "taken_at",
    "bytes",
    "new_bytes",
    "files",
    "already_there",
)
"""What an event's `extra` may carry. A list of what is wanted, so that nothing else ever gets out."""


def savepoint_asset(job: str) -> Asset:
    """The asset whose events are the savepoints of a job.

    Args:
        job: The job's name, or `job/query`; the queries of a job share its asset.
    """
    name = job.partition("/")[0]
    return Asset(name=f"{SCHEME}/{name}/savepoints", uri=f"{SCHEME}://savepoints/{name}", group=SCHEME)


def savepoint_alias(job: str) -> AssetAlias:
    """For tasks that may take a savepoint: an event comes through it only when one was taken."""
    return AssetAlias(name=savepoint_asset(job).name, group=SCHEME)


def event_extra(result: Mapping[str, Any]) -> dict[str, Any]:
    """What an asset event says about a savepoint: never a location, or anything that could be secret."""
    return {name: result[name] for name in EVENT_FIELDS if name in result}


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Airflow's check of `streambank://` asset URIs.

    Raises:
        ValueError: The URI is not `streambank://savepoints/JOB`.
    """
    job = uri.path.strip("/")
    if uri.netloc != "savepoints" or not job or "/" in job:
        raise ValueError(f"An asset URI of Streambank reads {SCHEME}://savepoints/JOB, not {uri.geturl()}.")
    return uri
