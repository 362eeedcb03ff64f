"""The output that the flights applications must have written, computed in one pass and without Spark.

    python spark_jobs/flights/expected.py hourly_delays --input DIR --output DIR [--within 60]
    python spark_jobs/flights/expected.py hourly_delays --kafka HOST:PORT --topic flights --output DIR

It reads the same input as the application: the files of its directory, or all records that its topic has now.

The batch computation follows the rule of append mode: a window is in the output exactly when the final
watermark (the latest event time read, minus the watermark delay) has reached its end. The closing record that
ends a replay lifts the watermark above every window with flights, so after it *all* of them are due.

The output is read as Spark reads it, by the file sink's own log: files that no batch committed do not count,
and rows that are there twice count twice.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

HOUR = timedelta(hours=1)
DELAYED_MIN = 15
HOT = "NYC"
WAY_BACK = 8

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Output against expectation, row for row.

    Attributes:
        expected: Rows that were due.
        found: Rows that are there.
        missing: Some of the rows that are due but not there.
        surplus: Some of the rows that are there too often, or that are there but not due.
        missing_count: How many are missing.
        surplus_count: How many are surplus.
    """

    expected: int
    found: int
    missing: list[Row] = field(default_factory=list)
    surplus: list[Row] = field(default_factory=list)
    missing_count: int = 0
    surplus_count: int = 0

    @property
    def equal(self) -> bool:
        """Whether every row that was due is there exactly once, and nothing else."""
        return not self.missing_count and not self.surplus_count

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON, with samples as text."""
        return {
            "equal": self.equal,
            "expected": self.expected,
            "found": self.found,
            "missing": self.missing_count,
            "surplus": self.surplus_count,
            "missing_sample": [str(row) for row in self.missing],
            "surplus_sample": [str(row) for row in self.surplus],
        }


def input_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Every record of a replay, in the order of its files; `event_time` as an aware datetime."""
    for path in sorted(folder.glob("flights-*.json")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                record["event_time"] = datetime.fromisoformat(record["event_time"])
                yield record


def topic_rows(servers: str, topic: str, within_s: float = 120.0) -> Iterator[dict[str, Any]]:
    """Every record that a topic holds now, partition by partition; `event_time` as an aware datetime.

    Args:
        servers: Where Kafka is, as `host:port`.
        topic: The topic; its values are what `replay.feed` writes.
        within_s: How many seconds the next records may take to arrive.

    Raises:
        OSError: The topic does not exist, or its records did not arrive in time.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": servers,
        "group.id": "expected",
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
    }
    consumer: Any = Consumer(settings)
    try:
        told = consumer.list_topics(topic, timeout=within_s).topics[topic]
        if told.error is not None:
            raise OSError(f"{topic} at {servers} cannot be read: {told.error}")
        for number in sorted(told.partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=within_s)
            if first == end:
                continue
            consumer.assign([TopicPartition(topic, number, first)])
            position = first
            while position < end:
                messages = consumer.consume(min(1000, end - position), timeout=within_s)
                if not messages:
                    raise OSError(
                        f"{topic}/{number} at {servers} sent nothing from {position} on; its end is {end}"
                    )
                for message in messages:
                    if message.error() is not None:
                        raise OSError(f"{topic}/{number} at {servers}: {message.error()}")
                    position = message.offset() + 1
                    record = json.loads(message.value())
                    record["event_time"] = datetime.fromisoformat(record["event_time"])
                    yield record
    except KafkaException as error:
        raise OSError(f"{topic} at {servers} cannot be read: {error}") from error
    finally:
        consumer.close()


def hourly_delays(records: Iterable[dict[str, Any]], watermark_delay: timedelta = HOUR) -> list[Row]:
    """What `hourly_delays.py` appends: (hour, origin, carrier, ...) as in its output columns.

    Args:
        records: What `input_rows` gives.
        watermark_delay: The application's `--watermark`.
    """
    groups: dict[tuple[datetime, str | None, str | None], list[dict[str, Any]]] = {}
    latest = datetime.min.replace(tzinfo=UTC)
    for record in records:
        event_time = record["event_time"]
        latest = max(latest, event_time)
        hour = event_time.replace(minute=0, second=0, microsecond=0)
        groups.setdefault((hour, record.get("origin"), record.get("carrier")), []).append(record)
    if not groups:
        return []
    watermark = latest - watermark_delay
    return [
        _hourly_row(hour, origin, carrier, group)
        for (hour, origin, carrier), group in groups.items()
        if hour + HOUR <= watermark
    ]


def _hourly_row(hour: datetime, origin: str | None, carrier: str | None, group: list[dict[str, Any]]) -> Row:
    delays = _present(group, "dep_delay_min")
    return (
        hour,
        origin,
        carrier,
        len(group),
        len(delays),
        sum(delay >= DELAYED_MIN for delay in delays),
        sum(delays) if delays else None,
        max(delays, default=None),
        max(_present(group, "temp_f"), default=None),
        max(_present(group, "wind_mph"), default=None),
        max(_present(group, "precip_in"), default=None),
        min(_present(group, "visibility_miles"), default=None),
    )


def _present(group: list[dict[str, Any]], name: str) -> list[Any]:
    return [value for record in group if (value := record.get(name)) is not None]


def aircraft_sessions(records: Iterable[dict[str, Any]], gap: timedelta = timedelta(hours=12)) -> list[Row]:
    """What `aircraft_sessions.py` appends, as long as no state outlives its time to live.

    Args:
        records: What `input_rows` gives.
        gap: The application's `--gap-hours`.
    """
    by_tail: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record.get("tailnum") is not None:
            by_tail.setdefault(record["tailnum"], []).append(record)
    rows: list[Row] = []
    for tailnum, legs in by_tail.items():
        legs.sort(key=lambda leg: (leg["event_time"], f"{leg['carrier']}{leg['flight']}"))
        first = last_at = None
        number = delay_min = 0
        for leg in legs:
            flight = f"{leg['carrier']}{leg['flight']}"
            if first is None or last_at is None or leg["event_time"] - last_at > gap:
                first, number, delay_min = (leg["event_time"], flight, leg["origin"]), 0, 0
            last_at = leg["event_time"]
            number += 1
            delay_min += leg["dep_delay_min"] or 0
            rows.append((tailnum, last_at, flight, leg["origin"], leg["dest"], *first, number, delay_min))
    return rows


def flight_history(records: Iterable[dict[str, Any]]) -> list[Row]:
    """What `flight_history.py` appends, whatever its `--salts`.

    Args:
        records: What `input_rows` returns: in order of event time, and no flight leaves twice at once.
    """
    last: dict[tuple[str, str], tuple[datetime, int | None, int]] = {}
    rows: list[Row] = []
    for record in records:
        if record.get("flight") is None:
            continue
        flight = f"{record['carrier']}{record['flight']}"
        airport = record["dest"] if zlib.crc32(flight.encode()) % WAY_BACK == 0 else HOT
        last_at, last_delay_min, departures = last.get((airport, flight), (None, None, 0))
        now = (record["event_time"], record["dep_delay_min"], departures + 1)
        last[airport, flight] = now
        rows.append((airport, flight, *now[:2], last_at, last_delay_min, departures + 1))
    return rows


COLUMNS: dict[str, tuple[str, ...]] = {
    "hourly_delays": (
        "hour",
        "origin",
        "carrier",
        "scheduled",
        "departed",
        "delayed",
        "delay_min_total",
        "delay_min_max",
        "temp_f",
        "wind_mph",
        "precip_in",
        "visibility_miles",
    ),
    "aircraft_sessions": (
        "tailnum",
        "event_time",
        "flight",
        "origin",
        "dest",
        "session_start",
        "first_flight",
        "first_origin",
        "leg",
        "delay_min_so_far",
    ),
    "flight_history": (
        "airport",
        "flight",
        "event_time",
        "dep_delay_min",
        "last_at",
        "last_delay_min",
        "departures",
    ),
}
"""The output columns of each application, in the order of the rows here."""


def committed_files(output: Path) -> list[Path]:
    """The data files that the file sink's log names: the newest compacted entry and all later ones."""
    log = output / "_spark_metadata"
    if not log.is_dir():
        return []
    entries = {path.name: path for path in log.iterdir() if re.fullmatch(r"\d+(\.compact)?", path.name)}
    compacted = max((int(name[:-8]) for name in entries if name.endswith(".compact")), default=-1)
    names = [f"{compacted}.compact"] if compacted >= 0 else []
    names += sorted((name for name in entries if name.isdigit() and int(name) > compacted), key=int)
    files: dict[str, None] = {}
    for name in names:
        for line in entries[name].read_text(encoding="utf-8").splitlines()[1:]:
            action = json.loads(line)
            if action["action"] == "add":
                files[action["path"]] = None
            else:
                files.pop(action["path"], None)
    return [Path(unquote(urlparse(path).path)) for path in files]


def output_rows(output: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Every committed row of a Parquet file sink; times as aware datetimes."""
    import pyarrow.parquet

    for path in committed_files(output):
        table = pyarrow.parquet.ParquetFile(path).read(columns=list(columns))
        for row in table.to_pylist():
            yield tuple(_utc(row[name]) for name in columns)


def _utc(value: Any) -> Any:
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value


def compare(expected: Iterable[Row], found: Iterable[Row], samples: int = 5) -> Comparison:
    """Count every row on both sides: the order of rows does not matter, their number does."""
    due, there = Counter(expected), Counter(found)
    missing, surplus = due - there, there - due
    return Comparison(
        expected=due.total(),
        found=there.total(),
        missing=list(missing)[:samples],
        surplus=list(surplus)[:samples],
        missing_count=missing.total(),
        surplus_count=surplus.total(),
    )


def check(
    application: str,
    source: Path | Iterable[dict[str, Any]],
    output: Path,
    *,
    watermark_delay: timedelta = HOUR,
    gap: timedelta = timedelta(hours=12),
    within_s: float = 0.0,
) -> Comparison:
    """Compare an application's output with its expectation; wait for rows that are still missing.

    Args:
        application: `hourly_delays`, `aircraft_sessions` or `flight_history`.
        source: Its input directory, or its input.
        output: Its output directory.
        watermark_delay: Its `--watermark`.
        gap: Its `--gap-hours`.
        within_s: For how many seconds no further row may arrive while some are missing; a surplus row is
            wrong at once.
    """
    records = input_rows(source) if isinstance(source, Path) else source
    match application:
        case "hourly_delays":
            expected = hourly_delays(records, watermark_delay)
        case "aircraft_sessions":
            expected = aircraft_sessions(records, gap)
        case _:
            expected = flight_history(records)
    most, deadline = 0, time.monotonic() + within_s
    while True:
        began = time.monotonic()
        comparison = compare(expected, output_rows(output, COLUMNS[application]))
        if comparison.found > most:
            most, deadline = comparison.found, time.monotonic() + within_s
        if comparison.equal or comparison.surplus_count or time.monotonic() >= deadline:
            return comparison
        time.sleep(1.0 + 2 * (time.monotonic() - began))  # the job needs the processor, too


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison as JSON; return 0 if both are equal, 1 if not, 2 if that is unknown."""
    parser = argparse.ArgumentParser(
        description="Compare a flights application's output with a batch computation."
    )
    parser.add_argument("application", choices=sorted(COLUMNS))
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--input", type=Path, metavar="DIR", help="the directory that the application has read"
    )
    source.add_argument(
        "--kafka",
        metavar="HOST:PORT",
        help="or the servers of the topic that it has read (hourly_delays only)",
    )
    parser.add_argument("--topic", help="with --kafka: the name of the topic")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--watermark-hours", type=float, default=1.0)
    parser.add_argument("--gap-hours", type=float, default=12.0)
    parser.add_argument("--within", type=float, default=0.0, help="seconds to wait for the next row")
    args = parser.parse_args(argv)
    if (args.kafka is None) != (args.topic is None):
        parser.error("--kafka and --topic go together")
    if args.kafka is not None and args.application != "hourly_delays":
        parser.error(f"{args.application} reads files only")
    try:
        comparison = check(
            args.application,
            args.input if args.kafka is None else topic_rows(args.kafka, args.topic),
            args.output,
            watermark_delay=timedelta(hours=args.watermark_hours),
            gap=timedelta(hours=args.gap_hours),
            within_s=args.within,
        )
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(comparison.to_dict(), indent=2))
    return 0 if comparison.equal else 1


if __name__ == "__main__":
    sys.exit(main())
