"""How far a stream is in event time, as sensors and triggers look at it again and again.

A declared job's current generation counts, so a restore that goes back is seen; any other query is looked at
by its checkpoint directory, without a jobs file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from streambank.checkpoint.watermark import committed_watermark
from streambank.core.errors import InputError
from streambank.core.units import EPOCH, from_epoch_ms, from_json_time, to_json_time
from streambank.job.watermarks import EventTime, event_time_of
from streambank.storage import S3Access, open_store, using_s3
from streambank_airflow.watch.job import JobView, JobWatcher

UNMANAGED = "unmanaged"
"""The state of a query of which only the checkpoint is known."""

LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
"""The last moment that a calendar can say; a row with a wild event time can lift a watermark above it."""
_MOMENT_HINT = (
    'Write an ISO-8601 time with its zone, or a template such as "{{ data_interval_end }}"; a run that an '
    "asset or a person triggered may have no data interval."
)


@dataclass(slots=True)
class EventTimeWatcher:
    """Looks at how far some queries are, and at nothing else.

    Args:
        access: How S3 is reached, with every look; None for what the process's own settings say.
    """

    find: Callable[[], EventTime]
    access: S3Access | None = None

    @classmethod
    def of_job(cls, watcher: JobWatcher) -> EventTimeWatcher:
        return cls(lambda: event_time_of(watcher.job, watcher.follow(), watcher.query), watcher.access)

    @classmethod
    def of_checkpoint(cls, location: str, access: S3Access | None) -> EventTimeWatcher:
        """Of a query that no jobs file declares."""
        with using_s3(access):
            store = open_store(location)

        def find() -> EventTime:
            found = committed_watermark(store)
            return EventTime(found.batch, found.watermark_ms) if found else EventTime()

        return cls(find, access)

    def look(self) -> EventTime:
        """How far they are now."""
        with using_s3(self.access):
            return self.find()


@dataclass(slots=True)
class WatermarkWatcher:
    """Looks at a job's state, and at how far it is in event time.

    Args:
        job: Looks at the job's state; None for a query that is not declared.
    """

    name: str
    event_time: EventTimeWatcher
    job: JobWatcher | None = field(default=None)

    def look(self) -> JobView:
        """How the job is now, and how far: so ordered, what a driver committed at its end counts."""
        view = JobView(self.name, UNMANAGED) if self.job is None else self.job.look()
        found = self.event_time.look()
        return replace(
            view,
            batch=found.batch,
            watermark=spelled(found.watermark_ms),
            watermark_ms=found.watermark_ms,
            without_watermark=found.without,
        )


def spelled(moment_ms: int | None) -> str | None:
    """Spark's milliseconds as ISO-8601; None for none, or for what no calendar can say."""
    moment = None if moment_ms is None else from_epoch_ms(moment_ms)
    return None if moment is None else to_json_time(moment)


def as_moment(value: Any, option: str) -> datetime:
    """A moment that may have come through a template.

    Raises:
        InputError: It is none (code `bad-option`), or has no time zone (code `bad-time`).
    """
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        raise InputError(
            f"{option} must be a time, not {value!r}.", code="bad-option", hint=_MOMENT_HINT
        ) from error
    if moment.tzinfo is None:
        raise InputError(f"{option} is {value!s}, without a time zone.", code="bad-time", hint=_MOMENT_HINT)
    return from_json_time(moment.isoformat())


def to_epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded up: a watermark that has passed them has passed the moment."""
    return -((EPOCH - moment) // timedelta(milliseconds=1))
