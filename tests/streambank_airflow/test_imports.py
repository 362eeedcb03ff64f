"""Parsing the DAG file of a declaration costs only our own modules: counted in a separate interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.airflow_face.releases import BEFORE_3_2

COUNT = """
import json, sys
import airflow.sdk
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
before = set(sys.modules)
from streambank_airflow.dags.jobs import build_dags
dags = build_dags(sys.argv[1])
new = set(sys.modules) - before
print(json.dumps({"dags": sorted(dags), "new": sorted(new), "all": sorted(sys.modules)}))
"""
HEAVY = (
    "pyspark",
    "boto3",
    "botocore",
    "airflow.providers.apache.spark",
    "pandas",
    "pyarrow",
)
MOST_OF_OURS = 201 if BEFORE_3_2 else 199
"""How many modules of ours may be loaded: what declares jobs and opens repositories, and no verb."""
VERBS = {
    "streambank.compaction.job",
    "streambank.drills",
    "streambank.job.start",
    "streambank.job.stop",
    "streambank.recovery.restore",
    "streambank.replicas",
    "streambank.retention.expire",
    "streambank.retention.sweep",
    "streambank.savepoint.take",
    "streambank.sla.assess",
    "streambank.sla.alerts",
    "streambank.savepoint.verify",
}


def test_parsing_loads_neither_spark_nor_clouds_nor_much_of_anything(project_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(project_root / "dags/streaming_jobs.toml")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(project_root / "provider")},
    )
    found = json.loads(done.stdout.splitlines()[-1])
    new = {name for name in found["new"] if not name.startswith("_")}
    # Airflow itself reads what each installed provider says about itself: the bare package and that module.
    said = {"airflow.providers.apache.spark", "airflow.providers.apache.spark.get_provider_info"}
    loaded = set(found["all"]) - said

    assert len(found["dags"]) == 18
    assert not [name for name in loaded if name.startswith(tuple(f"{heavy}." for heavy in HEAVY))]
    assert not loaded & set(HEAVY)
    assert not new & {"typer", "rich"}
    assert not new & VERBS
    assert len([name for name in new if name.startswith("streambank")]) <= MOST_OF_OURS
    assert not [name for name in new if "triggers" in name and name.startswith("streambank")]
