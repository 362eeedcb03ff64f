"""docs/reference/airflow.md names every operator and sensor with its arguments, every task and form field."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from streambank_airflow import operators
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.operators.base import SparkWork, StreambankOperator
from streambank_airflow.operators.repository import RepositoryOperator
from streambank_airflow.sensors.job import JobSensor
from tests.support.paths import ROOT
from tests.support.reference_pages import with_arguments

PAGE = (ROOT / "docs/reference/airflow.md").read_text(encoding="utf-8")
SHARED: tuple[type[BaseOperator], ...] = (StreambankOperator, SparkWork, RepositoryOperator, JobSensor)
"""Whose arguments the page names once, beside the table."""


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def classes(kind: str, base: type) -> Iterator[tuple[str, type[Any]]]:
    """What the modules and packages that the provider lists define for users, with where it comes from."""
    for entry in get_provider_info()[kind]:
        for name in entry["python-modules"]:
            for _, found in inspect.getmembers(import_module(name), inspect.isclass):
                own = f"{found.__module__}.".startswith(f"{name}.") and issubclass(found, base)
                if own and not inspect.isabstract(found) and found not in SHARED and found.__name__[0] != "_":
                    yield name, found


def arguments(operator: type[Any]) -> set[str]:
    """What an operator takes and no other operator of Airflow does."""
    found: set[str] = set()
    for each in operator.__mro__:
        if each.__module__.startswith("streambank_airflow") and "__init__" in vars(each):
            parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
            found |= {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    return found


def table(text: str) -> dict[str, tuple[set[str], str]]:
    """Rows of the first table: name -> what its second column names, and the row."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]*) \|.*$", text, re.MULTILINE)
    return {name: (set(re.findall(r"`([a-z_]+)`", cell)), cell) for name, cell in rows}


@pytest.mark.parametrize(("heading", "kind"), [("Operators", "operators"), ("Sensors", "sensors")])
def test_each_is_there_with_its_own_arguments(heading: str, kind: str) -> None:
    text = section(heading)
    shown = table(text)
    base = BaseSensorOperator if kind == "sensors" else BaseOperator
    beside = set(re.findall(r"`([a-z_]+)`", re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)))
    found = {
        f"{module.removeprefix('streambank_airflow.')}.{each.__name__}": each
        for module, each in classes(kind, base)
        if kind == "sensors" or each.__name__ in operators.__all__
    }
    assert set(shown) == set(found)
    for name, each in found.items():
        taken = arguments(each)
        named, cell = shown[name]
        assert taken <= named | beside, f"{name}: {sorted(taken - named - beside)} are nowhere"
        values = set(re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", cell)))
        assert values <= taken, f"{name} takes no {sorted(values - taken)}"


def test_fifteen_operators_are_public_and_found_by_their_names() -> None:
    found = [getattr(operators, name) for name in operators.__all__]
    assert [each.__name__ for each in found] == operators.__all__ and len(found) == 15
    assert set(re.findall(r"`(\w+Operator)`", str(operators.__doc__))) == set(operators.__all__)
    with pytest.raises(AttributeError):
        operators.CheckRunDagOperator  # noqa: B018  # it is a step of the generated DAGs


def test_arguments_and_fields_that_requests_declare_are_there() -> None:
    assert with_arguments(PAGE) == PAGE, "write them by `python -m tests.support.reference_pages`"


def test_each_trigger_is_there() -> None:
    shown = set(re.findall(r"`([A-Za-z]+Trigger)`", section("Triggers")))
    assert shown == {each.__name__ for _, each in classes("triggers", BaseTrigger)}


def test_each_field_of_the_connection_is_there() -> None:
    (connection,) = get_provider_info()["connection-types"]
    rows = re.findall(r"^\| (`[^|]*) \|", section("Connection `streambank`"), re.MULTILINE)
    shown = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert shown == set(connection["conn-fields"])


def test_each_task_and_form_field_of_the_generated_dags_is_there(tmp_path: Path) -> None:
    jobs = 'repository = "r"\n[jobs.{}]\napplication = "a.py"\ncheckpoint = "c"\n{}'
    later = (
        "[jobs.j.savepoint]\nsweep = true\nblackout = ['22:00-06:00']\n"
        "[jobs.j.replicate]\nto = ['x']\n[jobs.j.retention]\nkeep_last = 1\n"
        "[jobs.j.standby]\ncheckpoint = 'd'\nrepository = 'x'\n"
        "[jobs.j.transform]\nexpressions = 'any'\n[jobs.j.bootstrap]\ntables = ['t']\nexpressions = 'any'\n"
        "[jobs.j.copies.staging]\ncheckpoint = 'e'\n"
    )
    (tmp_path / "jobs.toml").write_text(jobs.format("j", later), encoding="utf-8")
    table = section("Generated DAGs").replace("<copy>", "staging")
    rows = dict(re.findall(r"^\| `<job>\.([\w.]+)` \| (.*) \|$", table, re.MULTILINE))
    dags = build_dags(tmp_path / "jobs.toml")
    assert set(dags) == {f"j.{verb}" for verb in rows}
    for name, dag in dags.items():
        tasks, form = rows[name.removeprefix("j.")].split(" | ")
        assert set(dag.task_ids) <= set(re.findall(r"`(\w+)`", tasks)), name
        assert set(dag.params) <= set(re.findall(r"`(\w+)`", form)), name
