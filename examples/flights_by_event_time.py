"""Batch work that follows the job `flights` by its event time, in two ways. Neither has a worker that waits.

`flights.hours` starts whenever hours of departures are complete: an asset's watcher tells it, from the
triggerer. `flights.days` has a schedule of its own, a run for each day of 2013, and waits until that day is
complete.

Both read what the job has written, by the log of its file sink: files that no batch has committed are no
output. Copy this file into your DAGs folder, and set STREAMBANK_JOBS where the declaration is not the one of
this project.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, CronDataIntervalTimetable, task

from streambank_airflow.assets import watermark_asset
from streambank_airflow.sensors.watermark import WatermarkSensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JOB = "flights"
JOBS_FILE = os.environ.get("STREAMBANK_JOBS") or str(
    Path(__file__).resolve().parent.parent / "dags" / "streaming_jobs.toml"
)
COLUMNS = ("scheduled", "departed", "delayed")

hours = watermark_asset(JOB, every="1h", jobs_file=JOBS_FILE)


def interval(events: Iterable[Any]) -> tuple[datetime | None, datetime]:
    """What some events of the asset say together: Airflow may start one run for several of them.

    Returns:
        Its begin and end; no begin where an event says that nobody knows how far it was told before: the very
        first one, and one after a restore that went back.
    """
    told = [event.extra["payload"] for event in events]
    starts = [None if each["start"] is None else datetime.fromisoformat(each["start"]) for each in told]
    known = [start for start in starts if start is not None]
    begin = min(known) if len(known) == len(starts) else None
    return begin, max(datetime.fromisoformat(each["end"]) for each in told)


def departures(start: datetime | None, end: datetime) -> dict[str, Any]:
    """How many flights were scheduled, departed and delayed in the hours from `start` (or ever) to `end`."""
    sums = dict.fromkeys(COLUMNS, 0)
    for row in rows():
        hour = row["hour"] if row["hour"].tzinfo else row["hour"].replace(tzinfo=UTC)
        if hour < end and (start is None or hour >= start):
            for column in COLUMNS:
                sums[column] += row[column]
    return {"start": None if start is None else start.isoformat(), "end": end.isoformat(), **sums}


def rows() -> Iterator[dict[str, Any]]:
    """What the job has written and committed."""
    from io import BytesIO

    import pyarrow.parquet as parquet

    from streambank.declaration.declaration import load_jobs
    from streambank.sinks.file.log import Roots, list_log, read_log
    from streambank.storage import open_store

    job = load_jobs(JOBS_FILE).job(JOB)
    output = open_store(job.args[job.args.index("--output") + 1])
    log = read_log(output, list_log(output), Roots(output.uri))
    if log.latest is None:
        return
    for file in log.files(log.chain(log.latest, output.uri)).values():
        assert file.key is not None, f"{file.uri} is not in {output.uri}"
        yield from parquet.read_table(BytesIO(output.read(file.key)), columns=["hour", *COLUMNS]).to_pylist()


with DAG("flights.hours", schedule=[hours], catchup=False, tags={"streambank", "example"}, doc_md=__doc__):

    @task
    def report(triggering_asset_events: Any = None) -> dict[str, Any]:
        """Sum up the hours that have become complete."""
        return departures(*interval(triggering_asset_events[hours]))

    report()

with DAG(
    "flights.days",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    complete = WatermarkSensor(
        task_id="complete",
        job=JOB,
        jobs_file=JOBS_FILE,
        moment="{{ data_interval_end }}",
        deferrable=True,
    )

    @task
    def report_of_day(data_interval_start: Any = None, data_interval_end: Any = None) -> dict[str, Any]:
        """Sum up one day."""
        return departures(data_interval_start, data_interval_end)

    complete >> report_of_day()
