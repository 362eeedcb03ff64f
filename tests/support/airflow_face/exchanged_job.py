"""A job of which a DAG exchanges the state: what stands where Spark does, and how such a DAG is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.errors import RefusedError
from streambank.job.savepoint import savepoint_job
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_airflow.dags.jobs import build_dags
from streambank_spark.submit.executor import SparkExecutor
from tests.support.airflow_face.metadata_db import Question, answer_question, pause, run_dag, write_dags
from tests.support.jobs.managed_job import BY, Managed
from tests.support.repository.derived_savepoint import derive

WAY_BACK = ("go_back", "start_again", "keep_running_again", "watched_again")
WHERE = "value.count < 3"
OLD = {"where": True, "dry_run": False}

CHANGES = """
[jobs.flights.transform]
sets = ["value.count = value.count * 100"]
where = "key.k = 'a|b'"
delete_where = "value.count < 3"
samples = 1

[jobs.flights.bootstrap]
tables = ["totals"]
format = "csv"
sql = "SELECT k, count(*) AS count FROM source GROUP BY k"
values = ["count = n"]
"""


class Rewriting:
    """Stands where Spark does: makes a savepoint with a byte of its state changed, or what a test says.

    What it was asked to make is in `asked`; a look beforehand is not.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Mapping[str, Any], SparkExecutor]] = []
        self.fails: Exception | None = None
        self.finds_nothing = False
        self.table_changes = False
        self.shows_nothing = False
        patch.setattr("streambank_spark.submit.state_change.submit_rewrite", self)

    def __call__(self, plan: Mapping[str, Any], spark: SparkExecutor) -> dict[str, Any]:
        order, job = plan["order"], plan["job"]
        shows = order.get("dry_run", False)
        made = None
        repository = Repository.open(open_store(plan["repository"]))
        if self.table_changes and order.get("table_digest"):
            raise RefusedError("The table gives other rows now.", code="approval-outdated", hint="")
        if not shows:
            self.asked.append((plan, spark))
            if self.fails is not None:
                raise self.fails
            if not self.finds_nothing:
                made = derive(repository, job, plan["savepoint"])
        report = {
            "of": f"{job}/{plan['savepoint']}",
            "batch": repository.load(job, plan["savepoint"]).batch,
            "operation": order["operation"],
            "dry_run": shows,
            "savepoint": made,
            "stores": [],
        }
        key, of = {"key": {"k": "a|b"}}, {"operator": 0, "part": "default"}
        if order["operation"] == "bootstrap":
            row = {**key, "value": {"count": 5}}
            counts = {"rows": 4, "table_rows": 5, "table_digest": "5:1234567890", "existing_rows": 9}
            return {**report, **of, **counts, "samples": [row]}
        keys = 0 if (self.shows_nothing if shows else self.finds_nothing) else 2
        gone = {"operator": 0, "name": "stateStoreSave", "keys": keys, "rows": keys, "rows_before": 9}
        document = {**report, "operators": [{**gone, "about_bytes": 10, "meaning": "They start from zero."}]}
        if order["operation"] == "transform":
            change = {**key, "before": {"count": 1}, "after": {"count": 100}}
            document["changes"] = [{**of, "rows": 3, "samples": [change]}] if keys else []
        return document


def dag(managed: Managed, verb: str = "compact", *, paused: bool = False) -> DAG:
    """One of the job's DAGs, without retries; `<job>.run`, to which it hands over, is known to Airflow.

    A job that declares nothing of its state says which keys go.
    """
    if "[jobs.flights.compact]" not in managed.jobs_file.read_text(encoding="utf-8"):
        managed.declare(f'\n[jobs.flights.compact]\nwhere = "{WHERE}"\n')
    dags = build_dags(managed.jobs_file)
    write_dags(dags["flights.run"])
    pause("flights.run", paused)
    for task in dags[f"flights.{verb}"].tasks:
        task.retries = 0
    return dags[f"flights.{verb}"]


def exchange(managed: Managed, form: Mapping[str, Any], wanted: DAG | None = None) -> Any:
    """Run one of the DAGs of a job that has a savepoint, and approve what it shows."""
    savepoint_job(managed.job, by=BY)
    return run_dag(wanted or dag(managed), run_conf=form, mark_success_pattern="approve")


def generation(managed: Managed) -> tuple[int, int | None]:
    found = managed.control.generation()
    assert found is not None
    return found.number, found.again


@contextmanager
def answering(
    option: str, before: Callable[[], None] = lambda: None, verb: str = "compact"
) -> Iterator[Future[Question]]:
    """Answer the approval of the run in the block; what was shown is in the result."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(answer_question, f"flights.{verb}", "approve", option, before=before)
