"""A job is kept getting on, not only running; and given up, once and for good, where it gets nowhere."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from streambank.control.control import JobControl
from streambank.control.records import encode_json
from streambank.control.watch import Watcher, WatchView
from streambank.core.units import to_json_time, utc_now
from streambank.job.savepoint import savepoint_job
from streambank_airflow.hooks.health import HealthVerbs
from streambank_airflow.operators import keep
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator
from streambank_airflow.operators.keep import Course
from streambank_airflow.triggers.job import PauseTrigger
from streambank_airflow.watch.job import WatchSigns, WatchState
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.jobs.declared import BY
from tests.support.jobs.managed_job import Managed, meanwhile
from tests.support.storage.faulty_store import Fault, FaultyStore
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")

QUICK = '\n[jobs.flights.health]\ninterval = "100ms"\ntimeout = "{}"\ntolerated = 0\nbackoff = "100ms"\n'

ALERTS = """
[[jobs.flights.notify]]
class = "tests.support.airflow_face.notifiers.FileNotifier"
args = {{file = "{}", text = "{{{{ message }}}}"}}
kinds = ["not-watched"]
"""


dag_of = partial(one_task, KeepStreamingJobRunningOperator, dag_id="keep", poll_interval_s=0.1)


def events(managed: Managed, kind: str) -> list[dict[str, Any]]:
    return [one.data for one in managed.control.events() if one.data["kind"] == kind]


def launches(managed: Managed) -> int:
    return len(managed.control.lease.recent_launches())


@pytest.mark.storm
def test_a_driver_that_lives_and_makes_no_progress_is_replaced(managed: Managed) -> None:
    managed.declare(QUICK.format("1500ms") + "max_failures = 20\n")
    with meanwhile(
        managed,
        lambda: managed.wait_for_batch(2),
        lambda: managed.hangs.write_text("0"),
        lambda: poll(lambda: events(managed, "unhealthy"), timeout_s=60),
        managed.hangs.unlink,
        lambda: poll(lambda: launches(managed) >= 2, timeout_s=60),
        lambda: managed.wait_for_batch(managed.last_batch() + 3),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["restarts"] >= 1) == ("stopped", True)
    first = events(managed, "restarted")[0]
    assert (first["cause"], first["how"]) == ("health", "boundary")
    assert len(events(managed, "restarted")) == result["restarts"]


@pytest.mark.storm
def test_where_that_is_not_wanted_nothing_is_done(managed: Managed) -> None:
    managed.declare(QUICK.format("100ms") + "restart = false\n")
    records = managed.control

    def hung() -> bool:
        view = records.lease.view()
        return view is not None and float(view.status.get("still_s", 0.0)) > 0.6

    with meanwhile(
        managed,
        lambda: managed.wait_for_batch(2),
        lambda: managed.hangs.write_text("0"),
        lambda: poll(hung, timeout_s=60),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert xcom(run, "task")["restarts"] == 0
    assert launches(managed) == 1


@pytest.mark.storm
def test_drivers_that_never_make_progress_are_given_up_with_all_that_a_person_needs(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.declare(QUICK.format("300ms") + 'first_batch = "600ms"\nmax_failures = 2\n')
    managed.start()
    taken = savepoint_job(managed.job, by=BY).savepoints["main"].savepoint
    managed.hangs.write_text("0")

    run = run_dag(dag_of(managed, retries=3))

    assert task_states(run) == {"task": "failed"}
    out = capfd.readouterr().out
    assert "drivers of job flights in a row made no progress without a new batch" in out
    (given_up,) = events(managed, "crash-loop")
    end = watch_of(managed).end
    assert end["how"] == "gave-up" and "made no progress without a new batch" in end["why"]
    assert given_up["error"] == "java.lang.IllegalStateException: stuck with password=***"
    assert given_up["savepoints"]["main"].startswith(f"{taken} of batch ")
    assert f"Last good savepoint: {taken}" in out
    assert managed.desired.state == "running", "what is meant to be is left to a person"
    assert managed.driver_lives(), "and so is what there is to look at"


@pytest.mark.storm
def test_nothing_is_given_up_for_what_is_no_longer_so(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that hears of it may wait in a queue for long, and the driver goes on meanwhile."""
    managed.declare(QUICK.format("300ms") + "max_failures = 1\n")
    managed.start()
    answers: list[bool] = []
    look = HealthVerbs.is_still_unhealthy

    def look_late(self: HealthVerbs, ref: str, found: dict[str, Any]) -> bool:
        if not answers:
            managed.hangs.unlink()
            managed.wait_for_batch(managed.last_batch() + 1)
            managed.declare("restart = false\n")
        answers.append(look(self, ref, found))
        return answers[-1]

    monkeypatch.setattr(HealthVerbs, "is_still_unhealthy", look_late)
    managed.hangs.write_text("0")
    with meanwhile(managed, lambda: poll(lambda: answers, timeout_s=180), lambda: managed.stop("enough")):
        run = run_dag(dag_of(managed))

    assert answers == [False]
    assert xcom(run, "task")["restarts"] == 0
    assert (events(managed, "crash-loop"), launches(managed)) == ([], 1)


