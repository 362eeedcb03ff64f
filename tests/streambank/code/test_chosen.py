"""Which code a job's next driver runs: what it declares, unless an upgrade chose another one instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.code.chosen import (
    CHOSEN,
    UPGRADES,
    as_chosen,
    choose_code,
    code_that_counts,
    needed_programs,
    newest_choice,
    settle_choice,
)
from streambank.code.code import Code
from streambank.code.vouched import vouch
from streambank.core.errors import FormatError
from streambank.declaration.declaration import Job
from tests.support.jobs.declared import BY, declare

ARGS = ("as", "chosen")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return declare(tmp_path, "as-declared")


def choose(job: Job) -> None:
    """Choose other arguments than the declared ones."""
    declared = Code.declared(job)
    other = replace(declared, args=ARGS)
    vouch(job.records(), "code", other.to_dict())
    choose_code(job.records(), declared, other, by=BY, why="a test")


def args(job: Job) -> tuple[str, ...]:
    """With which the next driver is started."""
    return as_chosen(job, job.records())[0].args


def test_what_is_declared_counts_until_something_is_chosen(job: Job) -> None:
    assert newest_choice(job.records()) is None and args(job) == ("as-declared",)
    choose(job)
    assert args(job) == ARGS == code_that_counts(job, job.records()).args
    (chosen,) = [one for one in (as_chosen(job, job.records())[1],) if one is not None]
    assert chosen.words.endswith("until the job declares other code (a test).")


def test_it_counts_instead_of_that_declaration_alone(job: Job, tmp_path: Path) -> None:
    choose(job)
    (tmp_path / "app.py").write_text("# deployed\n")
    assert args(job) == ("as-declared",)
    (tmp_path / "app.py").write_text("")
    assert args(job) == ARGS, "a look changes nothing"
    (tmp_path / "app.py").write_text("# deployed\n")
    settle_choice(job, job.records(), by=BY)
    (tmp_path / "app.py").write_text("")
    assert args(job) == ("as-declared",), "a launch does"
    numbers = job.records().signed(CHOSEN).numbers()
    settle_choice(job, job.records(), by=BY)
    assert job.records().signed(CHOSEN).numbers() == numbers


def test_a_deployment_to_another_path_is_no_other_declaration(job: Job, tmp_path: Path) -> None:
    choose(job)
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2/app.py").write_text("")
    assert args(replace(job, application=str(tmp_path / "v2/app.py"))) == ARGS


def test_it_counts_where_the_program_cannot_be_read_too(job: Job, tmp_path: Path) -> None:
    """On the machine of another start, which sends the driver to a cluster, the program may not be there."""
    choose(job)
    (tmp_path / "app.py").unlink()
    assert code_that_counts(job, job.records()).args == ARGS
    assert code_that_counts(replace(job, args=("other",)), job.records()).args == ("other",)
    choose(job)
    (tmp_path / "app.py").write_text("")
    assert code_that_counts(job, job.records()).args == ARGS


def test_what_was_chosen_and_what_the_newest_upgrade_names_is_needed(job: Job) -> None:
    control = job.records()
    assert needed_programs(control) == set()
    choose(job)
    assert needed_programs(control) == {Code.declared(job).program}
    before = replace(Code.declared(job), program="sha256:old")
    control.signed(UPGRADES).append({"before": before.to_dict(), "after": None})
    assert needed_programs(control) == {Code.declared(job).program, "sha256:old"}


def test_to_choose_what_is_declared_is_no_choice(job: Job) -> None:
    choose(job)
    choose_code(job.records(), Code.declared(job), Code.declared(job), by=BY, why="")
    chosen = newest_choice(job.records())
    assert chosen is not None and chosen.code is None
    assert args(job) == ("as-declared",)


def test_a_record_that_is_cut_off_is_not_passed_over(job: Job) -> None:
    choose(job)
    job.records().signed(CHOSEN).append({"at": "2026-11-25T10:00:00.000Z"})
    with pytest.raises(FormatError) as refused:
        as_chosen(job, job.records())
    assert refused.value.code == "damaged-record"
