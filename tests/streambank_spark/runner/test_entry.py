"""The command line of run_query.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.core.errors import FormatError, InputError, NotFoundError
from streambank.core.signing import VARIABLE, new_key
from streambank.driver.spec import read_launch
from streambank_spark.runner import entry
from tests.support.refuses import refuses

JOBS = """
repository = "savepoints"

[jobs.flights]
application = "app.py"
args = ["--declared"]
checkpoint = "checkpoint"
stop = { force_after = "7s" }
"""


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    path = tmp_path / "streaming_jobs.toml"
    path.write_text(JOBS)
    return str(path)


def test_a_declared_job_as_it_is_declared(jobs: str, tmp_path: Path) -> None:
    spec = entry.parse(["--job", "flights", "--jobs", jobs])
    assert (spec.job, spec.application, spec.args) == ("flights", str(tmp_path / "app.py"), ("--declared",))
    assert spec.queries["main"].checkpoint == f"file://{tmp_path}/checkpoint"
    assert spec.force_after_s == 7.0
    assert read_launch(spec.control_of_job(), spec.launch_id) == spec


def test_another_application_with_arguments_that_look_like_ours(jobs: str) -> None:
    spec = entry.parse(["--job", "flights", "--jobs", jobs, "--", "other.py", "--job", "x", "--", "y"])
    assert (spec.application, spec.args) == ("other.py", ("--job", "x", "--", "y"))


def test_the_jobs_file_from_the_environment(jobs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", jobs)
    assert entry.parse(["--job", "flights"]).job == "flights"


def test_the_application_does_not_get_the_key(
    jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    entry.parse(["--job", "flights", "--jobs", jobs])
    assert VARIABLE not in os.environ


def test_a_launch_spec_that_is_endless_is_not_read_whole(tmp_path: Path) -> None:
    os.truncate(os.open(tmp_path / "launch-1.json", os.O_CREAT | os.O_WRONLY), 1 << 40)
    with pytest.raises(FormatError):
        entry.parse(["--launch", str(tmp_path / "launch-1.json")])


def test_a_launch_spec_by_its_path(jobs: str, tmp_path: Path) -> None:
    made = entry.parse(["--job", "flights", "--jobs", jobs])
    path = tmp_path / "savepoints.control/flights" / made.key
    assert entry.parse(["--launch", str(path)]) == made
    assert entry.parse(["--launch", f"file://{path}"]) == made


@pytest.mark.parametrize(
    "argv",
    [[], ["--job"], ["--job", "a", "--launch", "b"], ["--launch", "b", "--", "app.py"], ["--job", "flights"]],
)
def test_wrong_arguments(argv: list[str]) -> None:
    with refuses(InputError, "bad-arguments"):
        entry.parse(argv)


def test_a_job_or_launch_that_is_not_there(jobs: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        entry.parse(["--job", "other", "--jobs", jobs])
    with pytest.raises(NotFoundError):
        entry.parse(["--launch", str(tmp_path / "none.json")])
