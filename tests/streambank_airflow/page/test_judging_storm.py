"""What the page's modules say of a job, by themselves: troubles, forms, how long a savepoint is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from demo.pictures.chromium import Chromium
from tests.support.airflow_face.page_api import page_api
from tests.support.page.site import Site, jobs, site
from tests.support.page.story import DAY, HOUR, MINUTE, ago, line

__all__ = ["jobs", "page_api", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]

STOPPED = {"state": "stopped", "at": ago(HOUR), "by": "ann by orders.stop", "why": ""}
BY_HAND = {"expected": False, "watched": False, "by": None, "seen_at": None, "why": ""}
NO_SIGN = {"expected": True, "watched": False, "by": None, "seen_at": ago(HOUR), "why": "no sign"}
RESTORING = {"name": "restore", "by": "ann on etl-1", "state": "live", "since": ago(MINUTE)}
AT_WORK = "Restore by ann on etl-1 is at work"
FAILED = "The job is not running, as it should be, but its driver failed"
UNREADABLE = {"part": "repository", "code": "damaged-record", "message": "It cannot be read.", "hint": ""}
UNREAD = "Not all of the job's history could be read"
LOCK = {"kind": "lock", "what": "The operation restore has not ended.", "since": ago(HOUR)}
BROKEN_FILE = "The DAG file of the job cannot be imported"
BROKEN = {
    "objective": "state_bytes",
    "query": "main",
    "subject": "",
    "level": "breach",
    "why": "It is large.",
}


@pytest.fixture(scope="module")
def page(jobs: Site) -> Iterator[Chromium]:
    """A browser that has the page, and so Airflow's React."""
    with jobs.visit("viewer") as found:
        found.open(jobs.page())
        found.shows("sessions")
        yield found


def said(page: Chromium, module: str, call: str, *args: Any) -> Any:
    """What a function of a module returns; `call` has `m` for the module and `a` for the arguments."""
    return page.js(
        f"import('/streambank/static/{module}.js').then((m) => ((a) => {call})({json.dumps(args)}))"
    )


def troubles(
    page: Chromium, *, paused: bool = False, seen_s: float = 20.0, **more: Any
) -> list[dict[str, Any]]:
    """The troubles of a job that was seen so many seconds ago, and is well but for this."""
    entry: dict[str, Any] = {
        "job": "orders",
        "line": line(
            "orders", **{"parts": {"savepoints": {"at": ago(60), "digest": "1"}}, "at": ago(seen_s), **more}
        ),
        "error": None,
        "run": {"dag_id": "orders.run", "paused": paused},
        "approvals": [],
    }
    return list(said(page, "trouble", "m.troubles(a[0])", entry))


def is_well(page: Chromium, **more: Any) -> bool:
    """Whether the page says that all is well, where there is no trouble."""
    return bool(said(page, "trouble", "m.isWell({ line: a[0] })", line("orders", **more)))


