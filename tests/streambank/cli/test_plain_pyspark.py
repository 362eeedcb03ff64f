"""docs/howto/managed-spark.md: a checkpoint that plain PySpark wrote, without our runner, and of no job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import succeed

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(900)]
STATE = "org.apache.spark.sql.execution.streaming.state"
PROGRAM = """
import sys
from pyspark.sql import SparkSession
folder, checkpoint, provider = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.streaming.stateStore.providerClass", provider)
    .getOrCreate()
)
words = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/in")
counts = words.groupBy("value").count()
def write(rows, batch):
    with open(f"{folder}/out.jsonl", "a") as out:
        for row in rows.collect():
            print(row.asDict(), file=out)
query = counts.writeStream.outputMode("update").foreachBatch(write)
query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""


def run(folder: Path, checkpoint: Path, provider: str) -> list[str]:
    """Run the program by Python alone; the rows that it wrote this time."""
    (folder / "out.jsonl").write_text("")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(checkpoint), f"{STATE}.{provider}"],
        env={**kept, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted((folder / "out.jsonl").read_text().splitlines())


def arrive(folder: Path, name: str, *words: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text("".join(f"{word}\n" for word in words))


@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_it_is_saved_verified_judged_and_restored_and_the_query_goes_on(
    tmp_path: Path, provider: str
) -> None:
    checkpoint, restored, repository = tmp_path / "checkpoint", tmp_path / "restored", tmp_path / "savepoints"
    arrive(tmp_path, "1.txt", "a", "b")
    arrive(tmp_path, "2.txt", "a")
    assert run(tmp_path, checkpoint, provider)[-1] == "{'value': 'b', 'count': 1}"

    succeed("take", checkpoint, "-r", repository, "--job", "words")
    succeed("verify", "--all", "-r", repository, "--level", "full")
    judged = json.loads(succeed("sla", checkpoint, "--json").out)
    assert judged
    arrive(tmp_path, "3.txt", "a", "c")
    lost = run(tmp_path, checkpoint, provider)
    assert lost == ["{'value': 'a', 'count': 3}", "{'value': 'c', 'count': 1}"]

    restore = ("restore", "latest-good", "-r", repository, "--job", "words", "--into", restored)
    succeed(*restore, "--sink", "accept")
    assert run(tmp_path, restored, provider) == lost, "the batch after the savepoint, with the state of then"
