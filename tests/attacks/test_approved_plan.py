"""What a person approves is a page that somebody else has filled in, through a form or a note."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.state import BootstrapPolicy, ChangePolicies, TransformPolicy
from streambank_airflow.choices import (
    bootstrap_choice,
    check_form_places,
    check_sql,
    new_sink_choices,
    transform_choice,
    where_choice,
)
from streambank_airflow.markdown import cell, code, filled, table
from tests.support.jobs.declared import write_jobs
from tests.support.refuses import refuses

EVIL = (
    "/new` | x |\n| Warning | **none: all checks passed** |\n"
    "| Approved by | [ticket](https:/evil.example/) ![x](https:/evil/p.png)"
)


@pytest.mark.parametrize("make", [cell, code])
def test_no_text_adds_a_row_or_a_link_to_a_plan(make: object) -> None:
    assert callable(make)
    plan = table([("Writes to", filled("{} instead of {}", make(EVIL), make("/out")))])
    rows = plan.splitlines()
    assert len(rows) == 3, plan
    cells = rows[2].replace(r"\|", "").strip("|").split("|")
    assert len(cells) == 2
    assert "**none" not in rows[2].replace(r"\*", "") and "](" not in rows[2].replace(r"\]", "")


@pytest.mark.parametrize("text", ["a`b", "``", "`", "a``b`", "<b>x</b>", "[a](b)", "~~x~~", "_x_", "a\\"])
def test_a_code_span_ends_where_it_is_meant_to(text: str) -> None:
    shown = code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert fence and shown.endswith(fence)
    assert fence not in shown[len(fence) : -len(fence)].strip(" ").replace(fence + "`", "")
    assert text in shown


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return load_jobs(write_jobs(tmp_path)).job("flights")


def test_a_line_break_in_a_new_output_is_no_location(job: Job) -> None:
    out = job.checkpoint.rpartition("/")[0].removeprefix("file://") + "/out"
    with refuses(InputError, "bad-location"):
        check_form_places(job, None, None, new_sink_choices([f"{out}={out}-new\n| Warning | none |"]), [job])
    check_form_places(job, None, None, new_sink_choices([f"{out}={out}-new"]), [job])


@pytest.mark.parametrize(
    "place", ["webhdfs://127.0.0.1:9/x", "/etc/x", "s3://other/x", "http://169.254.169.254/x", "/../x"]
)
def test_a_form_writes_nowhere_but_beside_the_old_output(job: Job, place: str) -> None:
    beside = job.checkpoint.rpartition("/")[0]
    with refuses(InputError, "place-not-allowed", hint="new_outputs"):
        check_form_places(job, None, None, {f"{beside}/out": place}, [job])
    with pytest.raises(InputError):
        check_form_places(job, None, place, {}, [job])


def test_a_job_may_allow_other_places_or_none(job: Job) -> None:
    beside = job.checkpoint.rpartition("/")[0]
    wider = replace(job, restore=replace(job.restore, new_outputs=("s3://lake/out",), into=()))
    check_form_places(wider, None, None, {f"{beside}/out": "s3a://lake/out/new"}, [wider])
    for into, new in ((f"{beside}/again", {}), (None, {f"{beside}/out": f"{beside}/new"})):
        with pytest.raises(InputError):
            check_form_places(wider, None, into, new, [wider])


def test_a_form_brings_no_condition_that_the_job_does_not_declare(job: Job) -> None:
    declared = replace(job, compact=replace(job.compact, where="value.n < 3"))
    assert where_choice(True, declared) == ("value.n < 3", False)
    assert where_choice(False, declared) == (None, False)
    for said, of in (("true", declared), ("value.n < 4", declared), (True, job), ("value.n < 3", job)):
        with refuses(InputError, "expression-not-declared"):
            where_choice(said, of)
    free = replace(declared, compact=replace(declared.compact, expressions="any"))
    assert where_choice("value.n < 4", free) == ("value.n < 4", True)
    assert where_choice("value.n < 3", free) == ("value.n < 3", False)


NONE_SET: dict[str, Any] = {"sets": [], "where": None, "delete_where": None, "operator": None, "part": None}
NONE_MADE: dict[str, Any] = {"table": None, "keys": [], "values": [], "operator": None, "part": None}


def changing(job: Job, *, expressions: Literal["declared", "any"] = "declared") -> Job:
    """The same job, which declares what may be changed."""
    transform = TransformPolicy(sets=("value.n = 0",), where="key.k = 1", expressions=expressions)
    bootstrap = BootstrapPolicy(
        ("file:///lake/totals",), sql="SELECT k FROM source", keys=("k = a",), expressions=expressions
    )
    return replace(job, changes=ChangePolicies(transform, bootstrap))


def test_a_form_changes_state_by_no_expression_that_the_job_does_not_declare(job: Job) -> None:
    declared, free = changing(job), changing(job, expressions="any")
    of_job = {**NONE_SET, "sets": ["value.n = 0"], "where": "key.k = 1"}
    assert (
        transform_choice(declared, NONE_SET, None)
        == transform_choice(declared, of_job, None)
        == (of_job, False)
    )
    assert transform_choice(free, of_job, None) == (of_job, False)
    for name, other in {
        "sets": ["value.n = 1"],
        "where": "true",
        "delete_where": "true",
        "operator": 1,
    }.items():
        asked = {**of_job, name: other}
        for refusing in (declared, job):
            with refuses(InputError, "expression-not-declared", hint="flights.transform"):
                transform_choice(refusing, asked, None)
        assert transform_choice(free, asked, None) == (asked, True)
    with pytest.raises(InputError, match="may not see"):
        transform_choice(free, {**of_job, "sets": ["value.n = 0 -- for now"]}, None)


@pytest.mark.parametrize(
    "table",
    [
        "file:///etc/passwd",
        "file:///lake/totals/../secret",
        "s3://lake/totals",
        "file:///lake/totals2",
        "/lake/totals/{a,../../secret}",
        "/lake/totals/*",
        "file:///lake/totals/%2e%2e/secret",
        "/lake",
        "x\n",
    ],
)
def test_a_form_makes_state_of_no_table_that_the_job_does_not_declare(job: Job, table: str) -> None:
    for one in (changing(job), changing(job, expressions="any")):
        with pytest.raises(InputError) as caught:
            bootstrap_choice(one, {**NONE_MADE, "table": table}, None)
        assert caught.value.code in ("place-not-allowed", "bad-location")
    of_job = {**NONE_MADE, "table": "file:///lake/totals", "keys": ["k = a"]}
    assert bootstrap_choice(changing(job), NONE_MADE, None) == (of_job, False)
    below = {**of_job, "table": "file:///lake/totals/2026-11-27"}
    typed = {**NONE_MADE, "table": "/lake/totals//2026-11-27/"}
    assert bootstrap_choice(changing(job), typed, None) == (below, True)


def test_expressions_that_are_declared_for_a_query_are_of_that_query_alone(job: Job) -> None:
    of_any = changing(job).changes
    assert of_any.transform is not None and of_any.bootstrap is not None
    policies = ChangePolicies(replace(of_any.transform, query="a"), replace(of_any.bootstrap, query="a"))
    declared = replace(job, changes=policies)
    assert transform_choice(declared, NONE_SET, "a")[0]["sets"] == ["value.n = 0"]
    assert bootstrap_choice(declared, NONE_MADE, "a")[0]["keys"] == ["k = a"]
    for query in ("b", None):
        for choice, asked in ((transform_choice, NONE_SET), (bootstrap_choice, NONE_MADE)):
            with refuses(InputError, "expression-not-declared"):
                choice(declared, asked, query)


def test_sql_that_may_do_what_spark_may_comes_from_the_declaration(job: Job) -> None:
    declared, free = changing(job), changing(job, expressions="any")
    other = "SELECT * FROM csv.`/etc/passwd`"
    for one in (declared, free):
        for said in (None, "", "None", False, "False", "false"):
            assert check_sql(one, said, from_form=True) == "SELECT k FROM source", "a form leaves nothing out"
        assert check_sql(one, True, from_form=False) == "SELECT k FROM source"
        assert check_sql(one, None, from_form=False) is None
        with refuses(InputError, "expression-not-declared"):
            check_sql(one, other, from_form=True)
    assert check_sql(free, other, from_form=False) == other
    for refusing in (declared, job):
        with pytest.raises(InputError, match="no other SQL"):
            check_sql(refusing, other, from_form=False)


@pytest.mark.parametrize(
    "condition",
    [
        "k = 5 -- only of tests\n or true",
        "k = 5 --x\r or true",
        "k = 'a  b'",
        "k = 'a\u00a0b'",
        "k = 5 /* no */",
        "k\t= 5",
    ],
)
def test_a_typed_condition_is_one_that_can_be_read_as_it_is(job: Job, condition: str) -> None:
    free = replace(job, compact=replace(job.compact, expressions="any"))
    with refuses(InputError, "bad-expression", match="may not see"):
        where_choice(condition, free)


def test_nothing_that_a_page_leaves_out_is_left_out_of_a_plan() -> None:
    assert cell('{"k": "a  b"}') == cell('{"k": "a \u00a0b"}').replace("\ufffd", "\u00a0")
    assert cell("a\nb") == "a \u23ce b" and cell("a\u00a0b") == "a\ufffdb" and cell("a\rb") == "a\ufffdb"
    assert code("one two") == "`one two`" and code("a\tb") == "`a\ufffdb`"
