"""What somebody types into a form is read as a Python value on its way to the task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from airflow.sdk.definitions.param import ParamsDict

from streambank.core.errors import InputError
from streambank.core.options import as_duration_s, as_integer, as_number
from streambank.repository.names import check_savepoint_name
from streambank_airflow.dags.forms.daily import savepoint_form
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.base import StreambankOperator
from streambank_airflow.operators.repository import ExpireSavepointsOperator
from streambank_airflow.operators.rewrite.compact import CompactStateOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.support.jobs.declared import write_jobs
from tests.support.refuses import refuses

TYPED = ("1_000", "1e999", "0x10", "None", "True", "[1, 2]", "{'a': 1}", "'quoted'", "(1,)", "7", "before")


def rendered(task: Any, **params: Any) -> Any:
    """A task as a run with these answers has it."""
    task.render_template_fields({"params": params})
    return task


@pytest.mark.parametrize("said", TYPED)
@pytest.mark.parametrize(
    "template",
    [
        "{{ params.note }}",
        "{{params.note}}",
        "{{ params.get('note') }}",
        "{{ params['note'] }}",
        "{{ params.note or '' }}",
    ],
)
def test_a_text_stays_the_text_that_was_typed(said: str, template: str) -> None:
    with DAG("native", schedule=None, render_template_as_native_obj=True):
        task = StreambankOperator(task_id="task", job="flights", note=template)
    assert rendered(task, note=said).why == said


@pytest.mark.parametrize("said", TYPED)
def test_the_note_of_every_form_does(tmp_path: Path, said: str) -> None:
    task = build_dags(write_jobs(tmp_path))["flights.savepoint"].get_task("take")
    params = {name: one.value for name, one in savepoint_form("quick").items()}
    assert rendered(task, **{**params, "note": said}).why == said


def test_what_is_no_text_stays_what_it_is() -> None:
    templates: dict[str, Any] = {
        "note": "{{ params.nothing }}",
        "name": "{{ params.nothing or '' }}",
        "pin": "{{ params['pin'] }}",
        "batch": "{{ params.get('batch') }}",
        "closure": "{{ 'min' + 'imal' }}",
    }
    with DAG("native", schedule=None, render_template_as_native_obj=True):
        task = CreateSavepointOperator(task_id="task", job="flights", **templates)
    rendered(task, nothing=None, pin=False, batch=41)
    assert (task.note, task.name, task.pin, task.batch, task.closure) == (None, "", False, 41, "minimal")


def test_an_answer_that_the_form_does_not_have_is_none() -> None:
    with DAG("native", schedule=None, render_template_as_native_obj=True):
        task = StreambankOperator(task_id="task", job="flights", note="{{ params.get('gone') }}")
    assert rendered(task, other=1).why == ""


def test_the_params_of_a_dag_are_answers_too() -> None:
    with DAG("native", schedule=None, render_template_as_native_obj=True):
        task = StreambankOperator(task_id="task", job="flights", note="{{ params.note }}")
    task.render_template_fields({"params": ParamsDict({"note": "1_000"})})  # type: ignore[typeddict-item]  # no more is asked
    assert task.why == "1_000"


@pytest.mark.parametrize("name", ["None", "none", "NULL", "True", "false", "nan", "NaN", "inf", "Infinity"])
def test_a_value_is_no_name(name: str) -> None:
    with refuses(InputError, "bad-savepoint-name"):
        check_savepoint_name(name)
    assert check_savepoint_name(f"{name}-1") == f"{name}-1"


def test_the_form_refuses_the_name_that_a_task_takes_for_none() -> None:
    pattern = savepoint_form("quick")["name"].schema["pattern"]
    assert not re.search(pattern, "None")
    assert all(re.search(pattern, one) for one in ("", "None-1", "Nonesuch", "before-upgrade"))


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", float("nan"), float("inf")])
def test_what_is_no_number_is_said_so(number: Any) -> None:
    for read in (as_number, as_integer):
        with refuses(InputError, "bad-option"):
            read(number, "batches")
    assert (as_integer("41", "batches"), as_number("0.5", "batches")) == (41, 0.5)


@pytest.mark.parametrize(
    ("said", "seconds"), [("120", 120.0), ("1.5", 1.5), (120, 120.0), ("2m", 120.0), ("", None)]
)
def test_seconds_may_be_typed(said: Any, seconds: float | None) -> None:
    assert as_duration_s(said) == seconds


def test_a_number_that_a_template_gives_needs_a_unit_where_it_decides_what_goes() -> None:
    """A Variable of 90 may have meant days; what the DAG writes as a number is seconds, by its name."""
    template: Any = "{{ var }}"
    with DAG("native", schedule=None, render_template_as_native_obj=True):
        given = CompactStateOperator(task_id="given", job="flights", idle_for_s=template)
        written = CompactStateOperator(task_id="written", job="flights", idle_for_s=3600)
        counted = ExpireSavepointsOperator(task_id="counted", job="flights", keep_last=template)
    for task in (given, counted, written):
        task.render_template_fields({"var": 90})
    with pytest.raises(AirflowFailException, match="unit"):
        given.read_arguments()
    written.read_arguments()
    counted.read_arguments()
    assert (written.idle_for_s, counted.keep_last) == (3600.0, 90)
