"""The Spark of a job submits work for executors where none is installed; a spark-submit without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.driver import installed
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.spark.fake_spark_submit import fake_spark

ON = ("--on", "spark", "--master", "spark://there:7077")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark that is not installed, nor named by the environment."""
    fake_spark(tmp_path, monkeypatch)
    monkeypatch.setattr("streambank_spark.submit.executor.find_installation", installed.find_installation)
    monkeypatch.setattr(installed, "_origins_here", dict)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    LiveCheckpoint(open_store(tmp_path / "ck")).run(6)
    return tmp_path / "spark"


def declared(folder: Path, home: Path) -> Path:
    jobs = folder / "streaming_jobs.toml"
    jobs.write_text(
        f'repository = "repository"\n[jobs.orders]\napplication = "a.py"\ncheckpoint = "ck"\n'
        f'spark_home = "{home}"\n'
    )
    return jobs


def test_every_verb_submits_by_the_spark_of_its_job(tmp_path: Path, home: Path) -> None:
    seen = tmp_path / "seen.json"
    jobs = ("--jobs", declared(tmp_path, home))
    repository = ("-r", tmp_path / "repository")
    replica = tmp_path / "replica"
    verbs = [
        ("take", tmp_path / "ck", *repository, "--job", "orders", *ON),
        ("verify", "--all", *repository, "--job", "orders", "--level", "full", *ON),
        ("restore", "latest", *repository, "--job", "orders", "--into", tmp_path / "new", *ON),
        ("replicate", *repository, "--job", "orders", "--to", replica, *ON),
        ("repair", *repository, "--job", "orders", "--from", replica, *ON),
    ]
    for verb in verbs:
        alone = streambank(*verb)
        assert alone.code == 2 and "no PySpark" in alone.out + alone.err and not seen.exists(), verb
        done = succeed(*verb, *jobs)
        assert f"No Spark is installed: the job's own in {home} submits it." in done.err
        arguments = json.loads(seen.read_text())[0]
        assert "spark://there:7077" in arguments
        seen.unlink()


def test_a_savepoint_of_a_known_id_needs_no_job(tmp_path: Path, home: Path) -> None:
    jobs = ("--jobs", declared(tmp_path, home), "-r", tmp_path / "repository")
    taken = succeed("take", tmp_path / "ck", *jobs, "--job", "orders", "--json").document["savepoint"]
    for verb in ("verify", taken, "--level", "full"), ("replicate", taken, "--to", tmp_path / "replica"):
        assert "the job's own" in succeed(*verb, *jobs, *ON).err
    every = streambank("verify", "--all", "--level", "full", *jobs, *ON)
    assert every.code == 2 and "no PySpark" in every.err, "it is of no job"


@pytest.mark.parametrize("home_of_job", ["/nowhere", None])
def test_a_job_without_a_spark_leaves_it_at_the_error(
    tmp_path: Path, home: Path, home_of_job: str | None
) -> None:
    jobs = declared(tmp_path, Path(home_of_job) if home_of_job else home)
    if home_of_job is None:
        jobs.write_text("no TOML")
    take = ("take", tmp_path / "ck", "-r", tmp_path / "repository", "--job", "orders", *ON)
    answer = streambank(*take, "--jobs", jobs)
    assert answer.code == 2 and not (tmp_path / "seen.json").exists()