@pytest.mark.storm
@pytest.mark.parametrize(("short_s", "pauses_in_the_triggerer"), [(10.0, 0), (0.0, 1)])
def test_drivers_that_get_on_and_end_all_the_same_are_given_up_some_time(
    managed: Managed,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    short_s: float,
    pauses_in_the_triggerer: int,
) -> None:
    """A short pause is made in the task: back at once from the triggerer, it would be taken for failed."""
    pauses: list[str] = []
    run_trigger = PauseTrigger.run

    def run_and_count(self: PauseTrigger) -> AsyncIterator[TriggerEvent]:
        pauses.append(self.until)
        return run_trigger(self)

    monkeypatch.setattr(PauseTrigger, "run", run_and_count)
    monkeypatch.setattr(keep, "SHORT_PAUSE_S", short_s)
    managed.declare(QUICK.format("10m") + "max_restarts = 1\n")
    managed.dies.write_text("4")

    run = run_dag(dag_of(managed, retries=3))

    assert task_states(run) == {"task": "failed"}
    assert "2 drivers of job flights ended within 3600 s" in capfd.readouterr().out
    (given_up,) = events(managed, "crash-loop")
    assert (given_up["failures"], given_up["restarts"], launches(managed)) == (0, 2, 2)
    assert len(pauses) == pauses_in_the_triggerer


def test_a_driver_that_is_gone_counts_as_before_where_its_error_is_told(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.declare(QUICK.format("10m") + "max_failures = 1\n")
    managed.start(until=0)
    managed.dies.write_text("0")

    run = run_dag(dag_of(managed))

    assert task_states(run) == {"task": "failed"}
    out = capfd.readouterr().out
    assert "No driver of it runs" in out
    assert "Last error: it does not feel well." in out


def watch_of(managed: Managed) -> WatchView:
    found = managed.control.watches.view()
    assert found is not None
    return found


def watched(managed: Managed) -> bool:
    view = managed.control.watches.view()
    return view is not None and managed.control.store.exists(f"watch/{view.number:010d}.beat.json")


def test_whoever_keeps_a_job_running_leaves_signs_and_ends_them_with_the_job(managed: Managed) -> None:
    managed.start()
    seen: list[WatchView] = []
    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        lambda: seen.append(watch_of(managed)),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    (sign,) = seen
    desired = managed.control.desired_records.numbers()[-2]
    assert (sign.by["dag_id"], sign.by["run_id"], sign.desired) == ("keep", run.run_id, desired)
    assert (sign.next_s, sign.doing, sign.end) == (60.0, "watching", {})
    end = watch_of(managed).end
    assert (end["how"], end["why"][-8:]) == ("stopped", ": enough")


def signs_or(managed: Managed, ended: Event) -> bool:
    """Let the newest watcher give a sign, unless the run beside it has ended."""
    managed.control.watches.sign(watch_of(managed).watcher, desired=1)
    return ended.is_set()


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.storm), True])
def test_of_two_that_keep_a_job_running_the_older_one_makes_room_and_ends_well(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], dies: bool
) -> None:
    """Also where the driver dies just then: one of them starts another driver, or gives up, not both."""
    monkeypatch.setattr("streambank_airflow.triggers.job.SIGN_EVERY_S", 2.0 if dies else 0.1)
    managed.start()
    newer = {"dag_id": "flights.run", "run_id": "manual__2", "task_id": "keep_running"}

    ended = Event()
    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        lambda: managed.control.watches.begin(by=newer, desired=1),
        managed.kill if dies else lambda: None,
        lambda: poll(partial(signs_or, managed, ended), timeout_s=180),
    ):
        run = run_dag(dag_of(managed))
        ended.set()

    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["why"]) == ("replaced", "replaced by run manual__2 of flights.run")
    assert (launches(managed), managed.driver_lives(), events(managed, "crash-loop")) == (1, not dies, [])
    assert watch_of(managed).end == {}, "the newer one goes on"
    assert managed.control.store.exists("watch/0000000001.end.json")
    assert "no longer runs" not in capfd.readouterr().out


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.storm), True])
def test_an_older_one_watches_on_where_the_newer_one_is_only_a_record(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dies: bool
) -> None:
    """Airflow's database came back from before that one's run; whom the job names is alerted."""
    monkeypatch.setattr("streambank_airflow.triggers.job.SIGN_EVERY_S", 0.1)
    chat = tmp_path / "chat"
    managed.declare(f"{QUICK.format('10m')}{ALERTS.format(chat)}")
    managed.start()
    newer = {"dag_id": "flights.run", "run_id": "manual__2", "task_id": "keep_running"}

    def leave_a_record() -> None:
        dead = managed.control.watches.begin(by=newer, desired=1)
        long_ago = to_json_time(utc_now() - timedelta(minutes=10))
        sign = {"id": dead.identity, "at": long_ago, "next_s": 60.0, "desired": 1}
        managed.control.store.write(f"watch/{dead.number:010d}.beat.json", encode_json(sign))

    def is_third() -> bool:
        return watch_of(managed).number == 3 and watched(managed)

    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        leave_a_record,
        managed.kill if dies else lambda: None,
        lambda: poll(is_third, timeout_s=180),
        lambda: poll(lambda: launches(managed) == 1 + dies and managed.driver_lives(), timeout_s=60),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert (xcom(run, "task")["state"], xcom(run, "task")["restarts"]) == ("stopped", int(dies))
    assert (watch_of(managed).by["dag_id"], watch_of(managed).end["how"]) == ("keep", "stopped")
    (alert,) = chat.read_text(encoding="utf-8").splitlines()
    assert "Its watcher, run manual__2 of flights.run, has given no sign since" in alert


