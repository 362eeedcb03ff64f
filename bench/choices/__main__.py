"""`python -m bench.choices`: what choices cost, each beside a first one in the same rounds.

It writes bench/CHOICES.md.

For a look: `python -m bench.choices encodings --keys 500 --rounds 1 --output /tmp/choices.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.choices import checkpoints, encodings, throughput
from bench.choices.checkpoints import Place
from bench.choices.trial import Arm, Took, interleaved, rows, run
from bench.report import asked, machine, paragraph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).resolve().parents[1] / "CHOICES.md"
FILES = 9
_HOW = (
    "Compare the ratios: each is against the first row in the same round, as the median of the rounds with "
    "the lowest and the highest. A batch is one file of as many rows as there are keys, drawn at random, so "
    "about 63 in 100 keys change in each; the first batch, which holds each key once, does not count. State "
    "is in RocksDB unless a row says otherwise, in 2 partitions, with `local[2]`."
)


@dataclass(frozen=True, slots=True)
class Part:
    """A table of the page.

    Attributes:
        title: Its heading.
        about: What all arms do.
        share: Keys of it, as a share of `--keys`: those whose arms run in Python workers have fewer.
        limit: What limits its rows.
    """

    title: str
    about: str
    share: float
    limit: str


PARTS = {
    "encodings": Part(
        "Encodings",
        "A `transformWithState` in Python reads five numbers of a key, adds to them, and writes them.",
        0.05,
        "the exchange between Spark and its Python worker, a call for each read and each write",
    ),
    "access": Part(
        "Access to state",
        "A `transformWithState` in Python keeps something of each row by other kinds of variables.",
        0.05,
        "the exchange between Spark and its Python worker, a call for each read and each write",
    ),
    "checkpoints": Part(
        "Checkpoints",
        "A count, a sum and a maximum of each key, without Python workers. On a local disk each file has a "
        "`.crc` file beside it, which counts, too; HDFS has none.",
        1.0,
        "writing files: on a local disk Spark starts processes for each file that it writes",
    ),
    "throughput": Part(
        "Throughput",
        "From a query without state to one that keeps a row of state for each key.",
        1.0,
        "the processor; `transformWithState` in Python: its worker",
    ),
}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.choices", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--s3", action="store_true", help="checkpoints on an S3 server of this machine, too")
    parser.add_argument("--hdfs", action="store_true", help="checkpoints on an HDFS of this machine, too")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--json", type=Path, help="keep the figures of each round here, too")
    options = parser.parse_args(argv)
    options.given = asked(parser, vars(options), without=("json", "output"))
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page."""
    options = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it started ends with it
    chosen = [name for name in PARTS if name in (options.parts or PARTS)]
    began, load = time.monotonic(), os.getloadavg()[0]
    found: dict[str, dict[str, list[Took]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streambank-bench-")))
        places: list[Place] = []
        settings: dict[str, str] = {}
        for where in (_s3,) * options.s3 + (_hdfs,) * options.hdfs:
            place, needed = where(stack, folder)
            places.append(place)
            settings |= needed
        spark = _session(folder, settings)
        stack.callback(spark.stop)
        for name in chosen:
            print(f"{name}: {options.rounds} rounds", file=sys.stderr)
            found[name] = _measure(spark, name, folder / name, options.keys, options.rounds, places)
    command = f"python -m bench.choices{options.given}"
    seconds = time.monotonic() - began
    page = "\n".join(_page(found, command, seconds, load, options.keys))
    options.output.write_text(re.sub("\n{3,}", "\n\n", page).strip() + "\n", encoding="utf-8")
    if options.json:
        kept = {
            part: {arm: [asdict(one) for one in took] for arm, took in arms.items()}
            for part, arms in found.items()
        }
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    print(f"{options.output} is written", file=sys.stderr)
    return 0


def _s3(stack: ExitStack, folder: Path) -> tuple[Place, Mapping[str, str]]:
    """A bucket of an S3 server that is started, and Spark's settings for it."""
    from demo.jars import s3a
    from tests.support.storage.s3_servers import run_seaweedfs

    data = folder / "s3"
    data.mkdir()
    server = stack.enter_context(run_seaweedfs(data))
    known = server.environment
    access = {
        "spark.hadoop.fs.s3a.endpoint": known["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.access.key": known["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": known["AWS_SECRET_ACCESS_KEY"],
    }
    return Place("S3", server.location("s3a")), {**s3a.settings(), **access}


def _hdfs(stack: ExitStack, folder: Path) -> tuple[Place, Mapping[str, str]]:
    """A directory of an HDFS that is started, and Spark's settings for it."""
    from tests.support.storage.hdfs import run_hdfs

    home = folder / "hdfs"
    home.mkdir()
    hdfs = stack.enter_context(run_hdfs(home))
    return Place("HDFS", hdfs.location(), hdfs.room), hdfs.conf


def _session(folder: Path, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    for module in (encodings, throughput):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # vendored, untyped
    builder = SparkSession.builder.master("local[2]").appName("choices")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **settings,
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _measure(
    spark: SparkSession, name: str, folder: Path, keys: int, rounds: int, places: Sequence[Place]
) -> dict[str, list[Took]]:
    count = max(100, round(keys * PARTS[name].share))
    folder.mkdir(parents=True)
    source = folder / "rows"
    source.mkdir()
    rows(spark, source, keys=count, files=FILES, per_file=count)
    arms = _arms(name, folder, places)

    def once(arm: Arm, number: int) -> Took:
        place = folder / f"{number}-{arms.index(arm)}"
        return run(spark, arm.at(number), source, place)

    run(spark, arms[0].at(rounds), source, folder / "warm")
    return interleaved(arms, rounds, once, lambda line: print(f"  {line}", file=sys.stderr))


def _arms(name: str, folder: Path, places: Sequence[Place]) -> list[Arm]:
    match name:
        case "encodings":
            return encodings.encodings()
        case "access":
            return encodings.access()
        case "checkpoints":
            return checkpoints.checkpoints(places)
        case _:
            return throughput.throughput(folder)


def _page(
    found: Mapping[str, Mapping[str, Sequence[Took]]], command: str, seconds: float, load: float, keys: int
) -> Iterator[str]:
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    yield "# What choices cost\n"
    yield from paragraph(f"Made by `{command}` on {day} in {seconds:.0f} s, on {machine()}.")
    yield from paragraph(f"{_HOW} The load average was {load:.1f} before the first round.")
    for name, arms in found.items():
        part = PARTS[name]
        count = max(100, round(keys * part.share))
        yield f"## {part.title}\n"
        yield from paragraph(f"{part.about} {count:,} keys. What limits the rows: {part.limit}.")
        columns = ["batch, ms", "times the first", "rows/s", "state, kB", "state, times the first", "files"]
        yield f"| | {' | '.join([*columns, 'written a batch, kB'])} |"
        yield "|" + "---|" * (len(columns) + 2)
        first = next(iter(arms.values()))
        for arm, took in arms.items():
            yield _line(arm, took, first)
        yield ""


def _line(arm: str, took: Sequence[Took], first: Sequence[Took]) -> str:
    def middle(of: Sequence[float]) -> float:
        return statistics.median(of)

    speed = [one.per_row_ms / base.per_row_ms for one, base in zip(took, first, strict=True)]
    state = middle([one.state_bytes for one in took])
    base = middle([one.state_bytes for one in first])
    size = f"{state / base:.2f}" if base and state else ""
    cells = [
        arm,
        f"{middle([one.batch_ms for one in took]):,.0f}",
        f"{middle(speed):.2f} ({min(speed):.2f} to {max(speed):.2f})",
        f"{middle([one.rows_per_s for one in took]):,.0f}",
        f"{state / 1000:,.0f}" if state else "",
        size,
        f"{middle([one.state_files for one in took]):,.0f}" if state else "",
        f"{middle([one.written_bytes for one in took]) / 1000:,.0f}" if state else "",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
