"""Operators that work on state, in an Airflow whose environment has no PySpark: by the job's own Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyspark
import pytest

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import succeed
from tests.support.wheels import airflow_without_pyspark, built_wheel, run

pytestmark = [pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(1200)]

JOBS = """
repository = "savepoints"
[jobs.orders]
application = "app.py"
checkpoint = "old/checkpoint"
master = "local[1]"
spark_home = "{spark_home}"
"""

DAG = """
import json
from pathlib import Path

from airflow.sdk import DAG, task

from streambank_airflow.operators.erase import EraseStateOperator
from streambank_airflow.operators.rewrite import TransformStateOperator, ValidateStateOperator

HERE = Path("{folder}")
OF_TASK = "{{{{ ti.xcom_pull(task_ids='%s')['savepoint'] }}}}"
where = {{"job": "orders", "jobs_file": str(HERE / "jobs.toml")}}

with DAG("own", schedule=None, default_args={{"retries": 0}}):
    validated = ValidateStateOperator(
        task_id="validate", rules=["value.sum > 0", "key.k <> '{key}'"], fail_on_broken=False, **where
    )
    transformed = TransformStateOperator(
        task_id="transform", sets="value.sum = 2 * value.sum", where="key.k = 'k2'", **where
    )
    erased = EraseStateOperator(
        task_id="erase", key={{"k": "{key}"}}, savepoint=OF_TASK % "transform", **where
    )

    @task
    def keep(validate, transform, erase):
        import importlib.util

        found = importlib.util.find_spec("pyspark") is not None
        results = {{"validate": validate, "transform": transform, "erase": erase, "pyspark": found}}
        (HERE / "results.json").write_text(json.dumps(results))

    kept = keep(validated.output, transformed.output, erased.output)
    validated >> transformed >> erased >> kept
"""

EVERY_MODULE = """
import importlib, pkgutil
import streambank_airflow
for found in pkgutil.walk_packages(streambank_airflow.__path__, "streambank_airflow."):
    if ".spark_jobs." not in found.name:
        importlib.import_module(found.name)
"""

ERASED = "k0"

Rows = dict[tuple[str, str], int]
"""The sum of each window's start and key."""


def rows_of(savepoint: str, repository: Path) -> Rows:
    """The state of a savepoint, by the Spark of this environment."""
    read = succeed("state", "read", savepoint, "--limit", 1000, "-r", repository, "--json").document
    assert not read["more"]
    return {(row["key"]["window"]["start"], row["key"]["k"]): row["value"]["sum"] for row in read["rows"]}


def test_state_is_judged_changed_and_erased_by_the_spark_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    here = airflow_without_pyspark(built_wheel(tmp_path / "dist"), tmp_path / "venv")
    python = here / "bin" / "python"
    run([python, "-c", "import pyspark"], tmp_path, expect=1)
    (tmp_path / "jobs.toml").write_text(JOBS.format(spark_home=Path(pyspark.__file__).parent))
    source = open_store(unpack("4.3.0/rocksdb-window", tmp_path / "old") / "checkpoint")
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    taken = take(TakeRequest(source, repository, "orders"))
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "own.py").write_text(DAG.format(folder=tmp_path, key=ERASED))
    variables = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }

    run([python, "-W", "ignore", "-c", EVERY_MODULE], tmp_path, variables=variables)
    for arguments in ("db migrate", "dags test own"):
        run([here / "bin" / "airflow", *arguments.split()], tmp_path, variables=variables)

    results: dict[str, Any] = json.loads((tmp_path / "results.json").read_text())
    assert not results["pyspark"], "the tasks ran where there is none"
    before = rows_of(taken.savepoint, tmp_path / "savepoints")
    old = f"orders/{taken.savepoint}"
    broken = {name for name in before if name[1] == ERASED}
    others = {name for name in before if name[1] == "k2"}
    assert broken and others and before.keys() - broken - others

    validated, transformed, erased = (results[name] for name in ("validate", "transform", "erase"))
    assert (validated["of"], validated["ok"], validated["savepoint"]) == (old, False, None)
    assert (validated["rules"], validated["rows"], validated["broken"]) == (2, len(before), len(broken))
    assert (transformed["of"], transformed["changed"], transformed["rows"]) == (old, len(others), 0)
    doubled = {name: 2 * total if name in others else total for name, total in before.items()}
    assert rows_of(transformed["savepoint"], tmp_path / "savepoints") == doubled
    assert erased["of"] == f"orders/{transformed['savepoint']}"
    assert (erased["rows"], erased["rows_before"]) == (len(broken), len(before))
    assert (erased["searched"], erased["savepoints"], erased["unknown"]) == (True, 3, 0)
    assert erased["holding"] == 2, "the other two savepoints hold the key"
    left = {name: total for name, total in doubled.items() if name not in broken}
    assert rows_of(erased["savepoint"], tmp_path / "savepoints") == left
