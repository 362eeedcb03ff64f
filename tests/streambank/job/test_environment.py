from __future__ import annotations

from pathlib import Path

import pytest

from streambank.job.environment import driver_environment
from streambank.job.start import start_job
from tests.support.jobs import BY, declare, fake_launcher

SECRETS = {
    "AIRFLOW__API_AUTH__JWT_SECRET": "s1",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "s2",
    "AIRFLOW_CONN_WAREHOUSE": "s3",
    "AIRFLOW_VAR_TOKEN": "s4",
    "AIRFLOW_HOME": "/airflow",
    "_AIRFLOW_PROCESS_CONTEXT": "server",
    "AWS_SECRET_ACCESS_KEY": "s5",
    "DATABASE_URL": "s6",
    "PYTHONPATH": "/task/only",
}


def test_only_what_is_listed_passes() -> None:
    usual = {"PATH": "/bin", "HOME": "/home/x", "LC_ALL": "C", "JAVA_HOME": "/java", "TZ": "UTC"}
    assert driver_environment(SECRETS | usual) == usual


def test_a_declaration_lets_more_pass_but_never_what_is_airflows() -> None:
    wanted = [*SECRETS, "NOT_THERE"]
    passed = driver_environment(SECRETS, extra=wanted, settings={"SPARK_HOME": "/spark"})
    assert passed == {
        "AWS_SECRET_ACCESS_KEY": "s5",
        "DATABASE_URL": "s6",
        "PYTHONPATH": "/task/only",
        "SPARK_HOME": "/spark",
    }


def test_a_real_driver_sees_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    job = declare(folder, more='env = ["AWS_SECRET_ACCESS_KEY"]')
    pid = start_job(job, by=BY, launcher=fake_launcher(folder)).pid
    data = Path(f"/proc/{pid}/environ").read_bytes().decode()
    names = {one.partition("=")[0] for one in data.split("\0") if one}
    assert "AWS_SECRET_ACCESS_KEY" in names and "PATH" in names
    assert not {name for name in names if "AIRFLOW" in name}
    assert "DATABASE_URL" not in names
    assert "/task/only" not in data
