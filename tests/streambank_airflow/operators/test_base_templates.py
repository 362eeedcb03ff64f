"""Each template field of each operator and sensor takes what a template field of Airflow takes.

A value that only a run knows breaks no DAG file: the output of another task, an argument of a mapped group, a
parameter of the DAG, a template. A `Path` is its text, which is rendered and handed to the triggerer.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator, task, task_group
from airflow.serialization.serialized_objects import DagSerialization

from streambank.core.errors import InputError
from streambank.core.options import OptionField
from streambank_airflow.arguments import Jinja
from streambank_airflow.assets import batch_asset
from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.operators.base import FindsJobs
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor

PLACE = Path("/data/a place/{{ params.x }}")
BESIDE: dict[str, dict[str, Any]] = {
    "ApprovePlanOperator": {"subject": "Restore it?"},
    "CheckSlaOperator": {"job": "orders"},
    "SkipInBlackoutOperator": {"windows": ["22:00-06:00"]},
}
"""What an operator takes beside what its signature demands."""


STATIC = {
    "deferrable": "it decides in the DAG file whether a triggerer is needed, as in other providers",
    "from_form": "what narrows a form must not come from it",
    "before_stop": "it says which step of a DAG the task is",
    "offer": "it says which step of a DAG the task is",
    "only_before": "it names a task of the same DAG",
    "notifiers": "they are objects of Airflow, with templates of their own",
}
"""Arguments that are no template fields, and why."""


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


@pytest.mark.parametrize(
    "operator", [each for each in OPERATORS if issubclass(each, FindsJobs)], ids=lambda each: each.__name__
)
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
    verify.level = Jinja("ful")  # as an output is rendered

    with pytest.raises(Exception, match="level must be one of none, quick, full"):
        verify.execute({})


def test_a_job_that_the_dag_file_names_has_its_asset_and_another_one_does_not() -> None:
    take = CreateSavepointOperator(task_id="take", job="orders/main")
    with DAG("own", schedule=None) as dag:
        unknown = CreateSavepointOperator(task_id="take", job=dag.param("job", "orders"))

    assert [one.name for one in take.outlets] == ["streambank/orders/savepoints"]
    assert [one.name for one in unknown.outlets] == ["streambank/savepoints"]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.__name__)
def test_each_argument_that_may_vary_from_run_to_run_is_a_template_field(
    operator: type[BaseOperator],
) -> None:
    assert parameters(operator).keys() - STATIC.keys() <= set(operator.template_fields)


OWN = {
    "states": ["running"],
    "failed_states": ["failed"],
    "objectives": ["pause"],
    "windows": ["01:00-02:00"],
}
LISTS = (tuple, Sequence)


def sample(one: OptionField) -> tuple[Any, Any]:
    """A value as a template leaves it, and what it means."""
    if one.name in OWN:
        return str(OWN[one.name]), OWN[one.name]
    if one.values:
        return one.values[-1], one.values[-1]
    if one.is_duration:
        return "2m", 120.0
    if get_origin(one.kind) in LISTS:
        return "['a', 'b']", ["a", "b"]
    if get_origin(one.kind) is Mapping:
        return "{'a': 'b'}", {"a": "b"}
    return {bool: ("True", True), int: ("7", 7), str: ("text", "text")}.get(one.kind, ("7.5", 7.5))


ON_JOBS = [each for each in OPERATORS if issubclass(each, FindsJobs)]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("operator", ON_JOBS, ids=lambda each: each.__name__)
def test_what_a_template_leaves_is_read_by_its_type(operator: type[FindsJobs], native: bool) -> None:
    known = {name: one for name, one in operator.arguments.items() if one.kind is not Any}
    if "failed_states" in known:  # only a declared job has states
        known.pop("checkpoint", None)
    samples = {name: sample(one) for name, one in known.items()}
    kind: Any = operator
    with DAG("own", schedule=None, render_template_as_native_obj=native):
        given = {**arguments(kind, "{{ one }}"), **{name: f"{{{{ v_{name} }}}}" for name in known}}
        if "declaration" not in known:
            given.pop("declaration", None)  # None is refused there: test_templates.py
        for name in BESIDE.get(operator.__name__, {}).keys() & operator.arguments.keys():
            given[name] = samples[name][0]
        task = kind(task_id="task", **given)

    task.render_template_fields({"one": None, **{f"v_{name}": one for name, (one, _) in samples.items()}})
    task.read_arguments()

    for name, (_, meant) in samples.items():
        found = getattr(task, name)
        assert (list(found)[: len(meant)] if isinstance(meant, list) else found) == meant, name


@pytest.mark.parametrize("operator", ON_JOBS, ids=lambda each: each.__name__)
def test_nothing_is_nothing_where_that_is_allowed_and_refused_where_not(operator: type[FindsJobs]) -> None:
    kind: Any = operator
    needed = arguments(kind, "x").keys() & parameters(kind).keys()
    values = {**{name: "{{ x }}" for name in needed}, **BESIDE.get(operator.__name__, {})}
    empty = {name for name, one in operator.arguments.items() if one.optional}
    if operator.__name__ == "CheckSlaOperator":
        empty -= {"job", "checkpoint"}

    task = kind(task_id="task", **{**values, **dict.fromkeys(empty)})

    assert all(getattr(task, name) is None for name in empty & set(parameters(kind)))
    for name, one in parameters(kind).items():
        if one.default is one.empty and name in operator.arguments and not operator.arguments[name].optional:
            with pytest.raises(InputError, match=f"{name} must not be empty"):
                kind(task_id="task", **{**values, name: None})


def test_a_length_of_time_is_a_number_of_seconds_a_text_or_a_timedelta() -> None:
    for said in (90, 90.0, "90s", "1.5m", timedelta(seconds=90), "{{ s }}"):
        stop = StopStreamingJobOperator(
            task_id="stop", job="orders", force_after_s=said, poll_interval_s=said
        )
        stop.render_template_fields({"s": "1m30s"})  # type: ignore[typeddict-unknown-key]
        stop.read_arguments()
        assert (stop.force_after_s, stop.poll_interval_s) == (90.0, 90.0), said
    sensor = BatchCommittedSensor(task_id="wait", job="orders", poke_interval="5s", timeout="10m")
    assert (sensor.poke_interval, sensor.timeout) == (5.0, 600.0)
    (watcher,) = batch_asset("orders", poll_interval_s=timedelta(seconds=7)).watchers
    assert watcher.trigger.serialize()[1]["poll_interval_s"] == 7.0


def test_one_state_is_a_list_of_one() -> None:
    sensor = StreamingJobStatusSensor(task_id="wait", job="orders", states="running", failed_states="failed")
    assert (sensor.states[0], sensor.failed_states and sensor.failed_states[0]) == ("running", "failed")

    late = StreamingJobStatusSensor(task_id="wait", job="orders", states="{{ state }}")
    late.render_template_fields({"state": "runing"})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(AirflowFailException, match="'runing' is not a state of a job"):
        late.read_arguments()
