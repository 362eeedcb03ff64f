"""Copies of programs: kept at each launch, verified before they run again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streambank.code.code import Code
from streambank.code.kept import KEPT, drop_old, is_kept, keep, runnable, why_not_here, why_not_runnable
from streambank.code.program import PY_FILES, Program, read_program
from streambank.code.vouched import vouch
from streambank.control.control import JobControl
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from tests.support.jobs.declared import declare
from tests.support.refuses import refuses


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = declare(tmp_path, more=f'[jobs.flights.spark]\n"{PY_FILES}" = "{tmp_path}/more.zip"\n')
    (tmp_path / "app.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "more.zip").write_bytes(b"a zip")
    return found


def kept(job: Job) -> tuple[Code, JobControl]:
    """The code of a job, of which a copy is kept."""
    control = job.records()
    program = read_program(job.application, job.spark)
    assert program is not None
    assert keep(control, program) is None
    code = Code.of(job, program)
    vouch(control, "code", code.to_dict())
    return code, control


def test_a_program_that_was_replaced_runs_from_its_copy(job: Job, tmp_path: Path) -> None:
    code, control = kept(job)
    assert runnable(code, job, control) == job, "it is where it was"
    (tmp_path / "helper.py").write_text("x = 2\n")
    (tmp_path / "more.zip").unlink()
    again = runnable(code, job, control)
    folder = Path(again.application).parent
    assert folder.is_relative_to(tmp_path / "state"), "not where others may write"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "helper.py").read_text() == "x = 1\n"
    assert Path(again.spark[PY_FILES]).read_bytes() == b"a zip"
    found = read_program(again.application, again.spark)
    assert found is not None and found.digest == code.program, "and is the same program there"
    # What was laid out and then changed is laid out again.
    (folder / "helper.py").write_text("x = 3\n")
    assert (Path(runnable(code, job, control).application).parent / "helper.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("harm", ["changed", "added", "gone", "not complete"])
def test_a_copy_that_is_not_what_it_was_is_never_run(job: Job, tmp_path: Path, harm: str) -> None:
    code, control = kept(job)
    assert code.program is not None
    folder = tmp_path / "repository.control/flights/code" / code.program.removeprefix("sha256:")
    (tmp_path / "app.py").unlink()
    assert why_not_here(code, job, control) is None and why_not_runnable(code, job, control) is None
    if harm == "changed":
        (folder / "app.py").write_text("import os; os.abort()\n")
    elif harm == "added":
        (folder / "pyspark.py").write_text("raise SystemExit\n")
    elif harm == "gone":
        shutil.rmtree(folder)
    else:
        folder.with_suffix(".json").unlink()
    with refuses(RefusedError, "code-not-kept", hint="--declared"):
        runnable(code, job, control)
    assert why_not_runnable(code, job, control)
    assert not (tmp_path / "state/streambank/flights/code").exists()


def test_a_cluster_takes_no_copy(job: Job, tmp_path: Path) -> None:
    from dataclasses import replace

    code, control = kept(job)
    in_cluster = replace(job, launch=replace(job.launch, deploy_mode="cluster"))
    assert why_not_here(code, in_cluster, control) is None
    (tmp_path / "app.py").write_text("")
    assert "in a cluster" in str(why_not_here(code, in_cluster, control))
    unread = Code("app.py", (), {})
    vouch(control, "code", unread.to_dict())
    assert "not known" in str(why_not_here(unread, job, control))


def test_the_newest_programs_stay_and_those_that_are_needed(job: Job, tmp_path: Path) -> None:
    control = job.records()
    digests = []
    for number in range(KEPT + 3):
        (tmp_path / "app.py").write_text(f"x = {number}\n")
        program = read_program(job.application, {})
        assert program is not None and keep(control, program) is None
        digests.append(program.digest)
        drop_old(control, [digests[0]])
    assert [is_kept(control, one) for one in digests[:4]] == [True, False, False, False] or (
        [is_kept(control, one) for one in digests[:4]] == [True, False, False, True]
    )
    assert all(is_kept(control, one) for one in digests[4:])


def test_what_this_python_does_not_understand_is_not_kept(job: Job, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def of_a_later(:\n")
    program = read_program(job.application, job.spark)
    assert program is not None and "does not understand helper.py" in str(keep(job.records(), program))


def test_what_is_too_large_is_not_kept(job: Job, tmp_path: Path) -> None:
    program = Program("sha256:00", {"app.py": tmp_path / "app.py"}, 17 * 2**20)
    assert "are kept" in str(keep(job.records(), program))
    assert "cannot be kept" in str(keep(job.records(), Program("sha256:00", {"../app.py": tmp_path}, 1)))
