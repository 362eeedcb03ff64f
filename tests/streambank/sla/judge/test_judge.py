"""Histories -> verdicts: every objective about a window broken by one history and kept by another."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import StorageError
from streambank.declaration.objectives import PROMISES
from streambank.declaration.sla import Declared, Mute, SlaPolicy
from streambank.job.alive import Life
from streambank.sla.fact import Fact
from streambank.sla.history.point import History, Point
from streambank.sla.judge.facts import Facts
from streambank.sla.judge.judge import UnreadableHistory, judge
from streambank.sla.judge.running import Sign
from streambank.sla.judge.savepoints import NewestSavepoints
from streambank.sla.judge.spread import Spread
from streambank.sla.verdict import LEVELS, worst
from tests.support.sla.judged_histories import MINUTE, NOW, STEADY, batches, days_of, declare, verdicts
from tests.support.sla.series import BEGIN

LIMITS = {
    "state_memory_bytes": 1e9,
    "state_rows": 1e7,
    "checkpoint_bytes": 1e10,
    "batch_duration": 30.0,
    "watermark_lag": 900.0,
    "source_lag": 1e5,
    "dropped_rows": 10.0,
    "snapshot_age": 50.0,
    "pause": 30.0,
}
BAD = {
    "state_bytes": {"state_bytes": 101e9},
    "state_memory_bytes": {"state_memory_bytes": 2e9},
    "state_rows": {"state_rows": 2e7},
    "checkpoint_bytes": {"checkpoint_bytes": 2e10},
    "checkpoint_duration": {"checkpoint_s": 601.0},
    "batch_duration": {"batch_s": 31.0},
    "access_latency": {"put_ms": 120.0},
    "watermark_lag": {"watermark_lag_s": 1000.0},
    "source_lag": {"source_lag_rows": 2e5},
    "dropped_rows": {"dropped_rows": 11.0},
    "snapshot_age": {"snapshot_age_batches": 51.0},
    "pause": {"gap_s": 29.0},
}
ALL = declare(**{name: Declared(breach=limit) for name, limit in LIMITS.items()})


def test_each_objective_about_a_window_has_a_case() -> None:
    assert {name for name, promise in PROMISES.items() if promise.kind == "window"} == BAD.keys()


@pytest.mark.parametrize("name", BAD)
def test_each_objective_about_a_window_is_kept_or_broken_alone(name: str) -> None:
    kept = verdicts(batches([STEADY] * 90), ALL)
    assert kept[name].level == "ok" and kept[name].value is not None and not kept[name].advice
    broken = verdicts(batches([STEADY] * 60 + [{**STEADY, **BAD[name]}] * 45), ALL)
    verdict = broken[name]
    assert verdict.level == "breach"
    assert verdict.value == next(iter(BAD[name].values()))
    assert verdict.limit == LIMITS.get(name, PROMISES[name].breach)
    assert verdict.since == NOW - timedelta(seconds=1) - 44 * MINUTE
    assert verdict.as_of == NOW - timedelta(seconds=1)
    assert verdict.advice == PROMISES[name].advice and verdict.evidence
    others = {one for one, other in broken.items() if one != name and other.level in ("warn", "breach")}
    assert others <= {"growth", "time_to_limit"}


@given(seed=st.integers(0, 1000), spread=st.floats(0, 0.05))
@settings(max_examples=15, deadline=None)
def test_a_steady_hour_gives_no_alarm(seed: int, spread: float) -> None:
    chance = random.Random(seed)
    history = batches(
        [
            {name: abs(value + chance.gauss(0, spread * value)) for name, value in STEADY.items()}
            for _ in range(360)
        ],
        every=timedelta(seconds=10),
    )
    nothing = dict.fromkeys(("failed_batches", "recovery_time", "restart_rate", "free_space"), ())
    facts = Facts(
        {
            **nothing,
            "savepoint_age": NewestSavepoints((Fact(NOW - 5 * MINUTE),)),
            "partition_skew": Spread((Fact(NOW, 1.2),)),
            "alive": Life(True, up=True),
            "progress_age": Sign(NOW),
        }
    )
    found = judge("flights", History("main", history), ALL, NOW, facts)
    assert worst(one for one in found if one.objective != "hot_key") in ("ok", "unknown")
    assert {one.objective for one in found if one.level == "unknown"} <= {
        "hot_key",
        "growth",
        "time_to_limit",
    }


def test_a_warning_comes_before_the_breach_and_severity_holds_it_back() -> None:
    history = batches([{"state_bytes": 20e9}] * 5)
    assert verdicts(history)["state_bytes"].level == "warn"
    assert verdicts(history)["state_bytes"].limit == 10e9
    mild = declare(state_bytes=Declared(breach=1e9, severity="warn"))
    found = verdicts(history, mild)["state_bytes"]
    assert (found.level, found.limit, found.warn) == ("warn", 1e9, None)
    assert "above the limit of 1 GB" in found.why
    at_the_limit = batches([{"state_bytes": 10e9}] * 5)
    assert verdicts(at_the_limit)["state_bytes"].level == "ok"


def test_one_outlier_breaks_nothing_that_is_a_median_and_a_max_says_it() -> None:
    history = batches([{"state_bytes": 1e9}] * 8 + [{"state_bytes": 1e12}] + [{"state_bytes": 1e9}] * 2)
    assert verdicts(history)["state_bytes"].level == "ok"
    assert verdicts(history, declare(state_bytes=Declared(statistic="max")))["state_bytes"].level == "breach"
    assert "the largest 1 TB in batch 8" in verdicts(history)["state_bytes"].evidence[0]


def test_a_size_holds_while_no_batch_runs_and_a_duration_does_not() -> None:
    history = batches([{"state_bytes": 200e9, "checkpoint_s": 700.0}] * 5, until=NOW - timedelta(days=3))
    found = verdicts(history)
    assert found["state_bytes"].level == "breach"
    assert "No batch in the last 10 min" in found["state_bytes"].evidence[0]
    assert found["checkpoint_duration"].level == "unknown"
    assert "no batch in the last 1 h, the newest was at 2026-11-18" in found["checkpoint_duration"].why


def test_the_worst_operator_decides_and_the_others_are_said() -> None:
    rows = [{0: {"state_rows": 5.0}, 1: {"state_rows": 50.0}, 2: {"other": 1.0}}] * 5
    history = batches([{"state_rows": 55.0}] * 5, operators=rows)
    found = verdicts(history, declare(state_rows=Declared(breach=52.0)))["state_rows"]
    assert (found.level, found.subject, found.value) == ("ok", "operator 1", 50.0)
    assert "operator 0: 5 rows." in found.evidence
    unmanaged = verdicts(batches([{"state_rows": 55.0}] * 5), declare(state_rows=Declared(breach=52.0)))
    assert (unmanaged["state_rows"].level, unmanaged["state_rows"].subject) == ("breach", "")


def test_an_operator_that_is_gone_is_not_judged_by_what_it_was() -> None:
    rows = [{0: {"state_rows": 5.0}, 1: {"state_rows": 500.0}}] * 5 + [{0: {"state_rows": 6.0}}] * 20
    history = batches([{"state_rows": 6.0}] * 25, operators=rows)
    found = verdicts(history, declare(state_rows=Declared(breach=52.0)), now=NOW + timedelta(days=1))
    assert (found["state_rows"].level, found["state_rows"].value) == ("ok", 6.0)


def test_the_slower_of_reads_and_writes_decides() -> None:
    found = verdicts(batches([{"get_ms": 101.0, "put_ms": 2.0}] * 5))["access_latency"]
    assert (found.level, found.subject, found.evidence[-1]) == ("breach", "get_ms", "put_ms: 2 ms.")


def test_since_is_the_first_bad_batch_after_a_whole_calm_window() -> None:
    calm, bad = {"checkpoint_s": 1.0}, {"checkpoint_s": 700.0}
    long_ago = [bad] * 5 + [calm] * 90
    history = batches([*long_ago, *[bad, calm, bad, calm] * 5])
    found = verdicts(history)["checkpoint_duration"]
    assert found.level == "breach" and found.since == history[95].at
    assert verdicts(batches([calm] * 9))["checkpoint_duration"].since is None


def test_what_no_batch_tells_is_unknown_and_says_why() -> None:
    found = verdicts(batches([{"input_rows": 1.0}] * 5))
    assert found["state_bytes"].level == "unknown" and "None of the 5 batches" in found["state_bytes"].why
    assert found["growth"].level == "unknown"
    empty = verdicts([])
    assert {one.level for one in empty.values()} == {"unknown"}
    assert empty["history"].why == "The history has no batch."
    strange = verdicts(batches([{"state_bytes": float("nan")}, {"state_bytes": float("inf")}]))
    assert strange["state_bytes"].level == "unknown"


def test_an_unreadable_history_is_a_breach_of_its_own() -> None:
    found = judge("flights", UnreadableHistory("main", "The disk is gone."), ALL, NOW)
    assert found[0].objective == "history" and found[0].level == "breach" and "disk is gone" in found[0].why
    assert {one.level for one in found[1:]} == {"unknown"} and len(found) > 10
    beside = judge(
        "flights",
        UnreadableHistory("main", "The disk is gone."),
        declare(savepoint_age=Declared(breach=60.0)),
        NOW,
        Facts(
            {"savepoint_age": NewestSavepoints(()), "failed_batches": (Fact(NOW),)},
            unreadable=("Nor can its owner.",),
        ),
    )
    levels = {one.objective: one.level for one in beside}
    assert (levels["savepoint_age"], levels["failed_batches"]) == ("breach", "unknown")
    assert beside[0].evidence == ("Nor can its owner.",)

    def torn() -> Iterator[Point]:
        yield from batches([STEADY] * 5)
        raise StorageError("The bucket does not answer.")

    broken = verdicts(torn(), ALL)
    assert broken["history"].level == "breach" and "bucket does not answer" in broken["history"].why
    assert broken["state_bytes"].level == "unknown"
    partly = verdicts(batches([STEADY]), None, Facts(unreadable=("The repository cannot be read.",)))
    assert partly["history"].level == "breach" and partly["state_bytes"].level == "ok"


def test_batches_of_a_driver_that_was_replaced_are_left_out_and_said() -> None:
    old = batches([{"state_bytes": 200e9}] * 20, epoch=1, run_id="old")
    new = batches([{"state_bytes": 1e9}] * 20, epoch=2, run_id="new")
    both_at_once = sorted(
        [*old[:10], *(replace(one, at=one.at + MINUTE / 2) for one in old[10:]), *new[10:]],
        key=lambda point: point.at,
    )
    found = verdicts(both_at_once)
    assert found["state_bytes"].level == "ok"
    assert found["history"].level == "warn"
    assert "10 batches of drivers that had been replaced (epochs 1)" in found["history"].evidence[-1]


def test_notes_of_the_history_are_evidence_and_a_clock_ahead_is_a_warning() -> None:
    history = History("main", batches([STEADY] * 5), runs=3, notes=("2 lines are damaged.",))
    first = judge("flights", history, None, NOW)[0]
    assert (first.level, first.why, first.evidence) == (
        "ok",
        "The history has 5 batches of 3 runs.",
        ("2 lines are damaged.",),
    )
    ahead = verdicts(batches([STEADY] * 5), now=NOW - timedelta(hours=1))
    assert ahead["history"].level == "warn" and "later than now" in ahead["history"].evidence[-1]
    assert ahead["state_bytes"].level == "ok"


def test_a_mute_silences_nothing_but_the_telling() -> None:
    history = batches([{"state_bytes": 200e9}] * 5)
    until = NOW + timedelta(days=1)
    muted = verdicts(history, SlaPolicy({"state_bytes": Declared(mute=Mute(until, "known"))}))
    assert muted["state_bytes"].level == "breach" and muted["state_bytes"].mute == Mute(until, "known")
    assert muted["checkpoint_duration"].mute is None and muted["history"].mute is None
    whole = verdicts(history, SlaPolicy({}, Mute(until, "moving")))
    assert all(one.mute == Mute(until, "moving") for one in whole.values())
    ended = verdicts(history, SlaPolicy({}, Mute(NOW, "moved")))
    assert ended["state_bytes"].mute is None and "mute ended at" in ended["state_bytes"].evidence[-1]


def test_several_queries_are_judged_each_by_its_own_facts() -> None:
    policy = declare(savepoint_age=Declared(breach=60.0))
    left = judge(
        "pairs",
        History("left", batches([STEADY] * 3)),
        policy,
        NOW,
        Facts({"savepoint_age": NewestSavepoints(())}),
    )
    found = [*left, *judge("pairs", UnreadableHistory("right", "Gone."), policy, NOW)]
    seen = {(one.query, one.objective): one.level for one in found}
    assert seen["left", "savepoint_age"] == "breach" and seen["right", "savepoint_age"] == "unknown"
    assert seen["left", "history"] == "ok" and seen["right", "history"] == "breach"
    assert worst(found) == "breach" and worst([]) == "ok" and [*LEVELS] == ["ok", "unknown", "warn", "breach"]


def test_a_verdict_is_json_and_names_what_the_page_names() -> None:
    found = days_of()
    for verdict in found.values():
        data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
        assert data["job"] == "flights" and data["level"] in LEVELS
        assert data["at"].endswith("Z")


def test_many_batches_are_judged_in_one_pass_and_little_memory() -> None:
    passes = 0

    class Once:
        def __iter__(self) -> Iterator[Point]:
            nonlocal passes
            passes += 1
            for number in range(5000):
                yield Point(BEGIN + number * MINUTE, number, "run", 1, STEADY)

    tracemalloc.start()
    try:
        found = judge("flights", History("main", Once()), None, BEGIN + 5000 * MINUTE)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert passes == 1 and found[0].why == "The history has 5000 batches."
    assert peak_bytes < 4e6