@pytest.mark.parametrize(
    ("more", "tone", "what"),
    [
        ({"state": "unknown", "health": None}, "warn", "It is not known whether the job runs"),
        ({"state": "unreadable", "watch": None}, "warn", "It is not known whether the job runs"),
        ({"desired": STOPPED}, "warn", "The job runs, and should be stopped"),
        ({"state": "stopped"}, "warn", "The job should run, but is stopped"),
        ({"state": "never-started", "desired": None}, "info", "The job has never been started"),
        ({"desired": None}, "info", "The job is running; nothing says whether it should be"),
        ({"batch": None, "health": None}, "info", "The job runs, but nothing is known of its progress"),
        ({"state": "failed", "desired": STOPPED}, "info", FAILED),
        ({"state": "stopped", "desired": STOPPED, "operation": RESTORING}, "info", AT_WORK),
        ({"state": "stopped", "operation": RESTORING}, "info", AT_WORK),
        ({"operation": RESTORING, "waits": [LOCK]}, "warn", "An operation has not ended"),
        ({"savepoint": None}, "warn", "There is no verified savepoint"),
        ({"verdicts": [{**BROKEN, "objective": "history"}]}, "bad", UNREAD),
        ({"verdicts": [{**BROKEN, "objective": "alive"}]}, "bad", "The job has been down, or not watched"),
        ({"verdicts": [{**BROKEN, "objective": "free_space"}]}, "bad", "A disk has too little free space"),
        ({"verdicts": [BROKEN]}, "bad", "State bytes are beyond their limit"),
        ({"error": UNREADABLE}, "bad", "The job's storage cannot be read"),
        ({"error": {**UNREADABLE, "part": "line"}}, "bad", "Some of the job's records cannot be read"),
        ({"error": {**UNREADABLE, "part": "log"}}, "warn", "The driver's log cannot be read"),
        ({"error": {**UNREADABLE, "part": "charts"}}, "bad", "Measurements cannot be read"),
        ({"watch": BY_HAND, "seen_s": 30 * MINUTE}, "bad", "What is shown is 30 min old"),
        ({"seen_s": 6 * MINUTE}, "bad", "What is shown is 6 min old"),
        ({"seen_s": 6 * MINUTE, "next_s": 1}, "bad", "What is shown is 6 min old"),
        ({"seen_s": 20 * MINUTE, "next_s": 600}, "bad", "What is shown is 20 min old"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_one_name(page: Chromium, more: dict[str, Any], tone: str, what: str) -> None:
    assert [(one["tone"], one["what"]) for one in troubles(page, **more)] == [(tone, what)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"state": "stopped", "desired": STOPPED},
        {"state": "stopped", "desired": STOPPED, "seen_s": 7 * DAY},
        {"state": "starting"},
        {"watch": BY_HAND, "seen_s": 10 * MINUTE},
        {"seen_s": 15 * MINUTE, "next_s": 600},
        {"savepoint": None, "parts": {}},
        {"verdicts": [{**BROKEN, "mute": True}]},
    ],
)
def test_what_is_well_has_no_trouble(page: Chromium, more: dict[str, Any]) -> None:
    assert troubles(page, **more) == []
    assert is_well(page, **{name: one for name, one in more.items() if name != "seen_s"})


@pytest.mark.parametrize(
    ("more", "since"),
    [
        ({}, "since"),
        ({"state": "stopped", "desired": STOPPED}, "desired"),
        ({"state": "failed", "down_since": "down"}, "down"),
        ({"state": "failed", "desired": STOPPED}, None),
        ({"state": "unknown"}, None),
        ({"state": "starting"}, None),
        ({"state": "starting", "down_since": "down"}, "down"),
        ({"state": "stopping", "desired": STOPPED}, "desired"),
        ({"state": "checkpoint-lost", "down_since": "down"}, "down"),
    ],
)
def test_a_state_lasts_since_it_began_and_not_since_the_driver_did(
    page: Chromium, more: dict[str, Any], since: str | None
) -> None:
    found = said(page, "trouble", "m.inStateSince(a[0])", line("orders", **{"since": "since", **more}))
    assert found == (STOPPED["at"] if since == "desired" else since)


def test_a_repository_that_is_away_is_one_trouble_that_no_button_solves(page: Chromium) -> None:
    gone = {"part": "repository", "code": "no-repository", "message": "/mnt/a is not there.", "hint": ""}
    first, *others = troubles(page, state="repository-lost", desired=None, error=gone, down_since=ago(60))
    assert (first["what"], first["action"], first["why"]) == (
        "The job's records are lost", None, "/mnt/a is not there."
    )  # fmt: skip
    assert "outside of Airflow" in first["do"] and "replica" in first["do"]
    assert not [one for one in others if "storage" in one["what"] or "records" in one["what"]]


def test_the_event_of_a_drill_says_what_it_proved(page: Chromium) -> None:
    def event(**facts: Any) -> Any:
        return said(page, "words", "m.eventOf(a[0])", {"kind": "drilled", "facts": facts})

    assert event(passed=True) == {"words": "Drill passed", "tone": "ok"}
    assert event(passed=False) == event() == {"words": "Drill failed", "tone": "bad"}
    alone = event(passed=True, not_run="Its sink is foreachBatch.")
    assert alone == {"words": "Drill: savepoint proved, application not run", "tone": "warn"}


@pytest.mark.parametrize(
    "more", [{"state": "stopping", "desired": STOPPED}, {"desired": None}, {"state": "unknown"}]
)
def test_what_is_not_known_is_not_well(page: Chromium, more: dict[str, Any]) -> None:
    assert not is_well(page, **more)


@pytest.mark.parametrize(
    ("watch", "paused", "restarted"),
    [
        (None, False, False),
        (BY_HAND, False, False),
        (NO_SIGN, False, False),
        (..., True, False),
        (..., False, True),
    ],
)
def test_only_a_watched_job_is_restarted_by_itself(
    page: Chromium, watch: Any, paused: bool, restarted: bool
) -> None:
    watched = {} if watch is ... else {"watch": watch}
    down = troubles(page, paused=paused, state="failed", down_since=ago(HOUR), **watched)
    stuck = troubles(page, paused=paused, health={"state": "unhealthy", "why": "no batch"}, **watched)
    for found, what in ((down, "The job is down"), (stuck, "The job makes no progress")):
        (one,) = [each for each in found if each["what"] == what]
        assert ("It is restarted by itself." in one["do"]) is restarted, one
        assert (one["action"] is None) is (restarted or one in stuck), (
            "what happens by itself needs no button"
        )


def test_a_dag_file_that_cannot_be_read_is_said(page: Chromium) -> None:
    listed = {"job": "orders", "dag": "orders.run", "paused": False, "broken": True, "approvals": []}
    shown = {"job": "orders", "dags": [{"dag_id": "orders.run", "verb": "run", "broken": True, "may": {}}]}
    for answer in (listed, shown):
        entry = said(page, "entry", "m.entryOf(a[0])", {**answer, "line": line("orders")})
        (one,) = said(page, "trouble", "m.troubles(a[0])", entry)
        assert (one["tone"], one["what"]) == ("bad", BROKEN_FILE)


def test_of_a_job_of_which_nothing_is_known_a_broken_dag_file_is_said(page: Chromium) -> None:
    """Nothing else is: it cannot be run until the file is whole."""
    entry: dict[str, Any] = {"job": "new", "line": None, "error": None, "broken": True, "approvals": []}
    (one,) = said(page, "trouble", "m.troubles(a[0])", entry)
    cause = {**entry, "file": "streams.py", "cause": "NameError: name 'job' is not defined"}
    (why,) = [each["why"] for each in said(page, "trouble", "m.troubles(a[0])", cause)]

    assert (one["tone"], one["what"], one["action"]) == ("bad", BROKEN_FILE, None)
    assert said(page, "trouble", "m.toneOf(a[0])", entry) == "bad"
    assert one["why"].startswith("Airflow runs nothing")
    assert why.startswith("streams.py: NameError: name 'job' is not defined. Airflow runs nothing")


TEXTS = {
    "sinks": {
        "value": None,
        "schema": {"type": ["null", "array"], "items": {"type": "string", "pattern": "^.+=.+$"}},
    }
}
CHOICES = {"savepoint": {"value": "each", "schema": {"type": "string", "enum": ["each", "random"]}}}
ANSWER = "m.answersOf(m.fieldsOf(a[0]), { sinks: a[1] })"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("/a=rollback\n\n/b=accept\n", ["/a=rollback", "/b=accept"]),
        ('["/a=rollback"]', ["/a=rollback"]),
    ],
)
def test_a_list_of_texts_has_one_on_each_line(page: Chromium, text: str, value: Any) -> None:
    assert said(page, "form", ANSWER, TEXTS, text) == {"conf": {"sinks": value}, "wrong": {}}
    again = {"sinks": {**TEXTS["sinks"], "value": value}}
    shown = said(page, "form", "m.initialOf(m.fieldsOf(a[0])).sinks", again)
    assert said(page, "form", ANSWER, TEXTS, shown)["conf"] == {"sinks": value}


