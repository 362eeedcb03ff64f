"""What a DAG file and a job say about the shape of generated DAGs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG
from airflow.timetables.base import DataInterval, TimeRestriction

from streambank.core.errors import InputError
from streambank_airflow.dags.common import OWN_DAG_ARGS, OWN_DEFAULT_ARGS
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.airflow_face.moved import DagSerialization
from tests.support.airflow_face.releases import needs_3_2
from tests.support.jobs.managed_job import Managed
from tests.support.refuses import refuses

CALLED: list[str] = []
DEPRECATED = "ignore:The airflow.security.permissions module is deprecated"
"""What Airflow says of every `access_control`, which it has no other place for yet."""


def from_file(context: Any) -> None:
    CALLED.append(f"file: {context['ti'].task_id}")


def from_job(context: Any) -> None:
    CALLED.append(f"job: {context['ti'].task_id}")


def declare(managed: Managed, more: str) -> Path:
    file = Path(managed.jobs_file)
    file.write_text(f"{file.read_text(encoding='utf-8')}\n[jobs.flights.airflow]\n{more}\n", encoding="utf-8")
    return file


def stored(dag: DAG) -> Any:
    """The DAG as the scheduler and the web server have it."""
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


def runs_after(dag: DAG, moment: str, count: int) -> list[str]:
    """When the scheduler begins the next runs of a DAG whose last run was at a moment, in UTC."""
    timetable, found = stored(dag).timetable, []
    last = pendulum.parse(moment)
    assert isinstance(last, pendulum.DateTime)
    for _ in range(count):
        info = timetable.next_dagrun_info(
            last_automated_data_interval=DataInterval(last, last),
            restriction=TimeRestriction(earliest=None, latest=None, catchup=True),
        )
        last = info.run_after
        found.append(last.strftime("%d %H:%M"))
    return found


@pytest.mark.filterwarnings(DEPRECATED)
def test_a_dag_file_shapes_the_dags_of_all_its_jobs(managed: Managed) -> None:
    dags = build_dags(
        managed.jobs_file,
        default_args={"owner": "data", "pool": "streams", "retries": 1, "retry_delay": timedelta(seconds=3)},
        dag_args={
            "tags": ["night"],
            "is_paused_upon_creation": True,
            "access_control": {"viewers": {"can_read"}},
        },
        streambank_conn_id="streambank_eu",
    )
    for dag in map(stored, dags.values()):
        assert dag.tags == {"streambank", "flights", "night"}
        assert dag.is_paused_upon_creation is True
        assert dag.access_control == {"viewers": {"DAGs": {"can_read"}}}
        for task in dag.tasks:
            assert (task.owner, task.pool, task.retries) == ("data", "streams", 1)
            assert task.retry_delay == timedelta(seconds=3)
    for dag in dags.values():
        for task in dag.tasks:
            assert getattr(task, "streambank_conn_id", "streambank_eu") == "streambank_eu"
    assert any(hasattr(task, "streambank_conn_id") for task in dags["flights.restore"].tasks)


@pytest.mark.filterwarnings(DEPRECATED)
def test_what_a_job_declares_comes_before_what_the_dag_file_says(managed: Managed) -> None:
    declare(
        managed,
        'owner = "payments"\nqueue = "big"\npriority = 7\nretries = 9\nconnection = "streambank_us"\n'
        'display_name = "Departures"\npaused = false\n'
        '[jobs.flights.airflow.access_control]\nviewers = []\npayments = ["can_edit"]',
    )
    dags = build_dags(
        managed.jobs_file,
        default_args={"owner": "data", "pool": "streams"},
        dag_args={
            "is_paused_upon_creation": True,
            "access_control": {"viewers": {"can_read"}, "admins": {"can_delete"}},
        },
        streambank_conn_id="streambank_eu",
    )
    dag = stored(dags["flights.savepoint"])
    assert dag.dag_display_name == "Departures: savepoint"
    assert dag.is_paused_upon_creation is False
    assert {role: set(of["DAGs"]) for role, of in dag.access_control.items()} == {
        "viewers": set(),
        "payments": {"can_edit"},
        "admins": {"can_delete"},
    }
    take = dag.get_task("take")
    shape = (take.owner, take.pool, take.queue, take.priority_weight, take.retries)
    assert shape == ("payments", "streams", "big", 7, 9)
    for dag in dags.values():
        for task in dag.tasks:
            assert getattr(task, "streambank_conn_id", "streambank_us") == "streambank_us"


def test_a_list_of_dags_says_what_each_is_for(managed: Managed) -> None:
    dags = build_dags(managed.jobs_file)
    assert dags["flights.stop"].description == (
        "Departures. "
        "Stops the job after its current batch, and keeps it stopped until run is triggered again."
    )
    assert (
        build_dags(managed.jobs_file, dag_args={"description": "Ours."})["flights.stop"].description
        == "Ours."
    )


@needs_3_2
def test_no_dag_can_be_backfilled(managed: Managed) -> None:
    for dag in build_dags(managed.jobs_file).values():
        assert dag.allowed_run_types and "backfill" not in {str(one) for one in dag.allowed_run_types}


def test_only_some_dags(managed: Managed) -> None:
    assert list(build_dags(managed.jobs_file, only=("run", "stop"))) == ["flights.run", "flights.stop"]
    assert list(build_dags(managed.jobs_file, only="sla")) == ["flights.sla"]
    with refuses(InputError, "bad-choice", match="only must be one of run, stop"):
        build_dags(managed.jobs_file, only=("runs",))


@pytest.mark.parametrize("name", OWN_DAG_ARGS)
def test_arguments_of_a_dag_that_would_break_a_promise_are_refused(managed: Managed, name: str) -> None:
    with pytest.raises(InputError, match=f"dag_args cannot have {name}: "):
        build_dags(managed.jobs_file, dag_args={name: None})


@pytest.mark.parametrize("name", OWN_DEFAULT_ARGS)
def test_arguments_of_a_task_that_would_break_a_promise_are_refused(managed: Managed, name: str) -> None:
    with pytest.raises(InputError, match=f"default_args cannot have {name}: "):
        build_dags(managed.jobs_file, default_args={name: None})


def test_no_time_limit_ends_the_watch_over_a_job(managed: Managed) -> None:
    hour = timedelta(hours=1)
    with pytest.raises(InputError, match="nothing would watch the job after that time"):
        build_dags(managed.jobs_file, dag_args={"dagrun_timeout": hour})
    dags = build_dags(managed.jobs_file, only=("savepoint",), dag_args={"dagrun_timeout": hour})
    assert dags["flights.savepoint"].dagrun_timeout == hour

    dags = build_dags(managed.jobs_file, default_args={"execution_timeout": hour})
    assert dags["flights.run"].get_task("keep_running").execution_timeout is None
    assert dags["flights.savepoint"].get_task("take").execution_timeout == hour


@pytest.mark.storm
def test_callbacks_of_the_dag_file_and_of_the_job_are_called_both(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    declare(managed, f'on_failure = "{__name__}.from_job"\nretries = 0')
    CALLED.clear()
    dags = build_dags(managed.jobs_file, default_args={"on_failure_callback": from_file})

    run = run_dag(dags["flights.restore"])

    assert task_states(run)["plan"] == "failed"
    assert sorted(CALLED) == ["file: plan", "job: plan"]
    assert "Hint:" in capfd.readouterr().out
    for task_id in ("keep_running", "approve"):
        callbacks: Any = dags["flights.restore"].get_task(task_id).on_failure_callback
        assert from_file in callbacks and from_job in callbacks


def test_a_callback_that_does_not_exist_is_an_import_error_with_its_field(managed: Managed) -> None:
    declare(managed, f'on_failure = "{__name__}.nobody"')
    with refuses(InputError, "bad-declaration") as caught:
        build_dags(managed.jobs_file)
    assert "jobs.flights.airflow.on_failure" in caught.value.message
    assert "nobody" in caught.value.message and str(managed.jobs_file) in caught.value.message


SCHEDULES = """
[jobs.flights.compact]
schedule = "30 2 * * *"
where = "true"
[jobs.flights.sla]
schedule = "30 2 * * *"
[maintenance]
schedule = "30 2 * * *"
"""


def with_schedules(managed: Managed, zone: str) -> dict[str, DAG]:
    file = Path(managed.jobs_file)
    text = file.read_text(encoding="utf-8").replace('"@hourly"', '"30 2 * * *"') + SCHEDULES
    text = text.replace("[jobs.flights.start]", '[jobs.flights.start]\nschedule = "30 2 * * *"')
    if zone:
        text = text.replace("[jobs.flights]", f'[jobs.flights]\ntime_zone = "{zone}"')
        text = text.replace("[maintenance]", f'[maintenance]\ntime_zone = "{zone}"')
    file.write_text(text, encoding="utf-8")
    dags = build_dags(file)
    assert len(dags) == 10
    return {name: dag for name, dag in dags.items() if dag.schedule is not None}


def test_schedules_are_by_the_clocks_of_the_declared_time_zone(managed: Managed) -> None:
    """Clocks went to 3 o'clock on March 29, and back to 2 o'clock on October 25."""
    dags = with_schedules(managed, "Europe/Berlin")
    assert len(dags) == 5
    for dag in dags.values():
        assert runs_after(dag, "2026-03-28T01:30:00Z", 3) == ["29 01:30", "30 00:30", "31 00:30"]
        assert runs_after(dag, "2026-10-23T00:30:00Z", 3) == ["24 00:30", "25 01:30", "26 01:30"]
        assert str(dag.doc_md).endswith("Its schedule is by the clocks of Europe/Berlin.")


def test_an_hourly_schedule_misses_no_hour_where_one_comes_twice(managed: Managed) -> None:
    file = Path(managed.jobs_file)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("[jobs.flights]", '[jobs.flights]\ntime_zone = "Europe/Berlin"'))
    hourly = build_dags(file)["flights.savepoint"]
    assert runs_after(hourly, "2026-10-24T23:00:00Z", 3) == ["25 00:00", "25 01:00", "25 02:00"]


def test_schedules_without_a_time_zone_are_left_to_airflow(managed: Managed) -> None:
    for dag in with_schedules(managed, "").values():
        assert str(dag.schedule) == "30 2 * * *" and "clocks" not in str(dag.doc_md)
        assert runs_after(dag, "2026-10-23T02:30:00Z", 3) == ["24 02:30", "25 02:30", "26 02:30"]


def test_airflows_own_choice_of_a_timetable_is_kept(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SCHEDULER__CREATE_CRON_DATA_INTERVALS", "True")
    dag = with_schedules(managed, "Europe/Berlin")["flights.savepoint"]
    assert type(stored(dag).timetable).__name__ == "CronDataIntervalTimetable"
