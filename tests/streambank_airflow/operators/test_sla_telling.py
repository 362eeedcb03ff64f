"""Whom the operator that judges SLAs tells, and when, with findings as a test says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from streambank.control.records import encode_json
from streambank.core.errors import StorageError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.load import load_jobs
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla import alerts
from streambank.storage import open_store
from streambank_airflow.notify.notify import given_tellers
from tests.support.airflow_face.notifiers import (
    FILE_NOTIFIER,
    AsyncNotifier,
    FileNotifier,
    HangingNotifier,
    WebhookNotifier,
    told,
)
from tests.support.airflow_face.sla_operator import Check, check, jobs_file
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import declare
from tests.support.sla.fake_assessments import Assessor, assessor

__all__ = ["assessor", "check", "jobs_file"]


def test_it_is_told_once_when_it_breaks_when_it_is_worse_and_when_it_has_healed(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    for level in ("warn", "warn", "breach", "breach", "unknown", "warn", "ok", "ok"):
        assessor.says(state_bytes=level)
        check(on_breach="report")

    assert told(tmp_path / "chat") == [
        "flights state_bytes broke warn",
        "flights state_bytes worse breach",
        "flights state_bytes healed ok",
    ]
    assert told(tmp_path / "pager") == [
        "flights state_bytes broke breach",
        "flights state_bytes healed ok",
    ]


def test_what_breaks_under_a_mute_is_told_when_the_mute_has_ended(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    assessor.says(state_bytes="breach")
    assessor.muted.add("state_bytes")
    check()
    assert told(tmp_path / "chat") == []

    assessor.muted.clear()
    check(on_breach="report")

    assert told(tmp_path / "chat") == ["flights state_bytes broke breach"]


def test_a_notifier_that_fails_hides_no_breach_and_does_not_make_the_others_tell_twice(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    assessor.says(state_bytes="breach")
    (tmp_path / "chat.down").touch()

    for _ in range(2):
        done = check()
        assert not isinstance(done.error, AirflowFailException), "nobody would try again"
        assert "flights: state_bytes is broken." in str(done.error)
        assert (
            "FileNotifier (flights): the alert on flights: state_bytes could not be sent: ConnectionError"
            in str(done.error)
        )
        assert "Hint: see to what the notifier lacks" in str(done.error)
        assert (done.result["breaches"], done.result["not_told"], done.result["failed_notifiers"]) == (
            1,
            1,
            1,
        )
        assert done.result["verdicts"][1]["level"] == "breach"
    (tmp_path / "chat.down").unlink()
    last = check()

    assert isinstance(last.error, AirflowFailException)
    assert told(tmp_path / "chat") == told(tmp_path / "pager") == ["flights state_bytes broke breach"]


def test_a_notifier_that_hangs_delays_no_other_and_is_told_the_next_time(
    check: Check, assessor: Assessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.notify.notify.PATIENCE_S", 0.5)
    assessor.says(state_bytes="breach")
    go_on = tmp_path / "go on"
    own = [HangingNotifier(str(go_on)), FileNotifier(str(tmp_path / "own"))]

    done = check(notifiers=own, on_breach="report")

    assert told(tmp_path / "own") == ["flights state_bytes broke breach"]
    assert (done.result["told"], done.result["not_told"]) == (1, 1)
    assert "HangingNotifier (flights): it took longer than 0.5 s, and is no longer waited for" in str(
        done.error
    )
    go_on.touch()
    again = check(notifiers=own, on_breach="report")
    assert (again.error, again.result["told"]) == (None, 1)
    assert told(tmp_path / "own") == ["flights state_bytes broke breach"]


def test_the_address_of_a_webhook_is_not_in_the_error(check: Check, assessor: Assessor) -> None:
    assessor.says(state_bytes="breach")

    done = check(notifiers=[WebhookNotifier("https://hooks.example/sEcReT99", "tok-1234")])

    assert "could not be sent: ConnectionError: POST ***" in str(done.error)
    assert "sEcReT99" not in str(done.error)
    assert "tok-1234" not in str(done.error)


def test_what_was_told_before_a_notifier_failed_is_not_told_again(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    class FailsAt(FileNotifier):
        """Fails once it has written a line."""

        def notify(self, context: Any) -> None:
            if told(tmp_path / "own") and not (tmp_path / "up").exists():
                raise ConnectionError("gone")
            super().notify(context)

    assessor.says(state_bytes="breach", growth="warn")
    notifier = FailsAt(str(tmp_path / "own"))

    first = check(notifiers=[notifier])
    (tmp_path / "up").touch()
    check(notifiers=[notifier])

    assert (first.result["told"], first.result["not_told"]) == (1, 1)
    assert told(tmp_path / "own") == ["flights state_bytes broke breach", "flights growth broke warn"]
    assert told(tmp_path / "chat") == []


@pytest.mark.storm
def test_two_that_tell_at_once_are_told_twice_at_worst_and_the_retry_says_nothing_more(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    class Slow(FileNotifier):
        """While the first is telling, another process judges and tells, too."""

        def notify(self, context: Any) -> None:
            super().notify(context)
            if len(told(tmp_path / "own")) == 1:
                check(notifiers=own)

    assessor.says(state_bytes="breach")
    own = [Slow(str(tmp_path / "own"))]

    first = check(notifiers=own, on_breach="report")
    retry = check(notifiers=own, on_breach="report")

    assert not isinstance(first.error, AirflowFailException)
    assert "Another process has meanwhile sent alerts on job flights" in str(first.error)
    assert (retry.error, retry.result["told"]) == (None, 0)
    assert told(tmp_path / "own") == ["flights state_bytes broke breach"] * 2


def test_notifiers_may_be_given_as_objects_and_are_told_from_a_level_on(
    check: Check, assessor: Assessor, tmp_path: Path
) -> None:
    assessor.says(state_bytes="breach", growth="warn")
    same = [FileNotifier(str(tmp_path / "own")), FileNotifier(str(tmp_path / "own"))]
    other = AsyncNotifier(str(tmp_path / "async"), "{{ news.message }} {{ news.since }} {{ verdict.value }}")

    for _ in range(2):
        done = check(notifiers=[*same, other], least="breach", on_breach="report")

    assert done.error is None
    assert told(tmp_path / "own") == ["flights state_bytes broke breach"] * 2
    since = "2026-11-21T12:00:00.000Z"
    assert told(tmp_path / "async") == [
        f"flights: state_bytes is broken. It is breach. Since {since}. {since} 1.5"
    ]
    assert check(notifiers=[], on_breach="report").result["told"] == 0


def test_a_notifier_of_a_dag_file_is_called_by_the_file() -> None:
    """Airflow loads that under a name with the digest of its path."""
    kind = type("Chat", (FileNotifier,), {"__module__": f"unusual_prefix_{'a1' * 20}_own_channel"})
    (teller,) = given_tellers([kind("somewhere")], "breach")
    assert teller.label == "own_channel.Chat"


@pytest.mark.parametrize(
    ("path", "args", "says"),
    [
        ("tests.support.no_such.Notifier", "{}", "cannot be loaded: No module named"),
        ("tests.support.airflow_face.notifiers.Missing", "{}", "cannot be loaded"),
        ("tests.support.airflow_face.notifiers.NoNotifier", "{}", "is not an Airflow notifier"),
        ("tests.support.airflow_face.notifiers.FileNotifier", "{}", "does not take these arguments"),
    ],
)
def test_a_notifier_that_cannot_be_made_is_said_when_there_is_something_to_tell(
    check: Check, assessor: Assessor, jobs_file: Path, path: str, args: str, says: str
) -> None:
    text = jobs_file.read_text(encoding="utf-8").splitlines()
    text[5] = f'sla.notify = [{{class = "{path}", args = {args}}}]'
    jobs_file.write_text("\n".join(text), encoding="utf-8")

    assert check().error is None
    assessor.says(state_bytes="breach")
    done = check(on_breach="report")

    assert says in str(done.error)
    assert done.result["not_told"] == 1


def test_records_of_what_was_told_that_are_damaged_are_said_and_hide_nothing(
    check: Check, assessor: Assessor, jobs_file: Path
) -> None:
    assessor.says(state_bytes="breach")
    check()
    store = load_jobs(jobs_file).job("flights").records().store
    for info in [*store.list("sla/told")]:
        store.delete(info.path)
        store.write(info.path, b"{")

    done = check()

    assert done.result["breaches"] == 1
    assert done.result["failed_notifiers"] == 2
    assert "flights: state_bytes is broken" in str(done.error)
    assert "cannot be read" in str(done.error)


def test_where_the_storage_of_what_was_told_does_not_answer_everything_is_told_again(
    check: Check, assessor: Assessor, tmp_path: Path, jobs_file: Path
) -> None:
    assessor.says(state_bytes="breach")
    check()
    records = tmp_path / "repository.control"
    records.rename(tmp_path / "away")
    records.symlink_to(records)  # an endless loop of links: nothing there can be read or written
    with pytest.raises(StorageError):
        alerts.read(load_jobs(jobs_file).job("flights").records(), "chat")

    done = check()

    assert told(tmp_path / "pager") == ["flights state_bytes broke breach"] * 2
    assert isinstance(done.error, AirflowFailException), "a retry would tell it once more"
    assert (done.result["told"], done.result["failed_notifiers"]) == (2, 0)
    records.unlink()
    (tmp_path / "away").rename(records)
    check()
    assert told(tmp_path / "pager") == ["flights state_bytes broke breach"] * 2, "it is remembered again"


def test_an_alert_on_input_that_a_restore_would_miss_says_what_to_do(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.inputs.files._written_ms", lambda uri: None)
    job = declare(tmp_path, more='[jobs.flights.sla]\nreplayable_for = {breach = "12h"}\n')
    live = LiveCheckpoint(open_store(job.checkpoint), retain=9).run(3)
    repository = Repository.open(open_store(job.repository), create=True)
    taken = take(TakeRequest(open_store(job.checkpoint), repository, "flights")).savepoint
    own = [FileNotifier(str(tmp_path / "own"), "{{ news.message }}")]
    check(on_breach="report", notifiers=own)
    assert told(tmp_path / "own") == [], "nothing was read after the savepoint"

    live.run(1)
    check(on_breach="report", notifiers=own)

    (message,) = told(tmp_path / "own")
    assert f"Part of the input after the newest savepoint, {taken}, is gone." in message
    assert "/in/3.json: their rows would be lost" in message
    assert "Take a savepoint now, and more often (`savepoint.schedule`)." in message


@pytest.mark.parametrize("kind", ["not-watched", "giving-up"])
def test_a_job_that_nothing_watches_is_an_alert_of_its_own_once_a_day(
    check: Check, jobs_file: Path, tmp_path: Path, kind: str
) -> None:
    """Its run was deleted, or is not in a database that came back: no task of it can say so."""
    text = jobs_file.read_text(encoding="utf-8")
    chat = f'class = "{FILE_NOTIFIER}", args = {{file = "{tmp_path / "night"}", text = "{{{{ message }}}}"}}'
    own = f'{{{chat}, kinds = ["{kind}"]}}'
    jobs_file.write_text(text.replace("[jobs.trains]", f"notify = [{own}]\n[jobs.trains]"), encoding="utf-8")
    records = load_jobs(jobs_file).job("flights").records()
    by = {"dag_id": "flights.run", "run_id": "manual__1"}
    watcher = records.watches.begin(by=by, desired=records.set_desired("running", by=by).number)
    desired, key = records.desired_records.read(1), records.desired_records.key(1)
    an_hour_ago = to_json_time(utc_now() - timedelta(hours=1))
    records.store.write(key, encode_json({**desired, "at": an_hour_ago}))

    def last_sign(ago_s: float) -> None:
        at = to_json_time(utc_now() - timedelta(seconds=ago_s))
        sign = {"id": watcher.identity, "at": at, "next_s": 60.0, "desired": 1}
        records.store.write(f"watch/{watcher.number:010d}.beat.json", encode_json(sign))

    last_sign(150.0)
    check(on_breach="report")
    assert told(tmp_path / "night") == [], "its next sign may still come"
    last_sign(190.0)
    check(on_breach="report", notifiers=[])
    assert told(tmp_path / "night") == [], "the task tells nobody"
    for _ in range(2):
        check(on_breach="report")
    (message,) = told(tmp_path / "night")
    assert message.startswith(
        "Nothing watches job flights, so nothing restarts it. Its watcher, run manual__1"
    )
    assert "Trigger flights.run" in message


def test_of_an_unwatched_copy_is_told_what_broke_too(
    check: Check, assessor: Assessor, jobs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jobs_file.open("a", encoding="utf-8") as more:
        more.write('[jobs.flights.copies.lab]\ncheckpoint = "lab/flights"\n')
    life: Any = SimpleNamespace(unwatched_since=utc_now(), unwatched_why="", is_unwatched=lambda *_: True)
    monkeypatch.setattr(
        "streambank_airflow.watch.sla.assess_job",
        lambda *args, **more: replace(assessor.assess_job(*args, **more), life=life),
    )
    for level in ("breach", "ok"):
        assessor.says("flights-lab", state_bytes=level)
        check(job="flights@lab", on_breach="report")

    assert told(tmp_path / "chat") == [
        "flights-lab state_bytes broke breach",
        "flights-lab state_bytes healed ok",
    ]
