"""Which machines do the work of a verb: threads here, or Spark executors."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streambank.cli.options import Where
from streambank.cli.output import console
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from streambank.work.executor import Executor

SPARK = "streambank_spark.submit.executor"
"""Where the `Executor` on Spark is; imported when it is asked for, since the engine does without it."""


def executor(
    on: Where,
    master: str | None,
    conf: Sequence[str] | None,
    properties: str | None,
    parallel: int | None,
    max_bytes_per_s: int | None = None,
) -> Executor:
    """Who does the work; this machine alone where a rate is to be kept, since only here it can be.

    Raises:
        InputError: Spark is asked for and no master is named, or a rate is; or a property is none (code
            `usage`).
    """
    from streambank.work.executor import BySize, Threads

    if on is Where.spark and max_bytes_per_s is not None:
        raise InputError(
            "--max-rate bounds what this machine reads, and does not go with --on spark.",
            code="usage",
            hint="Leave one of them out: the number of executors is what bounds their rate.",
        )
    here = Threads(parallel)
    if on is Where.here or (on is Where.auto and (master is None or max_bytes_per_s is not None)):
        return here
    if master is None:
        raise InputError(
            "--on spark needs the address of a Spark master.",
            code="usage",
            hint="Give --master spark://host:7077, or set STREAMBANK_SPARK_MASTER.",
        )
    spark: Executor = importlib.import_module(SPARK).SparkExecutor(
        master,
        conf=dict(pair(each) for each in conf or ()),
        properties=Path(properties) if properties is not None else None,
        parallel=parallel,
        say=console.note,
    )
    return spark if on is Where.spark else BySize(here, spark)


def pair(text: str) -> tuple[str, str]:
    """A Spark property from `KEY=VALUE`.

    Raises:
        InputError: It is none (code `usage`).
    """
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise InputError(
            f"--spark-conf {text} is no Spark property.",
            code="usage",
            hint="Give --spark-conf spark.executor.memory=2g, once for each.",
        )
    return key, value
