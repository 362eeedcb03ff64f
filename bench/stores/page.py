"""The page that is kept, and the measurements that `streambank advise` reads."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench.report import paragraph
from bench.stores.kinds import DELTAS, KINDS, USUAL_DELTAS
from bench.stores.live_rows import CASES, KEYS
from bench.stores.memory import SHARE, VARIANTS, predicted
from streambank.advice.sizes import estimate, row_bytes
from streambank.core.units import say_bytes
from streambank.doctor.spark_conf import MIB

KEY_BYTES = row_bytes(0, (18,)) + 1
ALL_KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
CORES = 2
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
"""Around what the guide shows of the measurements."""
FIXED, COMMIT = 1.5, 0.4
"""A batch that uses less than this times the least one waits for no state; this part of it is much."""
_HOW = (
    "A query counts, sums and keeps the newest time per key, {row} B a row, in {partitions} partitions on "
    "`local[2]`, with everything else as Spark has it by default but for the times of maintenance and a "
    "snapshot of every {deltas} versions, so that there are some. Each store has its own JVM in every "
    "round, in turns, and has all numbers of keys one after the other, after a few rows that are not "
    "counted. Other work ran beside it, so compare what is *of a processor*: what the JVM used for a "
    "batch on average, snapshots and its own compiling included. Times by the clock mean little where the "
    "load average was far above the cores; of batches and commits they are the shortest, which were "
    "disturbed least, with the median beside them. A restart is from another start of the query to the "
    "commit of its first batch, once its stores are closed. Commits are summed over the tasks, as Spark "
    "reports them. What a batch writes has the {usual}th part of a snapshot in it, as with Spark's "
    "default. Memory in the heap is what is left after a full collection, outside of it what is resident "
    "once the allocator has given back what it can; both are beyond what there was before the query, and "
    "have up to {floor} of the JVM's own growth in them."
)

_RESTART = (
    "Restarts are limited by opening the stores, by reading the newest snapshot and the changes after it, "
    "and by classes that run for the first time: the larger the state, the more by reading."
)


def with_earlier(part: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was measured of the stores, with the numbers of keys that only an earlier run has measured.

    Args:
        part: The new figures, with what made them.
        before: The same of an earlier run, which may have such from a still earlier one.
    """
    alike = ("batches", "partitions")
    if before is None or any(part["found"][name] != before["found"][name] for name in alike):
        return dict(part)
    cells, measured = dict(part["found"]["cells"]), _numbers(part["found"]["cells"])
    for kind, each in before["found"]["cells"].items():
        only = {keys: one for keys, one in each.items() if int(keys) not in measured}
        cells[kind] = cells.get(kind, {}) | only
    origin = {name: before[name] for name in ("given", "day", "seconds", "load", "machine")}
    earlier = [*before.get("earlier", ()), {**origin, "keys": sorted(_numbers(before["found"]["cells"]))}]
    for one in earlier:
        one["keys"] = [keys for keys in one["keys"] if keys not in measured]
        measured |= set(one["keys"])
    found = {**part["found"], "cells": {kind: each for kind, each in cells.items() if each}}
    return {**part, "found": found, "earlier": [one for one in earlier if one["keys"]]}


def _numbers(cells: Mapping[str, Mapping[str, Any]]) -> set[int]:
    return {int(keys) for each in cells.values() for keys in each}


