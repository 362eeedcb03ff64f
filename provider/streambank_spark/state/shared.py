"""Whether a cluster's executors see the folder that the driver sees: shown by reading it, never assumed."""

from __future__ import annotations

from functools import reduce

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streambank.core.errors import RefusedError
from streambank.storage import local_path
from streambank_spark.submit.session import first_line

_EACH = 2
"""Probes for each task that the cluster has room for."""


def require_shared(spark: SparkSession, location: str) -> None:
    """Make sure that executors see a checkpoint that the driver has laid out.

    Only of a folder on a disk there is doubt, and only on a cluster. Not every executor is bound to get a
    probe; one that got none fails later, when it opens state that is not there.

    Args:
        spark: Whose executors.
        location: The checkpoint; its `metadata` is read.

    Raises:
        RefusedError: One does not (code `paths-not-shared`).
    """
    context = spark.sparkContext
    if local_path(location) is None or (context.master or "").startswith("local"):
        return
    probe = spark.read.text(f"{location}/metadata")
    many = [probe] * (_EACH * context.defaultParallelism)
    try:
        reduce(DataFrame.unionAll, many).collect()
    except (PySparkException, Py4JError) as error:
        raise RefusedError(
            f"An executor does not see {location}, which the driver has laid out: {first_line(error)}",
            code="paths-not-shared",
            hint="Give a --work that all machines see at the same path, or one such as s3://bucket/work.",
        ) from error
