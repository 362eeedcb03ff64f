"""What says something of new code while it is watched, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from streambank.control.claims import Claims
from streambank.core.errors import StorageError
from streambank.core.shape import decode
from streambank.core.signing import VARIABLE, new_key
from streambank.core.units import utc_now
from streambank.declaration.objectives import PROMISES
from streambank.driver.spec import HOLDER
from streambank.job.restart import restart_job
from streambank.upgrade import watch as watching
from streambank.upgrade.record import upgrades_of
from streambank.upgrade.upgrade import undo_upgrade, upgrade
from streambank.upgrade.watch import Wait, Watch, broken_objectives
from tests.support.jobs.managed_job import BY, Managed
from tests.support.jobs.upgraded_job import (
    Fault,
    Killed,
    before,
    deploy,
    epoch,
    generation,
    interrupt,
    request_of,
    runs,
    upgraded,
)


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


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them any host can prove what ran before; to be asked for before the job."""
    new_key(tmp_path / "signing-keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "signing-keys"))


class Left(BaseException):
    """Stands for a process that does not wait."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait)
        self.wait = wait


def leave(wait: Wait) -> NoReturn:
    raise Left(wait)


def left_at(managed: Managed, wait: Wait | None = None, **asked: Any) -> Wait:
    """The next wait of an upgrade, which is left."""
    with pytest.raises(Left) as left:
        upgrade(request_of(managed, **asked), leave=leave, wait=wait)
    return left.value.wait


def test_its_waits_may_be_left_and_are_gone_on_with_by_the_records(keys: None, managed: Managed) -> None:
    deploy(managed)
    first = left_at(managed)
    second = left_at(managed, first)
    assert [(one.step, one.launch_id) for one in (first, second)] == [
        ("first-batch", second.launch_id),
        ("watch", second.launch_id),
    ]
    claim = Claims(managed.control.store, HOLDER).view()
    assert claim is not None and claim.free
    stored = decode(Wait, second.to_dict(), "wait")
    done = upgrade(request_of(managed), leave=leave, wait=stored)
    assert (done.state, done.resumed, done.name) == ("upgraded", False, second.upgrade)
    assert list(done.steps) == ["rehearse", "launch", "stop", "start", "first-batch", "watch"]
    assert done.seconds >= sum(done.steps.values()) - 0.1
    assert done.without_processing_s is not None and epoch(managed) == 2
    again = upgrade(request_of(managed), wait=stored)
    assert again.to_dict() == done.to_dict(), "it is finished"


def test_without_keys_no_wait_is_left_since_another_host_could_not_go_back(managed: Managed) -> None:
    deploy(managed)
    said: list[str] = []
    done = upgrade(request_of(managed), leave=leave, say=said.append)
    assert done.state == "upgraded"
    assert sum("no other host may start the old code again" in one for one in said) == 2


MEANWHILE: dict[str, tuple[Callable[[Managed], object], str]] = {
    "dies": (Managed.kill, "undone"),
    "is-stopped": (lambda managed: managed.stop("enough"), "stopped"),
    "is-undone": (lambda managed: undo_upgrade(request_of(managed)), "undone"),
    "is-finished": (lambda managed: upgraded(managed, watch_s=0.0), "upgraded"),
}


@pytest.mark.parametrize(
    "meanwhile",
    ["dies", *(pytest.param(one, marks=pytest.mark.storm) for one in MEANWHILE if one != "dies")],
)
def test_who_goes_on_looks_at_what_has_happened_meanwhile(
    keys: None, managed: Managed, meanwhile: str
) -> None:
    deploy(managed)
    wait = left_at(managed, left_at(managed, watch_s=60.0), watch_s=60.0)
    happens, state = MEANWHILE[meanwhile]
    happens(managed)
    done = upgrade(request_of(managed, watch_s=60.0), wait=wait)
    assert (done.state, done.name) == (state, wait.upgrade)
    assert [one.name for one in upgrades_of(managed.control)] == [wait.upgrade]


@pytest.mark.storm
def test_what_was_left_long_ago_is_not_undone(keys: None, managed: Managed) -> None:
    deploy(managed)
    wait = left_at(managed, left_at(managed))
    managed.kill()
    done = upgrade(request_of(managed), wait=replace(wait, until=utc_now() - timedelta(hours=1)))
    assert done.state == "upgraded" and "too long ago" in done.notes[-1]


@pytest.mark.storm
def test_an_upgrade_that_was_interrupted_is_not_left(
    keys: None, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, Watch, "go_on", before)
        upgraded(managed)
    done = upgrade(request_of(managed), leave=leave)
    assert (done.state, done.resumed) == ("upgraded", True)
