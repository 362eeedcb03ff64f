"""Rows of state in a restore's plan, where the files of the state do not tell."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from streambank.control.progress import ProgressWriter
from streambank.recovery.plan import reported_rows
from streambank.repository.manifest import FileEntry, Manifest
from streambank.storage import open_store
from streambank.storage.store import Store


@pytest.fixture
def records(request: pytest.FixtureRequest) -> Store:
    return open_store(f"memory://{request.node.name}")


def write_down(records: Store, batch: int, *rows: int | None, query: str | None = None) -> None:
    writer = ProgressWriter(records, query, epoch=1)
    operators = [{"operatorName": "stateStoreSave", "numRowsTotal": each} for each in rows]
    writer.add(json.dumps({"runId": f"run-{rows}", "batchId": batch, "stateOperators": operators}))
    writer.flush()


def savepoint(batch: int, *, job: str = "flights", later_s: float = 0.0) -> Manifest:
    """One of a batch that was committed a moment ago, or later, and taken at once."""
    at = datetime.now(UTC) + timedelta(seconds=later_s)
    commit = FileEntry(f"commits/{batch}", 1, "blake3:00", int(at.timestamp() * 1e9), "1", "commits")
    return Manifest(
        savepoint="b000007-0123456789ab", job=job, query_id="id", batch=batch, taken_at=at, files=(commit,)
    )


def test_they_are_what_spark_reported_of_the_batch(records: Store) -> None:
    write_down(records, 6, 10)
    write_down(records, 7, 11, 30)
    write_down(records, 8, 12)
    assert reported_rows(records, savepoint(7)) == 41


def test_each_query_has_its_own(records: Store) -> None:
    write_down(records, 7, 11, query="left")
    assert reported_rows(records, savepoint(7, job="flights/left")) == 11
    assert reported_rows(records, savepoint(7, job="flights/right")) is None


def test_another_run_of_the_same_batch_number_does_not_count(records: Store) -> None:
    write_down(records, 7, 11)
    assert reported_rows(records, savepoint(7, later_s=60)) is None, "it ran again, after a restore"
    assert reported_rows(records, savepoint(7, later_s=-60)) is None, "it was saved before, and restored"


def test_what_is_not_known_is_not_guessed(records: Store) -> None:
    assert reported_rows(records, savepoint(7)) is None
    write_down(records, 7, 11, None)
    assert reported_rows(records, savepoint(7)) is None
    write_down(records, 8)
    assert reported_rows(records, savepoint(8)) is None
    write_down(records, 9, 5)
    assert reported_rows(records, replace(savepoint(9), files=())) is None
