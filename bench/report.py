"""The page that is kept: every figure with its spread, what limited it, the machine and the command."""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import buckets, copies
from bench.buckets import BucketTable
from bench.copies import Row, Table
from bench.executors import Rate
from bench.limits import Limits
from bench.peers import PEERS, missing
from bench.running import Arm
from bench.workloads import MB

WANTED = {
    "large files": {
        copies.FULL: 1.0,
        copies.CHANGED: 0.15,
        copies.UNCHANGED: 0.1,
        copies.VERIFY: 0.5,
        copies.RESTORE: 1.0,
        copies.LINK: 0.15,
    },
    "many small files": {copies.FULL: 0.3, copies.VERIFY: 0.5, copies.RESTORE: 1.0},
}
"""What each is wanted to be at most, times `cp -r`."""
_HOW = (
    "Compare the ratios: seconds are those of one machine. In every round all work on the same data, on "
    "one file "
    "system, with the source in the page cache and everything dirty written back before. Each ratio is "
    "against "
    "the mean of the two `cp -r` of its round, one at the beginning and one at the end; the median of the "
    "rounds "
    "is given, and the lowest and the highest. `cp -r` copies the whole checkpoint, hashes nothing, promises "
    "nothing about what reaches the disk, and is no savepoint: a take hashes every byte it reads and flushes "
    "what it writes, and so does a restore. Ours run inside one Python process, but for the row that says "
    "so; "
    "the others are processes."
)
RUNNING_WANTED = 1.02
MEMORY_WANTED_MB = 300


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured.

    Attributes:
        command: What was typed.
        seconds: How long all of it took.
        load: The load average before the first round.
        limits: What the machine can do.
        tables: One for each workload.
        arms: The running query; empty where it was left out.
        memory: What `memory.measure` gave; None where it was left out.
        rates: Spark executors; empty where they were left out.
        buckets: The same with the repository on S3; empty where it was left out.
    """

    command: str
    seconds: float
    load: float
    limits: Limits
    tables: Sequence[Table]
    arms: Sequence[Arm]
    memory: Mapping[str, Any] | None
    rates: Sequence[Rate] = ()
    buckets: Sequence[BucketTable] = ()

    def page(self) -> str:
        """The page, as Markdown."""
        lines = [*self._head()]
        for table in self.tables:
            lines += _table_lines(table, self.limits)
        for bucket in self.buckets:
            lines += _bucket_lines(bucket, self.limits)
        if self.arms:
            lines += _running_lines(self.arms)
        if self.memory is not None:
            lines += _memory_lines(self.memory)
        if self.rates:
            lines += _executor_lines(self.rates)
        return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"

    def _head(self) -> list[str]:
        limits = self.limits
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        made = f"Made by `{self.command}` on {day} in {self.seconds:.0f} s, on {machine()}."
        return [
            "# Figures",
            *paragraph(made),
            *paragraph(_HOW),
            *paragraph(
                f"The load average was {self.load:.1f} before the first round: 0 is a quiet machine, and "
                "on a "
                f"busy one the figures scatter. {missing(PEERS)}"
            ),
            *paragraph(
                f"What this machine can do, in MB/s: hashing {limits.hash_one:,.0f} with one thread and "
                f"{limits.hash_all:,.0f} with {limits.cores}; writing into the page cache "
                f"{limits.cached:,.0f}, and to the disk {limits.disk:,.0f}. The last column of a table "
                "says what "
                "a row waited for, from the processor time it used and the pressure that the kernel reports."
            ),
        ]


def _table_lines(table: Table, limits: Limits) -> list[str]:
    wanted = WANTED.get(table.workload.name, {})
    changed = table.moved_bytes / table.changed_bytes if table.changed_bytes else 0.0
    lines = [
        f"## {table.workload.name.capitalize()}",
        *paragraph(f"{table.workload.says} Rounds: {len(table.row(copies.FULL).rounds)}."),
        "| | seconds | times `cp -r` | lowest, highest | wanted | limited by |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in table.rows:
        low, high = row.spread
        goal = f"{wanted[row.what]:g}" if row.what in wanted else ""
        lines.append(
            f"| {row.what} | {row.seconds:.3f} | {row.ratio:.2f} | {low:.2f}, {high:.2f} | {goal} | "
            f"{_reason(row, limits)} |"
        )
    return lines + paragraph(
        f"The savepoint has {table.saved_files:,} files and {table.saved_bytes / MB:,.1f} MB of the "
        f"checkpoint's {table.source_bytes / MB:,.1f} MB. One more batch: {table.changed_files:,} new files, "
        f"{table.changed_bytes / MB:,.1f} MB; the take read {table.read_files:,} files and added "
        f"{table.moved_bytes / MB:,.1f} MB to the repository, its manifest and index included: {changed:.3f} "
        f"times what changed. `--link` shared {table.linked_files:,} files."
    )


def _bucket_lines(table: BucketTable, limits: Limits) -> list[str]:
    lines = [
        f"## {table.workload.name.capitalize()}, to S3",
        *paragraph(
            f"{table.workload.says} The service is SeaweedFS on this machine, which works with the same "
            f"processors; there is no network. Rounds: {len(table.row(buckets.FULL).rounds)}."
        ),
        "| | seconds | MB/s | times plain PUTs | lowest, highest | requests that write | limited by |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in table.rows:
        low, high = row.spread
        whole = row.what in (buckets.PUTS, buckets.FULL, buckets.VERIFY, buckets.RESTORE)
        rate = f"{table.saved_bytes / MB / row.seconds:,.0f}" if whole else ""
        writes = f"{table.writes[row.what]:,}" if row.what in table.writes else ""
        lines.append(
            f"| {row.what} | {row.seconds:.3f} | {rate} | {row.ratio:.2f} | {low:.2f}, {high:.2f} | "
            f"{writes} | {_reason(row, limits)} |"
        )
    return lines + paragraph(
        f"The savepoint has {table.saved_files:,} files and {table.saved_bytes / MB:,.1f} MB. The other "
        "tools copy the whole checkpoint."
    )


def _reason(row: Row, limits: Limits) -> str:
    return limits.reason(row.cores, row.others)


def _running_lines(arms: Sequence[Arm]) -> list[str]:
    quiet = arms[0]
    lines = [
        "## A running query, with and without back-to-back takes",
        *paragraph(
            "Counts per key in RocksDB with changelog, batches as fast as they go, on the cores that the "
            "takes "
            "use. Stretches without takes, with takes by another process, and with takes by one that "
            "gives way "
            "(`--gentle`) alternate; a ratio is against the quiet stretch beside it, and is wanted to be "
            "at most "
            f"{RUNNING_WANTED:g}."
        ),
        "| | median batch | batches | times quiet | lowest, highest | savepoints | asked | seconds each |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arm in arms:
        ratios = sorted(arm.ratios(quiet))
        median = ratios[len(ratios) // 2] if ratios else 0.0
        spread = f"{ratios[0]:.2f}, {ratios[-1]:.2f}" if ratios else ""
        seconds = sorted(arm.take_seconds)
        each = f"{seconds[len(seconds) // 2]:.2f}" if seconds else ""
        lines.append(
            f"| {arm.name} | {arm.median_ms:.0f} ms | {arm.batches} | {median:.3f} | {spread} | "
            f"{len(seconds) or ''} | {arm.asked or ''} | {each} |"
        )
    between = sorted(one for stretch in quiet.batches_ms for one in stretch)
    stretches = sorted(sorted(stretch)[len(stretch) // 2] for stretch in quiet.batches_ms if stretch)
    replans = sum(arm.replans for arm in arms)
    return lines + paragraph(
        f"Quiet stretches differ among themselves: medians from {stretches[0]} to {stretches[-1]} ms, "
        f"single batches from {between[0]} to {between[-1]} ms. {replans} takes had to plan again. They ask "
        "without a pause, at the priority of the query, which only this page does; gentle ones give way "
        "to anything else that needs the processor."
    )


def _memory_lines(memory: Mapping[str, Any]) -> list[str]:
    return [
        "## Memory",
        *paragraph(
            f"A made-up checkpoint of {memory['listed']:,} files, of which the savepoint needs "
            f"{memory['closure']:,}: highest memory of the process (resident, Python itself with "
            f"{memory['start_mb']:.0f} MB included). Wanted: {MEMORY_WANTED_MB} MB for a million files."
        ),
        "| after | MB |",
        "|---|---:|",
        f"| listing | {memory['listing_mb']:.0f} |",
        f"| closure | {memory['closure_mb']:.0f} |",
        f"| plan | {memory['plan_mb']:.0f} |",
        f"| manifest of {memory['manifest_bytes'] / MB:,.0f} MB written | {memory['manifest_mb']:.0f} |",
        f"| its seal checked | {memory['peak_mb']:.0f} |",
        *paragraph(f"Listing, closure and plan took {memory['plan_s']:.1f} s."),
    ]


def _executor_lines(rates: Sequence[Rate]) -> list[str]:
    return [
        "## Spark executors",
        *paragraph(
            "Master and workers are on this very machine, so two workers of one core are all that it has: "
            "their disk is one, and what this shows is what a core does, not what a cluster does. Once each."
        ),
        "| who | what | start | rate |",
        "|---|---|---:|---:|",
        *(
            f"| {one.who} | {one.what} | {one.start_s:.1f} s | {one.bytes_per_s / MB:,.0f} MB/s |"
            for one in rates
        ),
    ]


def paragraph(text: str) -> list[str]:
    """Text in lines, with an empty one before and after."""
    return ["", *textwrap.wrap(text.strip(), 110, break_long_words=False, break_on_hyphens=False), ""]


def asked(parser: argparse.ArgumentParser, options: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """What was typed after a command, as far as it differs from the defaults: empty, or after a space.

    Args:
        parser: With the defaults.
        options: By their names; a list that has no default holds arguments without an option's name.
        without: Names of those that say where this machine keeps things, which means nothing elsewhere.
    """
    words = []
    for name, value in options.items():
        default = parser.get_default(name)
        if name in without or value in (default, []):
            continue
        option = [] if default is None and isinstance(value, list) else [f"--{name.replace('_', '-')}"]
        if isinstance(value, bool):
            words.append(option[0] if value else option[0].replace("--", "--no-", 1))
        else:
            words += [*option, *map(str, value if isinstance(value, list) else [value])]
    return "".join(f" {word}" for word in words)


def machine() -> str:
    """What it ran on, in one line."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    kernel = platform.release().split("-")[0]
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {kernel} {platform.machine()}, "
        f"Python {platform.python_version()}, PySpark {metadata.version('pyspark')}, "
        f"BLAKE3 {metadata.version('blake3')}, revision {revision()}"
    )


def revision() -> str:
    """Of which commit the figures are, and whether files differed from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
