"""The project's own DAG file, as Airflow's DAG processor reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.declaration.load import load_jobs
from tests.support.airflow_face.moved import DagBag

VERBS = ("run", "stop", "savepoint", "restore", "drill", "upgrade", "sla", "compact", "rescale")


@pytest.fixture
def dags_folder(project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMBANK_HOME", str(tmp_path))
    return project_root / "dags"


def test_the_folder_reads_without_an_error(airflow_database: None, dags_folder: Path) -> None:
    bag = DagBag(str(dags_folder))

    assert bag.import_errors == {}
    assert set(bag.dags) == {f"{job}.{verb}" for job in ("flights", "aircraft") for verb in VERBS}


def test_the_pages_name_the_dags_of_a_job(project_root: Path) -> None:
    head = (
        (project_root / "dags" / "streaming_jobs.toml")
        .read_text(encoding="utf-8")
        .partition("repository =")[0]
    )
    assert re.findall(r"(?:<job>| )\.([a-z]+)", head) == [*VERBS]
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"That gives (`orders\.run`.*?), each with a", readme, re.DOTALL)
    assert set(re.findall(r"`orders\.([a-z]+)`", sentence)) == {*VERBS}


def test_only_what_has_a_schedule_runs_by_itself(airflow_database: None, dags_folder: Path) -> None:
    bag = DagBag(str(dags_folder))

    scheduled = {name for name, dag in bag.dags.items() if dag.timetable.can_be_scheduled}
    each = {f"{job}.{verb}" for job in ("flights", "aircraft") for verb in ("savepoint", "sla")}
    assert scheduled == {*each, "aircraft.compact", "flights.drill"}


def test_everything_is_written_below_one_folder_and_the_applications_exist(
    dags_folder: Path, tmp_path: Path
) -> None:
    declared = load_jobs(dags_folder / "streaming_jobs.toml")

    assert declared.repository == (tmp_path / "repository").as_uri()
    for job in declared.jobs.values():
        assert Path(job.application).is_file()
        assert job.checkpoint.startswith(tmp_path.as_uri())
        assert [each for each in job.args if each.startswith(str(tmp_path))] == list(job.args[1::2])


def test_another_declaration_may_be_named(
    airflow_database: None, dags_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(
        'repository = "r"\n[jobs.trains]\napplication = "app.py"\ncheckpoint = "c"\n', encoding="utf-8"
    )
    monkeypatch.setenv("STREAMBANK_JOBS", str(tmp_path / "mine.toml"))

    assert "trains.restore" in DagBag(str(dags_folder)).dags


def test_a_broken_declaration_is_one_import_error_that_names_line_and_field(
    airflow_database: None, dags_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(
        'repository = "r"\n[jobs.trains]\napplication = "app.py"\ncheckpont = "c"\n', encoding="utf-8"
    )
    monkeypatch.setenv("STREAMBANK_JOBS", str(broken))

    bag = DagBag(str(dags_folder))

    assert dict(bag.dags) == {}
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("streaming_jobs.py")
    last = error.strip().splitlines()[-1]
    assert f"{broken}, line " in last
    assert "jobs.trains.checkpont: there is no such field. Did you mean checkpoint?" in last


@pytest.mark.parametrize("file", ["dags/streaming_jobs.toml", "docker/streaming_jobs.toml"])
def test_the_jobs_that_people_copy_are_kept_judged_and_rehearsed(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Without retention a repository grows for ever, and a restore that is never rehearsed may not be one."""
    monkeypatch.setenv("STREAMBANK_HOME", str(tmp_path))
    jobs = load_jobs(project_root / file).jobs
    assert all(job.retention is not None for job in jobs.values())
    assert any(job.sla.objectives for job in jobs.values())
    assert any(job.drill.schedule for job in jobs.values())
    assert any(job.hot_keys is not None for job in jobs.values())
