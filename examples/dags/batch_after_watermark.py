"""Batch work that follows the event time of the job `flights`, in two ways. Neither occupies a worker slot.

`flights.hours` starts whenever hours of departures are complete: the watcher of an asset starts it, from the
triggerer. `flights.days` has its own schedule, a run for each day of 2013, and waits until that day is
complete.

Both read the job's output by the log of its file sink: files that no batch has committed do not count.
Copy this file into your DAGs folder, and set STREAMBANK_JOBS, or `[streambank] jobs` in Airflow's
configuration, to your own jobs file.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowSkipException

from streambank_airflow.airflow_versions import CronDataIntervalTimetable
from streambank_airflow.assets import watermark_asset
from streambank_airflow.configuration import installed_jobs_file
from streambank_airflow.sensors.watermark import WatermarkSensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JOB = "flights"
JOBS_FILE = installed_jobs_file() or str(Path(__file__).resolve().parents[2] / "dags" / "streaming_jobs.toml")
COLUMNS = ("scheduled", "departed", "delayed")

hours = watermark_asset(JOB, every="1h", jobs_file=JOBS_FILE)


def interval(events: Iterable[Any]) -> tuple[datetime | None, datetime]:
    """The interval of one or more events of the asset: Airflow may start one run for several of them.

    Returns:
        Its begin and end. The begin is None if an event has no start: the very first event, and the one after
        a restore that went back.
    """
    payloads = [event.extra["payload"] for event in events]
    starts = [None if each["start"] is None else datetime.fromisoformat(each["start"]) for each in payloads]
    known = [start for start in starts if start is not None]
    begin = min(known) if len(known) == len(starts) else None
    return begin, max(datetime.fromisoformat(each["end"]) for each in payloads)


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
    """The rows that the job has written and committed."""
    from io import BytesIO

    import pyarrow.parquet as parquet

    from streambank.declaration.load import load_jobs
    from streambank.sinks.file.log import Roots, chain, list_log, read_entry
    from streambank.storage import open_store

    job = load_jobs(JOBS_FILE).job(JOB)
    output = open_store(job.args[job.args.index("--output") + 1])
    names = list_log(output)
    entries = chain(names, max(names).batch, output.uri) if names else []
    for file in (one for name in entries for one in read_entry(output, name, Roots(output.uri))):
        assert file.key is not None, f"{file.uri} is not in {output.uri}"
        yield from parquet.read_table(BytesIO(output.read(file.key)), columns=["hour", *COLUMNS]).to_pylist()


with DAG("flights.hours", schedule=[hours], catchup=False, tags={"streambank", "example"}, doc_md=__doc__):

    @task
    def report(triggering_asset_events: Any = None) -> dict[str, Any]:
        """Sum up the hours that have become complete."""
        if not (events := triggering_asset_events[hours]):
            raise AirflowSkipException("Nothing to sum up: only an event of the asset says which hours.")
        return departures(*interval(events))

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
        retries=2,  # Airflow 3.3 may fail a task whose wait is over at once: another try sees that it is
        retry_delay=timedelta(seconds=5),
    )

    @task
    def report_of_day(data_interval_start: Any = None, data_interval_end: Any = None) -> dict[str, Any]:
        """Sum up one day."""
        return departures(data_interval_start, data_interval_end)

    complete >> report_of_day()
