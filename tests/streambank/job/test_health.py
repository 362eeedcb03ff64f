"""Whether a job gets on, by what its driver says and what an observer sees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.claims import ClaimView
from streambank.core.errors import InputError
from streambank.core.shape import decode
from streambank.declaration.health import HealthPolicy
from streambank.job.health import AwakeClock, Health, Inputs, Observer, Unhealthy, judge_health
from tests.support.jobs.declared import declare
from tests.support.waiting import FakeClock

POLICY = HealthPolicy()
WINDOW_S = 3000.0  # max(1 min, 10 min) x (3 + 2)


def said(still_s: float = 1.0, **query: Any) -> dict[str, Any]:
    one = {"batch": 7, "triggered": True, "over": False, "still_s": still_s, "trigger_s": 0.0, **query}
    return {"state": "running", "still_s": still_s, "queries": {"main": one}}


def judged(
    status: Mapping[str, Any], seen: Inputs | None = None, *, names: tuple[str, ...] = ("main",)
) -> Health:
    found = judge_health(POLICY, names, status, seen or Inputs())
    json.dumps(found.to_dict())
    return found


def test_the_window_is_the_longer_of_interval_and_timeout_for_each_tolerated_time_and_two_more() -> None:
    assert POLICY.window_s() == WINDOW_S
    assert HealthPolicy(interval_s=10, timeout_s=5, tolerated=0).window_s() == 20
    assert POLICY.window_s(86_400.0) == 5 * 86_400, "a query that is triggered once a day"
    assert POLICY.window_s(first=True) == 2 * WINDOW_S
    assert HealthPolicy(first_batch_s=9000).window_s(first=True) == 9000
    assert [POLICY.after(n).window_s(first=True) for n in (0, 1, 2)] == [6000, 12000, 24000]
    assert POLICY.after(9).window_s() == WINDOW_S


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (said(12.0), "healthy"),
        (said(WINDOW_S), "healthy"),
        (said(WINDOW_S + 1), "unhealthy"),
        (said(WINDOW_S + 1, batch=-1), "healthy"),  # its first batch loads the state
        (said(2 * WINDOW_S + 1, batch=-1), "unhealthy"),
        (said(WINDOW_S + 1, trigger_s=3600.0), "healthy"),
        (said(5 * 3600.0 + 1, trigger_s=3600.0), "unhealthy"),
        (said(WINDOW_S + 1, over=True), "healthy"),  # it has ended well
        (said(WINDOW_S + 1, over=True, failed=True), "unhealthy"),
        (said(WINDOW_S + 1, over=True, failed=True, batch=-1), "unhealthy"),
        ({"state": "running", "still_s": WINDOW_S + 1, "queries": {}}, "healthy"),
        ({"state": "running", "still_s": 2 * WINDOW_S + 1, "queries": {}}, "unhealthy"),
        (
            {"state": "running", "queries": {"main": {"batch": 7, "triggered": True}}},
            "unknown",
        ),  # an older one
        ({}, "unknown"),
        (said(float("nan")), "unknown"),
        ({"still_s": 1.0, "queries": {"main": {"batch": 7}}}, "unknown"),
        ({"still_s": 1.0, "queries": {"main": {"batch": 7, "still_s": "long"}}}, "unknown"),
    ],
)
def test_a_query_has_to_make_progress_within_its_window(status: Mapping[str, Any], state: str) -> None:
    assert judged(status).state == state


def test_an_idle_query_is_told_from_one_that_hangs() -> None:
    assert "finds nothing to do" in judged(said(3.0, idle=True)).why
    hangs = judged(said(WINDOW_S + 1))
    assert hangs.why == (
        "query main has neither committed a batch nor found its input empty for 3,001 s; 3,000 s are allowed"
    )
    assert (hangs.query, hangs.still_s, hangs.window_s) == ("main", WINDOW_S + 1, WINDOW_S)
    failed = judged(said(WINDOW_S + 1, over=True, failed=True)).why
    assert "query main failed; it made progress 3,001 s ago" in failed


def test_a_driver_that_has_just_begun_has_no_progress_of_its_own() -> None:
    assert judged(said(30.0)).why == "query main made progress 30 s ago"
    fresh = judged(said(30.0, batch=-1)).why
    assert fresh == "query main has no batch yet since its driver began it 30 s ago"


def test_a_driver_that_is_stopped_is_called_frozen_before_and_after_its_window() -> None:
    frozen = Inputs(silent_s=20.0, frozen="python 12 and jvm 13 are stopped by a signal")
    early = judged(said(1.0), frozen)
    assert (early.state, early.why.partition(";")[0]) == (
        "unknown",
        "its driver is frozen: python 12 and jvm 13 are stopped by a signal",
    )
    late = judged(said(1.0), replace(frozen, silent_s=WINDOW_S))
    assert late.state == "unhealthy" and late.why.startswith("its driver is frozen: ")
    assert "has said nothing for 3,000 s" in late.why


def test_a_silent_driver_is_added_to_what_it_said_last() -> None:
    assert judged(said(1.0), Inputs(silent_s=WINDOW_S - 1)).state == "healthy"
    frozen = judged(said(1.0), Inputs(silent_s=WINDOW_S))
    assert frozen.state == "unhealthy"
    assert "has said nothing for 3,000 s" in frozen.why


def test_batches_that_appear_count_though_the_driver_does_not_notice_them() -> None:
    assert judged(said(WINDOW_S + 1), Inputs(committed_s={"main": 5.0})).state == "healthy"
    assert judged(said(WINDOW_S + 1), Inputs(committed_s={"main": WINDOW_S + 1})).state == "unhealthy"
    assert judged(said(WINDOW_S + 1), Inputs(committed_s={"another": 5.0})).state == "unhealthy"


def test_of_several_queries_the_one_nearest_to_its_limit_counts() -> None:
    status = said(5.0)
    status["queries"]["slow"] = {"batch": 1, "still_s": 20.0, "trigger_s": 0.0}
    found = judged(status, names=("main", "slow"))
    assert (found.state, found.query) == ("healthy", "slow")
    status["queries"]["slow"]["still_s"] = WINDOW_S + 1
    assert judged(status, names=("main", "slow")).state == "unhealthy"
    status["queries"]["slow"] |= {"over": True}
    assert judged(status, names=("main", "slow")).query == "main"
    status["queries"]["main"] |= {"over": True}
    assert judged(status, names=("main", "slow")) == Health("healthy", "its queries have ended")


def test_a_query_that_is_started_after_another_counts_from_what_that_one_did() -> None:
    status = said(2 * WINDOW_S, over=True)
    assert judged(status, names=("main", "later")).state == "healthy"
    status["still_s"] = 2 * WINDOW_S + 1
    late = judged(status, names=("main", "later"))
    assert (late.state, late.query) == ("unhealthy", "later")
    assert "has not been started for 6,001 s" in late.why


def view(epoch: int = 1, beat: int | None = 1) -> ClaimView:
    return ClaimView(epoch, "live", "", None, None, {} if beat is None else {"beat": beat}, {})


def test_an_observer_sees_a_heartbeat_stand_still_and_batches_appear() -> None:
    clock = FakeClock()
    observer = Observer(AwakeClock(monotonic=clock.monotonic))
    assert observer.look(view(), {"main": 4}) == Inputs()
    clock.now += 10
    assert observer.look(view(), {"main": 4}) == Inputs(10.0)
    clock.now += 10
    assert observer.look(view(beat=2), {"main": 5}) == Inputs(0.0, {"main": 0.0})
    clock.now += 5
    assert observer.look(view(beat=2), {"main": 5}) == Inputs(5.0, {"main": 5.0})
    assert observer.look(view(epoch=2), {"main": 0}) == Inputs(), "another driver, after a restore"
    clock.now += 5
    assert observer.look(view(epoch=2, beat=None), {"main": None}) == Inputs(0.0, {"main": 0.0})


def test_an_observer_that_was_frozen_itself_has_seen_nothing() -> None:
    """A pause of the whole machine: its own clock has gone on, and the driver has yet to beat again."""
    clock = FakeClock()
    observer = Observer(AwakeClock(30.0, monotonic=clock.monotonic))
    observer.look(view(), {})
    clock.now += 7200
    assert observer.look(view(), {}) == Inputs(30.0)
    clock.now -= 50
    assert observer.look(view(), {}) == Inputs(30.0), "a clock that goes back is no time that passed"


def test_what_was_found_travels_as_json() -> None:
    found = Unhealthy(3, 17, 2.5, {"main": 8, "other": None}, "because")
    assert decode(Unhealthy, json.loads(json.dumps(found.to_dict())), "request") == found


def test_the_pause_doubles_up_to_the_longest() -> None:
    assert [POLICY.pause_s(failures) for failures in (0, 1, 2, 3, 6, 5000)] == [10, 10, 20, 40, 300, 300]


def test_it_is_declared(folder: Path) -> None:
    assert declare(folder).health == HealthPolicy()
    more = (
        '[jobs.flights.health]\ninterval = "5m"\ntimeout = "30s"\ntolerated = 0\nfirst_batch = "1h"\n'
        'restart = false\nbackoff = "1s"\nmax_backoff = "2s"\nmax_failures = 5\nmax_restarts = 7\n'
        'restarts_within = "2h"\n'
    )
    expected = HealthPolicy(300.0, 30.0, 0, 3600.0, False, 1.0, 2.0, 5, 7, 7200.0)
    assert declare(folder, more=more).health == expected


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('backoff = "10m"', "backoff: 600 s is longer than the longest pause, which is 300 s"),
        (
            'first_batch = "1m"',
            "first_batch: 60 s is less than the time that every batch gets, which is 3000 s",
        ),
        ("tolerated = -1", "tolerated: it must be at least 0, not -1"),
        ("max_failures = 0", "max_failures: it must be at least 1, not 0"),
        ('intervall = "1m"', "intervall: there is no such field"),
    ],
)
def test_mistakes_name_line_and_field(folder: Path, wrong: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        declare(folder, more=f"[jobs.flights.health]\n{wrong}\n")
    assert f"jobs.flights.health.{said}" in caught.value.message
    assert "line 9" in caught.value.message
