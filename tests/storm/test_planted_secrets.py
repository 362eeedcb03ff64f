"""Secrets are planted wherever a person may put one; a whole story later each is only where it may be.

Every file, database, log, argument and environment of a process is searched, and what verbs and tasks print.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from streambank.control.processes import process
from streambank.declaration.load import load_jobs
from streambank.driver.launchers.local import LocalLauncher
from streambank.repository.catalog import summarize
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import airflow_database, run_dag, task_states
from tests.support.cli import Answer, streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.spark.jvm import spark_options
from tests.support.waiting import poll

__all__ = ["airflow_database"]  # a fixture

CALLERS = (
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW_CONN_SOMEWHERE",
    "AWS_SECRET_ACCESS_KEY",
    "KAFKA_PASSWORD",
    "OTHER_TOKEN",
)
"""In the environment of who starts the job, and for nobody else."""
FOR_THE_JOB = "MY_APP_PASSWORD"
"""Named in `env`: its driver has it, and prints it."""
APPLICATION = """
import os, pathlib, sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
password = os.environ["MY_APP_PASSWORD"]
print("the application knows", password, flush=True)
def check(text):
    if text == "poison":
        raise ValueError("cannot reach jdbc:x://app:" + password + "@host/, password=" + password)
    return text
lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(sys.argv[1])
counted = lines.select(F.udf(check)("value").alias("value")).groupBy("value").count()
counted.writeStream.outputMode("complete").format("memory").queryName("counted").option(
    "checkpointLocation", "/nowhere").start()
spark.streams.awaitAnyTermination()
"""
JOBS = """
repository = "repository"
[jobs.lines]
application = "app.py"
args = ["in"]
env = ["MY_APP_PASSWORD"]
checkpoint = "checkpoint"
master = "local[2]"
[jobs.lines.kafka]
bootstrap = "127.0.0.1:9"
[jobs.lines.kafka.config]
security.protocol = "SASL_PLAINTEXT"
sasl.mechanism = "PLAIN"
sasl.username = "app"
sasl.password = "${{KAFKA_PASSWORD}}"
[jobs.lines.spark]
spark.driver.extraJavaOptions = "{options}"
spark.ui.enabled = false
spark.sql.shuffle.partitions = 2
"""


def planted(name: str) -> str:
    return f"planted-{name.lower().replace('_', '-')}-77"


def holding(folder: Path, secret: str) -> set[str]:
    """Files below a folder, each whole, that hold a secret: their names from there on."""
    found = set()
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a driver that runs deletes files
            if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
                found.add(path.relative_to(folder).as_posix())
    return found


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CALLERS, FOR_THE_JOB):
        if not name.startswith("AIRFLOW__DATABASE"):
            monkeypatch.setenv(name, planted(name))


def arrive(folder: Path, name: str, line: str) -> None:
    (folder / name).write_text(f"{line}\n")
    (folder / name).rename(folder / "in" / name)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "jobs.toml").write_text(JOBS.format(options=spark_options()))
    (tmp_path / "in").mkdir()
    arrive(tmp_path, "0", "zero")
    yield tmp_path
    end_drivers(load_jobs(tmp_path / "jobs.toml", variables={"KAFKA_PASSWORD": "x"}).job("lines").records())


@pytest.mark.spark
@pytest.mark.usefixtures("caller")
def test_a_story_by_the_command_line_leaves_each_secret_where_it_may_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", str(folder / "jobs.toml"))
    said: list[Answer] = []

    def ask(*words: str | Path, code: int | None = 0) -> Answer:
        said.append(streambank(*words))
        assert code is None or said[-1].code == code, said[-1]
        return said[-1]

    started = ask("job", "start", "lines", "--json").document
    told = "\n".join(
        Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in (started["pid"], started["jvm_pid"])
    )
    environment = "\n".join(
        Path(f"/proc/{pid}/environ").read_bytes().decode() for pid in (started["pid"], started["jvm_pid"])
    )
    ask("job", "savepoint", "lines", "--note", "before the crash", "--json")
    ask("job", "status", "lines")
    ask("doctor", "--job", "lines", code=None)
    ask("sla", "lines", "--html", folder / "page.html", code=None)
    ask("job", "overview", "lines", "--html", folder / "overview.html", code=None)
    arrive(folder, "1", "poison")
    poll(lambda: process(started["jvm_pid"], "jvm") is None, timeout_s=120)  # its query fails, and it ends
    ask("job", "start", "lines", "--json", code=None)  # which fails by the same file
    (folder / "in" / "1").unlink()
    ask("job", "stop", "lines", "--json", code=None)
    ask("job", "history", "lines")
    accepted = ("--sink", "accept", "--source", "accept")  # the file is gone, which is meant
    ask("restore", "latest-good", "--job", "lines", "--generation", *accepted, "--json")
    again = ask("job", "start", "lines", "--json").document
    os.kill(again["jvm_pid"], signal.SIGKILL)
    poll(lambda: not LocalLauncher().find(load_jobs(folder / "jobs.toml").job("lines").records()))
    ask("job", "status", "lines", "--json")
    ask("compact", "--jobs", folder / "jobs.toml", "--job", "lines", "--dry-run", code=None)
    ask("job", "stop", "lines", "--savepoint", "--json")
    for name in ("list", "verify"):
        ask(name, *(["--all"] if name == "verify" else []), "-r", folder / "repository")

    printed = "\n".join(f"{answer.out}\n{answer.err}" for answer in said)
    for name in CALLERS:
        assert planted(name) not in told and planted(name) not in environment, name
        assert planted(name) not in printed, name
        assert holding(folder, planted(name)) == set(), name
    mine = planted(FOR_THE_JOB)
    assert mine in environment, "its driver has what `env` names: the search finds what is there"
    assert mine not in told and mine not in printed
    found = holding(folder, mine)
    logs = {file for file in found if file.startswith("repository.control/lines/logs/")}
    assert logs and found == logs, "the application has printed it, into the driver's log"
    for log in logs:
        assert (folder / log).stat().st_mode & 0o007 == 0, "which is not for everybody"


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    with managed_job(tmp_path, monkeypatch) as job:
        yield job


@pytest.mark.usefixtures("airflow_database", "caller")
def test_a_story_by_airflow_leaves_them_out_of_its_database_and_its_logs(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    extra = {"repository": f"{managed.folder}/repository", "jobs_file": str(managed.jobs_file)}
    connection = {"conn_type": "streambank", "login": "me", "password": planted("connection"), "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps(connection))
    template = "{{ conn.streambank_default.password }}"
    dags = build_dags(managed.jobs_file)
    managed.start(until=1)
    for kind, conf in (
        ("savepoint", {"note": template}),
        ("sla", {}),
        ("restore", {"savepoint": "nonsense"}),
    ):
        dag = dags[f"flights.{kind}"]
        for task in dag.tasks:
            task.retries = 0
        states = task_states(run_dag(dag, run_conf=conf))
        assert kind != "savepoint" or states["take"] == "success", states

    out, err = capfd.readouterr()
    home = Path(os.environ["AIRFLOW_HOME"])
    secrets = [planted(name) for name in (*CALLERS, FOR_THE_JOB, "connection")]
    for secret in secrets:
        assert secret not in out + err
        assert holding(managed.folder, secret) == set()
        assert holding(home, secret) == set()
    with sqlite3.connect(home / "airflow.db") as database:
        text = "\n".join(database.iterdump())
    assert not [secret for secret in secrets if secret in text]
    assert "flights.savepoint" in text, "the search finds what is there"
    (taken,) = summarize(managed.repository.store)
    assert taken.note == template, "what a person typed is never rendered"
