"""The ways out of what an upgrade has chosen."""

from __future__ import annotations

import shutil

import pytest

from streambank.code.chosen import as_chosen
from streambank.code.code import Code
from streambank.core.errors import RefusedError
from streambank.upgrade import upgrade as swapping
from streambank.upgrade.record import newest_upgrade
from tests.support.cli import streambank
from tests.support.jobs.managed_job import Managed
from tests.support.jobs.upgraded_job import Killed, after, before, deploy, interrupt, runs, upgraded
from tests.support.refuses import refuses


@pytest.mark.storm
@pytest.mark.parametrize("how", [before, after])
def test_what_is_declared_runs_where_what_was_chosen_is_lost(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, how: object
) -> None:
    deploy(managed)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, swapping, "stop_job", how)  # type: ignore[arg-type]  # one of both
        upgraded(managed)
    managed.kill()
    shutil.rmtree(managed.folder / "repository.control/flights/code")
    with refuses(RefusedError, "code-not-kept", hint="streambank upgrade flights --declared"):
        managed.start()
    answer = streambank("upgrade", "flights", "--jobs", managed.jobs_file, "--declared")
    assert answer.code == 0 and "what its jobs file declares" in answer.out, answer
    left = newest_upgrade(managed.control)
    assert left is not None and left.state == "given-up" and left.name in answer.out
    managed.start()
    assert runs(managed) == Code.declared(managed.job)


@pytest.mark.storm
def test_who_asks_for_the_same_upgrade_elsewhere_vouches_for_it_there(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = (*managed.job.args, "--batches", "1000000")
    assert upgraded(managed, args=args).state == "upgraded"
    chosen = runs(managed)
    assert chosen.args == args
    monkeypatch.setenv("XDG_STATE_HOME", str(managed.folder / "elsewhere"))
    with refuses(RefusedError, "code-not-proven"):
        as_chosen(managed.job, managed.control)
    assert upgraded(managed, args=args).state == "nothing-to-do"
    managed.kill()
    managed.start()
    assert runs(managed) == chosen


@pytest.mark.storm
def test_code_that_another_user_launched_is_no_way_back(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = (*managed.job.args, "--batches", "1000000")
    monkeypatch.setenv("XDG_STATE_HOME", str(managed.folder / "elsewhere"))
    assert upgraded(managed, args=args).state == "upgraded", "the old code was the declared one"
    monkeypatch.setenv("XDG_STATE_HOME", str(managed.folder / "state"))
    with refuses(RefusedError, "no-way-back", match="no key signs"):
        upgraded(managed)
    assert upgraded(managed, no_way_back=True).state == "upgraded"
    assert runs(managed) == Code.declared(managed.job)
