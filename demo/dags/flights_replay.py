"""`flights.replay`: New York's departures of 2013 arrive, for the streaming jobs to read.

They arrive file by file in a folder, or portion by portion in a Kafka topic. If a folder has some already,
the next ones follow. A topic gets exactly the requested departures: request each one once, and the closing
record after the job has read everything.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

REPLAY = Path(__file__).resolve().parents[2] / "spark_jobs" / "flights" / "replay.py"
KAFKA_VARIABLE = "STREAMBANK_DEMO_KAFKA"
"""Names the broker of a stack, which is then what is fed unless a folder is named."""
ALL = 336_776

with DAG(
    "flights.replay",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags={"flights", "demo"},
    doc_md=__doc__,
    params={
        "target": Param(
            None,
            type=["null", "string"],
            title="Folder",
            description="The folder that the streaming job reads, if it reads files.",
        ),
        "kafka": Param(
            os.environ.get(KAFKA_VARIABLE),
            type=["null", "string"],
            title="Kafka",
            description="HOST:PORT of a broker, if no folder is given.",
        ),
        "topic": Param("flights", type="string", minLength=1, title="Topic", description="With Kafka."),
        "rows_per_file": Param(
            4000, type="integer", minimum=1, title="Departures in one file, or in one portion of a topic"
        ),
        "gap_ms": Param(
            1000,
            type="integer",
            minimum=0,
            title="Pause",
            description="Milliseconds between two files or portions.",
        ),
        "skip": Param(
            0,
            type="integer",
            minimum=0,
            maximum=ALL,
            title="Departures to leave out",
            description="With Kafka: how many of the year's first departures are in the topic already.",
        ),
        "limit": Param(
            ALL,
            type="integer",
            minimum=1,
            maximum=ALL,
            title="Departures",
            description="The total number, including those that are left out.",
        ),
        "closing_only": Param(
            False,
            type="boolean",
            title="Only the closing record",
            description="With Kafka: it closes all windows. Send it when the job has read all departures.",
        ),
    },
) as dag:
    BashOperator(
        task_id="replay",
        # What a person typed reaches the shell as variables, never as part of the command.
        bash_command=(
            'if [ -n "$TARGET" ]; then set -- "$TARGET"; '
            'else set -- --kafka "$KAFKA" --topic "$TOPIC" --skip "$SKIP" $CLOSING_ONLY; fi; '
            'exec "$PYTHON" "$REPLAY" "$@" --rows-per-file "$ROWS" --gap-ms "$GAP_MS" --limit "$LIMIT"'
        ),
        env={
            "PYTHON": sys.executable,
            "REPLAY": str(REPLAY),
            "TARGET": "{{ params.target or '' }}",
            "KAFKA": "{{ params.kafka or '' }}",
            "TOPIC": "{{ params.topic }}",
            "ROWS": "{{ params.rows_per_file }}",
            "GAP_MS": "{{ params.gap_ms }}",
            "SKIP": "{{ params.skip }}",
            "LIMIT": "{{ params.limit }}",
            "CLOSING_ONLY": "{{ '--closing-only' if params.closing_only else '' }}",
        },
        append_env=True,
        execution_timeout=timedelta(hours=1),
    )
