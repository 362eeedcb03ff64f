"""What the runner refuses, by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import FormatError, RefusedError
from streambank.core.names import MAIN
from streambank_spark.private import boundary
from streambank_spark.runner import refusals
from tests.support.drivers.real_driver import Job, printed
from tests.support.refuses import refuses


@pytest.mark.storm
@pytest.mark.spark
def test_what_an_application_may_not_ask_for(tmp_path: Path) -> None:
    job, old = Job(tmp_path), tmp_path / "old"
    moved = replace(job.spec("refused.py").queries[MAIN], new_sinks={old.as_uri(): "file:///new"})
    with job.driver("refused.py", str(old), queries={MAIN: moved}) as driver:
        assert driver.wait() == 7, driver.tail()
        assert printed(driver) == {
            "connect": "connect-not-supported",
            "connect create": "connect-not-supported",
            "dstream": "dstream-not-supported",
            "dstream of a checkpoint": "dstream-not-supported",
            "continuous": "continuous-not-supported",
            "real time": "real-time-not-supported",
            "async": "async-progress-not-supported",
            "async in start": "async-progress-not-supported",
            "old output": "old-sink",
            "old output by option": "old-sink",
            "old output by options": "old-sink",
            "old output in start": "old-sink",
            "second query": "undeclared-query",
            "another name": "undeclared-query",
            "another source": "undeclared-query",
            "the same again": "accepted",
            "again": True,
        }
        assert driver.events("driver-ended")[0]["exit_code"] == 7
        assert not old.exists()


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({}, "not-spark-submit"),
        ({"PYSPARK_GATEWAY_PORT": "1", "SPARK_REMOTE": "sc://host"}, "connect-not-supported"),
        ({"PYSPARK_GATEWAY_PORT": "1", "SPARK_CONNECT_MODE_ENABLED": "1"}, "connect-not-supported"),
        ({"PYSPARK_GATEWAY_PORT": "1", "SPARK_API_MODE": "connect"}, "connect-not-supported"),
        ({"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_PIN_THREAD": "false"}, "threads-not-pinned"),
        ({"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_PIN_THREAD": "0"}, "threads-not-pinned"),
    ],
)
def test_environments(environment: dict[str, str], code: str) -> None:
    with refuses(RefusedError, code):
        refusals.check_environment(environment)


def test_classic_pyspark_under_spark_submit_is_fine() -> None:
    refusals.check_environment({"PYSPARK_GATEWAY_PORT": "1", "SPARK_API_MODE": "classic"})
    refusals.check_environment({"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_PIN_THREAD": "True"})


@pytest.mark.parametrize("version", ["3.4.4", "4.4.0", "5.0.0", "4.30.1"])
def test_a_spark_whose_private_parts_are_unknown(version: str) -> None:
    with refuses(FormatError, "spark-not-supported"):
        boundary.require_known_spark(version)
    boundary.require_known_spark("4.3.0")


@pytest.mark.parametrize("path", ["/old", "/old/", "file:/old", "file:///old", "file:///x/../old"])
def test_an_output_that_a_restore_has_left(path: str) -> None:
    with refuses(RefusedError, "old-sink", match="restored to write to file:///new"):
        refusals.check_output(path, {"file:///old": "file:///new"})


def test_an_output_that_a_restore_has_left_by_another_name_of_s3() -> None:
    with pytest.raises(RefusedError, match="restored to write to s3://b/new"):
        refusals.check_output("s3a://b/old/", {"s3://b/old": "s3://b/new"})


@pytest.mark.parametrize("path", [None, "", "/new", "/old/below", "s3a://old", "s3a://"])
def test_any_other_output(path: str | None) -> None:
    refusals.check_output(path, {"file:///old": "file:///new"})
    refusals.check_output("/old", {})
