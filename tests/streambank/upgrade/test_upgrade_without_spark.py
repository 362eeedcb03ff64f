"""Old code makes room for new code, and comes back where that fails; by a driver without Spark."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.code import kept
from streambank.code.chosen import as_chosen, choose_code, code_that_counts, newest_choice
from streambank.code.code import Code
from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.driver.spec import read_launch
from streambank.driver.stops import why_superseded
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.upgrade import undo as way_back
from streambank.upgrade import upgrade as swapping
from streambank.upgrade import watch as watching
from streambank.upgrade import work
from streambank.upgrade.plan import last_code
from streambank.upgrade.record import newest_upgrade, upgrades_of
from streambank.upgrade.upgrade import undo_upgrade
from streambank.upgrade.watch import Watch
from tests.support.jobs.managed_job import BY, Managed
from tests.support.jobs.upgraded_job import (
    NEW,
    Fault,
    Killed,
    after,
    before,
    deploy,
    dying,
    epoch,
    generation,
    interrupt,
    kinds,
    request_of,
    runs,
    upgraded,
)
from tests.support.waiting import poll


def runs_or_ran(managed: Managed) -> Code | None:
    """What the newest driver was launched with, whether it lives or not."""
    return last_code(managed.control)


def test_new_code_takes_the_place_of_the_old(managed: Managed) -> None:
    old = runs(managed)
    deploy(managed)
    done = upgraded(managed)
    assert (done.state, done.how, done.error) == ("upgraded", "boundary", "")
    assert list(done.steps) == ["rehearse", "launch", "stop", "start", "first-batch", "watch"]
    assert done.warm and done.notes == ()
    assert done.without_processing_s is not None and done.without_processing_s > 0
    assert done.before == old and runs(managed) == done.after == Code.declared(managed.job)
    assert done.rehearsal is not None and done.rehearsal["passed"]
    assert managed.repository.load("flights", done.savepoints["main"]).batch == done.batches["main"]
    assert kinds(managed)[-1] == "upgraded" and "upgrading" in kinds(managed)
    chosen = newest_choice(managed.control)
    assert chosen is not None and chosen.code is None, "the declared code counts"
    kept = newest_upgrade(managed.control)
    assert kept is not None and kept.to_dict() == done.to_dict()
    assert epoch(managed) == 2


@pytest.mark.storm
def test_what_the_rehearsal_finds_leaves_the_old_driver_alone(managed: Managed) -> None:
    old = runs(managed)
    deploy(managed)
    managed.differs.touch()
    done = upgraded(managed, compare="values")
    assert (done.state, done.code) == ("refused", "drill-differs")
    assert "only for this user on this host" in done.notes[-1], "the old code is chosen, the new one declared"
    assert epoch(managed) == 1 and managed.driver_lives()
    # Each start keeps to the old code, although its file was replaced.
    assert job_status(managed.job).code.startswith("An upgrade has chosen the code of")
    managed.kill()
    started = managed.start()
    assert started.code.startswith("An upgrade has chosen the code of")
    assert runs(managed) == old
    launch = read_launch(managed.control, str(started.launch_id))
    assert Path(launch.application).read_text() == "", "the copy that was kept"
    # The same differences, where nothing has to be equal, are reported.
    done = upgraded(managed)
    assert done.state == "upgraded" and done.rehearsal is not None
    assert done.rehearsal["queries"][0]["differences"]
    # Something else is declared: it counts, and no choice from before comes back with what it was made for.
    deploy(managed, "# a third\n")
    managed.kill()
    assert managed.start().code == ""
    deploy(managed, NEW)
    assert as_chosen(managed.job, managed.control)[1] is None


@pytest.mark.storm
def test_new_code_that_dies_is_undone(managed: Managed) -> None:
    old = runs(managed)
    done = upgraded(managed, args=dying(managed), watch_s=20.0)
    assert (done.state, done.code) == ("undone", "new-code-failed"), done
    assert "The new code does not get on" in done.error
    assert runs(managed) == old
    restored = managed.control.generation()
    assert restored is not None and restored.number == 2
    assert restored.from_savepoint == done.savepoints["main"]
    assert managed.last_batch() > done.batches["main"]
    assert [one for one in kinds(managed) if one.startswith("upgrad")] == [
        "upgrading",
        "upgrade-undoing",
        "upgrade-undone",
    ]
    assert code_that_counts(managed.job, managed.control) == Code.declared(managed.job) == old


@pytest.mark.storm
def test_new_code_that_breaks_a_promise_is_undone(managed: Managed) -> None:
    managed.declare('[jobs.flights.sla]\nprogress_age = {breach = "2s"}\n')
    managed.hangs.write_text("1000000")  # the old code goes on
    managed.wait_for_batch(managed.last_batch() + 1)
    hanging = managed.folder / "hangs-when-new"
    hanging.write_text("3")
    args = tuple(str(hanging) if one == str(managed.hangs) else one for one in managed.job.args)
    done = upgraded(managed, args=args, watch_s=6.0)
    assert (done.state, done.code) == ("undone", "new-code-failed"), done
    assert "progress_age of query main" in done.error


@pytest.mark.storm
def test_where_rows_would_be_repeated_a_person_decides(managed: Managed) -> None:
    managed.jobs_file.write_text(
        managed.jobs_file.read_text().replace('kind = "idempotent-by-key"', 'kind = "append"')
    )
    done = upgraded(managed, args=dying(managed), watch_s=20.0)
    assert (done.state, done.code) == ("not-undone", "new-code-failed"), done
    assert "the way back is not open" in done.error
    assert kinds(managed)[-1] == "upgrade-not-undone"
    desired = managed.control.desired()
    assert generation(managed) == 1, "nothing was restored"
    assert desired is not None and desired.state == "running"
    back = undo_upgrade(request_of(managed, why="rows may be repeated"), sink="accept")
    assert (back.state, back.error) == ("undone", "rows may be repeated")
    assert runs(managed) == done.before


@pytest.mark.storm
def test_an_upgrade_that_went_well_can_be_undone(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", 1)  # what it may go back to is kept besides
    deploy(managed)
    done = upgraded(managed, conf={"spark.a": "1"})
    assert done.state == "upgraded" and runs(managed).spark["spark.a"] == "1"
    managed.kill()
    assert managed.start().code, "the setting is not declared, and counts at each start"
    back = undo_upgrade(request_of(managed, why="we liked the old one"))
    assert (back.state, back.name) == ("undone", done.name)
    assert runs(managed) == done.before
    assert [one.state for one in upgrades_of(managed.control)] == ["undone"]


@pytest.mark.storm
def test_who_stops_the_job_meanwhile_has_the_last_word(managed: Managed) -> None:
    deploy(managed)

    def stop_when_swapped() -> None:
        poll(
            lambda: (
                (last := newest_upgrade(managed.control)) is not None
                and "watch" not in last.steps
                and "first-batch" in last.steps
            ),
            timeout_s=60,
        )
        managed.stop("enough")

    thread = threading.Thread(target=stop_when_swapped)
    thread.start()
    done = upgraded(managed, watch_s=30.0)
    thread.join()
    assert (done.state, done.error) == ("stopped", "The job was stopped meanwhile.")
    assert not managed.driver_lives()


@pytest.mark.storm
@pytest.mark.parametrize("how", [before, after])
@pytest.mark.parametrize("step", ["rehearse", "stop_job", "start_job", "go_on"])
def test_an_upgrade_that_was_interrupted_is_finished(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, step: str, how: Callable[..., Any]
) -> None:
    deploy(managed)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, Watch if step == "go_on" else swapping, step, how)
        upgraded(managed)
    left = newest_upgrade(managed.control)
    assert left is not None and left.is_unfinished
    desired = managed.control.desired()
    assert desired is not None and desired.state == "running"
    if step != "rehearse":
        assert "upgrading" in kinds(managed)
    done = upgraded(managed)
    assert (done.state, done.resumed) == ("upgraded", step != "rehearse")
    assert runs(managed) == Code.declared(managed.job)
    assert managed.last_batch() > done.batches["main"]


@pytest.mark.storm
@pytest.mark.parametrize("how", [before, after])
@pytest.mark.parametrize("step", ["stop_job", "restore", "choose_code"])
def test_a_way_back_that_was_interrupted_is_gone_to_its_end(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, step: str, how: Callable[..., Any]
) -> None:
    old, args = runs(managed), dying(managed)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, way_back, step, how)
        upgraded(managed, args=args, watch_s=20.0)
    left = newest_upgrade(managed.control)
    assert left is not None and left.state == "undoing"
    complete = step == "choose_code" and how is after
    # The task that keeps the job running starts it meanwhile: never the old code before the restore.
    number = generation(managed)
    restored = number > 1
    with contextlib.suppress(StorageError):  # the new code may die again before it is looked at
        start_job(managed.job, by=BY, wait=complete)
    assert restored or runs_or_ran(managed) != old
    started = epoch(managed)
    done = upgraded(managed)
    assert (done.state, done.resumed) == ("undone", True)
    assert runs(managed) == old
    restored_to = managed.control.generation()
    assert restored_to is not None and restored_to.from_savepoint == left.savepoints["main"]
    if complete:
        assert restored_to.number == number, "no second restore"
        assert epoch(managed) == started, "no second stop"


@pytest.mark.storm
@pytest.mark.parametrize("step", ["stop_job", "choose_code", "go_on"])
def test_an_interrupted_upgrade_makes_room_for_other_code(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old = runs(managed)
    deploy(managed)
    new = Code.declared(managed.job)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        if step == "choose_code":
            choose_code: Any = vars(swapping)["choose_code"]

            def killed(control: Any, declared: Any, code: Any, **named: Any) -> None:
                choose_code(control, declared, code, **named)
                if code == new:
                    raise Killed

            patch.setattr(swapping, step, killed)
        else:
            interrupt(patch, Watch if step == "go_on" else swapping, step, after)
        upgraded(managed)
    last = old if step != "go_on" else runs(managed)
    assert managed.driver_lives() == (step == "go_on")
    deploy(managed, "# a third\n")
    done = upgraded(managed)
    assert (done.state, done.resumed) == ("upgraded", False)
    assert [one.state for one in upgrades_of(managed.control)] == ["upgraded", "given-up"]
    assert done.before == last, "what ran last went on, and no other code on its checkpoint"
    assert runs(managed) == Code.declared(managed.job)


def test_arguments_of_one_launch_never_become_those_of_later_ones(managed: Managed) -> None:
    managed.stop()
    own = (*managed.job.args, "--period-s", "0.2")
    started = start_job(managed.job, by=BY, args=own)
    assert read_launch(managed.control, str(started.launch_id)).args == own
    deploy(managed)
    managed.differs.touch()
    done = upgraded(managed, compare="values")
    assert (done.state, done.code) == ("refused", "drill-differs")
    managed.kill()
    started = managed.start()
    assert started.code.startswith("An upgrade has chosen the code of")
    assert read_launch(managed.control, str(started.launch_id)).args == managed.job.args


@pytest.mark.storm
def test_the_old_code_goes_on_where_no_savepoint_can_be_taken(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = runs(managed)
    deploy(managed)
    stop: Any = vars(swapping)["stop_job"]

    def full_disk(*given: Any, **named: Any) -> Any:
        stop(*given, **{**named, "savepoint": False})
        raise StorageError("No space is left.", code="disk-full", hint="Make room.")

    monkeypatch.setattr(swapping, "stop_job", full_disk)
    done = upgraded(managed)
    assert (done.state, done.code, done.hint) == ("refused", "disk-full", "Make room.")
    assert runs(managed) == old and epoch(managed) == 2


@pytest.mark.storm
def test_what_cannot_be_read_in_the_watch_says_nothing_of_the_code(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    down = StorageError("The service is down.", code="storage")
    fault = Fault(monkeypatch, watching, "job_status", down)
    done = upgraded(managed)
    assert fault.fired and done.state == "upgraded"


@pytest.mark.storm
def test_what_is_in_the_way_of_the_watch_undoes_nothing(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    busy = ConflictError("Another operation works on the job.", code="operation-in-progress")
    with monkeypatch.context() as patch:
        fault = Fault(patch, Watch, "go_on", busy)
        with pytest.raises(ConflictError):
            upgraded(managed)
        assert fault.fired
    with monkeypatch.context() as patch:
        fault = Fault(patch, work, "start_job", busy)
        with pytest.raises(ConflictError):
            upgraded(managed)
        assert fault.fired
    left = newest_upgrade(managed.control)
    assert left is not None and left.state == "swapped"
    done = upgraded(managed)
    assert (done.state, done.name, generation(managed)) == ("upgraded", left.name, 1)


@pytest.mark.storm
@pytest.mark.parametrize("dies", [False, True])
def test_what_was_interrupted_long_ago_is_not_undone(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    deploy(managed)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, Watch, "go_on", before)
        upgraded(managed)
    if dies:
        managed.dies.write_text("0")
        poll(lambda: not managed.driver_lives(), timeout_s=60)
        managed.dies.unlink()
        managed.start()
    deploy(managed, "# a third\n")
    managed_before = runs(managed)
    monkeypatch.setattr(swapping, "LATE_S", -1000.0)
    choose(managed, managed_before)
    done = upgraded(managed)
    assert (done.state, done.before, runs(managed)) == (
        "upgraded",
        managed_before,
        Code.declared(managed.job),
    )
    found = list(upgrades_of(managed.control))
    assert [one.state for one in found] == ["upgraded", "upgraded"]
    assert "too long ago" in found[1].notes[0]
    assert generation(managed) == 1, "nothing was restored"


def choose(managed: Managed, code: Code) -> None:
    """Let a code count instead of the declared one."""
    choose_code(managed.control, Code.declared(managed.job), code, by=BY, why="a test")


@pytest.mark.storm
def test_a_way_back_that_was_interrupted_long_ago_is_for_a_person(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = dying(managed)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, way_back, "stop_job", before)
        upgraded(managed, args=args, watch_s=20.0)
    (managed.folder / "dies-when-new").unlink()
    managed.start()
    new = runs(managed)
    monkeypatch.setattr(swapping, "LATE_S", -1000.0)
    done = upgraded(managed)
    assert (done.state, runs(managed), generation(managed)) == ("not-undone", new, 1)
    assert "too long ago" in done.error
    monkeypatch.undo()


@pytest.mark.storm
def test_other_code_that_was_started_meanwhile_is_not_stopped(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    rehearse: Any = vars(swapping)["rehearse"]

    def restarted(*given: Any) -> Any:
        report = rehearse(*given)
        deploy(managed, "# a third\n")
        managed.kill()
        managed.start()
        return report

    monkeypatch.setattr(swapping, "rehearse", restarted)
    done = upgraded(managed)
    assert (done.state, done.code, epoch(managed)) == ("refused", "other-code-ran", 2)
    assert runs(managed) == Code.declared(managed.job)


def test_other_code_that_was_started_while_it_was_planned_is_not_chosen_away(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    plan_upgrade: Any = vars(swapping)["plan_upgrade"]

    def planned(*given: Any) -> Any:
        plan = plan_upgrade(*given)
        return replace(plan, before=replace(plan.before, args=("other",)))

    monkeypatch.setattr(swapping, "plan_upgrade", planned)
    with pytest.raises(ConflictError) as refused:
        upgraded(managed)
    assert refused.value.code == "other-code-ran"
    assert newest_choice(managed.control) is None and newest_upgrade(managed.control) is None


@pytest.mark.storm
def test_a_driver_that_does_not_stop_in_time_leaves_an_upgrade_to_finish(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    late = StorageError("It did not stop in time.", code="stop-timeout")
    with monkeypatch.context() as patch:
        fault = Fault(patch, swapping, "stop_job", late, late=True)  # it obeys later
        with pytest.raises(StorageError) as failed:
            upgraded(managed)
        assert fault.fired and "as soon as it obeys" in failed.value.message
    left = newest_upgrade(managed.control)
    assert left is not None and left.state == "stopping"
    done = upgraded(managed)
    assert (done.state, done.name) == ("upgraded", left.name)


@pytest.mark.storm
def test_no_driver_that_comes_up_late_runs_the_old_code(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    rehearse: Any = vars(swapping)["rehearse"]

    def died(*given: Any) -> Any:
        report = rehearse(*given)
        managed.kill()
        return report

    monkeypatch.setattr(swapping, "rehearse", died)
    view = managed.control.lease.view()
    assert view is not None and view.holder is not None
    old = read_launch(managed.control, str(view.holder.details["launch_id"]))
    done = upgraded(managed)
    assert (done.state, done.how, done.notes) == ("upgraded", "dead", ())
    event = managed.control.last_event("driver-waiting")
    assert event is not None and event["launch_id"] == done.launch_id, "the driver that waited was kept"
    assert why_superseded(old, managed.control) == "it was asked to stop before it ended"
    assert why_superseded(read_launch(managed.control, str(done.launch_id)), managed.control) is None


@pytest.mark.storm
def test_a_job_that_a_person_stops_before_the_swap_is_not_upgraded(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(managed)
    rehearse: Any = vars(swapping)["rehearse"]

    def stopped(*given: Any) -> Any:
        report = rehearse(*given)
        managed.stop("enough")
        return report

    monkeypatch.setattr(swapping, "rehearse", stopped)
    done = upgraded(managed)
    assert done.state == "refused" and "was not started" in done.error


@pytest.mark.storm
def test_an_undo_takes_back_no_other_code(managed: Managed) -> None:
    deploy(managed)
    assert upgraded(managed).state == "upgraded"
    deploy(managed, "# a third\n")
    managed.kill()
    managed.start()
    third, batch = runs(managed), managed.last_batch()
    with pytest.raises(RefusedError) as refused:
        undo_upgrade(request_of(managed))
    assert refused.value.code == "other-code-ran"
    assert runs(managed) == third and managed.last_batch() >= batch
