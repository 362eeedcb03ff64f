"""A launch that redirects its queries: the application's own outputs and sources stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from demo.jars.kafka import spark_settings
from streambank.driver.spec import LaunchSpec, QuerySpec
from streambank.sinks.redirect import Redirect
from tests.support.drivers.real_driver import Job, printed
from tests.support.kafka.flights_job import SETTINGS
from tests.support.kafka.real_broker import running

QUERIES = ("files", "option", "start", "existing", "made", "renamed", "kafka", "noop", "function", "cleaning")


def redirecting(spec: LaunchSpec, scratch: Path) -> dict[str, QuerySpec]:
    """The queries of a launch, each with a directory below `scratch`."""
    queries = {
        name: replace(one, redirect=Redirect(f"file://{scratch}/{name}", scratch=True))
        for name, one in spec.queries.items()
    }
    renamed = replace(spec.queries["renamed"], redirect=Redirect(table="the_copy"))
    return {**queries, "renamed": renamed}


pytestmark = [pytest.mark.storm, pytest.mark.spark]


def test_a_copy_writes_elsewhere(tmp_path: Path) -> None:
    job = Job(tmp_path, queries=QUERIES)
    spec = job.spec("copied.py", str(tmp_path / "in"), str(tmp_path / "out"))
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/0.txt").write_text("one\nthree\n")
    scratch = tmp_path / "scratch"

    with job.driver("copied.py", *spec.args, queries=redirecting(spec, scratch)) as driver:
        assert driver.wait() == 0, driver.tail()
        answers = printed(driver)
        started = {one["query"]: one for one in driver.events("query-started")}

    assert answers == {
        **dict.fromkeys(
            (
                "files",
                "the same writer",
                "path as an option",
                "everything at the start",
                "a table that is there",
                "a table to make",
                "another table",
                "a sink by its format, in update mode",
                "nothing kept",
            ),
            "accepted",
        ),
        "a function": "sink-not-redirected",
        "a source that its table cleans": "source-not-left-alone",
        "called": [],
        "tables": ["existing", "source", "the_copy"],
    }
    assert list((tmp_path / "out").iterdir()) == [], "nothing was written where the application says"
    assert sorted(one.name for one in (tmp_path / "in").iterdir()) == ["0.txt", "1.txt"], "nothing was taken"
    assert sorted(one.name for one in (scratch / "files").iterdir()) == [
        "_spark_metadata",
        "size=3",
        "size=5",
    ]
    assert list((scratch / "option").glob("*.csv")), "the application's own format"
    assert sorted(one.name for one in (scratch / "start").glob("size=*")) == ["size=3", "size=5"]
    (kept,) = (scratch / "made").iterdir()
    assert kept.name == "batch=0"
    rows = sorted((one["value"], one["size"]) for one in pq.read_table(kept).to_pylist())
    assert rows == [("eight", 5), ("one", 3), ("three", 5)]
    counted = pq.read_table(scratch / "kafka/batch=0").to_pylist()
    assert sorted(one["value"] for one in counted) == ["3", "5"]

    told = {name: (one["output"], one["redirected_from"]) for name, one in started.items()}
    assert told["files"] == (
        {"kind": "files", "path": f"file://{scratch}/files", "name": None},
        {"kind": "files", "path": f"file://{tmp_path}/out/files", "name": None},
    )
    assert told["made"][0] == {"kind": "scratch", "path": f"file://{scratch}/made", "name": None}
    assert told["made"][1] == {"kind": "table", "path": None, "name": "made"}
    assert told["renamed"][0] == {"kind": "table", "path": None, "name": "the_copy"}
    assert told["noop"][1] is None
    assert started["kafka"]["kafka"]["sink"] is None, "nothing reads the live topic's offsets for it"


def test_without_a_redirect_the_same_application_writes_and_cleans(tmp_path: Path) -> None:
    """The negative control: what the test above finds untouched is touched by the application as it is."""
    job = Job(tmp_path, queries=QUERIES)
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/0.txt").write_text("one\nthree\n")
    with job.driver("copied.py", str(tmp_path / "in"), str(tmp_path / "out")) as driver:
        assert driver.wait(600) == 0, driver.tail()
        answers = printed(driver)
        started = {one["query"]: one for one in driver.events("query-started")}
    assert all(one["redirected_from"] is None for one in started.values())
    fixed = {name: one["fixed_options"] for name, one in started.items()}
    assert fixed == {name: ["cleanSource"] if name == "cleaning" else [] for name in started}
    assert (answers["files"], answers["a function"]) == ("accepted", "accepted")
    assert answers["called"] == [0]
    assert sorted(one.name for one in (tmp_path / "out/files").iterdir()) == [
        "_spark_metadata",
        "size=3",
        "size=5",
    ]
    assert not (tmp_path / "in/0.txt").exists()


TOPICS = """
import sys

from pyspark.sql import SparkSession

servers, = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "in")
frame = reader.option("kafka.group.id", "live").option("startingOffsets", "earliest").load()
writer = frame.selectExpr("value", "'by-column' AS topic").writeStream.queryName("main").format("kafka")
writer = writer.option("kafka.bootstrap.servers", servers).trigger(availableNow=True)
print(writer.start(topic="by-option").awaitTermination())
"""


@pytest.mark.timeout(1200)
def test_a_copy_sends_to_its_own_topic_and_joins_no_group(tmp_path: Path) -> None:
    (tmp_path / "topics.py").write_text(TOPICS)
    topics = ("in", "by-column", "by-option", "copy")
    with running(tmp_path / "broker") as kafka:
        for topic in topics:
            kafka.create(topic)
        kafka.produce("in", ((None, number) for number in range(5)), 0)
        job = Job(tmp_path, conf={**SETTINGS, **spark_settings()})
        spec = job.spec(tmp_path / "topics.py", kafka.bootstrap)
        queries = {"main": replace(spec.queries["main"], redirect=Redirect(topic="copy"))}
        with job.driver(tmp_path / "topics.py", *spec.args, queries=queries) as driver:
            assert driver.wait() == 0, driver.tail()
            started = driver.event("query-started")
        newest = {topic: sum(kafka.ends(topic).values()) for topic in topics}
        groups = {one.group_id for one in kafka.admin.list_consumer_groups().result(60).valid}
    assert newest == {"in": 5, "by-column": 0, "by-option": 0, "copy": 5}
    assert "live" not in groups
    assert started["kafka"]["sink"]["topic"] == "copy"
    assert started["redirected_from"] == {"kind": "kafka", "path": None, "name": "by-option"}