@pytest.mark.parametrize("text", ["/a", "[1]", '["/a=b"'])
def test_what_is_not_such_a_list_is_refused(page: Chromium, text: str) -> None:
    assert list(said(page, "form", ANSWER, TEXTS, text)["wrong"]) == ["sinks"]


def test_what_a_form_cannot_take_is_never_dropped(page: Chromium) -> None:
    found = said(
        page,
        "form",
        "m.misfits(m.fieldsOf(a[0]), a[1])",
        CHOICES,
        {"savepoint": "b000041-c28c", "query": "late"},
    )
    assert found == ["savepoint", "query"]
    assert said(page, "form", "m.misfits(m.fieldsOf(a[0]), a[1])", CHOICES, {"savepoint": "random"}) == []


@pytest.mark.parametrize(
    ("verb", "inputs", "ids"),
    [
        ("restore", {"start": True, "into": ""}, ["orders.run"]),
        ("restore", {"start": False}, []),
        ("restore", {"start": True, "into": "s3://lake/fork"}, []),
        ("compact", {"start": True, "dry_run": True}, []),
        ("compact", {"start": True, "dry_run": False}, ["orders.run"]),
        ("upgrade", {"plan_only": True}, []),
        ("failover", {}, ["orders.run"]),
        ("drill", {}, []),
        ("run", {}, ["orders.run"]),
    ],
)
def test_what_hands_nothing_back_unpauses_nothing(
    page: Chromium, verb: str, inputs: dict[str, Any], ids: list[str]
) -> None:
    dags = {verb: {"dag_id": f"orders.{verb}", "paused": False, "trigger": True}}
    dags["run"] = {"dag_id": "orders.run", "paused": True, "trigger": True}
    assert said(page, "actions", "m.pausedOnes(a[0], a[1], a[2])", dags, verb, inputs) == ids


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        ({"pinned": True}, {"words": "pinned"}),
        ({"kept": "one of the last 24", "expires": None}, {"words": "one of the last 24", "tone": "muted"}),
        (
            {"kept": "", "expires": {"at": None, "why": "it is too old"}},
            {"words": "goes with the next expiry", "why": "it is too old", "tone": "warn"},
        ),
    ],
)
def test_how_long_a_savepoint_is_kept(page: Chromium, one: dict[str, Any], kept: dict[str, Any]) -> None:
    assert said(page, "savepoints", "m.keptFor(a[0])", one) == kept


