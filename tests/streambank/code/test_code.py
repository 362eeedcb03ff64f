"""What a driver runs, and in what two codes differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.code.code import Code, differences
from streambank.code.program import PY_FILES
from streambank.core.errors import FormatError
from streambank.declaration.launch import LaunchPolicy
from streambank.driver.connections import placed, using_connections
from tests.support.jobs.declared import declare
from tests.support.refuses import refuses

CODE = Code("/jobs/app.py", ("in", "secret"), {"spark.a": "1"}, None, None, "sha256:" + "a" * 64)


def test_a_code_is_what_its_job_declares(tmp_path: Path) -> None:
    job = declare(tmp_path, "in", more='python = "/opt/python"\nspark_home = "/opt/spark"')
    code = Code.declared(job)
    assert (code.python, code.spark_home, code.args) == ("/opt/python", "/opt/spark", ("in",))
    assert code.applied(job) == job
    assert Code.from_dict(code.to_dict()) == code
    other = code.applied(declare(tmp_path, "out"))
    assert (other.args, other.python, other.spark_home) == (("in",), "/opt/python", "/opt/spark")
    assert Code.declared(declare(tmp_path)).python is None, "the default one is not declared"


def test_where_a_job_runs_is_not_part_of_its_code(tmp_path: Path) -> None:
    job = declare(
        tmp_path, more='spark_home = "/opt/spark"\nmaster = "local[2]"\nlaunch.connection = "spark"'
    )
    for home in ("/opt/spark", "/opt/other", None):
        with using_connections(lambda job, home=home: LaunchPolicy(spark_home=home)):  # type: ignore[misc]
            assert Code.declared(placed(job)) == Code.declared(job), home
    unnamed = replace(job, spark_home=None, named_spark_home=None)
    with using_connections(lambda job: LaunchPolicy(spark_home="/opt/spark")):
        there = placed(unnamed)
    assert there.spark_home == "/opt/spark"
    assert Code.declared(there) == Code.declared(unnamed)
    assert Code.declared(there).applied(there) == there


def test_a_program_is_known_by_what_is_in_it_and_not_by_its_place() -> None:
    assert replace(CODE, application="/elsewhere/app.py").identity == CODE.identity
    assert replace(CODE, spark={**CODE.spark, PY_FILES: "/x.zip"}).identity == CODE.identity
    unknown = replace(CODE, program=None)
    assert replace(unknown, application="/elsewhere/app.py").identity != unknown.identity


@pytest.mark.parametrize(
    "changes",
    [{"args": ("in",)}, {"spark": {}}, {"python": "/p"}, {"spark_home": "/s"}, {"program": "sha256:b"}],
)
def test_each_part_of_a_code_counts(changes: dict[str, object]) -> None:
    other = replace(CODE, **changes)  # type: ignore[arg-type]  # each is of its field
    assert other.identity != CODE.identity
    assert len(differences(CODE, other)) == 1


def test_differences_name_no_values() -> None:
    other = replace(
        CODE,
        args=("out", "hidden"),
        spark={"spark.a": "new-value", "spark.b": "2"},
        program="sha256:" + "b" * 64,
        application="/new/app.py",
        python="/opt/python",
    )
    assert differences(CODE, other) == [
        "the program in /new/app.py is bbbbbbbbbbbb, and was aaaaaaaaaaaa in /jobs/app.py",
        "arguments 1, 2 are others",
        "the setting spark.a is another",
        "the setting spark.b is new",
        "the interpreter is /opt/python, and was the default one",
    ]
    assert differences(other, CODE)[1:4] == [
        "arguments 1, 2 are others",
        "the setting spark.a is another",
        "the setting spark.b is gone",
    ]
    assert differences(CODE, replace(CODE, args=())) == ["there are 0 arguments, and were 2"]
    unknown = replace(CODE, program=None)
    assert differences(CODE, unknown) == ["whether /jobs/app.py has changed is not known"]
    moved = replace(unknown, application="/new/app.py")
    assert differences(unknown, moved) == ["the application is /new/app.py, and was /jobs/app.py"]


def test_a_record_that_is_cut_off_is_named() -> None:
    with refuses(FormatError, "damaged-record"):
        Code.from_dict({"application": "app.py"})
