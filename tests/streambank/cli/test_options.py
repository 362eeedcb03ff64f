"""Where `--repository` comes from when nobody gives it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import InputError
from streambank.job.savepoint import savepoint_job
from streambank.savepoint.verify import verify
from tests.support.cli import streambank
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses

JOBS = """
repository = "savepoints"
[jobs.orders]
application = "a.py"
checkpoint = "ck"
"""


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.toml"
    file.write_text(JOBS, encoding="utf-8")
    return str(file)


def test_a_jobs_file_says_where_the_repository_is(
    jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)
    declared = str(tmp_path / "savepoints")
    restore = ["restore", "latest-good", "--job", "orders", "--generation"]
    answer = streambank(*restore, "--jobs", jobs)
    assert answer.code == 3 and declared in answer.err, answer.err

    answer = streambank(*restore, "--jobs", jobs, "-r", str(tmp_path / "replica"))
    assert str(tmp_path / "replica") in answer.err and declared not in answer.err

    # The next command is told of no jobs file.
    answer = streambank("list")
    assert answer.code == 2 and "Missing option '--repository'" in answer.err
    assert "STREAMBANK_JOBS" in answer.err

    monkeypatch.setenv("STREAMBANK_JOBS", jobs)
    assert declared in streambank("list").err
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(tmp_path / "named"))
    assert str(tmp_path / "named") in streambank("list").err


# A value that an option does not know is refused wherever it enters, and never read as the default.


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, sink=False).run(3)


def test_the_engine_refuses_what_it_does_not_know(shop: SimulatedJob, tmp_path: Path) -> None:
    taken = shop.take()
    job = declare(tmp_path)
    wrong: Any = "saef"
    odd = replace(job, savepoint=replace(job.savepoint, closure=wrong))
    for option, known, work in (
        ("closure", "safe, minimal", lambda: shop.take(closure=wrong)),
        ("closure", "safe, minimal", lambda: CheckpointReader(shop.checkpoint).closure(None, wrong)),
        ("closure", "safe, minimal", lambda: savepoint_job(job, by=BY, closure=wrong)),
        ("closure", "safe, minimal", lambda: savepoint_job(odd, by=BY)),
        ("level", "quick, full", lambda: verify(shop.repository, JOB, taken.savepoint, wrong)),
        ("mode", "no-claim, claim, fork", lambda: shop.restore(taken.savepoint, mode=wrong)),
        (
            "sink",
            "refuse, rollback, rollback-accept, accept",
            lambda: shop.restore(taken.savepoint, sink=wrong),
        ),
        ("source", "refuse, accept", lambda: shop.restore(taken.savepoint, source=wrong)),
    ):
        with refuses(InputError, "bad-choice") as caught:
            work()
        assert caught.value.message == f"{option} must be one of {known}, not 'saef'."


@pytest.mark.parametrize(
    "words",
    [
        ["take", "ck", "-r", "r", "--closure", "saef"],
        ["verify", "b000001", "-r", "r", "--level", "saef"],
        ["restore", "b000001", "-r", "r", "--into", "x", "--mode", "saef"],
        ["restore", "b000001", "-r", "r", "--into", "x", "--sink", "saef"],
    ],
)
def test_so_does_the_command_line(words: list[str]) -> None:
    answer = streambank(*words)
    assert answer.code == 2 and "saef" in answer.err
