"""Jobs files that are not beside the worker: in a storage, by a URI, or relative to the DAG file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from streambank.core.errors import InputError
from streambank.storage import open_store
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.hooks.values import COUNT_S
from streambank_airflow.sensors.job import StreamingJobStatusSensor
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.declared import write_jobs
from tests.support.refuses import refuses
from tests.support.storage.s3_servers import S3Server, moto_server

__all__ = ["moto_server"]  # a fixture
pytestmark = pytest.mark.usefixtures("airflow_database")
TEXT = (
    'repository = "{place}/r"\n[jobs.a]\napplication = "/a.py"\ncheckpoint = "{place}/ck"\nargs = ["{arg}"]\n'
)


def test_a_jobs_file_in_s3_is_read_by_the_hook_tasks_and_build_dags(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_server.use(monkeypatch)
    place = moto_server.location()
    store = open_store(place)
    store.write("jobs.toml", TEXT.format(place=place, arg="one").encode())
    file = f"{place}/jobs.toml"
    now = [1000.0]
    monkeypatch.setattr("streambank_airflow.hooks.declared.time.monotonic", lambda: now[0])

    job = StreambankHook(jobs_file=file).declared.job("a")
    assert (job.args, job.checkpoint, job.source) == (("one",), f"{place}/ck", file)
    assert "a.run" in build_dags(file)

    store.write("jobs.toml", TEXT.format(place=place, arg="two").encode())
    assert StreambankHook(jobs_file=file).declared.job("a").args == ("one",), "remembered for some seconds"
    now[0] += COUNT_S + 1
    assert StreambankHook(jobs_file=file).declared.job("a").args == ("two",)

    with DAG("own", schedule=None) as dag:
        StreamingJobStatusSensor(
            task_id="seen", job="a", jobs_file=file, states=["never-started"], deferrable=True
        )
    assert task_states(run_dag(dag)) == {"seen": "success"}


def test_a_jobs_file_in_s3_that_is_not_there_or_has_relative_paths_says_so(
    moto_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_server.use(monkeypatch)
    place = moto_server.location()
    with refuses(InputError, "no-declaration") as caught:
        StreambankHook(jobs_file=f"{place}/none.toml").declared.read()
    assert f"{place}/none.toml" in caught.value.message
    relative = TEXT.replace('"/a.py"', '"a.py"').format(place=place, arg="")
    open_store(place).write("relative.toml", relative.encode())
    with refuses(InputError, "bad-declaration") as caught:
        StreambankHook(jobs_file=f"{place}/relative.toml").declared.job("a")
    assert "line 3, jobs.a.application: 'a.py' is a relative path" in caught.value.message


def test_a_file_uri_is_that_file(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, "one")
    assert StreambankHook(jobs_file=file.as_uri()).declared.job("flights").args == ("one",)


def test_a_relative_file_is_looked_for_beside_the_dag_file_then_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    write_jobs(tmp_path / "work", "from the working directory")

    def found() -> Any:
        with DAG("own", schedule=None) as dag:
            dag.fileloc = str(tmp_path / "dags" / "own.py")
            seen = StreamingJobStatusSensor(
                task_id="seen", job="flights", jobs_file="streaming_jobs.toml", states=["never-started"]
            )

            @task
            def look() -> list[str]:
                return list(StreambankHook(jobs_file="streaming_jobs.toml").declared.job("flights").args)

            seen >> look()
        run = run_dag(dag)
        assert set(task_states(run).values()) == {"success"}
        return seen.trigger_arguments["jobs_file"], xcom(run, "look")

    here = tmp_path / "work" / "streaming_jobs.toml"
    assert found() == (str(here), ["from the working directory"])
    beside = write_jobs(tmp_path / "dags", "beside")
    assert found() == (str(beside), ["beside"])
    here.unlink()
    beside.unlink()
    with DAG("own", schedule=None) as dag:
        dag.fileloc = str(tmp_path / "dags" / "own.py")
        lost = StreamingJobStatusSensor(task_id="lost", job="flights", jobs_file="streaming_jobs.toml")
    with refuses(InputError, "no-declaration") as caught:
        lost.hook.declared.read()
    assert f"Streambank searched {tmp_path}/work" in caught.value.message


def test_build_dags_looks_beside_its_own_file(tmp_path: Path) -> None:
    write_jobs(tmp_path)
    script = tmp_path / "dags.py"
    script.write_text(
        'dags = build_dags("streaming_jobs.toml", only=["run"])\nnone = lambda: build_dags("x.toml")'
    )
    space: dict[str, Any] = {"build_dags": build_dags}
    exec(compile(script.read_text(), str(script), "exec"), space)

    assert set(space["dags"]) == {"flights.run"}
    start: Any = space["dags"]["flights.run"].get_task("start")
    assert start.jobs_file == str(tmp_path / "streaming_jobs.toml")
    with refuses(InputError, "no-declaration") as caught:
        space["none"]()
    assert f"Streambank searched {tmp_path} and " in caught.value.message