def measurements(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What `streambank advise` reads."""
    part = raw["stores"]
    found = part["found"]
    keys = _numbers(found["cells"])
    return {
        "made": part["day"],
        "command": f"python -m bench.stores{part['given']}",
        "spark": re.search(r"PySpark ([0-9.]+)", part["machine"])[1],  # type: ignore[index]  # `machine` says it
        "machine": ", ".join(part["machine"].split(", ")[:2]),
        "rounds": found["rounds"],
        "earlier": [
            {"command": f"python -m bench.stores{one['given']}", "made": one["day"], "keys": one["keys"]}
            for one in part.get("earlier", ())
        ],
        "partitions": found["partitions"],
        "load": part["load"],
        "row_bytes": round(statistics.median(found["row_bytes"])),
        "not_measured": [one for one in ALL_KEYS if one not in keys],
        "stores": found["cells"],
    }


def page(raw: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The page, as Markdown.

    Args:
        raw: The figures of each part, with what made them.
        found: The measurements.
    """
    stores = found["stores"]
    floor = max(
        one["native_bytes"] for name, each in stores.items() if name == "hdfs" for one in each.values()
    ) if "hdfs" in stores else 0  # fmt: skip
    how = _HOW.format(
        row=found["row_bytes"], partitions=found["partitions"], deltas=DELTAS, usual=USUAL_DELTAS,
        floor=say_bytes(floor),
    )  # fmt: skip
    lines = ["# State stores beside each other", *paragraph(_made(raw["stores"], ""))]
    for one in raw["stores"].get("earlier", ()):
        lines += paragraph(f"{_said(one['keys'])} keys: {_made(one, '')}")
    lines += paragraph(how)
    lines += paragraph(_not_measured(found))
    lines += ["", "## Where they cross", "", *_crossings(stores), ""]
    keys = sorted(_numbers(stores))
    for number in keys:
        lines += _table(stores, number, keys[0])
    lines += paragraph(_RESTART)
    lines += _memory(raw["memory"], found)
    lines += _rows(raw["rows"])
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def summary(found: Mapping[str, Any]) -> str:
    """What docs/guide/state-stores.md shows: the crossings, and each store at each number of keys."""
    stores = found["stores"]
    shares = _shares(stores)
    lines = [
        *paragraph(
            f"By `{found['command']}` on {found['made']}, Spark {found['spark']}, {found['machine']}, "
            f"{found['partitions']} partitions, {found['row_bytes']} B a row; the shortest batches, and "
            f"medians of all else, of {_rounds(stores)} in which the stores take turns. "
            + "".join(
                f"{_said(one['keys'])} keys: by `{one['command']}` on {one['made']}. "
                for one in found["earlier"]
            )
            + _not_measured(found)
        ),
        *_crossings(stores),
        "",
        f"| keys | store | {' | '.join(f'batch (processor), {float(one):.0%} changed' for one in shares)} | "
        "heap | outside of it | restart |",
        f"|---:|---|{'---:|' * (len(shares) + 3)}",
    ]
    for keys in sorted(_numbers(stores)):
        for name, each in stores.items():
            one = each[str(keys)]
            batches = " | ".join(
                f"{one['shares'][share]['batch_ms']:,} ms ({one['shares'][share]['cpu_ms']:,} ms)"
                for share in shares
            )
            lines.append(
                f"| {keys:,} | {KINDS[name].title} | {batches} | {say_bytes(one['heap_bytes'])} | "
                f"{say_bytes(one['native_bytes'])} | {one['restart_s']:.1f} s |"
            )
    return "\n".join(lines).strip()


def with_summary(guide: str, found: Mapping[str, Any]) -> str:
    """The guide with the summary between its marks."""
    head, _, rest = guide.partition(BEGIN)
    return f"{head}{BEGIN}\n{summary(found)}\n{END}{rest.partition(END)[2]}"


def _made(part: Mapping[str, Any], name: str) -> str:
    return (
        f"Made by `python -m bench.stores{name}{part['given']}` on {part['day']} in {part['seconds']} s, on "
        f"{part['machine']}. The load average was {part['load']:.1f} before it."
    )


def _not_measured(found: Mapping[str, Any]) -> str:
    if not found["not_measured"]:
        return ""
    return (
        f"Not measured: {_said(found['not_measured'])} keys. "
        f"`--keys {' '.join(map(str, found['not_measured']))} --heap-mb 6000` "
        "measures it, in JVMs of that size."
    )


def _shares(stores: Mapping[str, Any]) -> list[str]:
    every = {share for each in stores.values() for one in each.values() for share in one["shares"]}
    return sorted(every, key=float)


def _crossings(stores: Mapping[str, Any]) -> Iterator[str]:
    if "hdfs" not in stores:
        return
    for name, each in stores.items():
        if name == "hdfs":
            continue
        for share in _shares(stores):
            ratios = [
                (int(keys), each[keys]["shares"][share]["cpu_ms"] / one["shares"][share]["cpu_ms"])
                for keys, one in sorted(stores["hdfs"].items(), key=lambda pair: int(pair[0]))
            ]
            yield f"- {KINDS[name].title}, {float(share):.0%} changed: {crossing(ratios)}."
    for name, each in stores.items():
        if name != "hdfs":
            ratios = [
                (int(keys), (each[keys]["heap_bytes"] + each[keys]["native_bytes"])
                 / max(1, one["heap_bytes"] + one["native_bytes"]))
                for keys, one in sorted(stores["hdfs"].items(), key=lambda pair: int(pair[0]))
            ]  # fmt: skip
            yield f"- Memory of {KINDS[name].title}: {crossing(ratios, 'it takes less')}."


def crossing(ratios: Sequence[tuple[int, float]], less: str = "batches use less of the processors") -> str:
    """From how many keys on a store takes less than HDFS-backed state, in words.

    Args:
        ratios: By rising numbers of keys, what it takes against HDFS-backed state.
        less: What that means.
    """
    said = ", ".join(f"{ratio:.2f} at {keys:,}" for keys, ratio in ratios)
    below = [ratio < 1 for _, ratio in ratios]
    if all(below):
        return f"{less} than HDFS-backed with every number of keys that was measured ({said} times)"
    if not any(below):
        return f"not so with any number of keys up to {ratios[-1][0]:,} ({said} times)"
    at = next(place for place in range(len(ratios) - 1, 0, -1) if below[place] != below[place - 1])
    (left, one), (right, other) = list(pairwise(ratios))[at - 1]
    part = math.log(one) / (math.log(one) - math.log(other)) if min(one, other) > 0 else 0.5
    keys = float(f"{math.exp(math.log(left) + part * (math.log(right) - math.log(left))):.1g}")
    where = f"from some {keys:,.0f} keys on" if below[-1] else f"up to some {keys:,.0f} keys"
    return f"{less} than HDFS-backed {where} ({said} times)"


def _said(keys: Iterable[int]) -> str:
    return ", ".join(f"{one:,}" for one in keys)


def _rounds(stores: Mapping[str, Any], keys: int | None = None) -> str:
    """How often it was measured: with one number of keys, or with any."""
    counts = {
        one["rounds"]
        for each in stores.values()
        for number, one in each.items()
        if keys in (None, int(number))
    }
    most = max(counts)
    return f"{min(counts)} to {most} rounds" if len(counts) > 1 else f"{most} round{'s' if most > 1 else ''}"


def _table(stores: Mapping[str, Any], keys: int, least: int) -> Iterator[str]:
    yield from ["", f"## {keys:,} keys", ""]
    for share in _shares(stores):
        yield f"{float(share):.0%} of them changed in a batch; {_rounds(stores, keys)}."
        yield ""
        yield (
            "| | of a processor | times HDFS-backed | batch | median | commit | a batch writes | limited by |"
        )
        yield "|---|---:|---:|---:|---:|---:|---:|---|"
        for name, each in stores.items():
            one = each[str(keys)]["shares"][share]
            base = stores.get("hdfs", {}).get(str(keys), {}).get("shares", {}).get(share)
            ratio = f"{one['cpu_ms'] / base['cpu_ms']:.2f}" if base else ""
            floor = min(batch["cpu_ms"] for batch in each[str(least)]["shares"].values())
            yield (
                f"| {KINDS[name].title} | {one['cpu_ms']:,} ms | {ratio} | {one['batch_ms']:,} ms | "
                f"{one['median_ms']:,} ms | {one['commit_ms']:,} ms | "
                f"{say_bytes(one['written_bytes'])} | {limit(name, one, floor)} |"
            )
        yield ""
    yield "| | restart | heap | outside of the heap | Spark says | files of the state |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, each in stores.items():
        one = each[str(keys)]
        figures = [say_bytes(one[f"{what}_bytes"]) for what in ("heap", "native", "memory", "state")]
        yield f"| {KINDS[name].title} | {one['restart_s']:.1f} s | {' | '.join(figures)} |"
    yield ""


def limit(name: str, one: Mapping[str, float], floor_ms: float) -> str:
    """What a batch waits for: what each batch takes, the commit of the state, or its rows.

    Args:
        name: The store.
        one: Its batch.
        floor_ms: The least that a batch of it uses of the processors.
    """
    if one["cpu_ms"] < FIXED * floor_ms:
        return "what each batch takes: planning, logs, opening the stores"
    if one["commit_ms"] / CORES > COMMIT * one["batch_ms"]:
        what = {"hdfs": "writing the delta", "rocksdb": "flush and upload of RocksDB's files"}
        return f"the commit: {what.get(name, 'writing the changelog')}"
    return "rows: reading, aggregating and updating them"


def _error(calculated: float, real: float) -> str:
    return f"{(calculated - real) / real:+.0%}" if real else ""


def _memory(part: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    yield from ["", "## RocksDB's memory, calculated and measured"]
    keys = part["found"]["keys"]
    growth = statistics.median(
        [one["native_bytes"] for one in found["stores"].get("hdfs", {}).values()] or [0]
    )
    yield from paragraph(_made(part, " memory"))
    yield from paragraph(
        f"{keys:,} keys, {SHARE:.0%} of them changed in a batch, RocksDB with changelog, a snapshot of every "
        f"{DELTAS} versions, one executor. *Counted* is the most that RocksDB reports after a batch "
        "(`memoryUsedBytes`: write buffers, block cache, and what it holds of open files). *Resident* is "
        "what the process has outside of its heap beyond what it had before, at the end, against what "
        "`streambank plan-memory` calculates with the allocator and each instance. Of it the "
        f"{say_bytes(growth)} are left out by which a JVM grows with HDFS-backed state, which has nothing "
        "there (the median of the tables above). An error above 0 says that more is calculated than was "
        "taken."
    )
    yield "| settings | counted, calculated | counted | error | resident, calculated | resident | error |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for variant, one in zip(VARIANTS, part["found"]["variants"], strict=True):
        counted, resident = predicted(variant, keys, found["row_bytes"], KEY_BYTES)
        real = one["native_bytes"] - growth
        yield (
            f"| {variant.title} | {counted / MIB:.1f} MiB | {one['counted_bytes'] / MIB:.1f} MiB | "
            f"{_error(counted, one['counted_bytes'])} | {resident / MIB:.0f} MiB | "
            f"{real / MIB:.0f} MiB | {_error(resident, real)} |"
        )


def _rows(part: Mapping[str, Any]) -> Iterator[str]:
    yield from ["", "## Rows that live at once, estimated and measured"]
    yield from paragraph(_made(part, " rows"))
    yield from paragraph(
        "Events come evenly over keys, and event time advances with the batches; the rows of each batch are "
        "counted (`numRowsTotal`) once no more live than before. Single batches differ from the mean by "
        "where the windows stand."
    )
    yield "| query | estimated | measured, mean | lowest, highest | error |"
    yield "|---|---:|---:|---:|---:|"
    for case, rows in zip(CASES, part["found"], strict=True):
        rough, mean = estimate(KEYS, 74, case.load).rows, statistics.mean(rows)
        yield (
            f"| {case.title} | {rough:,} | {mean:,.0f} | {min(rows):,}, {max(rows):,} | "
            f"{_error(rough, mean)} |"
        )
