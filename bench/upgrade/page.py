"""The page that is kept."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from bench.report import paragraph
from bench.upgrade.swaps import UPGRADE, Swap, figures

_WHAT = (
    "A query counts per key in RocksDB, as text files arrive: {rows:,} rows a second, of keys drawn at "
    "random from those that the state has. Spark and Flink each have it in two partitions on this "
    "machine, and read files of the same kind. The code of each is changed again and again, in turns, and "
    "only the one whose turn it is gets rows. Without processing is the time from the last output of the "
    "old code to the first of the new one, which has the restored state."
)
_COUNTED = (
    "An output is a committed batch for Spark, by the times of its commit files. For Flink it is a record "
    "at its sink, which is earlier than anything that Flink commits: the column *to a commit* goes on until "
    "the first checkpoint of the new code is complete (there is one each second), by which an "
    "exactly-once sink commits. Both have a savepoint in that time. The rehearsal and the launch of our "
    "new driver come before the stop, and the watch after the first batch: neither is counted. Nor is the "
    "start of the JVM of `flink stop`."
)
_FLINK = (
    "Flink {flink} runs as a standalone session cluster in two processes, JobManager and TaskManager. "
    "They stay up while the code is changed, which favours Flink: the driver of Spark is a new JVM each "
    "time. *A new cluster* starts both processes after the stop, as a deployment of one application does. "
    "`flink run` starts a JVM, which counts; *a client that runs already* has made the graph of the new "
    "job before it stops the old one, as an operator could."
)

_LIMITS = (
    "What limits ours is the savepoint and the end of the old processes (`stop`), and the first batch of "
    "a JVM that has run nothing but a small query of another shape (`first-batch`): an output of Spark is "
    "a whole batch, planned and committed. With `--cold` the start of JVM, interpreter and session is in "
    "it, and classes are loaded by the first batch. What limits Flink is the start of the JVM of `flink "
    "run`; with a client that runs already, the savepoint, the deployment of the tasks and opening "
    "RocksDB."
)


def page(made: str, flink: str, rows_per_s: int, found: Mapping[int, Sequence[Sequence[Swap]]]) -> str:
    """The page, as Markdown.

    Args:
        made: By what, when and where.
        flink: Its version.
        rows_per_s: Rows a second.
        found: By the number of keys: the rounds, each with one change of every kind.
    """
    lines = ["# Upgrades beside Flink", *paragraph(made), *paragraph(_WHAT.format(rows=rows_per_s))]
    lines += [*paragraph(_COUNTED), *paragraph(_FLINK.format(flink=flink)), *paragraph(_LIMITS)]
    for keys, rounds in found.items():
        lines += ["", f"## {keys:,} keys", *_verdict(rounds), *_table(rounds), *_steps(rounds)]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def ratios(rounds: Sequence[Sequence[Swap]], what: str) -> list[float]:
    """Ours against another kind, in each round that has both; sorted."""
    pairs = (({one.what: one.without_s for one in swaps}) for swaps in rounds)
    return sorted(each[UPGRADE] / each[what] for each in pairs if UPGRADE in each and what in each)


def _verdict(rounds: Sequence[Sequence[Swap]]) -> list[str]:
    kinds = [one for one in figures([swap for swaps in rounds for swap in swaps]) if "Flink" in one.what]
    words = []
    for one in kinds:
        ratio = statistics.median(ratios(rounds, one.what))
        words.append(f"{'not longer than' if ratio <= 1 else 'LONGER than'} {one.what} ({ratio:.2f} times)")
    many = len(rounds)
    return paragraph(
        f"{many} round{'' if many == 1 else 's'}. The time without processing of {UPGRADE} is "
        f"{'; '.join(words)}: medians of the ratios of each round."
    )


def _table(rounds: Sequence[Sequence[Swap]]) -> list[str]:
    lines = [
        "| | seconds | lowest, highest | to a commit | ours is so many times | lowest, highest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in figures([swap for swaps in rounds for swap in swaps]):
        found = ratios(rounds, one.what)
        commit = f"{one.commit_s:.1f}" if one.commit_s is not None else f"{one.median_s:.1f}"
        lines.append(
            f"| {one.what} | {one.median_s:.1f} | {one.low_s:.1f}, {one.high_s:.1f} | {commit} | "
            f"{statistics.median(found):.2f} | {found[0]:.2f}, {found[-1]:.2f} |"
        )
    return lines


def _steps(rounds: Sequence[Sequence[Swap]]) -> list[str]:
    lines = ["", "Where the seconds go, as medians:", ""]
    for one in figures([swap for swaps in rounds for swap in swaps]):
        steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in one.steps.items())
        lines.append(f"- {one.what}: {steps}")
    return lines
