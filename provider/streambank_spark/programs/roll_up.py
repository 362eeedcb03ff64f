"""Long histories in little room: the driver of `spark_jobs/roll_up_progress.py`.

Progress records of jobs become a row for each hour, operator and metric, in Parquet. Only hours that are over
and not yet there are worked on. Executors read and measure; this process alone adds files, so that an
executor that is lost, or tried twice, changes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.control.generations import MAIN
from streambank.control.segments import is_segment
from streambank.core.errors import ConflictError, InputError, NotFoundError, StorageError, StreambankError
from streambank.core.units import parse_bytes, parse_duration_s, to_json_time, utc_now
from streambank.declaration.declaration import load_jobs
from streambank.sla.history.history import Records, file_heads
from streambank.sla.history.sharded import PORTION_BYTES, Portion, portions
from streambank.storage import local_path, open_store
from streambank.storage.names import check_job_name
from streambank.storage.store import Store
from streambank_spark.failures import say_error
from streambank_spark.programs.hourly import Counted, Listening, Source, rolled_hours, together
from streambank_spark.programs.rolled import HourRow, Mark, add, marks, moment
from streambank_spark.submit.bundle import PACKAGES, write_bundle, write_packages

SETTLE = "10m"
"""How long after its end an hour counts as over: a driver may write down a batch a little later."""


class RolledUp(NamedTuple):
    """What became of one query.

    Attributes:
        job: Its job.
        query: Its name, or `main`.
        begin: From where on hours were rolled up; None for the beginning.
        end: Before when.
        hours: Hours that were added.
        rows: Rows that were added.
        counts: What was seen of its records.
        overtaken: Somebody else has rolled up the rest meanwhile.
    """

    job: str
    query: str
    begin: datetime | None
    end: datetime
    hours: int
    rows: int
    counts: Mapping[str, int]
    overtaken: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "job": self.job,
            "query": self.query,
            "from": to_json_time(self.begin) if self.begin else None,
            "to": to_json_time(self.end),
            "hours": self.hours,
            "rows": self.rows,
            **self.counts,
            "overtaken": self.overtaken,
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Roll up what the arguments name.

    Returns:
        The exit code: 0, or that of the error (errors.py), which stderr shows as a sentence and a hint.
    """
    try:
        options = parse(argv)
        control, jobs = _jobs(options)
        spark = SparkSession.builder.appName("streambank-roll-up-progress").getOrCreate()
        try:
            with TemporaryDirectory(prefix="streambank-roll-up-") as folder:
                ship(spark, Path(folder), [control])
                found = roll_up(
                    spark,
                    control,
                    jobs,
                    open_store(options.output),
                    now=utc_now() - timedelta(seconds=options.settle),
                    portion_bytes=options.portion,
                )
        except PySparkException as error:
            raise StorageError(
                f"Spark could not roll up the records: {str(error).strip().splitlines()[0]}",
                code="spark-failed",
                hint="The whole of it is in the driver's log. What was added so far stays: try again.",
            ) from error
        finally:
            spark.stop()
        if options.report is not None:
            report = {"output": options.output, "queries": [one.to_dict() for one in found]}
            options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        _refuse_overtaken(found)
    except StreambankError as error:
        return say_error(error)
    return 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments.

    Raises:
        InputError: Some do not go together, or are none (codes `usage`, `bad-duration`, `bad-size`).
    """
    parser = argparse.ArgumentParser(
        prog="roll_up_progress.py",
        description="Roll up the progress records of jobs to Parquet: for each hour that is over, query, "
        "operator and metric the number of batches, minimum, median, 95th percentile and maximum.",
    )
    parser.add_argument("--jobs", metavar="FILE", help="the declared jobs (streaming_jobs.toml)")
    parser.add_argument(
        "--control", metavar="LOCATION", help="instead: where the records of jobs are, <repository>/jobs"
    )
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="only this; repeatable")
    parser.add_argument("--output", "-o", required=True, metavar="LOCATION", help="a folder for the Parquet")
    parser.add_argument(
        "--settle", default=SETTLE, help="an hour is over so long after its end (default: %(default)s)"
    )
    parser.add_argument(
        "--portion", default=str(PORTION_BYTES), help="how much of a history one task reads (default: 128MB)"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was done here, as JSON")
    options = parser.parse_args(argv)
    if (options.jobs is None) == (options.control is None):
        raise InputError(
            "Say where the records are, once.", code="usage", hint="Give --jobs FILE, or --control LOCATION."
        )
    options.settle = parse_duration_s(options.settle)
    options.portion = int(options.portion) if options.portion.isdecimal() else parse_bytes(options.portion)
    if options.portion < 1:
        raise InputError("A portion holds one byte at least.", code="usage", hint="Say how much: 128MB.")
    return options


def _jobs(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The control location, and the jobs in question.

    Raises:
        InputError: The jobs file is wrong.
        NotFoundError: A job is not there (codes `no-such-job`, `no-history`).
    """
    if options.jobs is not None:
        declared = load_jobs(options.jobs)
        chosen = [declared.job(name) for name in options.job or declared.jobs]
        controls = sorted({job.control for job in chosen}) or [declared.control]
        if len(controls) > 1:
            raise InputError(
                f"The records of these jobs are at {len(controls)} locations: {', '.join(controls)}.",
                code="usage",
                hint="Name the jobs of one of them with --job.",
            )
        return controls[0], [job.name for job in chosen]
    control = str(options.control)
    store = open_store(control)
    named = [check_job_name(name) for name in options.job]
    jobs = named or [name for name in store.names() if store.names(f"{name}/progress")]
    missing = [name for name in jobs if not store.names(f"{name}/progress")]
    if missing or not jobs:
        raise NotFoundError(
            f"There are no progress records of {', '.join(missing) or 'any job'} at {control}.",
            code="no-history",
            hint="Name the location that holds a folder for each job, by default <repository>/jobs.",
        )
    return control, jobs


