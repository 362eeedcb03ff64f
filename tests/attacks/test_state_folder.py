"""Another user has made a folder in this user's state folder, or may write there, and exchanges what runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.code.code import Code
from streambank.code.kept import keep, runnable
from streambank.code.program import read_program
from streambank.code.vouched import is_vouched, vouch
from streambank.control.control import JobControl
from streambank.core.errors import RefusedError, StorageError
from streambank.declaration.declaration import Job
from tests.support.jobs.declared import declare

SOMEBODY = 65534
LEVELS = ["the folder", "its kind", "the job's", "that of all jobs"]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o1777)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return declare(tmp_path)


def kept(job: Job) -> tuple[Code, JobControl]:
    """A code that this user has launched, whose program was replaced since."""
    application, control = Path(job.application), job.records()
    application.write_text("x = 1\n")
    program = read_program(job.application, {})
    assert program is not None and keep(control, program) is None
    code = Code.of(job, program)
    vouch(control, "code", code.to_dict())
    application.write_text("x = 2\n")
    return code, control


def let_others_write(folder: Path) -> None:
    folder.chmod(0o777)


def give_away(folder: Path) -> None:
    os.chown(folder, SOMEBODY, -1)


exposed = pytest.mark.parametrize(
    "expose",
    [
        let_others_write,
        pytest.param(
            give_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
        ),
    ],
)
at_each_level = pytest.mark.parametrize("level", range(4), ids=LEVELS)


@exposed
@at_each_level
def test_no_program_runs_from_where_another_user_can_exchange_it(
    job: Job, tmp_path: Path, expose: Callable[[Path], None], level: int
) -> None:
    code, control = kept(job)
    folder = Path(runnable(code, job, control).application).parent
    assert (folder / "app.py").read_text() == "x = 1\n"
    expose((folder, *folder.parents)[level])
    with pytest.raises((StorageError, RefusedError)) as caught:
        runnable(code, job, control)
    # What is above both kinds of folders vouches for nothing any more.
    assert caught.value.code == ("code-not-laid" if level < 2 else "code-not-proven")


@exposed
@at_each_level
def test_nothing_vouches_where_another_user_can_exchange_it(
    job: Job, tmp_path: Path, expose: Callable[[Path], None], level: int
) -> None:
    code, control = kept(job)
    assert is_vouched(control, "code", code.to_dict())
    (folder,) = (tmp_path / "state/streambank/flights/vouched").iterdir()
    expose((folder, *folder.parents)[level])
    assert not is_vouched(control, "code", code.to_dict())
    with pytest.raises(StorageError) as caught:
        vouch(control, "code", code.to_dict())
    assert caught.value.code == "code-not-laid" and "XDG_STATE_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize("linked", [True, False], ids=["a link", "no link"])
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077], ids=oct)
def test_no_umask_is_in_the_way_and_the_folder_of_all_jobs_may_be_a_link(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int, linked: bool
) -> None:
    """A container may have a umask of 0, and no state folder yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state/new" if not linked else tmp_path / "state"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o775)  # a group may write above
    before = os.umask(umask)
    try:
        if linked:
            (tmp_path / "state/streambank").symlink_to(tmp_path / "elsewhere")
        code, control = kept(job)
        assert is_vouched(control, "code", code.to_dict())
        assert Path(runnable(code, job, control).application).read_text() == "x = 1\n"
    finally:
        os.umask(before)


def test_where_the_umask_lets_everybody_write_nobody_else_can(job: Job) -> None:
    before = os.umask(0)
    try:
        code, control = kept(job)
        assert is_vouched(control, "code", code.to_dict())
        assert Path(runnable(code, job, control).application).read_text() == "x = 1\n"
    finally:
        os.umask(before)
