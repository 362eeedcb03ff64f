"""What a night's job is declared as, and the DAG file that makes its DAGs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

DAG_FILE = """\
# Airflow's safe mode reads only files in which both words occur: airflow, dag.
from streambank_airflow.dags.jobs import build_dags

globals().update(build_dags({jobs_file!r}))
"""
JOBS_FILE = """\
repository = "{repository}"

[jobs.{name}]
description = "Orders, each once."
application = "{application}"
args = ["{folder}/in", "{folder}/out"]
checkpoint = "{checkpoint}"
master = "local[1]"
env = {env}
{more}
restore.ask = [{approver}]
notify = [
  {team},
  {pager},
]

[jobs.{name}.spark]
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.host" = "127.0.0.1"
"spark.driver.memory" = "512m"
"spark.sql.shuffle.partitions" = 1
"spark.ui.enabled" = false

[jobs.{name}.start]
timeout = "4m"

[jobs.{name}.stop]
force_after = "30s"

[jobs.{name}.health]
backoff = "2s"
max_backoff = "4s"

[jobs.{name}.lease]
ttl = "10s"
{tables}
"""
PAGES = (
    "giving-up",
    "cannot-start",
    "not-watched",
    "checkpoint-lost",
    "checkpoint-damaged",
    "repository-lost",
    "late-restore",
    "upgrade-failed",
    "sla",
)
"""What wakes a person."""
MORNING = (
    "restart",
    "approval-waits",
    "replica-failed",
    "savepoint-damaged",
    "compaction-failed",
    "drill-failed",
    "refresh-failed",
)
"""What waits until the morning. The team gets all kinds."""


def recording_notifier(file: Path, to: str, more: str = "") -> str:
    args = f'{{file = "{file}", to = "{to}"}}'
    return (
        f'{{class = "tests.support.airflow_face.recording_notifier.RecordingNotifier", args = {args}{more}}}'
    )


def declaration(
    name: str,
    folder: Path,
    application: Path,
    *,
    more: str = "",
    tables: str = "",
    repository: str = "repository",
    checkpoint: str = "",
    env: Sequence[str] = (),
) -> str:
    """The jobs file of a night.

    Args:
        checkpoint: Where its checkpoint is; empty for a place below the folder.
        env: Variables of Airflow that its driver gets, too.
    """
    file = folder / "alerts"
    # A kind that nothing would ever send is refused.
    pages = [kind for kind in PAGES if kind != "late-restore" or "deadline" in more]
    return JOBS_FILE.format(
        name=name,
        folder=folder,
        application=application,
        more=more,
        tables=tables,
        repository=repository,
        checkpoint=checkpoint or f"checkpoints/{name}",
        env=json.dumps(["STREAMBANK_DEMO_PROCESS", *env]),
        team=recording_notifier(file, "team"),
        pager=recording_notifier(file, "pager", f', least = "breach", kinds = {json.dumps(pages)}'),
        approver=recording_notifier(file, "approver"),
    )
