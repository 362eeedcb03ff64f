"""Each template field of each operator and sensor takes what a template field of Airflow takes.

A value that only a run knows breaks no DAG file: the output of another task, an argument of a mapped group, a
parameter of the DAG, a template. A `Path` is its text, which is rendered and handed to the triggerer.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, task, task_group
from airflow.serialization.serialized_objects import DagSerialization

from streambank.core.errors import InputError
from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator

PLACE = Path("/data/a place/{{ params.x }}")
BESIDE: dict[str, dict[str, Any]] = {
    "ApprovePlanOperator": {"subject": "Restore it?"},
    "CheckSlaOperator": {"job": "orders"},
    "SkipInBlackoutOperator": {"windows": ["22:00-06:00"]},
}
"""What an operator takes beside what its signature demands."""


def operators() -> Iterator[type[BaseOperator]]:
    """All that the provider lists, the base classes of its modules among them."""
    for kind in ("operators", "sensors"):
        for entry in get_provider_info()[kind]:
            for name in entry["python-modules"]:
                for _, found in inspect.getmembers(import_module(name), inspect.isclass):
                    own = f"{found.__module__}.".startswith(f"{name}.") and not inspect.isabstract(found)
                    if own and issubclass(found, BaseOperator):
                        yield found


OPERATORS = sorted(set(operators()), key=lambda each: each.__name__)


def parameters(operator: type[BaseOperator]) -> dict[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for each in operator.__mro__:
        if "__init__" in vars(each) and each.__module__.partition(".")[0] == "streambank_airflow":
            for one in inspect.signature(vars(each)["__init__"]).parameters.values():
                if one.kind is one.KEYWORD_ONLY:
                    found.setdefault(one.name, one)
    return found


def arguments(operator: type[BaseOperator], value: Any) -> dict[str, Any]:
    """What it demands, and this value in each template field that is its own."""
    known = parameters(operator)
    demanded = dict.fromkeys((name for name, one in known.items() if one.default is one.empty), "orders")
    fields = [one for one in operator.template_fields if one in known]
    values = {**demanded, **BESIDE.get(operator.__name__, {}), **dict.fromkeys(fields, value)}
    if operator.__name__ == "CheckSlaOperator":
        del values["jobs"]  # instead of its `job`
    return values


def serialized(dag: DAG) -> None:
    """Write it as the DAG processor does, and read it as the scheduler does."""
    DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))


def test_there_are_all() -> None:
    names = {each.__name__ for each in OPERATORS}

    assert {"CreateSavepointOperator", "RestoreSavepointOperator", "SlaSensor"} <= names
    assert len(names) > 40


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.__name__)
def test_each_field_takes_what_only_a_run_knows(operator: type[BaseOperator]) -> None:
    with DAG("own", schedule=None, params={"x": "a"}) as dag:

        @task
        def pick() -> str:
            return "a"

        picked = pick()
        given = {
            "output": picked,
            "outputs": [picked, "a"],
            "param": dag.param("x"),
            "text": "{{ params.x }}",
        }
        for how, value in given.items():
            operator(task_id=how, **arguments(operator, value))

        @task_group
        def group(one: Any) -> None:
            operator(task_id="mapped", **arguments(operator, one))

        group.expand(one=["a", "b"])
        values = arguments(operator, ["a", "b"])
        fields = values.keys() & parameters(operator).keys() & set(operator.template_fields)
        mapped = {name: values.pop(name) for name in fields}
        if mapped:
            operator.partial(task_id="expanded", **values).expand(**mapped)

    serialized(dag)
    assert {"output", "outputs", "param", "text", "group.mapped"} <= set(dag.task_ids)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.__name__)
def test_a_path_is_its_text_and_nothing_is_nothing(operator: type[BaseOperator]) -> None:
    known = parameters(operator)
    with DAG("own", schedule=None, params={"x": "a"}) as dag:
        path = operator(task_id="path", **arguments(operator, PLACE))
        paths = operator(task_id="paths", **arguments(operator, [PLACE, {PLACE: PLACE}]))
        nothing: dict[str, Any] = {
            name: None
            if name in known.keys() & set(operator.template_fields) and known[name].default is None
            else value
            for name, value in arguments(operator, "{{ params.x }}").items()
        }
        operator(task_id="nothing", **{**nothing, **BESIDE.get(operator.__name__, {})})

    serialized(dag)
    for field in known.keys() & arguments(operator, PLACE).keys() & set(operator.template_fields):
        assert getattr(path, field) == str(PLACE)
        assert getattr(paths, field) == [str(PLACE), {str(PLACE): str(PLACE)}]


@pytest.mark.parametrize(
    ("operator", "option"),
    [
        (VerifySavepointOperator, {"level": "ful"}),
        (StopStreamingJobOperator, {"if_running": None}),
        (RestoreSavepointOperator, {"sink": 3}),
        (CreateSavepointOperator, {"closure": "save"}),
    ],
)
def test_a_choice_that_a_dag_file_gets_wrong_is_refused_there(
    operator: type[BaseOperator], option: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="must be one of"):
        operator(task_id="wrong", job="orders", **option)


def test_what_a_run_gives_is_checked_in_the_run() -> None:
    verify = VerifySavepointOperator(task_id="verify", job="orders")
    verify.level = "ful"  # as an output is rendered

    with pytest.raises(Exception, match="level must be one of none, quick, full"):
        verify.execute({})


def test_a_job_that_the_dag_file_names_has_its_asset_and_another_one_does_not() -> None:
    take = CreateSavepointOperator(task_id="take", job="orders/main")
    with DAG("own", schedule=None) as dag:
        unknown = CreateSavepointOperator(task_id="take", job=dag.param("job", "orders"))

    assert [one.name for one in take.outlets] == ["streambank/orders/savepoints"]
    assert unknown.outlets == []
