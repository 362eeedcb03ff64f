"""Histories and facts -> verdicts: every objective broken by one history and kept by another."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.errors import StorageError
from streambank.job.sla import PROMISES, Declared, Mute, SlaPolicy
from streambank.sla.judge import Unreadable, judge, judge_job
from streambank.sla.objectives import MEASURES
from streambank.sla.point import History, Point
from streambank.sla.reported import Fact, Facts
from streambank.sla.verdict import LEVELS, Verdict, worst
from tests.support.growing import BEGIN, both, leak, noisy, points, wave

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def batches(
    values: Sequence[Mapping[str, float]],
    *,
    until: datetime = NOW,
    every: timedelta = MINUTE,
    operators: Sequence[Mapping[int, Mapping[str, float]]] = (),
    **more: Any,
) -> list[Point]:
    """The newest of them a second before the end."""
    begin = until - timedelta(seconds=1) - every * (len(values) - 1)
    return [
        Point(
            begin + every * number,
            number,
            values=one,
            operators=operators[number] if operators else {},
            **{"run_id": "run", "epoch": 1, **more},
        )
        for number, one in enumerate(values)
    ]


def verdicts(
    history: Sequence[Point] | Iterator[Point],
    policy: SlaPolicy | None = None,
    facts: Facts | None = None,
    now: datetime = NOW,
) -> dict[str, Verdict]:
    return {one.objective: one for one in judge("flights", History("main", history), policy, now, facts)}


def declare(**objectives: Declared) -> SlaPolicy:
    return SlaPolicy(objectives)


STEADY = {
    "state_bytes": 1e9,
    "state_memory_bytes": 1e8,
    "state_rows": 1e6,
    "checkpoint_bytes": 2e9,
    "checkpoint_s": 2.0,
    "batch_s": 10.0,
    "get_ms": 0.01,
    "put_ms": 0.02,
    "watermark_lag_s": 60.0,
    "source_lag_rows": 10.0,
    "dropped_rows": 0.0,
    "snapshot_age_batches": 5.0,
    "gap_s": 45.0,
}
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
    assert {name for name, measure in MEASURES.items() if measure.kind == "window"} == BAD.keys()


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
    assert verdict.advice == MEASURES[name].advice and verdict.evidence
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
    facts = Facts(savepoints=(Fact(NOW - 5 * MINUTE),), failures=(), recoveries=(), skews=(Fact(NOW, 1.2),))
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
    found = judge("flights", Unreadable("main", "The disk is gone."), ALL, NOW)
    assert found[0].objective == "history" and found[0].level == "breach" and "disk is gone" in found[0].why
    assert {one.level for one in found[1:]} == {"unknown"} and len(found) > 10

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
    found = judge_job(
        "pairs",
        [History("left", batches([STEADY] * 3)), Unreadable("right", "Gone.")],
        declare(savepoint_age=Declared(breach=60.0)),
        NOW,
        {"left": Facts(savepoints=())},
    )
    seen = {(one.query, one.objective): one.level for one in found}
    assert seen["left", "savepoint_age"] == "breach" and seen["right", "savepoint_age"] == "unknown"
    assert seen["left", "history"] == "ok" and seen["right", "history"] == "breach"
    assert worst(found) == "breach" and worst([]) == "ok" and [*LEVELS] == ["ok", "unknown", "warn", "breach"]


def days_of(policy: SlaPolicy | None = None, **more: Any) -> dict[str, Verdict]:
    shape = both(leak(2e9, 30e9), wave(5e9))
    history = points("state_bytes", noisy(shape, 1e8, 1), days=8)
    return verdicts(history, policy, now=history[-1].at + MINUTE, **more)


def test_a_leak_is_foretold_before_its_limit_with_the_error_stated() -> None:
    found = days_of(declare(state_bytes=Declared(breach=60e9)))
    assert found["state_bytes"].level == "warn"
    rate, reach = found["growth"], found["time_to_limit"]
    assert rate.level == "warn" and rate.value == pytest.approx(2e9 / 24, rel=0.02)
    # 30 GB + 8 days of 2 GB + the crest of 5 GB: 9 GB to go.
    assert reach.level == "warn" and reach.value == pytest.approx(4.5 * 86_400, rel=0.1)
    assert reach.limit == 7 * 86_400 and "Until state_bytes reaches 60 GB: 4 d" in reach.why
    assert any("Tried 5 times on its own past" in line and "off by" in line for line in reach.evidence)
    assert "at the soonest" in reach.evidence[0]
    near = days_of(declare(state_bytes=Declared(breach=52e9)))["time_to_limit"]
    assert near.level == "breach" and near.growth is not None and near.growth.sure
    far = days_of(declare(state_bytes=Declared(breach=90e9)))["time_to_limit"]
    assert far.level == "ok" and far.value is not None and far.value > 7 * 86_400


def test_a_wave_foretells_nothing() -> None:
    history = points("state_bytes", noisy(both(leak(0, 30e9), wave(20e9)), 1e8, 2), days=8)
    found = verdicts(history, now=history[-1].at)
    assert found["time_to_limit"].level == "ok"
    assert (found["time_to_limit"].value or 1e9) > 365 * 86_400
    assert found["growth"].level == "ok"
    flat = points("state_bytes", leak(0, 30e9), days=8)
    still = verdicts(flat, now=flat[-1].at)
    assert still["time_to_limit"].value is None and "Nothing grows" in still["time_to_limit"].why
    assert "may be chance" in still["growth"].why


def test_a_short_history_never_breaks_by_its_trend_and_less_is_unknown() -> None:
    history = points("state_bytes", leak(50e9, 1e9), days=0.2, every_s=30)
    found = verdicts(history, now=history[-1].at)
    assert found["time_to_limit"].level == "warn" and found["growth"].level == "warn"
    assert any("daily wave" in line for line in found["time_to_limit"].evidence)
    less = verdicts(history[:60], now=history[59].at)
    assert less["time_to_limit"].level == less["growth"].level == "unknown"
    assert "too little history" in less["growth"].why
    asked = declare(growth=Declared(min_history_s=60.0))
    assert verdicts(history[:60], asked, now=history[59].at)["growth"].level == "warn"


def test_a_restart_is_a_break_for_memory_and_a_restore_for_all() -> None:
    def memory(second: float) -> float:
        return 1e9 + 1e8 * (second % 86_400) / 86_400

    policy = declare(state_memory_bytes=Declared(breach=3e9))
    plain = points("state_memory_bytes", memory, days=1.9)
    restarted = [
        replace(one, run_id=f"run {int((one.at - BEGIN).total_seconds() // 86_400)}") for one in plain
    ]
    now = plain[-1].at
    growing = verdicts(restarted, policy, now=now)["time_to_limit"].growth
    assert growing is None or growing.per_day == pytest.approx(1e8, rel=0.02)
    assert verdicts(restarted, policy, now=now)["time_to_limit"].value is not None
    # A restore goes back in the batches: the state before is another one.
    shape = [100e9 if number < 400 else 20e9 + 1e7 * number for number in range(800)]
    gone_back = [
        Point(
            BEGIN + timedelta(minutes=10 * number),
            number if number < 400 else number - 300,
            "a" if number < 400 else "b",
            1 if number < 400 else 2,
            {"state_bytes": value},
        )
        for number, value in enumerate(shape)
    ]
    rate = verdicts(gone_back, now=gone_back[-1].at)["growth"].growth
    assert rate is not None and rate.per_day == pytest.approx(1e7 * 144, rel=0.02)
    same = [replace(one, batch=number) for number, one in enumerate(gone_back)]
    known = Facts(breaks=(gone_back[400].at,))
    told = verdicts(same, facts=known, now=gone_back[-1].at)["growth"].growth
    assert told is not None and told.per_day == pytest.approx(1e7 * 144, rel=0.02)


REPORTED: Mapping[str, tuple[Facts, Facts, Declared]] = {
    "savepoint_age": (
        Facts(savepoints=(Fact(NOW - 59 * MINUTE, subject="b1"), Fact(NOW - 300 * MINUTE))),
        Facts(savepoints=(Fact(NOW - 61 * MINUTE, subject="b1"),)),
        Declared(breach=3600.0),
    ),
    "failed_batches": (
        Facts(failures=(Fact(NOW - 60 * MINUTE, 1, "driver 1", "exit code 1"),)),
        Facts(failures=tuple(Fact(NOW + n * MINUTE, 1, f"driver {n}", "exit code 1") for n in range(4))),
        Declared(),
    ),
    "recovery_time": (
        Facts(recoveries=(Fact(NOW - timedelta(days=1), 40.0), Fact(NOW - timedelta(days=40), 4000.0))),
        Facts(recoveries=(Fact(NOW - timedelta(days=1), 301.0, what="A restore."),)),
        Declared(),
    ),
    "partition_skew": (
        Facts(skews=(Fact(NOW, 2.9, "operator 0"),)),
        Facts(skews=(Fact(NOW, 2.9, "operator 0"), Fact(NOW, 5.0, "operator 1", "Partition 7 has 5 GB."))),
        Declared(breach=4.0),
    ),
    "hot_key": (
        Facts(hot_keys=(Fact(NOW, 9.0),)),
        Facts(hot_keys=(Fact(NOW, 99.0, "JFK"),)),
        Declared(breach=50),
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_each_objective_about_what_was_found_is_kept_or_broken_or_unknown(name: str) -> None:
    kept, broken, declared = REPORTED[name]
    policy, history = declare(**{name: declared}), batches([STEADY] * 5)
    assert verdicts(history, policy, kept)[name].level == "ok"
    verdict = verdicts(history, policy, broken)[name]
    assert verdict.level == "breach" and verdict.advice
    assert (verdict.since is None) == (name in ("partition_skew", "hot_key"))
    nobody = verdicts(history, policy)[name]
    assert nobody.level == "unknown" and "Nobody looked" in nobody.why


def test_each_reported_objective_has_a_case() -> None:
    reported = {name for name, measure in MEASURES.items() if measure.kind == "reported"}
    assert reported == {*REPORTED, "progress_age"}


def test_a_query_that_stands_still_is_told_by_the_age_of_its_newest_batch() -> None:
    policy = declare(progress_age=Declared(breach=600.0))
    assert verdicts(batches([STEADY] * 5), policy)["progress_age"].level == "ok"
    still = verdicts(batches([STEADY] * 5, until=NOW - 20 * MINUTE), policy)["progress_age"]
    assert still.level == "breach" and still.since == NOW - 10 * MINUTE - timedelta(seconds=1)
    assert verdicts([], policy)["progress_age"].level == "unknown"


def test_three_failures_in_a_row_are_tolerated_and_a_commit_ends_the_row() -> None:
    def failed(count: int) -> Verdict:
        facts = Facts(failures=[Fact(NOW + n * MINUTE, 1, f"driver {n}") for n in range(count)])
        return verdicts(batches([STEADY] * 5), None, facts)["failed_batches"]

    assert [failed(count).level for count in range(6)] == ["ok", "warn", "warn", "warn", "breach", "breach"]
    committed = batches([STEADY] * 5, until=NOW + 10 * MINUTE)
    facts = Facts(failures=[Fact(NOW + n * MINUTE) for n in range(9)])
    assert verdicts(committed, None, facts)["failed_batches"].value == 0


def test_no_savepoint_at_all_is_worse_than_an_old_one() -> None:
    found = verdicts(batches([STEADY]), declare(savepoint_age=Declared(breach=60.0)), Facts(savepoints=()))
    assert found["savepoint_age"].level == "breach" and found["savepoint_age"].value is None
    warned = verdicts(batches([STEADY]), declare(savepoint_age=Declared(warn=60.0)), Facts(savepoints=()))
    assert warned["savepoint_age"].level == "warn"


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
