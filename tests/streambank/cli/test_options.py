"""Where `--repository` comes from when nobody gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import streambank

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
