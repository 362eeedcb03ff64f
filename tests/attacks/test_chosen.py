"""Who can write among a job's records, where nothing is signed, chooses what its next driver runs."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.code.chosen import CHOSEN, as_chosen, choose_code, newest_choice
from streambank.code.code import Code
from streambank.code.kept import why_not_here
from streambank.code.vouched import is_vouched, state_folder, vouch
from streambank.control.control import JobControl
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.core.signing import VARIABLE, new_key
from streambank.declaration.declaration import Job
from streambank.driver.launchers.local import LocalLauncher
from streambank.job import start as starting
from streambank.job.move_records import move_records
from streambank.job.sign_records import sign_records
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.storage import open_store
from streambank.upgrade.declared import choose_declared
from streambank.upgrade.plan import UpgradeRequest, proven_here_only
from streambank.upgrade.record import Upgrade, newest_upgrade, remember
from streambank.upgrade.undo import why_undone
from streambank.upgrade.upgrade import _Upgrading, undo_upgrade, upgrade
from streambank_spark.runner import entry
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.upgraded_job import Fault, Killed, before


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of this user for this test alone."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return declare(tmp_path, "as-declared")


@pytest.fixture
def theirs(job: Job, tmp_path: Path) -> Code:
    """A program and an interpreter that leave a trace when they run."""
    ran = tmp_path / "ran"
    python, program = tmp_path / "theirs" / "python", tmp_path / "theirs" / "app.py"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho >> {ran}\n")
    python.chmod(0o755)
    program.write_text(f"open({str(ran)!r}, 'w')\n")
    evil = replace(job, application=str(program), named_python=str(python), python=str(python))
    return Code.declared(evil)


def plant(job: Job, code: Code, why: str = "") -> None:
    """A choice as an upgrade would leave it, by somebody who can write among the records and nothing else."""
    declared = Code.declared(job)
    job.records().signed(CHOSEN).append(
        {
            "instead_of": declared.identity,
            "instead_of_unread": declared.identity_unread,
            "code": code.to_dict(),
            "at": "2026-11-29T10:00:00.000Z",
            "by": {"user": "eve"},
            "why": why,
            "proven": True,
        }
    )


def chosen_here(job: Job, **other: Any) -> Code:
    """Another code than the declared one, chosen as an upgrade from here does."""
    declared = Code.declared(job)
    code, control = replace(declared, **other), job.records()
    vouch(control, "code", code.to_dict())
    choose_code(control, declared, code, by=BY, why="a test")
    return code


def refused(job: Job) -> RefusedError:
    """Why the next start of the job is refused."""
    with pytest.raises(RefusedError) as caught:
        as_chosen(job, job.records())
    return caught.value


def test_a_planted_choice_runs_neither_interpreter_nor_program(
    job: Job, theirs: Code, tmp_path: Path
) -> None:
    plant(job, theirs)
    with pytest.raises(RefusedError) as caught:
        start_job(job, by=BY, wait=False)
    assert not (tmp_path / "ran").exists(), "the interpreter is asked for its Spark before a launch"
    assert caught.value.code == "code-not-proven"
    assert job_status(job).code.endswith("no start from here runs it.")
    assert "jobs file" in caught.value.hint and "streambank upgrade flights --declared" in caught.value.hint
    assert job.records().desired() is None


@pytest.mark.parametrize(
    "what",
    [
        {"python": "/theirs/python"},
        {"spark_home": "/theirs/spark"},
        {"args": ("--theirs",)},
        {"spark": {"spark.driver.extraJavaOptions": "-javaagent:/theirs.jar"}},
        {"application": "/theirs/app.py"},
    ],
)
def test_no_part_of_what_runs_is_believed(job: Job, what: dict[str, Any]) -> None:
    plant(job, replace(Code.declared(job), **what))
    assert refused(job).code == "code-not-proven"


def test_a_driver_that_is_submitted_by_hand_does_not_run_it(job: Job, theirs: Code) -> None:
    plant(job, theirs)
    with pytest.raises(RefusedError) as caught:
        entry.parse(["--job", job.name, "--jobs", str(job.source)])
    assert caught.value.code == "code-not-proven"


def test_what_this_user_chose_runs(job: Job) -> None:
    chosen_here(job, args=("as", "chosen"))
    assert as_chosen(job, job.records())[0].args == ("as", "chosen")
    assert job_status(job).code.endswith("(a test).")


def test_it_counts_for_no_other_job_and_no_other_place(job: Job, tmp_path: Path) -> None:
    chosen_here(job, args=("as", "chosen"))
    (record,) = job.records().signed(CHOSEN).all()
    for other in (replace(job, name="another"), replace(job, control=str(tmp_path / "elsewhere"))):
        other.records().signed(CHOSEN).append(record.data)
        assert refused(other).code == "code-not-proven"


def test_it_counts_in_the_same_place_by_another_of_its_names() -> None:
    """Whoever writes `s3` for `s3a` in the jobs file has moved nothing."""
    one, same, other = (
        JobControl(open_store(f"{place}/orders"), "orders")
        for place in ("s3a://lake/control", "s3://lake/control", "s3://pond/control")
    )
    vouch(one, "code", {"application": "app.py"})
    assert is_vouched(same, "code", {"application": "app.py"})
    assert not is_vouched(other, "code", {"application": "app.py"})


def test_a_choice_of_before_does_not_come_back(job: Job) -> None:
    chosen_here(job, args=("first",))
    (first,) = job.records().signed(CHOSEN).all()
    chosen_here(job, args=("second",))
    assert as_chosen(job, job.records())[0].args == ("second",)
    job.records().signed(CHOSEN).append(first.data)
    assert refused(job).code == "code-not-proven"
    choose_code(job.records(), Code.declared(job), None, by=BY, why="")
    job.records().signed(CHOSEN).append(first.data)
    assert refused(job).code == "code-not-proven"


@pytest.mark.parametrize("how", ["others may write", "a link", "the folder is a link"])
def test_only_this_user_vouches(job: Job, tmp_path: Path, how: str) -> None:
    chosen_here(job, args=("as", "chosen"))
    (file,) = state_folder(job.name).glob("vouched/*/choice-*")
    if how == "others may write":
        file.parent.chmod(0o777)
    elif how == "a link":
        file.unlink()
        file.symlink_to(tmp_path / "app.py")
    else:
        moved = file.parent.rename(tmp_path / "moved")
        file.parent.symlink_to(moved)
    assert file.is_file(), "it is there"
    assert refused(job).code == "code-not-proven"


def test_the_way_out_runs_what_is_declared(job: Job, theirs: Code) -> None:
    plant(job, theirs)
    planted_upgrade(job, "swapped", before=theirs, after=theirs)
    choose_declared(UpgradeRequest(job, by=BY))
    assert as_chosen(job, job.records()) == (job, None)
    left = newest_upgrade(job.records())
    assert left is not None and left.state == "given-up"


def planted_upgrade(job: Job, state: Any, before: Code, after: Code) -> Upgrade:
    """What an upgrade remembers, by somebody else."""
    planted = Upgrade("upgrade-1", job.name, state, before, after, savepoints={"main": "b000001-0"})
    return remember(job.records(), planted)


def test_a_planted_upgrade_that_went_well_is_not_the_way_to_its_old_code(job: Job, theirs: Code) -> None:
    planted_upgrade(job, "upgraded", before=theirs, after=Code.declared(job))
    done = undo_upgrade(UpgradeRequest(job, by=BY))
    assert done.state == "not-undone" and "no key signs" in done.error
    assert newest_choice(job.records()) is None


@pytest.mark.parametrize("state", ["swapped", "restored"])
def test_an_upgrade_that_is_said_to_be_interrupted_is_not_finished(
    job: Job, theirs: Code, tmp_path: Path, state: str
) -> None:
    plant(job, theirs, why_undone("upgrade-1", "") if state == "restored" else "")
    planted_upgrade(job, state, before=theirs, after=theirs)
    with pytest.raises(RefusedError) as caught:
        upgrade(UpgradeRequest(job, by=BY))
    assert caught.value.code == "code-not-proven" and not (tmp_path / "ran").exists()


def test_what_is_asked_for_is_started_and_not_what_is_said_to_be_the_same(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is the same at another path, where somebody could replace it once it was compared."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/app.py").write_text("")
    same = Code.declared(replace(job, application=str(tmp_path / "theirs/app.py")))
    assert same.identity == Code.declared(job).identity
    planted_upgrade(job, "stopping", before=same, after=same)
    monkeypatch.setattr(_Upgrading, "has_moved_on", lambda self: False)
    monkeypatch.setattr(_Upgrading, "swap", lambda self: self.upgrade)
    assert upgrade(UpgradeRequest(job, by=BY)).after == Code.declared(job)


def test_no_choice_is_made_of_what_only_a_record_names(job: Job, theirs: Code) -> None:
    with pytest.raises(RefusedError) as caught:
        choose_code(job.records(), Code.declared(job), theirs, by=BY, why="")
    assert caught.value.code == "code-not-proven" and newest_choice(job.records()) is None
    assert "no key signs" in str(why_not_here(theirs, job, job.records()))
    assert why_not_here(Code.declared(job), job, job.records()) is None, (
        "the jobs file vouches for what it says"
    )


def test_what_was_launched_from_here_may_run_again(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched, deployed = Code.declared(job), replace(job, args=("deployed",))
    assert why_not_here(launched, deployed, job.records()) is not None
    launcher = fake_launcher(tmp_path)
    monkeypatch.setattr(launcher, "submit", before(launcher.submit))
    with pytest.raises(Killed):
        start_job(job, by=BY, wait=False, launcher=launcher)
    assert why_not_here(launched, deployed, job.records()) is None


@pytest.mark.parametrize("state", ["swapped", "restored"])
@pytest.mark.parametrize("ours", [True, False])
def test_an_upgrade_of_another_worker_is_finished_with_what_this_user_may_run_and_nothing_else(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, ours: bool
) -> None:
    """`ours`: what it has chosen is asked for again, or ran from here before."""
    args = ("as", "chosen")
    chosen, control = chosen_here(job, args=args), job.records()
    planted_upgrade(job, state, before=chosen, after=chosen)
    control.set_desired("running", by=BY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another worker"))
    if ours and state == "restored":
        vouch(control, "code", chosen.to_dict())
    asked = UpgradeRequest(job, by=BY, args=args if ours and state == "swapped" else None)
    launcher = fake_launcher(tmp_path)
    monkeypatch.setattr(launcher, "submit", before(launcher.submit))
    with pytest.raises(Killed if ours else RefusedError) as caught:
        upgrade(asked, launcher=launcher)
    if isinstance(caught.value, RefusedError):
        assert caught.value.code == "code-not-proven" and refused(job).code == "code-not-proven"
    else:
        assert as_chosen(job, control)[0].args == args, "so later starts from here run it, too"


def test_a_choice_goes_with_the_records(job: Job, tmp_path: Path) -> None:
    chosen_here(job, args=("as", "chosen"))
    job.records().set_desired("stopped", by=BY)
    move_records(job, by=BY, to=str(tmp_path / "moved"))
    moved = replace(job, control=str(tmp_path / "moved"))
    assert as_chosen(moved, moved.records())[0].args == ("as", "chosen")


def test_a_key_vouches_on_each_host(job: Job, key: Path) -> None:
    chosen = replace(Code.declared(job), args=("as", "chosen"))
    choose_code(job.records(), Code.declared(job), chosen, by=BY, why="")
    assert not state_folder(job.name).exists()
    assert as_chosen(job, job.records())[0].args == ("as", "chosen")
    assert proven_here_only(chosen.identity, Code.declared(job), job.records()) == ()


def test_without_one_a_person_is_told_that_it_does_not(job: Job) -> None:
    chosen, declared = replace(Code.declared(job), args=("as", "chosen")), Code.declared(job)
    (note,) = proven_here_only(chosen.identity, declared, job.records())
    assert "only for this user on this host" in note
    assert proven_here_only(declared.identity, declared, job.records()) == ()


def test_a_choice_of_before_there_were_proofs_is_signed_with_the_records(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(job, chosen := replace(Code.declared(job), args=("as", "chosen")))
    hint = refused(job).hint
    assert "the same upgrade" in hint and "`streambank job sign-records flights`" in hint
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    with pytest.raises(StreambankError):
        as_chosen(job, job.records())
    sign_records(job, by=BY, yes=True)
    assert as_chosen(job, job.records())[0].args == chosen.args


def test_what_runs_is_vouched_for_although_no_copy_of_it_can_be_kept(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = fake_launcher(tmp_path)
    monkeypatch.setattr(launcher, "submit", before(launcher.submit))
    full = StorageError("The disk is full.", code="io-error")
    fault = Fault(monkeypatch, starting, "keep", full)
    with pytest.raises(Killed):
        start_job(job, by=BY, wait=False, launcher=launcher)
    assert fault.fired and is_vouched(job.records(), "code", Code.declared(job).to_dict())


def test_what_another_process_removes_meanwhile_is_passed_over(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing, gone = Path.glob, []

    def and_one_that_is_gone(folder: Path, pattern: str) -> Any:
        gone.append(folder / "code-of-before")
        return [*listing(folder, pattern), *gone]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", and_one_that_is_gone)
        vouch(job.records(), "code", Code.declared(job).to_dict())
    assert gone and is_vouched(job.records(), "code", Code.declared(job).to_dict())


def test_a_user_without_a_home_can_look_at_a_job_and_proves_nothing(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen_here(job, args=("as", "chosen"))
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", dict[int, Any]().__getitem__)
    with pytest.raises(RuntimeError):
        Path.home()
    assert job_status(job).code.endswith("no start from here runs it.")
    assert refused(job).code == "code-not-proven"
    far = JobControl(open_store("s3://bucket/control/flights"), job.name)
    assert LocalLauncher().log_path(far, "a-launch").startswith(f"{os.devnull}/"), "where nothing can be"
    with pytest.raises(StorageError) as caught:
        vouch(job.records(), "code", Code.declared(job).to_dict())
    assert caught.value.code == "code-not-laid" and "XDG_STATE_HOME" in caught.value.hint
    choose_code(job.records(), Code.declared(job), None, by=BY, why="the way out")
    assert as_chosen(job, job.records()) == (job, None)
