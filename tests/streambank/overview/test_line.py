from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.control.processes import who
from streambank.control.records import JsonDict, RecordStream
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.load import load_jobs
from streambank.job.crash_loop import CRASH_LOOP
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.overview.line import LINE_BYTES, NEWS_S, fitted_line, of_verdicts
from streambank.overview.plain import Plain, size_of
from streambank.overview.snapshot import PARTS, snapshot
from streambank.storage.local.store import LocalStore
from tests.support.jobs.declared import BY, declare, end_drivers, fake_launcher, write_jobs
from tests.support.overview.shown_job import use_fake_launcher

EVENTS_SINCE = "streambank.overview.line._events_since"
LONG = "\u4e2d\u202e\x1b[2J<script>" * 3000


@pytest.fixture(autouse=True)
def _launcher(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_launcher(folder, monkeypatch)


class Driven:
    """A job whose drivers are started, stopped and killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.job = folder, declare(folder, "--period-s", "0.2")
        self.records = self.job.records()

    def start(self) -> None:
        start_job(self.job, by=BY, launcher=fake_launcher(self.folder))

    def stop(self) -> None:
        stop_job(self.job, by=BY, launcher=fake_launcher(self.folder))

    def kill(self) -> None:
        end_drivers(self.records)

    def line(self, **more: Any) -> Mapping[str, Any]:
        return snapshot(self.job, parts={"line"}, **more).line


@pytest.fixture
def driven(folder: Path) -> Iterator[Driven]:
    job = Driven(folder)
    yield job
    job.kill()


def hostile(length: int) -> dict[str, Any]:
    """A line of which every text and every list is as long as it may be."""
    text = LONG[:length]
    verdict = {"objective": text, "query": text, "subject": text, "level": "warn", "why": text,
               "value": 1e300, "limit": -1e300, "unit": text,
               "since": "2026-11-30T22:20:00.000Z"}  # fmt: skip
    replica = {"name": text, "savepoint": text, "taken_at": text, "behind": 10**30, "error": text}
    return {
        "format": 1, "job": "a" * 100, "at": "2026-11-30T22:20:00.000Z", "site": text, "state": "running",
        "desired": {"state": "running", "at": text, "by": text, "why": text}, "state_why": text,
        "since": text, "down_since": text, "down_why": text,
        "restarted": {"at": text, "failed_at": text, "why": text},
        "watch": {"expected": True, "watched": True, "by": text, "seen_at": text, "why": text},
        "health": {"state": text, "why": text}, "queries": [text] * 50, "verdicts": [verdict] * 50,
        "operation": {"name": text, "by": text, "state": text, "since": text}, "replicas": [replica] * 50,
        "objectives": {"ok": 1}, "waits": [{"kind": text, "what": text, "since": text}] * 50,
        "spark": {"step_s": 3600, "until": text, "rows": [1.234e18] * 48, "bytes": [1.234e18] * 48},
        "savepoint": {"id": text, "name": text, "batch": 10**18},
        "drill": {"at": text, "step": text},
        "parts": {name: {"at": "2026-11-30T22:20:00.000Z", "digest": "0" * 16} for name in PARTS},
        "error": {"part": "status", "code": text, "message": text, "hint": text},
    }  # fmt: skip


@pytest.mark.parametrize("length", [1, 30, 100, 500, pytest.param(100_000, marks=pytest.mark.storm)])
def test_no_line_is_larger_than_it_may_be(length: int) -> None:
    line = fitted_line(hostile(length), Plain({}))
    assert size_of(line) <= LINE_BYTES
    assert line["job"] == "a" * 100 and line["state"] == "running" and line["parts"].keys() == set(PARTS)
    assert line["error"]["part"] == "status" and len(line["error"]["code"]) == min(length, 32)
    assert not set(json.dumps(line, ensure_ascii=False)) & {"\x1b", "\u202e", "\n"}


def test_an_error_keeps_its_part_and_its_code_however_long_the_line_is() -> None:
    error = {"part": "recoveries", "code": "damaged-record", "message": LONG, "hint": LONG}
    names = {f"{number:03d}" + "n" * 190: 1 for number in range(30)}  # nothing of this becomes shorter
    line = fitted_line({**hostile(500), "objectives": names, "error": error}, Plain({}))
    assert line["error"] == {"part": "recoveries", "code": "damaged-record", "message": "", "hint": ""}


def test_what_is_short_stays_as_it_is() -> None:
    line = {**hostile(0), "verdicts": [], "replicas": [], "waits": [], "queries": ["main"], "why": "as it is"}
    assert fitted_line(line, Plain({}))["why"] == "as it is"


def test_a_hostile_job_has_a_line_that_fits(folder: Path) -> None:
    name = "f" * 60
    queries = [f"query-{number}-{'q' * 40}" for number in range(30)]
    job = load_jobs(write_jobs(folder, name=name, more=f"queries = {queries!r}")).job(name)
    records = job.records()
    records.set_desired("running", by={**who("test"), "user": LONG}, why=LONG)
    for kind in ("driver-started", CRASH_LOOP):
        records.record_event(kind, why=LONG, error=LONG, by={"user": LONG}, epoch=1)
    found = snapshot(job)
    assert size_of(found.line) <= LINE_BYTES and found.line["job"] == name
    assert found.line["desired"]["why"].endswith("\u2026")
    assert not any(character in json.dumps(found.to_dict()) for character in ("\\u001b", "\\u202e"))


def test_a_job_that_is_not_started_any_more_waits_for_a_person(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    records.set_desired("running", by=BY)
    records.record_event(CRASH_LOOP, why="5 drivers made no batch", error="ValueError: no")
    (wait,) = snapshot(job, parts={"line"}).line["waits"]
    assert wait["kind"] == "give-up" and wait["what"] == "5 drivers made no batch. Last error: ValueError: no"
    records.record_event("driver-started", epoch=2)
    assert snapshot(job, parts={"line"}).line["waits"] == []


def test_of_many_events_few_are_read(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.overview.line.EVENTS", 30)
    driven.start()
    records, reads, opened = driven.records, list[str](), LocalStore.open

    def open_it(self: LocalStore, key: str) -> Any:
        reads.append(f"{self.uri}/{key}")
        return opened(self, key)

    monkeypatch.setattr(LocalStore, "open", open_it)
    for number in range(60):
        records.record_event("savepoint-taken", batch=number)
    assert driven.line()["state"] == "running"
    assert sum("/events/" in key for key in reads) <= 50
    driven.kill()
    records.record_event(CRASH_LOOP, why="5 drivers made no batch")
    (wait,) = driven.line()["waits"]
    assert wait["kind"] == "give-up"
    for number in range(30):
        records.record_event("savepoint-taken", batch=number)
    assert driven.line()["waits"] == []


def test_a_restart_after_a_failure_is_news_for_a_while(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven.start()
    assert driven.line()["restarted"] is None, "nothing has failed before it"
    driven.kill()
    driven.start()
    line = driven.line()
    assert line["state"] == "running" and line["restarted"]["at"] == line["since"]
    assert line["restarted"]["why"] == "its driver died"
    assert line["restarted"]["failed_at"] < line["restarted"]["at"]
    monkeypatch.setattr(EVENTS_SINCE, lambda *_: pytest.fail("events were read"))
    later = driven.line(now=utc_now() + timedelta(seconds=NEWS_S + 1))
    assert later["restarted"] is None and later["error"] is None


def test_a_start_after_a_stop_is_no_news(driven: Driven) -> None:
    for _ in range(2):
        driven.start()
        assert driven.line()["restarted"] is None
        driven.stop()


def test_why_a_driver_was_restarted_is_read_once(
    driven: Driven, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven.start()
    driven.kill()
    driven.start()
    first = snapshot(driven.job, parts={"line"})

    def after(**changes: Any) -> Mapping[str, Any]:
        return driven.line(before=replace(first, line={**first.line, **changes}))

    monkeypatch.setattr(EVENTS_SINCE, lambda *_: pytest.fail("events were read"))
    for damaged in ({}, {"at": 7}, {"at": "9"}):  # of a line that was altered, too
        again = after(**damaged)
        assert again["restarted"] == first.line["restarted"] and again["error"] is None
    late = to_json_time(utc_now() + timedelta(seconds=130))
    assert after(restarted=None, at=late)["restarted"] is None
    # Soon after the start not all may have been recorded yet.
    monkeypatch.undo()
    use_fake_launcher(folder, monkeypatch)
    assert after(restarted=None)["restarted"] == first.line["restarted"]


def test_nor_one_after_a_stop_of_a_driver_that_came_after_a_failure(driven: Driven) -> None:
    driven.start()
    driven.kill()
    driven.start()
    driven.stop()
    driven.start()
    assert driven.line()["restarted"] is None
    driven.records.record_event("driver-died", launch_id="another", exit_code=1)
    assert driven.line()["restarted"] is None, "it is not the one before"


def test_of_a_restart_few_events_are_read_and_one_that_is_damaged_hides_none(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = driven.records.event_records
    for _ in range(100):
        events.append({"at": "2026-01-01T00:00:00.000Z", "kind": "savepoint-taken"})
    driven.start()
    driven.kill()
    driven.start()
    last = events.numbers()[-1]
    driven.records.store.write(events.key(last), b"{")
    seen: list[int] = []
    read = RecordStream.read

    def counted(self: RecordStream, number: int) -> JsonDict:
        seen.append(number)
        return read(self, number)

    monkeypatch.setattr(RecordStream, "read", counted)
    assert driven.line()["restarted"]["why"] == "its driver died"
    assert last in seen and min(one for one in seen if one > 50) >= 100, seen


def test_who_works_on_the_job_is_named_and_does_not_wait_for_a_person(folder: Path) -> None:
    job = declare(folder)
    with job.records().operation("restore", by=BY):
        line = snapshot(job, parts={"line"}).line
    assert line["operation"]["name"] == "restore" and line["operation"]["state"] == "live"
    assert line["operation"]["by"].startswith(BY["user"]) and line["waits"] == []
    assert snapshot(job, parts={"line"}).line["operation"] is None


def test_the_verdicts_are_those_that_are_not_well() -> None:
    levels = ["breach", *["warn"] * 12, "ok", "ok"]
    one = {name: None for name in ("objective", "query", "subject", "why", "value", "limit", "unit", "since")}
    part: dict[str, Any] = {
        "level": "breach",
        "verdicts": [{**one, "level": level, "evidence": []} for level in levels],
    }
    part["verdicts"] += [{**one, "level": "unknown", "why": why, "evidence": []} for why in "aab"]
    found = of_verdicts(part)
    few = of_verdicts({"level": "unknown", "verdicts": part["verdicts"][-3:]})
    assert [each["why"] for each in few["verdicts"]] == ["a", "b"] and few["objectives"] == {"unknown": 3}
    assert found["objectives"] == {"ok": 2, "unknown": 3, "warn": 12, "breach": 1}
    assert [each["level"] for each in found["verdicts"]] == ["breach", *["warn"] * 9]


def test_lines_of_any_kind_fit() -> None:
    chance = random.Random(7)
    for _ in range(50):
        line = hostile(chance.choice([0, 3, 40, 200, 700]))
        for name in ("verdicts", "replicas", "waits", "queries"):
            line[name] = line[name][: chance.randrange(12)]
        assert size_of(fitted_line(line, Plain({}))) <= LINE_BYTES


def test_what_is_muted_comes_last_and_is_not_counted() -> None:
    verdict = {"objective": "state_bytes", "query": "main", "subject": "", "level": "breach", "why": "x",
               "value": 2.0, "limit": 1.0, "unit": "bytes", "since": None, "mute": None}  # fmt: skip
    muted = {
        **verdict,
        "objective": "state_rows",
        "mute": {"until": "2026-11-30T22:20:00.000Z", "why": "known"},
    }

    line = of_verdicts({"level": "breach", "verdicts": [muted, verdict]})

    assert [(one["objective"], one["mute"]) for one in line["verdicts"]] == [
        ("state_bytes", False),
        ("state_rows", True),
    ]
    assert line["objectives"] == {"breach": 1}
