"""What a driver asks for itself at each start of a query, before Spark writes anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.marker import read_marker
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.drivers.real_driver import Job, printed


@pytest.mark.storm
@pytest.mark.spark
def test_a_driver_refuses_what_its_launcher_could_not_see(tmp_path: Path) -> None:
    job = Job(tmp_path, queries=("moved", "raw", "left"))
    spec = job.spec("changing.py")
    LiveCheckpoint(open_store(spec.queries["moved"].checkpoint), retain=20).run(3)
    out = f"file://{tmp_path}/out"
    facts = {"generation": 1, "query_id": "q", "sink": f"FileSink[{out}/old]", "sink_path": f"{out}/old"}
    job.control.record_query("moved", facts)
    left = job.control.generations("left")
    restored = replace(left.propose(taken=lambda _: False), new_sinks={f"{out}/left": f"{out}/new"})
    left.records.create(2, restored.to_dict())
    open_store(f"{out}/used").write("_spark_metadata/6", b"v1\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.txt").write_text("one\ntwo\n")
    raw = tmp_path / "checkpoint/raw"

    with job.driver("changing.py", str(tmp_path / "in"), str(tmp_path / "out"), str(raw)) as driver:
        assert driver.wait() == 8, driver.tail()
        assert printed(driver) == {
            "moved to another path": "sink-changed",
            "moved to another kind": "sink-changed",
            "begun in a used output": "sink-used",
            "first": "accepted",
            "another kind": "undeclared-query",
            "another path": "undeclared-query",
            "with state": "undeclared-query",
            "another checkpoint": "undeclared-query",
            "spelled differently": "accepted",
            "its checkpoint is gone": "checkpoint-lost",
            "its records are older than it": "repository-lost",
            "restored to write elsewhere": "old-sink",
            "begun again": False,
            "called": [],
        }
        assert driver.events("driver-ended")[0]["exit_code"] == 8
        started = driver.events("query-started")

    assert [one["output"] for one in started] == [{"kind": "files", "path": f"{out}/raw", "name": None}] * 2
    assert not (tmp_path / "out/new").exists(), "nothing was written"
    assert sorted(one.name for one in (tmp_path / "out/used").iterdir()) == ["_spark_metadata"]
    marker = read_marker(spec.queries["raw"].checkpoint)
    assert marker is not None
    assert (marker.job, marker.query, marker.generation) == ("job", "raw", 1)
    assert (marker.sink, marker.sink_path) == ("FileSink", f"{out}/raw")
    assert marker.query_id == started[0]["query_id"]
    assert read_marker(spec.queries["moved"].checkpoint) is None


LATE = """
import sys

from pyspark.sql import SparkSession

rows = SparkSession.builder.getOrCreate().readStream.text(sys.argv[1])
for name in sys.argv[3:]:
    query = rows.writeStream.queryName(name).format("text").start(f"{sys.argv[2]}/{name}")
    query.processAllAvailable()
    query.stop()
"""


@pytest.mark.storm
@pytest.mark.spark
def test_a_job_goes_on_that_began_before_it_declared_its_queries(tmp_path: Path) -> None:
    """The names of its queries are known only when it runs: its first one has written by then."""
    program = tmp_path / "app.py"
    program.write_text(LATE)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.txt").write_text("one\ntwo\n")
    args = (str(tmp_path / "in"), str(tmp_path / "out"), "first", "second")
    with Job(tmp_path).driver(program, *args) as driver:
        assert driver.event("driver-refused")["code"] == "undeclared-query"
        assert driver.wait() == 8, driver.tail()
        assert driver.batches("commits") == [0]
    several = Job(tmp_path, queries=("first", "second"))
    with several.driver(program, *args) as driver:
        refused = driver.event("driver-refused")
        assert driver.wait() == 8, driver.tail()

    one = tmp_path / "checkpoint"
    assert refused["code"] == "sink-used"
    assert f"whose checkpoint is file://{one}." in refused["hint"]
    assert f"into file://{one}/first while no driver runs" in refused["hint"]
    (one / "first").mkdir(exist_ok=True)
    for path in [path for path in one.iterdir() if path.name not in ("first", "second")]:
        path.rename(one / "first" / path.name)
    (tmp_path / "in/1.txt").write_text("three\n")
    with several.driver(program, *args) as driver:
        assert driver.wait() == 0, driver.tail()
        assert driver.batches("commits", "first") == [0, 1]
    for name in ("first", "second"):
        rows = [
            line for file in (tmp_path / "out" / name).glob("part-*") for line in file.read_text().split()
        ]
        assert sorted(rows) == ["one", "three", "two"]
