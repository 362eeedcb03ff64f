"""What a real driver writes down of Kafka: sources by position in Spark's offset log, sinks by class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.jars.kafka import spark_settings
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.kafka.offsets import parse_offsets
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.jobs.declared import BY, end_drivers
from tests.support.kafka.flights_job import PATIENCE_S, SETTINGS
from tests.support.kafka.real_broker import running
from tests.support.waiting import poll

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

APPLICATION = """
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

servers, folder = sys.argv[1:]
CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
spark = SparkSession.builder.getOrCreate()


def reading(format, **options):
    reader = spark.readStream.format(format).option("kafka.bootstrap.servers", servers)
    return reader.option("startingOffsets", "earliest").options(**options).load().select("value")


files = spark.readStream.text(f"{folder}/kafka-in").select(col("value").cast("binary").alias("value"))
everything = reading("kafka", subscribePattern=".*rst|sec.*")
one = reading("KAFKA", subscribe="second")
files.union(everything).union(one).writeStream.queryName("files").format("json").start(f"{folder}/kafka-out")
writer = reading(CONNECTOR, subscribe="first").writeStream.queryName("topics").format(CONNECTOR)
writer.option("kafka.bootstrap.servers", servers).option("topic", "out").start()
spark.streams.awaitAnyTermination()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with running(tmp_path / "broker") as kafka:
        for topic in ("first", "second", "out"):
            kafka.create(topic)
            kafka.produce(topic, ((None, number) for number in range(5)), 0)
        (tmp_path / "kafka-in").mkdir()
        (tmp_path / "kafka-in/one.txt").write_text("a line\n")
        (tmp_path / "app.py").write_text(APPLICATION)
        spark = "\n".join(f'"{name}" = "{value}"' for name, value in {**SETTINGS, **spark_settings()}.items())
        (tmp_path / "jobs.toml").write_text(
            f'repository = "repository"\n[jobs.mixed]\napplication = "app.py"\nmaster = "local[2]"\n'
            f'args = ["{kafka.bootstrap}", "{tmp_path}"]\nqueries = ["files", "topics"]\n'
            f'checkpoint = "checkpoints"\n[jobs.mixed.spark]\n{spark}\n'
        )
        declared = load_jobs(tmp_path / "jobs.toml").job("mixed")
        try:
            yield declared
        finally:
            end_drivers(declared.records())


@pytest.mark.storm
def test_sources_by_position_and_sinks_by_class(job: Job, tmp_path: Path) -> None:
    start_job(job, by=BY, timeout_s=PATIENCE_S)
    poll(
        lambda: all(
            open_store(job.records().generation(name).location).names("commits")  # type: ignore[union-attr]
            for name in ("files", "topics")
        ),
        timeout_s=PATIENCE_S,
    )
    facts = {name: job.records().query_facts(name) or {} for name in ("files", "topics")}
    assert facts["files"]["kafka"]["streams"] == ["FileSource", "kafka", "kafka"]
    told = facts["files"]["kafka"]["sources"]
    assert [one["position"] for one in told] == [1, 2]
    assert facts["files"]["kafka"]["sink"] is None, "the path of its output holds the word"
    assert facts["topics"]["kafka"]["sink"]["topic"] == "out"

    taken = savepoint_job(job, by=BY).savepoints
    repository = Repository.open(open_store(job.repository))
    manifests = {name: repository.load(f"mixed/{name}", one.savepoint) for name, one in taken.items()}
    (sink,) = manifests["files"].sinks
    assert (sink["kind"], sink["guarded"]) == ("file", True)
    assert manifests["topics"].sinks[0]["kind"] == "kafka"
    assert manifests["topics"].sources[0]["kafka"]["topics"]["first"]["topic_id"]
    sources = {one["source"]: one for one in manifests["files"].sources}
    assert "kafka" not in sources["0"]
    assert sources["1"]["kafka"]["subscribepattern"] == ".*rst|sec.*"
    assert set(parse_offsets(sources["1"]["offset"]) or ()) == {"first", "second"}
    assert sources["2"]["kafka"]["subscribe"] == "second"
    assert set(parse_offsets(sources["2"]["offset"]) or ()) == {"second"}
    assert all(not one.warnings for one in taken.values())
