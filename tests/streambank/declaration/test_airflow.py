from __future__ import annotations

from pathlib import Path

import pytest

from streambank.declaration.airflow import AirflowPolicy
from tests.support.jobs.jobs_file import declared_jobs, mistake

JOBS = """
repository = "r"
[defaults.airflow]
owner = "data"
retries = 0
[jobs.a]
application = "a.py"
checkpoint = "a"
[jobs.a.airflow]
{}
[jobs.b]
application = "b.py"
checkpoint = "b"
"""


def declared(folder: Path, table: str) -> tuple[AirflowPolicy, AirflowPolicy]:
    found = declared_jobs(folder, JOBS.format(table))
    return found.job("a").airflow, found.job("b").airflow


def test_what_airflow_is_told_of_a_job(tmp_path: Path) -> None:
    own, usual = declared(
        tmp_path,
        'owner = "payments"\nconnection = "eu"\npool = "streams"\nqueue = "big"\npriority = 10\n'
        'executor = "LocalExecutor"\nretries = 5\ndisplay_name = "Orders"\npaused = true\n'
        'on_failure = "acme.page"\non_success = ["acme.a", "acme.b"]\n'
        '[jobs.a.airflow.access_control]\nviewers = ["can_read"]\n'
        'payments = { DAGs = ["can_read", "can_edit"], "DAG Runs" = ["can_create"] }\n',
    )
    assert own == AirflowPolicy(
        connection="eu",
        owner="payments",
        pool="streams",
        queue="big",
        priority=10,
        executor="LocalExecutor",
        retries=5,
        display_name="Orders",
        paused=True,
        access_control={
            "viewers": ("can_read",),
            "payments": {"DAGs": ("can_read", "can_edit"), "DAG Runs": ("can_create",)},
        },
        on_failure=("acme.page",),
        on_success=("acme.a", "acme.b"),
    )
    assert usual == AirflowPolicy(owner="data", retries=0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('onwer = "a"', "Did you mean owner?"),
        ("priority = 0", "it must be at least 1"),
        ('on_failure = "page"', "'page' is not a function"),
        ('on_retry = ["acme.page", "acme..page"]', "'acme..page' is not a function"),
        ('access_control = { viewers = "can_read" }', "it must be a list of strings"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, table: str, message: str) -> None:
    assert message in mistake(declared, tmp_path, table)
