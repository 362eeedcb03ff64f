"""A session for patterns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.spark.sessions import BY_FILE_SYSTEM

SET_BY_PATTERNS = (
    "spark.sql.streaming.noDataMicroBatches.enabled",
    "spark.sql.streaming.stateStore.encodingFormat",
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Quick and quiet, as it was before afterwards."""
    conf = {**BY_FILE_SYSTEM, "spark.sql.shuffle.partitions": "1"}
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    for name, kept in before.items():
        if kept is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, kept)


@pytest.fixture(autouse=True)
def settings_of_one_pattern(session: SparkSession) -> Iterator[None]:
    """What a pattern sets in its session is not there for the next."""
    yield
    for name in SET_BY_PATTERNS:
        session.conf.unset(name)
