"""Another savepoint made of one, as a task: by a real Spark of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import DAG

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_airflow.operators.rewrite import MigrateStateOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.checkpoint.recorded import unpack

JOBS = """
repository = "savepoints"
[jobs.dedup]
application = "app.py"
checkpoint = "old/checkpoint"
master = "local[1]"
"""


@pytest.mark.spark
@pytest.mark.storm
def test_state_is_migrated_to_rocksdb(
    airflow_database: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS, encoding="utf-8")
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    source = open_store(unpack("4.3.0/hdfs-dedup", tmp_path / "old") / "checkpoint")
    taken = take(TakeRequest(source, repository, "dedup"))
    where = {"job": "dedup", "jobs_file": str(tmp_path / "jobs.toml")}
    with DAG("own", schedule=None, default_args={"retries": 0}) as dag:
        MigrateStateOperator(task_id="migrate", partitions="3", note="bigger", **where)
        MigrateStateOperator(task_id="wrong", provider="leveldb", **where)

    run = run_dag(dag)

    assert task_states(run) == {"migrate": "success", "wrong": "failed"}
    assert "migrate needs the provider rocksdb" in capfd.readouterr().out
    done = xcom(run, "migrate")
    assert (done["operation"], done["of"], done["batch"]) == (
        "migrate",
        f"dedup/{taken.savepoint}",
        taken.batch,
    )
    made = repository.load("dedup", done["savepoint"])
    assert made.batch == taken.batch and made.note == "bigger"
    assert {file.path.split("/")[2] for file in made.files if file.path.startswith("state/0/")} >= {
        "0",
        "1",
        "2",
    }
