"""Assets of a job: its savepoints, one event each; how far it is, for DAGs that follow a stream; its SLA.

One more, of the job's page, has no events: what the page shows is kept with it. All but these two have a
watcher: while a DAG that is not paused is scheduled by them, the triggerer looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from airflow.sdk import Asset, AssetAlias, AssetWatcher

from streambank_airflow.page.names import PAGES, page_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.triggers.base import BaseEventTrigger

SCHEME = "streambank"

_STREAMS = {"watermark": "watermarks", "batch": "batches", "sla": "slas"}

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


def page_asset(job: str) -> Asset:
    """The asset with which Airflow keeps what the page shows of a job (page/store.py); it has no events."""
    return Asset(name=page_name(job), uri=f"{PAGES}{job}", group=SCHEME)


def savepoint_alias(job: str | None) -> AssetAlias:
    """For tasks that may take a savepoint: an event comes through it only when one was taken.

    Args:
        job: None where only a run knows it: one alias stands for all such jobs.
    """
    return AssetAlias(f"{SCHEME}/savepoints" if job is None else savepoint_asset(job).name, group=SCHEME)


def event_extra(result: Mapping[str, Any]) -> dict[str, Any]:
    """What an asset event says about a savepoint: never a location, or anything that could be secret."""
    return {name: result[name] for name in EVENT_FIELDS if name in result}


def watermark_asset(job: str, every: str = "1h", **how: Any) -> Asset:
    """The asset whose events tell that intervals of a stream's event time are complete.

    All DAGs that follow the same job by the same intervals share it, and must give the same arguments.

    Args:
        job: The declared job, or `job/query`; the name of a query that `checkpoint` leads to.
        every: Length of an interval: `15m`, `1h`, `1d`.
        how: `jobs_file`, `checkpoint`, `streambank_conn_id`, `poll_interval_s`: as
            `triggers.events.WatermarkEventTrigger` takes them.
    """
    from streambank_airflow.triggers.events import WatermarkEventTrigger

    trigger = WatermarkEventTrigger(job=job, every=every, **how)
    return _stream_asset("watermark", job, every, trigger)


def batch_asset(job: str, every: int = 1, **how: Any) -> Asset:
    """The asset whose events tell that a stream has committed batches.

    Args:
        job: As for `watermark_asset`.
        every: After how many batches there is another event.
    """
    from streambank_airflow.triggers.events import BatchCommittedEventTrigger

    trigger = BatchCommittedEventTrigger(job=job, every=every, **how)
    return _stream_asset("batch", job, str(every), trigger)


def sla_asset(job: str, least: str = "breach", **how: Any) -> Asset:
    """The asset whose events tell that something of a job's SLA broke or has healed.

    Args:
        job: As for `watermark_asset`.
        least: From which level on there is an event: `warn` or `breach`.
        how: See there, but the triggerer looks once a minute by default.
    """
    from streambank_airflow.triggers.sla import SlaEventTrigger

    return _stream_asset("sla", job, least, SlaEventTrigger(job=job, least=least, **how))


def _stream_asset(kind: str, job: str, every: str, trigger: BaseEventTrigger) -> Asset:
    place = f"{job}/{every}"
    return Asset(
        name=f"{SCHEME}/{job}/{kind}/{every}",
        uri=f"{SCHEME}://{_STREAMS[kind]}/{place}",
        group=SCHEME,
        watchers=[AssetWatcher(name=f"{SCHEME}.{kind}.{place}", trigger=trigger)],
    )


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Airflow's check of `streambank://` asset URIs.

    Raises:
        ValueError: The URI is none of those that the functions above make.
    """
    parts = uri.path.strip("/").split("/")
    known = (uri.netloc in ("savepoints", "pages") and len(parts) == 1) or (
        uri.netloc in _STREAMS.values() and len(parts) in (2, 3)
    )
    if not known or not all(parts):
        raise ValueError(
            f"A Streambank asset URI must be {SCHEME}://savepoints/JOB, {PAGES}JOB, "
            f"{SCHEME}://watermarks/JOB/EVERY, {SCHEME}://batches/JOB/EVERY or {SCHEME}://slas/JOB/LEVEL, "
            f"not {uri.geturl()}."
        )
    return uri
