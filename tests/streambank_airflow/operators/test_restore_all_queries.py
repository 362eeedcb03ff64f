"""All queries of a job restored as one, by an operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import InputError
from streambank.job.savepoint import savepoint_job
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed, managed_job

QUERIES = ("hourly", "sessions")


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A running job with two queries, with a savepoint of each."""
    with managed_job(tmp_path, monkeypatch, QUERIES) as job:
        job.start()
        for query in QUERIES:
            job.wait_for_batch(2, query)
        savepoint_job(job.job, by=BY)
        yield job


def test_both_go_back_to_savepoints_that_belong_together(airflow_database: None, managed: Managed) -> None:
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file), "retries": 0}
    asked = {**where, "job": "flights/*", "sink": "accept"}
    with DAG("whole", schedule=None) as dag:
        plan = RestoreSavepointOperator(task_id="plan", plan_only=True, **asked)
        stop = StopStreamingJobOperator(task_id="stop", deferrable=False, trigger_rule="all_done", **where)
        restore = RestoreSavepointOperator(task_id="restore", **asked)
        start = StartStreamingJobOperator(task_id="start", **where)
        plan >> stop >> restore >> start
    run = run_dag(dag)
    states = task_states(run)
    assert states == {"plan": "failed", "stop": "success", "restore": "success", "start": "success"}, (
        "a plan fails while the job runs"
    )
    result = xcom(run, "restore")
    assert set(result["queries"]) == set(QUERIES) and result["already_restored"] == []
    for query, one in result["queries"].items():
        generation = managed.control.generation(query)
        assert generation is not None
        assert (generation.number, generation.from_savepoint) == (2, one["savepoint"])
        assert generation.location == one["location"]


@pytest.mark.parametrize(
    ("named", "code"), [("hourly=/nowhere", "not-this-sink"), ("/nowhere", "bad-file-sink")]
)
def test_an_output_that_is_named_is_compared(managed: Managed, named: str, code: str) -> None:
    hook = StreambankHook(jobs_file=str(managed.jobs_file))
    with pytest.raises(InputError) as refused:
        hook.recovery.plan("flights", all_queries=True, file_sinks=(named,), sink="accept", may_stop=True)
    assert refused.value.code == code
