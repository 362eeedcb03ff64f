"""A declaration as data says the same as a jobs file with these fields."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError, NotFoundError
from streambank.declaration.fields import merge
from streambank.declaration.given import as_given, plain
from streambank.declaration.load import load_jobs, read_given, read_jobs
from tests.streambank.declaration.test_load import FULL
from tests.support.jobs.jobs_file import declared_jobs as load
from tests.support.refuses import refuses

BASE: dict[str, Any] = {"name": "a", "application": "/a.py", "checkpoint": "/ck", "repository": "/r"}


def said(declaration: dict[str, Any]) -> str:
    with refuses(InputError, "bad-declaration") as caught:
        read_given([declaration]).whole()
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("name", ["orders", "pairs"])
def test_every_field_of_a_file_means_the_same_as_data(tmp_path: Path, name: str) -> None:
    in_file = load(tmp_path, FULL, DATA="/d").job(name)
    data = tomllib.loads(FULL)
    own = merge(data["defaults"], data["jobs"][name])
    declaration = plain({**own, "name": name, "folder": tmp_path, "working_dir": in_file.working_dir})
    declaration |= {"repository": data["repository"], "control": data["control"]}

    given = read_given([declaration], variables={"DATA": "/d"}).job(name)

    assert given == replace(in_file, source="", line=0)


def test_a_mistake_names_the_job_and_the_field() -> None:
    assert said({**BASE, "stop": {"force_after": "60"}}).startswith(
        "Declaration of job a: stop.force_after: '60' is not a duration."
    )
    assert said({**BASE, "stop": {"force_aftr": "60s"}}).endswith(
        "stop.force_aftr: there is no such field. Did you mean force_after?"
    )
    lacking = {name: one for name, one in BASE.items() if name != "application"}
    assert said(lacking) == "Declaration of job a: application: it is missing. Add application to it."
    assert "it is a credential" in said({**BASE, "spark": {"spark.hadoop.fs.s3a.secret.key": "x"}})
    assert "would never be sent" in said({**BASE, "notify": [{"class": "a.B", "kinds": ["replica-failed"]}]})


def test_a_repository_may_be_that_of_the_connection() -> None:
    bare = {name: one for name, one in BASE.items() if name != "repository"}

    assert read_given([bare], repository="/else/where").job("a").repository == "file:///else/where"
    assert read_given([BASE], repository="/else/where").job("a").repository == "file:///r"
    assert "repository: it is missing" in said(bare)


def test_a_relative_path_is_taken_from_the_folder_or_refused() -> None:
    relative = {**BASE, "application": "a.py", "checkpoint": "ck"}

    found = read_given([{**relative, "folder": "/dags"}]).job("a")

    assert (found.application, found.checkpoint) == ("/dags/a.py", "file:///dags/ck")
    assert found.working_dir == "/dags"
    assert read_given([{**BASE, "folder": "/dags"}]).job("a").working_dir == "/", "the application's"
    assert "application: 'a.py' is a relative path, and nothing says from which folder" in said(relative)
    assert "python: './p' is a relative path" in said({**BASE, "python": "./p"})


def test_places_are_never_taken_from_the_folder_of_a_dag_file() -> None:
    of_dag = {**BASE, "application": "a.py", "python": "./p", "dag_folder": "/bundles/v2"}

    found = read_given([of_dag]).job("a")
    beside = read_given([{**of_dag, "checkpoint": "ck", "folder": "/srv"}]).job("a")

    assert (found.application, found.python) == ("/bundles/v2/a.py", "/bundles/v2/p")
    assert (beside.application, beside.checkpoint) == ("/srv/a.py", "file:///srv/ck")
    refused = "is a relative path, and the folder of a DAG file may change with its version"
    for place in (
        {"checkpoint": "ck"},
        {"repository": "r"},
        {"control": "c"},
        {"replicate": {"to": ["r"]}},
        {"drill": {"scratch": "s"}},
        {"copies": {"dev": {"checkpoint": "dev"}}},
        {"standby": {"checkpoint": "ck2", "repository": "/r2"}},
    ):
        assert refused in said({**of_dag, **place})


def test_its_folder_is_absolute_and_may_be_of_the_environment() -> None:
    named = {**BASE, "checkpoint": "ck", "folder": "${LAKE}/x"}

    assert read_given([named], variables={"LAKE": "/lake"}).job("a").checkpoint == "file:///lake/x/ck"
    assert "folder: 'x' is a relative path" in said({**BASE, "folder": "x"})
    assert "folder: the environment variable NO_SUCH is not set" in said({**BASE, "folder": "${NO_SUCH}"})


def test_a_mistake_takes_no_other_job_away_and_each_name_is_there_once() -> None:
    other = {**BASE, "name": "b", "checkpoint": "/ckb", "tags": "x"}

    found = read_given([BASE, other])

    assert found.around("a").job("a").name == "a"
    with refuses(InputError, "bad-declaration"):
        found.job("b")
    with refuses(NotFoundError, "no-such-job", hint="a"):
        read_given([BASE]).job("c")
    for wrong in ([BASE, BASE], [{**BASE, "name": ""}], [BASE, {**BASE, "name": "b"}]):
        with refuses(InputError, "bad-declaration"):
            read_given(wrong)


def test_it_may_come_as_text_and_nothing_else() -> None:
    assert as_given('{"name": "a", "tags": ["x"]}') == {"name": "a", "tags": ["x"]}
    assert as_given("{'name': 'a', 'signed': True}") == {"name": "a", "signed": True}
    for wrong in ("secret-text", "[1]", ["a"], 3):
        with refuses(InputError, "bad-declaration") as caught:
            as_given(wrong)
        assert "secret-text" not in str(caught.value)


def test_values_of_airflow_are_not_read_here(tmp_path: Path) -> None:
    text = 'repository = "r"\n[jobs.a]\napplication = "a.py"\ncheckpoint = "ck"\nargs = ["{}"]\n'
    file = tmp_path / "jobs.toml"
    for value, what in (("${var:day}", "var:day"), ("${conn:lake.db.host:-h}", "conn:lake.db.host")):
        file.write_text(text.replace("{}", value), encoding="utf-8")
        with refuses(InputError, "bad-declaration") as caught:
            load_jobs(file)
        assert f"args: {what} is a value of Airflow, and only Airflow can read it" in caught.value.message
    file.write_text(text.replace("{}", "${var:-x}"), encoding="utf-8")
    assert read_jobs(file).job("a").args == ("x",), "a variable `var` of the environment"
