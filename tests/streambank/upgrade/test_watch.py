"""What says something of new code while it is watched, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.declaration.objectives import PROMISES
from streambank.job.restart import restart_job
from streambank.upgrade import watch as watching
from streambank.upgrade.watch import Watch, broken_objectives
from tests.support.jobs.managed_job import BY, Managed
from tests.support.jobs.upgraded_job import Fault, deploy, epoch, generation, runs, upgraded


def when_watched(managed: Managed, patch: pytest.MonkeyPatch, step: Any) -> None:
    """Do something when the watch begins."""
    go_on = Watch.go_on

    def watched(self: Watch, seconds: float) -> Any:
        step()
        return go_on(self, seconds)

    patch.setattr(Watch, "go_on", watched)


@pytest.mark.storm
def test_a_restart_in_the_watch_undoes_nothing(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(managed)
    when_watched(managed, monkeypatch, lambda: restart_job(managed.job, by=BY))
    done = upgraded(managed)
    assert (done.state, epoch(managed), generation(managed)) == ("upgraded", 3, 1)
    assert runs(managed) == done.after


@pytest.mark.storm
def test_other_code_in_the_watch_is_left_alone(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(managed)

    def other() -> None:
        deploy(managed, "# a third\n")
        restart_job(managed.job, by=BY)

    when_watched(managed, monkeypatch, other)
    done = upgraded(managed)
    assert (done.state, done.code) == ("given-up", "other-code-ran")
    assert (epoch(managed), generation(managed)) == (3, 1)


@pytest.mark.storm
@pytest.mark.parametrize("ends", ["well", "killed"])
def test_an_application_that_runs_to_its_end_got_on(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    args = (*managed.job.args, "--batches", "6")
    if ends == "killed":
        args = managed.job.args
        deploy(managed)
        when_watched(managed, monkeypatch, managed.kill)
    managed.hangs.unlink()
    done = upgraded(managed, args=args, watch_s=20.0)
    assert done.state == ("upgraded" if ends == "well" else "undone"), done
    assert generation(managed) == (1 if ends == "well" else 2)


def test_a_disk_that_others_have_filled_says_nothing_of_the_code() -> None:
    assert {name for name, promise in PROMISES.items() if not promise.tells_of_code} == {
        *("free_space", "restart_rate", "recovery_time"),
        *("savepoint_age", "replica_age", "drill_age", "copy_age"),
    }


@pytest.mark.storm
def test_objectives_that_cannot_be_read_are_not_known(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    fault = Fault(monkeypatch, watching, "assess_job", StorageError("The service is down.", code="storage"))
    done = upgraded(managed)
    assert fault.fired
    assert (done.state, done.broken_before) == ("upgraded", None)
    (note,) = done.notes
    assert "is not known: before the stop" in note
    assert broken_objectives(managed.job) == ()
