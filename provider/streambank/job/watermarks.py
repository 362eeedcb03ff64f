"""How far the queries of a job are in event time, by the checkpoints of their current generations.

Not by their progress records: those are a moment late, lose the last poll of a driver that is killed, and
after a restore show the watermark of what was taken back. What they alone can tell is that a query has no
watermark at all, since Spark names one in each record of a query that has.
"""

from __future__ import annotations

from dataclasses import dataclass

from streambank.checkpoint.watermark import committed_watermark
from streambank.control.control import JobControl
from streambank.control.progress import last_progress
from streambank.declaration.declaration import Job
from streambank.storage import open_store


@dataclass(frozen=True, slots=True)
class EventTime:
    """How far some queries are, all of them together.

    Attributes:
        batch: The newest committed batch, of several queries the oldest such; None where one has none.
        watermark_ms: The watermark that it ran with, of several queries the earliest, milliseconds since the
            epoch; None where one has none yet.
        without: A query that has no watermark and will not get one, by what its living driver says; None
            where nothing says so.
    """

    batch: int | None = None
    watermark_ms: int | None = None
    without: str | None = None


def event_time_of(job: Job, control: JobControl, query: str | None = None) -> EventTime:
    """How far the queries of a declared job are, or one of them.

    Raises:
        StreambankError: As `committed_watermark`; or a record that counts is damaged.
    """
    batches: list[int | None] = []
    watermarks: list[int | None] = []
    without = None
    for name in job.queries if query is None else (query,):
        found = committed_watermark(open_store(control.checkpoint(name, job.queries[name])))
        batches.append(found.batch if found else None)
        watermarks.append(found.watermark_ms if found else None)
        if found is not None and found.watermark_ms is None and _has_none(control, name):
            without = name
    return EventTime(_least(batches), _least(watermarks), without)


def _least(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _has_none(control: JobControl, query: str | None) -> bool:
    """Whether a query has no watermark by the record of a batch of the driver that has the lease.

    Spark 4.3 (`ProgressContext.extractExecutionStats`) puts `watermark` into `eventTime` where the plan has a
    `withWatermark`, from the first batch on, and leaves an empty `eventTime` out.
    """
    last, view = last_progress(control.store, query), control.lease.view()
    if last is None or view is None or view.free or last.epoch != view.epoch:
        return False
    event_time = last.progress.get("eventTime")
    return not (isinstance(event_time, dict) and "watermark" in event_time)
