"""`flights.replay`: New York's departures of 2013 arrive, file by file, for the streaming jobs to read."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

REPLAY = Path(__file__).resolve().parents[2] / "spark_jobs" / "flights" / "replay.py"

with DAG(
    "flights.replay",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags={"flights", "demo"},
    doc_md=__doc__,
    params={
        "target": Param(
            type="string", minLength=1, title="Folder", description="The folder that the streaming job reads."
        ),
        "rows_per_file": Param(4000, type="integer", minimum=1, title="Departures in one file"),
        "gap_ms": Param(
            1000, type="integer", minimum=0, title="Pause", description="Milliseconds between two files."
        ),
        "limit": Param(
            336_776,
            type="integer",
            minimum=1,
            maximum=336_776,
            title="Departures",
            description="How many in all.",
        ),
    },
) as dag:
    BashOperator(
        task_id="replay",
        # What a person typed reaches the shell as variables, never as part of the command.
        bash_command=(
            'exec "$PYTHON" "$REPLAY" "$TARGET" --rows-per-file "$ROWS" --gap-ms "$GAP_MS" --limit "$LIMIT"'
        ),
        env={
            "PYTHON": sys.executable,
            "REPLAY": str(REPLAY),
            "TARGET": "{{ params.target }}",
            "ROWS": "{{ params.rows_per_file }}",
            "GAP_MS": "{{ params.gap_ms }}",
            "LIMIT": "{{ params.limit }}",
        },
        append_env=True,
        execution_timeout=timedelta(hours=1),
    )
