"""`streambank sinks`: how each sink of a job stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.savepoint import savepoint_job
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import BY, quick_store
from tests.support.sinks.lake import Lake

JOBS = """
repository = "repository"
[jobs.orders]
application = "app.py"
checkpoint = "ck"
[[jobs.orders.sinks]]
kind = "delta"
table = "lake"
writer = "orders"
[[jobs.orders.sinks]]
kind = "append"
table = "the audit log"
"""


class Orders:
    """A job whose application writes each batch to a Delta table and to a log."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "jobs.toml"
        self.file.write_text(JOBS, encoding="utf-8")
        self.live = LiveCheckpoint(quick_store(str(folder / "ck")))
        self.lake = Lake(folder / "lake", "orders")

    @property
    def job(self) -> Job:
        return load_jobs(self.file).job("orders")

    def run(self, batches: int) -> None:
        for _ in range(batches):
            batch = self.live.next_batch
            self.live.plan()
            self.lake.write(batch, [f"{batch}-0", f"{batch}-1"])
            self.live.commit()
        facts = {"query_id": self.live.query_id, "sink": "ForeachBatchSink", "generation": 1}
        control = self.job.records()
        control.generations().ensure_first(self.job.checkpoint, by=BY)
        control.record_query(None, facts)

    def shown(self, *options: str) -> str:
        return succeed("sinks", "orders", "--jobs", self.file, *options).out


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    job = Orders(tmp_path)
    job.run(5)
    return job


def test_before_the_first_savepoint_they_are_named(orders: Orders) -> None:
    said = orders.shown()
    assert "no savepoint yet" in said
    assert "lake (guarded)" in said and "append the audit log (not guarded)" in said


def test_each_sink_says_what_a_restore_would_do(orders: Orders) -> None:
    savepoint_job(orders.job, by=BY)
    said = orders.shown()
    assert "It has nothing after the savepoint." in said and "goes on with: --sink refuse" in said
    orders.run(3)
    said = " ".join(orders.shown().split())
    assert "is at batch 7 of the query" in said and "batches 5 to 7 (6 rows)" in said
    assert "The sink the audit log is not guarded. It was sent batches 5 to 7" in said
    assert "rows of batches 5 to 7 are repeated" in said
    assert said.endswith("a restore of it goes on with: --sink accept"), "the log cannot be rolled back"


def test_another_savepoint_can_be_named(orders: Orders) -> None:
    first = savepoint_job(orders.job, by=BY).savepoints["main"].savepoint
    orders.run(1)
    savepoint_job(orders.job, by=BY)
    assert "batches 5" not in orders.shown()
    assert "batch 5 (2 rows)" in " ".join(orders.shown("--savepoint", first).split())


def test_a_job_that_never_ran_has_no_sink(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS.partition("[[")[0], encoding="utf-8")
    said = succeed("sinks", "orders", "--jobs", tmp_path / "jobs.toml").out
    assert "no sink is known" in said


def test_an_unknown_query_is_named(orders: Orders) -> None:
    answer = streambank("sinks", "orders/hourly", "--jobs", orders.file)
    assert answer.code == 2 and "no query 'hourly'" in answer.err
