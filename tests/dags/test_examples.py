"""The examples of DAGs do what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from streambank.storage import open_store
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.moved import DagBag
from tests.support.airflow_face.releases import BEFORE_3_3
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.paths import ROOT

DAY = datetime(2013, 1, 1, tzinfo=UTC)


@pytest.fixture
def examples(project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DagBag:
    monkeypatch.setenv("STREAMBANK_HOME", str(tmp_path))
    return DagBag(str(project_root / "examples" / "dags" / "batch_after_watermark.py"))


def event(start: str | None, end: str) -> Any:
    return SimpleNamespace(extra={"from_trigger": True, "payload": {"start": start, "end": end}})


def write_output(
    folder: Path, batch: int, name: str, hours: dict[int, int], *, committed: bool = True
) -> None:
    """A file of the job's sink, and the entry of its log."""
    log = folder / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    counts = pa.array(list(hours.values()), pa.int64())
    at = pa.array([DAY.replace(hour=hour) for hour in hours], pa.timestamp("us", "UTC"))
    table = pa.table({"hour": at, "scheduled": counts, "departed": counts, "delayed": counts})
    parquet.write_table(table, folder / name)
    size = (folder / name).stat().st_size
    entry = {
        "path": (folder / name).as_uri(),
        "size": size,
        "isDir": False,
        "modificationTime": 1,
        "blockReplication": 1,
        "blockSize": 1,
        "action": "add",
    }
    if committed:
        (log / str(batch)).write_text(f"v1\n{json.dumps(entry)}")


def checkpoint_at(folder: Path, watermark: datetime) -> None:
    """The job's checkpoint, its newest committed batch at a watermark."""
    query = LiveCheckpoint(open_store(str(folder))).run(2)
    head = {"batchWatermarkMs": round(watermark.timestamp() * 1000), "batchTimestampMs": 1}
    query.store.write("offsets/1", f'v1\n{json.dumps(head)}\n{{"logOffset":1}}'.encode())


def test_airflow_reads_them_without_an_error(airflow_database: None, examples: DagBag) -> None:
    assert examples.import_errors == {}
    assert set(examples.dags) == {"flights.hours", "flights.days"}


@pytest.mark.storm
def test_a_day_is_summed_up_when_the_stream_has_passed_it(
    airflow_database: None, examples: DagBag, tmp_path: Path
) -> None:
    output = tmp_path / "data" / "output"
    write_output(output, 0, "a.parquet", {0: 5, 1: 7})
    write_output(output, 1, "b.parquet", {23: 1})
    write_output(output, 2, "c.parquet", {2: 1000}, committed=False)
    checkpoint_at(tmp_path / "data" / "checkpoints" / "flights", datetime(2013, 1, 2, tzinfo=UTC))

    run = run_dag(examples.dags["flights.days"], logical_date=datetime(2013, 1, 2, tzinfo=UTC))

    assert xcom(run, "complete")["moment"] == "2013-01-02T00:00:00+00:00"
    assert xcom(run, "report_of_day") == {
        "start": "2013-01-01T00:00:00+00:00",
        "end": "2013-01-02T00:00:00+00:00",
        "scheduled": 13,
        "departed": 13,
        "delayed": 13,
    }
    assert set(task_states(run).values()) == {"success"}


def test_events_that_came_together_are_one_interval(examples: DagBag) -> None:
    report: Any = examples.dags["flights.hours"].get_task("report")
    interval = report.python_callable.__globals__["interval"]
    one, two, three = (f"2013-01-01T0{hour}:00:00.000Z" for hour in (1, 2, 3))

    assert interval([event(one, two), event(two, three)]) == (DAY.replace(hour=1), DAY.replace(hour=3))
    assert interval([event(None, two), event(two, three)]) == (None, DAY.replace(hour=3))


class ByAsset(dict[str, Any]):
    """Events by the asset itself, as Airflow gives them; Airflow 3.1 cannot hash an asset."""

    def __getitem__(self, asset: Any) -> Any:
        return super().__getitem__(asset.uri)


def test_hours_are_summed_up_by_the_events_of_their_asset(examples: DagBag, tmp_path: Path) -> None:
    output = tmp_path / "data" / "output"
    write_output(output, 0, "a.parquet", {0: 5, 1: 7, 2: 9})
    dag: Any = examples.dags["flights.hours"]
    (asset,) = dag.timetable.asset_condition.objects
    told = {asset.uri: [event("2013-01-01T01:00:00.000Z", "2013-01-01T02:00:00.000Z")]}

    found = dag.get_task("report").python_callable(triggering_asset_events=ByAsset(told))

    assert (found["scheduled"], found["end"]) == (7, "2013-01-01T02:00:00+00:00")


def test_a_run_of_hours_that_a_person_has_triggered_is_skipped(examples: DagBag) -> None:
    dag: Any = examples.dags["flights.hours"]
    (asset,) = dag.timetable.asset_condition.objects

    with pytest.raises(AirflowSkipException, match="only an event of the asset"):
        dag.get_task("report").python_callable(triggering_asset_events=ByAsset({asset.uri: []}))


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    with managed_job(tmp_path, monkeypatch) as job:
        yield job


SHIPPED = ROOT / "provider" / "airflow_provider_streambank" / "example_dags"


@pytest.fixture
def shipped(airflow_database: None, managed: Managed, monkeypatch: pytest.MonkeyPatch) -> dict[str, DAG]:
    """The examples that the wheel carries, from where Airflow loads them, for a job that runs."""
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", str(not BEFORE_3_3))
    monkeypatch.setenv("STREAMBANK_JOBS", str(managed.jobs_file))
    managed.start()
    bundles = {bundle.name: bundle for bundle in DagBundlesManager().get_all_dag_bundles()}  # type: ignore[no-untyped-call]
    name = "airflow-provider-streambank-example-dags"
    found = DagBag(str(SHIPPED if BEFORE_3_3 else bundles[name].path))
    assert found.import_errors == {}
    return found.dags


def test_airflow_finds_the_shipped_examples_without_a_traceback(
    shipped: dict[str, DAG], caplog: pytest.LogCaptureFixture
) -> None:
    assert set(shipped) == {
        "streambank_savepoint_before_batch",
        "streambank_wait_for_batch",
    }
    assert "Could not load provider module airflow_provider_streambank" not in caplog.text


@pytest.mark.storm
def test_batch_work_follows_a_savepoint(shipped: dict[str, DAG]) -> None:
    run = run_dag(shipped["streambank_savepoint_before_batch"])
    assert set(task_states(run).values()) == {"success"}
    assert xcom(run, "report").endswith(xcom(run, "take", "savepoint"))


def test_work_starts_with_the_next_batch(shipped: dict[str, DAG]) -> None:
    run = run_dag(shipped["streambank_wait_for_batch"])
    assert set(task_states(run).values()) == {"success"}
    assert xcom(run, "report") == f"batch {xcom(run, 'committed')['batch']} is committed"
