from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.driver.environment import driver_environment
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import QuerySpec
from streambank.job.start import start_job
from tests.support.jobs.declared import BY, declare, fake_launcher

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


def test_what_leads_to_the_jobs_files_passes() -> None:
    """Only for the schemes that are used, and only what is known to lead there."""
    parent = SECRETS | {
        "AWS_PROFILE": "p",
        "AWS_OF_SOMEBODY": "x",
        "AZURE_CLIENT_SECRET": "a",
        "HTTPS_PROXY": "h",
    }
    assert driver_environment(parent, locations=["/ck", "file:///ck", "memory://x"]) == {}
    on_s3 = {"AWS_SECRET_ACCESS_KEY": "s5", "AWS_PROFILE": "p", "HTTPS_PROXY": "h"}
    for location in ("s3://b/x", "s3a://b"):
        assert driver_environment(parent, locations=["/control", location]) == on_s3
    assert driver_environment(parent, locations=["abfs://c@a/x"]) == {
        "AZURE_CLIENT_SECRET": "a",
        "HTTPS_PROXY": "h",
    }


def test_a_driver_on_s3_gets_what_leads_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = declare(folder, more="")
    launched: list[Mapping[str, str]] = []

    def spawn(
        command: object, folder: object, environment: Mapping[str, str], log: object, properties: str
    ) -> int:
        launched.append(environment)
        raise OSError("not today")

    monkeypatch.setattr("streambank.driver.launchers.local._spawn", spawn)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    control = job.records()
    spec = prepare_launch(job, control, by=BY)
    on_s3 = replace(spec, queries={"main": QuerySpec("s3a://bucket/ck", 1)})
    for each in (spec, on_s3):
        with pytest.raises(StorageError):
            fake_launcher(folder).submit(job, control, each)
    assert "AWS_SECRET_ACCESS_KEY" not in launched[0]
    assert launched[1]["AWS_SECRET_ACCESS_KEY"] == "s5"
    assert not [name for name in launched[1] if "AIRFLOW" in name]
