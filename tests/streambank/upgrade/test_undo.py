"""The way back of an upgrade: open or not before anything is stopped, and gone to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.control.together import left_together
from streambank.core.errors import RefusedError, StorageError
from streambank.upgrade import plan as planning
from streambank.upgrade import undo as way_back
from streambank.upgrade import work
from streambank.upgrade.record import newest_upgrade
from streambank.upgrade.upgrade import undo_upgrade, upgrade
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.jobs.upgraded_job import (
    Fault,
    Killed,
    after,
    deploy,
    dying,
    epoch,
    generation,
    interrupt,
    request_of,
    runs,
    upgraded,
)
from tests.support.refuses import refuses


@pytest.mark.storm
@pytest.mark.parametrize("step", ["plan_restore", "restore", "choose_code"])
def test_a_fault_of_the_environment_leaves_the_way_back_to_be_gone(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old, args = runs(managed), dying(managed)
    with monkeypatch.context() as patch:
        fault = Fault(patch, way_back, step, StorageError("The service is down.", code="storage"))
        with pytest.raises(StorageError):
            upgraded(managed, args=args, watch_s=20.0)
        assert fault.fired
    left = newest_upgrade(managed.control)
    assert left is not None and left.state == "undoing"
    done = upgraded(managed)
    assert (done.state, runs(managed)) == ("undone", old)


@pytest.mark.storm
def test_old_code_that_is_not_ready_in_time_is_not_restored_again(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, args = runs(managed), dying(managed)
    start: Any = vars(work)["start_job"]
    fired: list[Any] = []

    def slow(*given: Any, **named: Any) -> Any:
        found = start(*given, **named)
        if named["wait"] and not fired:
            fired.append(found)
            raise StorageError("It is not ready.", code="start-timeout")
        return found

    monkeypatch.setattr(work, "start_job", slow)
    with pytest.raises(StorageError):
        upgraded(managed, args=args, watch_s=20.0)
    left, started = newest_upgrade(managed.control), epoch(managed)
    assert fired and left is not None and left.state == "restored"
    done = upgraded(managed)
    assert (done.state, runs(managed)) == ("undone", old)
    assert (epoch(managed), generation(managed)) == (started, 2), "neither stopped nor restored again"
    assert "The new code does not get on" in done.error


@pytest.mark.storm
def test_a_copy_that_is_not_what_it_was_closes_the_way_back_before_a_stop(managed: Managed) -> None:
    deploy(managed)
    assert upgraded(managed).state == "upgraded"
    for copy in (managed.folder / "repository.control/flights/code").glob("*/app.py"):
        copy.write_text("raise SystemExit\n")
    runs_now, started = runs(managed), epoch(managed)
    done = undo_upgrade(request_of(managed, why="we liked the old one"))
    assert done.state == "not-undone"
    assert done.error.startswith("we liked the old one") and "not what it was" in done.error
    assert (runs(managed), epoch(managed), generation(managed)) == (runs_now, started, 1)
    # The next upgrade finds the same before its new code takes the place of what runs.
    for copy in (managed.folder / "repository.control/flights/code").glob("*/app.py"):
        copy.write_text("raise SystemExit\n")
    deploy(managed, "# a third\n")
    planned = upgrade(request_of(managed, plan_only=True))
    assert "not what it was" in planned.no_way_back


@pytest.mark.storm
def test_old_code_is_not_brought_back_on_another_spark(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    check: Any = vars(planning)["check_launch"]

    def replaced(*given: Any) -> str:
        check(*given)
        return "9.9.9"

    monkeypatch.setattr(planning, "check_launch", replaced)
    launched: Any = vars(planning)["running_launch"]
    monkeypatch.setattr(planning, "running_launch", lambda *given: _with_spark(launched(*given)))
    done = upgraded(managed, args=dying(managed), watch_s=20.0, no_way_back=True)
    assert done.state == "not-undone" and "Spark 9.9.9 is where Spark 4.0.0 was" in done.error
    assert generation(managed) == 1


def _with_spark(launch: Any) -> Any:
    from dataclasses import replace

    return replace(launch, spark_version="4.0.0")


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A running job of two queries."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with managed_job(tmp_path, monkeypatch, ["one", "two"]) as found:
        for query in ("one", "two"):
            found.declare(f'[[jobs.flights.sinks]]\nquery = "{query}"\nkind = "idempotent-by-key"\n')
        found.hangs.write_text("8", encoding="utf-8")
        found.start()
        for query in ("one", "two"):
            found.wait_for_batch(7, query)
        yield found


@pytest.mark.storm
def test_no_driver_runs_on_a_way_back_of_some_queries(
    several: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, args = runs(several), dying(several)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, way_back, "restore", after)
        upgraded(several, args=args, watch_s=20.0)
    assert len(left_together(several.control, several.job.queries)) == 1
    with refuses(RefusedError, "restore-unfinished"):
        several.start()
    done = upgraded(several)
    assert (done.state, runs(several)) == ("undone", old)
    assert left_together(several.control, several.job.queries) == ()
