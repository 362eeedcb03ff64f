"""Runs a plan's tasks on Spark executors: the driver of `execute_plan.py`.

One Spark task is one portion of the plan (work/plan_lines.py). What comes back travels
by an accumulator, whose updates Spark counts once for each portion however often it was tried, and is written
to the report as it comes: who asked follows the file.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from streambank.core.errors import StorageError
from streambank.declaration.launch import is_local
from streambank.work.plan_lines import run_portion
from streambank_spark.failures import first_line
from streambank_spark.submit.executor_packages import use_packages

END_S = 10.0
"""How long an application may take to end in good order once nobody waits for it any more."""


class ReportLines(AccumulatorParam[list[str]]):
    """Lines of a report, gathered on an executor."""

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        return [*value1, *value2]


class Report(ReportLines):
    """The report itself, on the driver: lines are written as they come."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __reduce__(self) -> tuple[type[ReportLines], tuple[()]]:
        # Executors get the other half.
        return ReportLines, ()

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        self.write(value2)
        return []

    def write(self, lines: Sequence[str]) -> None:
        self._file.write("".join(f"{line}\n" for line in lines))
        self._file.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plan that the arguments name; 0 where all was tried, whatever the report says of portions."""
    options = plan_and_report(argv, "execute_plan.py", "Carry out a plan of Streambank.")
    with options.report.open("a", encoding="utf-8") as file:
        report = Report(file)
        context = SparkContext.getOrCreate()
        try:
            _run(context, options.plan, report)
        except Exception as error:
            # The whole of it is in Spark's own log.
            failure = StorageError(
                f"Spark gave up: {first_line(error)}",
                code="spark-failed",
                hint="The full message is in the log of Spark's driver.",
            )
            report.write([json.dumps({"error": failure.to_dict()})])
            raise
        finally:
            context.stop()
    return 0


def plan_and_report(argv: Sequence[str] | None, program: str, description: str) -> argparse.Namespace:
    """The arguments of a program that carries out a plan: it ends with its owner, where one is named."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--plan", type=Path, required=True, help="a JSON file that says what to do")
    parser.add_argument("--report", type=Path, required=True, help="write the result here, as JSON")
    parser.add_argument("--owner", type=int, help="end when this process on this machine ends")
    options = parser.parse_args(argv)
    if options.owner is not None:
        end_with(options.owner, end_group)
    return options


def _run(context: SparkContext, plan: Path, report: Report) -> None:
    with plan.open(encoding="utf-8") as lines:
        header = lines.readline()
        portions = list(lines)
    gathered = context.accumulator([], report)
    if portions:
        data = context.parallelize(portions, len(portions))
        data.foreachPartition(partial(_work, header, gathered, _tries(context)))
    report.write([json.dumps({"end": True})])


def _tries(context: SparkContext) -> int:
    """How often Spark tries a portion; in local mode it does not look at the setting."""
    return 1 if is_local(context.master) else int(context.getConf().get("spark.task.maxFailures", "4"))


def _work(header: str, gathered: Accumulator[list[str]], tries: int, portions: Iterator[str]) -> None:
    """One Spark task, on an executor."""
    use_packages()
    context = TaskContext.get()
    last_try = context is None or context.attemptNumber() >= tries - 1
    for portion in portions:
        gathered.add(run_portion(header, portion, last_try=last_try))


def end_with(owner: int, end: Callable[[], None]) -> None:
    """Call `end` when another process of this machine is gone; at once where it is."""
    try:
        descriptor = os.pidfd_open(owner)
    except ProcessLookupError:
        end()
        return

    def wait() -> None:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll()
        end()

    threading.Thread(target=wait, name="streambank-owner", daemon=True).start()


def end_group() -> None:
    """End spark-submit and everything that it started: who asked for it is gone."""
    threading.Timer(END_S, os.killpg, (0, signal.SIGKILL)).start()
    os.killpg(0, signal.SIGTERM)