def ship(spark: SparkSession, folder: Path, locations: Iterable[str]) -> None:
    """Bring executors what is installed here: the code, and what S3 needs where records are there.

    Args:
        spark: Whose executors.
        folder: Where the zips are kept for as long as Spark runs.
        locations: Where records are.
    """
    context = spark.sparkContext
    context.addPyFile(str(write_bundle(folder / f"{folder.name}.zip")))
    if any(local_path(open_store(one).uri) is None for one in locations):
        context.addArchive(f"{write_packages(folder / 'packages.zip', ['boto3'])}#{PACKAGES}")


def roll_up(
    spark: SparkSession,
    control: str,
    jobs: Sequence[str],
    output: Store,
    *,
    now: datetime,
    portion_bytes: int = PORTION_BYTES,
) -> list[RolledUp]:
    """Add the hours that are over and not yet there, query by query, oldest first.

    Args:
        spark: What works.
        control: The location of the jobs' records.
        jobs: Which.
        output: Where the files are.
        now: Hours that end by then are over.
        portion_bytes: How much of a history one task reads.

    Returns:
        What became of each query.

    Raises:
        StreambankError: Records cannot be read, or files not be written.
        PySparkException: Spark failed.
    """
    end = now.replace(minute=0, second=0, microsecond=0)
    sources: list[Source] = []
    work: list[tuple[int, Portion]] = []
    for source, own in _planned(control, jobs, output, end, portion_bytes):
        begin = f"from {to_json_time(source.begin)}" if source.begin else "from the beginning"
        _say(f"{source.job}/{source.query}: {len(source.heads)} files in {len(own)} portions, {begin}")
        work += [(len(sources), portion) for portion in own]
        sources.append(source)
    if not work:
        _say("There is nothing to roll up.")
        return []
    gathered = spark.sparkContext.accumulator(
        {}, Listening(lambda done: _say(f"{done} of {len(work)} portions read"))
    )
    rows = rolled_hours(spark, sources, work, gathered)
    by_source = itertools.groupby(rows, key=lambda one: one[0])
    waiting = dict(enumerate(sources))
    found = []
    for place, of_source in by_source:
        source = waiting.pop(place)
        found.append(_added(source, _counted(place, source, work, gathered.value), of_source, output))
    # Those of which no hour was over had no row.
    found += [
        _added(source, _counted(place, source, work, gathered.value), iter(()), output)
        for place, source in waiting.items()
    ]
    return found


def _planned(
    control: str, jobs: Sequence[str], output: Store, end: datetime, portion_bytes: int
) -> Iterator[tuple[Source, list[Portion]]]:
    for job in jobs:
        store = open_store(control).child(job)
        queries = [
            name
            for name in store.names("progress")
            if any(is_segment(file) for file in store.names(f"progress/{name}"))
        ]
        known = marks(output, job, queries)
        for query in queries:
            mark = known[query]
            if mark.through is not None and mark.through >= end:
                continue
            records = Records.of_query(store, None if query == MAIN else query)
            heads = tuple(file_heads(records, mark.through))
            own = portions(records, heads, began=mark.runs, portion_bytes=portion_bytes)
            yield Source(job, query, store.uri, heads, end, mark), own


def _counted(
    place: int, source: Source, work: Sequence[tuple[int, Portion]], gathered: Mapping[int, Counted]
) -> Counted:
    own = [gathered[number] for number, (of, _) in enumerate(work) if of == place]
    return together(own, source.mark)


def _added(source: Source, counted: Counted, rows: Iterator[tuple[int, HourRow]], output: Store) -> RolledUp:
    """Add a file for each day, oldest first."""
    hours: set[int] = set()
    count, overtaken = 0, False
    mark = Mark(source.end, counted.seen, counted.runs)
    for _, of_day in itertools.groupby((row for _, row in rows), key=lambda row: moment(row.hour).date()):
        day = list(of_day)
        if overtaken:
            continue
        try:
            add(output, source.job, source.query, day, begin=source.begin, mark=mark)
        except ConflictError as error:
            if error.code != "exists":
                raise
            overtaken = True
            continue
        count += len(day)
        hours.update(row.hour for row in day)
    done = RolledUp(
        source.job, source.query, source.begin, source.end, len(hours), count, counted.counts, overtaken
    )
    _say(f"{source.job}/{source.query}: {_said(done)}")
    return done


def _said(done: RolledUp) -> str:
    told = [f"{done.hours:,} hours added, {done.rows:,} rows of {done.counts['records']:,} batches"]
    names = {
        "late": "came too late for their hour and are left out",
        "damaged": "lines are damaged",
        "torn": "files end in half a line",
        "lost": "batches have no record",
        "duplicates": "records are there twice",
        "stale": "records are of drivers that had lost their lease",
    }
    told += [f"{done.counts[name]:,} {text}" for name, text in names.items() if done.counts[name]]
    if done.overtaken:
        told.append("the rest was rolled up by somebody else meanwhile")
    return "; ".join(told)


def _refuse_overtaken(found: Iterable[RolledUp]) -> None:
    names = [f"{one.job}/{one.query}" for one in found if one.overtaken]
    if names:
        raise ConflictError(
            f"Somebody else rolled up {', '.join(names)} at the same time.",
            code="rolled-up-meanwhile",
            hint="Nothing is there twice. Run it again for what is still missing, and only one at a time.",
        )


def _say(text: str) -> None:
    print(text, flush=True)
