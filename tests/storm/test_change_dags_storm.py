"""A real job whose state is changed, and made from a table, by its DAGs: planned, rehearsed, restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import airflow_database, run_dag, task_states, write_dags, xcom
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.managed_job import hand_over
from tests.support.jobs.seen_job import NUMBERS, ROCKSDB, SeenJob

__all__ = ["airflow_database"]

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(1800)]

DECLARED = """
[jobs.seen.transform]
delete_where = "key.number % 5 = 0"
rehearse = true

[jobs.seen.bootstrap]
tables = ["totals"]
sql = "SELECT CAST(n AS bigint) AS number FROM source"
"""


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SeenJob]:
    made = SeenJob(tmp_path, ROCKSDB)
    with made.jobs.open("a") as declared:
        declared.write(DECLARED)
    hand_over(made.job.records, monkeypatch)
    made.arrive()
    try:
        start_job(made.job, by=BY)
        made.settle()
        yield made
    finally:
        end_drivers(made.job.records())


def change(trial: SeenJob, verb: str, **answers: Any) -> Any:
    dags = build_dags(trial.jobs)  # again each time, since a run fills in the templates of its tasks
    write_dags(dags["seen.run"])
    for task in dags[f"seen.{verb}"].tasks:
        task.retries = 0
    return run_dag(dags[f"seen.{verb}"], run_conf=answers, mark_success_pattern="approve")


def test_keys_go_once_the_application_has_run_without_them(airflow_database: None, trial: SeenJob) -> None:
    preview = change(trial, "transform")
    states = task_states(preview)
    assert (states["preview"], states["stop"]) == ("success", "skipped")
    assert xcom(preview, "preview")["keys"] == NUMBERS // 5

    run = change(trial, "transform", dry_run=False)

    states, done = task_states(run), xcom(run, "rewrite")
    assert (states["rewrite"], states["start"], states["go_back"]) == ("success", "success", "skipped")
    assert (done["keys"], done["changed"], done["rehearsed"]) == (NUMBERS // 5, 0, True)
    # All input is read: the copy finds that too, and does not wait for more until the drill's time is over.
    assert done["rehearsal"].startswith("The job's application ran on it")
    assert (
        "Not proven: of query main no batch was processed: there was nothing new to read" in done["rehearsal"]
    )
    trial.arrive(forgotten=5)
    trial.settle()
    again = change(trial, "transform", dry_run=False, rehearse=False)
    assert xcom(again, "preview")["keys"] > 0, "a declared change can be made twice"
    trial.arrive(forgotten=5)
    trial.settle()
    stop_job(trial.job, by=BY)


def test_state_comes_from_a_table_and_the_job_goes_on_from_it(airflow_database: None, trial: SeenJob) -> None:
    (trial.folder / "totals").mkdir()
    kept = [number for number in range(NUMBERS) if number % 4]
    for name, numbers in (("totals/a.json", kept), ("totals/b.json", [])):
        (trial.folder / name).write_text("".join(f'{{"n": {number}}}\n' for number in numbers))
    table = str(trial.folder / "totals" / "a.json")

    refused = change(trial, "bootstrap", table=table)
    assert task_states(refused)["preview"] == "failed", (
        "there are rows, and nothing says what becomes of them"
    )
    run = change(trial, "bootstrap", table=table, existing="replace", dry_run=False, rehearse=True)

    states, done = task_states(run), xcom(run, "rewrite")
    assert (states["rewrite"], states["start"], states["go_back"]) == ("success", "success", "skipped")
    assert (done["rows"], done["existing_rows"], done["rehearsed"]) == (len(kept), NUMBERS, True)
    trial.arrive(forgotten=4)
    trial.settle()
    stop_job(trial.job, by=BY)


def test_a_rehearsal_that_fails_leaves_the_job_as_it_was(
    airflow_database: None, trial: SeenJob, capfd: pytest.CaptureFixture[str]
) -> None:
    with trial.jobs.open("a") as declared:
        declared.write('\n[jobs.seen.drill]\ntimeout = "1s"\n')

    run = change(trial, "transform", dry_run=False)

    states = task_states(run)
    assert (run.state, states["rewrite"], states["restore"]) == ("failed", "failed", "upstream_failed")
    assert (states["go_back"], states["start_again"]) == ("success", "success")
    said = capfd.readouterr().out
    assert "The rehearsal FAILED at the step " in said and " before that is understood. seen/" in said
    trial.arrive()
    trial.settle()
    stop_job(trial.job, by=BY)
