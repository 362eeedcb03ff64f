"""A Spark session for one command of the command line: quiet, and gone with the command.

What the JVM writes goes to a file and not between the lines of an answer: to stdout it would break a JSON
document. Where Spark fails, the error names what it said, and the file is kept and named.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streambank.core.errors import StorageError, StreambankError
from streambank.driver.spark_properties import loopback_settings
from streambank_spark.failures import first_line, hint_of_failure, refuse_wrong_schema
from streambank_spark.submit.executor_packages import VARIABLE, python_of_workers
from streambank_spark.submit.submission import with_deep_stack

LOCAL = "local[*]"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

_LOGGERS_OF_CONTEXTS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's: they write kilobytes of JSON to stderr about what an error of ours says in a line."""


def silence_contexts() -> None:
    """Keep PySpark from writing to stderr what its errors say: that may quote the state."""
    for name in _LOGGERS_OF_CONTEXTS:
        logging.getLogger(name).disabled = True


@contextmanager
def spark_session(master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for a `with`: the process's own where it has one, which is left as it is.

    Raises:
        StorageError: Spark does not start, or fails in the block (code `spark-failed`).
    """
    silence_contexts()
    running = SparkSession.getActiveSession()
    if running is not None:
        with _failures(None):
            yield running
        return
    handle, name = mkstemp(prefix="streambank-spark-", suffix=".log")
    log = Path(name)
    failed = True
    try:
        with _failures(log):
            session = _start(handle, master, conf)
            try:
                yield session
            finally:
                session.stop()
        failed = False
    except StreambankError as error:
        failed = error.code == "spark-failed"
        raise
    finally:
        os.close(handle)
        if not failed:
            log.unlink()


def _start(handle: int, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.Builder().appName("streambank-state").master(master or LOCAL)
    loopback = loopback_settings(master or LOCAL, conf)
    for key, value in with_deep_stack({**_SETTINGS, **loopback, **conf}).items():
        builder = builder.config(key, value)
    if (python := python_of_workers(master or LOCAL)) is not None:
        os.environ[VARIABLE] = python
    with _sent_to(handle):
        return builder.getOrCreate()


@contextmanager
def _sent_to(handle: int) -> Iterator[None]:
    """Let what is started in the block write to a file: a child process inherits where this one writes to."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(handle, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)


@contextmanager
def _failures(log: Path | None) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        refuse_wrong_schema(error)
        raise StorageError(
            f"Spark failed: {first_line(error)}",
            code="spark-failed",
            hint=hint_of_failure(error, "the driver's log" if log is None else str(log)),
        ) from error