def test_of_several_queries_the_line_says_nothing_of_one(page: Chromium) -> None:
    """Its batch is that of the oldest query, and may be of another one."""
    savepoint = {"id": "b000990-aaaaaaaaaaaa", "query": "hourly", "batch": 990, "taken_at": ago(HOUR)}
    several = line("ledger", queries=["hourly", "late"], batch=10)
    status = {"queries": {"hourly": {"batch": 1200, "progress_at": ago(0)}, "late": {"batch": 10}}}
    call = "m.effectsOf(a[0], a[1], a[2], { tone: 'ok' }).join(' ')"

    assert "210 batches after it are processed again" in said(
        page, "savepoints", call, savepoint, several, status
    )
    assert "is said by the plan" in said(page, "savepoints", call, savepoint, several, None)


def test_a_short_range_of_a_plot_is_not_mostly_forecast(page: Chromium) -> None:
    hour, days = 3600, 3 * 86_400
    assert said(page, "charts", "m.span(...a)", 1_000_000 - hour, 0, 1_000_000 + days, 1_000_000) == [
        1_000_000 - hour,
        1_000_000 + hour,
    ]
    assert said(page, "charts", "m.span(...a)", None, 0, 1_000_000 + days, 1_000_000) == [0, 1_000_000 + days]


def test_a_line_ends_where_a_run_ended_and_begins_again_with_the_next(page: Chromium) -> None:
    chart = {"t": [10, 20, 80, 90], "v": [1, 2, 3, 4], "high": [1, 2, 3, 5], "low": []}
    found = said(page, "charts", "m.withGaps(a[0])", {**chart, "restarts": [5, 60]})
    assert found["t"] == [10, 20, 60, 80, 90] and found["v"] == [1, 2, None, 3, 4]
    assert found["high"] == [1, 2, None, 3, 5] and found["low"] == []
    found = said(page, "charts", "m.withGaps(a[0])", {**chart, "restarts": [80]})
    assert found["t"] == [10, 20, 79.5, 80, 90] and found["v"] == [1, 2, None, 3, 4]
    assert said(page, "charts", "m.withGaps(a[0]).v", {**chart, "restarts": []}) == [1, 2, 3, 4]


def test_times_of_reads_and_writes_are_called_so(page: Chromium) -> None:
    assert said(page, "words", "m.ofSubject(a[0])", "get_ms") == " of reads"
    assert said(page, "words", "m.ofSubject(a[0])", "operator 0") == " of operator 0"
    assert said(page, "words", "m.ofSubject(a[0])", "") == ""


@pytest.mark.parametrize(
    ("seen_s", "broken", "shown"),
    [
        (20, False, {"words": "running", "tone": "ok"}),
        (20, True, {"words": "was running", "tone": "off"}),
        (HOUR, False, {"words": "was running", "tone": "off"}),
    ],
)
def test_what_was_so_once_is_not_shown_as_if_it_were_so(
    page: Chromium, seen_s: float, broken: bool, shown: dict[str, str]
) -> None:
    """Nothing keeps the line of a job whose DAG file is broken, or whose watcher is gone."""
    entry = {"job": "orders", "line": line("orders", at=ago(seen_s)), "broken": broken, "approvals": []}
    assert said(page, "trouble", "m.shownState(a[0])", entry) == shown
    assert said(page, "trouble", "m.isWell(a[0])", entry) is (shown["tone"] == "ok")
