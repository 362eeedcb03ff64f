"""What a person approves is a page that somebody else has filled in, through a form or a note."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job, load_jobs
from streambank_airflow.choices import check_form_places, new_sink_choices, where_choice
from streambank_airflow.markdown import cell, code, filled, table
from tests.support.jobs.declared import write_jobs

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
    with pytest.raises(InputError) as caught:
        check_form_places(job, None, None, new_sink_choices([f"{out}={out}-new\n| Warning | none |"]))
    assert caught.value.code == "bad-location"
    check_form_places(job, None, None, new_sink_choices([f"{out}={out}-new"]))


@pytest.mark.parametrize(
    "place", ["webhdfs://127.0.0.1:9/x", "/etc/x", "s3://other/x", "http://169.254.169.254/x", "/../x"]
)
def test_a_form_writes_nowhere_but_beside_the_old_output(job: Job, place: str) -> None:
    beside = job.checkpoint.rpartition("/")[0]
    with pytest.raises(InputError) as caught:
        check_form_places(job, None, None, {f"{beside}/out": place})
    assert caught.value.code == "place-not-allowed" and "new_outputs" in caught.value.hint
    with pytest.raises(InputError):
        check_form_places(job, None, place, {})


def test_a_job_may_allow_other_places_or_none(job: Job) -> None:
    beside = job.checkpoint.rpartition("/")[0]
    wider = replace(job, restore=replace(job.restore, new_outputs=("s3://lake/out",), into=()))
    check_form_places(wider, None, None, {f"{beside}/out": "s3a://lake/out/new"})
    for into, new in ((f"{beside}/again", {}), (None, {f"{beside}/out": f"{beside}/new"})):
        with pytest.raises(InputError):
            check_form_places(wider, None, into, new)


def test_a_form_brings_no_condition_that_the_job_does_not_declare(job: Job) -> None:
    declared = replace(job, compact=replace(job.compact, where="value.n < 3"))
    assert where_choice(True, declared) == ("value.n < 3", False)
    assert where_choice(False, declared) == (None, False)
    for said, of in (("true", declared), ("value.n < 4", declared), (True, job), ("value.n < 3", job)):
        with pytest.raises(InputError) as caught:
            where_choice(said, of)
        assert caught.value.code == "expression-not-declared"
    free = replace(declared, compact=replace(declared.compact, expressions="any"))
    assert where_choice("value.n < 4", free) == ("value.n < 4", True)
    assert where_choice("value.n < 3", free) == ("value.n < 3", False)


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
    with pytest.raises(InputError) as caught:
        where_choice(condition, free)
    assert caught.value.code == "bad-expression" and "may not see" in caught.value.message


def test_nothing_that_a_page_leaves_out_is_left_out_of_a_plan() -> None:
    assert cell('{"k": "a  b"}') == cell('{"k": "a \u00a0b"}').replace("\ufffd", "\u00a0")
    assert cell("a\nb") == "a \u23ce b" and cell("a\u00a0b") == "a\ufffdb" and cell("a\rb") == "a\ufffdb"
    assert code("one two") == "`one two`" and code("a\tb") == "`a\ufffdb`"