def lose_watchers(managed: Managed) -> None:
    """All that is known of watchers is gone; the job's other records are there."""
    for name in [*managed.control.store.names("watch")]:
        managed.control.store.delete(f"watch/{name}")


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.storm), True])
def test_one_whose_record_is_lost_begins_to_watch_again(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Whether it finds that with a sign, or when it has to act: no other one would keep the job running."""
    if not dies:
        monkeypatch.setattr("streambank_airflow.triggers.job.SIGN_EVERY_S", 0.1)
    managed.declare(QUICK.format("10m"))
    managed.start()
    first: list[WatchView] = []
    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        lambda: first.append(watch_of(managed)),
        lambda: lose_watchers(managed),
        managed.kill if dies else lambda: None,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        lambda: poll(lambda: launches(managed) == 1 + dies and managed.driver_lives(), timeout_s=60),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["state"], xcom(run, "task")["restarts"]) == ("stopped", int(dies))
    again = watch_of(managed)
    assert (again.number, again.by, again.end["how"]) == (1, first[0].by, "stopped")
    assert again.identity not in (None, first[0].identity)


@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.storm), True])
def test_one_whose_number_another_one_has_makes_room_for_it(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    monkeypatch.setattr("streambank_airflow.triggers.job.SIGN_EVERY_S", 2.0 if dies else 0.1)
    managed.start()
    newer = {"dag_id": "flights.run", "run_id": "manual__2", "task_id": "keep_running"}
    ended = Event()

    def lose_and_begin() -> None:
        # At once, as seen by the other one: its own record comes first, and is the newest until the end.
        key = managed.control.watches.records.key(1)
        data = {"id": "another", "at": to_json_time(utc_now()), "by": newer, "desired": 1, "next_s": 60.0}
        managed.control.store.write(key, encode_json(data))
        managed.control.store.delete(managed.control.watches.records.key(1, ".beat"))

    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        lose_and_begin,
        managed.kill if dies else lambda: None,
        lambda: poll(partial(signs_or, managed, ended), timeout_s=180),
    ):
        run = run_dag(dag_of(managed))
        ended.set()

    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["why"]) == ("replaced", "replaced by run manual__2 of flights.run")
    assert (launches(managed), managed.driver_lives()) == (1, not dies)
    assert (watch_of(managed).by, watch_of(managed).end) == (newer, {})
    names = ["0000000001.beat.json", "0000000001.json"]
    assert sorted(managed.control.store.names("watch")) == names, "it has left nothing"
    assert "process" not in managed.control.store.read("watch/0000000001.beat.json").decode()


@pytest.mark.storm
@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_run_that_a_version_without_signs_has_deferred_becomes_the_watcher(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Its trigger, or its pause before a start, was stored without a number."""
    monkeypatch.setattr(keep, "SHORT_PAUSE_S", 0.0)  # such a version paused in the triggerer
    managed.declare(QUICK.format("10m"))
    managed.start()
    begin = KeepStreamingJobRunningOperator._watched
    before: list[Course] = []

    def as_before(
        self: KeepStreamingJobRunningOperator, context: Any, course: Course, event: Any = None
    ) -> Course:
        if before:
            return begin(self, context, course, event)
        before.append(course)
        if dies:
            managed.kill()
            self._pause(context, "it was killed", course, got_on=False)
        return course

    monkeypatch.setattr(KeepStreamingJobRunningOperator, "_watched", as_before)
    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        lambda: poll(managed.driver_lives, timeout_s=60),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert before == [Course()]
    assert (xcom(run, "task")["state"], xcom(run, "task")["restarts"]) == ("stopped", int(dies))
    assert (watch_of(managed).number, watch_of(managed).end["how"]) == (1, "stopped")


def test_a_watch_goes_on_where_no_sign_can_be_left(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    signs = WatchSigns(managed.control.watches.begin(by=BY, desired=1), every_s=60.0, clock=lambda: now[0])
    store = FaultyStore(managed.control.store, Fault("denied", operations=frozenset({"write"})))
    control = JobControl(store, "flights")
    assert signs.leave(control) == WatchState()
    store.assert_fired()
    assert "The sign that job flights is watched could not be written" in caplog.text

    now[0] = 59.0
    signs.leave(control)
    assert store.names("watch") == ["0000000001.json"], "once a minute"
    now[0] = 60.0
    signs.leave(control)
    assert sorted(store.names("watch")) == ["0000000001.beat.json", "0000000001.json"]


def test_what_is_remembered_travels_and_is_read_from_an_earlier_version() -> None:
    assert Course.of({"failures": 2, "restarts": 5}) == Course(2, 5)
    long_ago, soon = (to_json_time(utc_now() + timedelta(hours=hours)) for hours in (-2, 2))
    recent = to_json_time(utc_now() - timedelta(minutes=1))
    course = Course(1, 7, (long_ago, recent, soon), 4, "standby", "5e0c")
    assert Course.of(course.to_dict()) == course
    after = course.after(got_on=False, within_s=3600.0)
    assert (after.failures, after.restarts, after.recent[0], len(after.recent)) == (2, 8, recent, 2)
    assert (after.watcher, after.site) == (Watcher(4, "5e0c"), "standby")
    before_identities = {key: one for key, one in course.to_dict().items() if key != "watch_id"}
    assert Course.of(before_identities).watcher == Watcher(4)
    assert course.after(got_on=True, within_s=3600.0).failures == 0


@pytest.mark.storm
def test_a_frozen_driver_is_replaced(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP: it neither beats nor ends, and its processes exist."""
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 1.0)
    text = managed.jobs_file.read_text(encoding="utf-8")
    managed.jobs_file.write_text(
        text.replace('force_after = "5s"', 'force_after = "100ms"'), encoding="utf-8"
    )
    managed.declare(QUICK.format("1500ms"))
    frozen: list[int] = []

    def freeze() -> None:
        view = managed.control.lease.view()
        assert view is not None and view.holder is not None
        frozen.append(view.holder.processes[0].pid)
        os.kill(frozen[0], signal.SIGSTOP)

    with meanwhile(
        managed,
        lambda: managed.wait_for_batch(2),
        freeze,
        lambda: poll(lambda: launches(managed) >= 2, timeout_s=60),
        lambda: managed.wait_for_batch(managed.last_batch() + 3),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert xcom(run, "task")["restarts"] >= 1
    first = events(managed, "restarted")[0]
    assert (first["cause"], first["how"]) == ("health", "killed")
    assert "has said nothing for" in events(managed, "unhealthy")[0]["why"]


def test_a_run_that_watches_outlives_a_mistake_in_the_declaration(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies meanwhile; when the mistake is gone, the run starts another one."""
    monkeypatch.setattr(keep, "DECLARED_AGAIN_S", 0.1)
    managed.declare(QUICK.format("10m"))
    managed.start()
    right = managed.jobs_file.read_text(encoding="utf-8")
    wrong = right.replace("checkpoint =", "checkpiont =")
    lease = managed.control.lease  # opened while the declaration is right
    errors: list[str] = []
    told = KeepStreamingJobRunningOperator._wait_for_declaration

    def wait(self: KeepStreamingJobRunningOperator, context: Any, event: dict[str, Any]) -> None:
        # The trigger holds it back while it can see the mistake: this one came just afterwards.
        managed.jobs_file.write_text(right if errors else wrong, encoding="utf-8")
        errors.append(str(event["status"]))
        told(self, context, event)

    monkeypatch.setattr(KeepStreamingJobRunningOperator, "_wait_for_declaration", wait)
    with meanwhile(
        managed,
        lambda: poll(lambda: watched(managed), timeout_s=180),
        managed.kill,
        lambda: poll(lambda: len(lease.recent_launches()) == 2 and managed.driver_lives(), timeout_s=120),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag_of(managed))

    assert (xcom(run, "task")["state"], xcom(run, "task")["restarts"]) == ("stopped", 1)
    assert errors[:2] == ["gone", "gone"]
