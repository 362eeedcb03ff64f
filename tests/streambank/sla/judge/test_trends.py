"""What a trend foretells, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from streambank.declaration.sla import Declared
from streambank.sla.history.point import Point
from streambank.sla.judge.facts import Facts
from tests.support.sla.judged_histories import days_of, declare, verdicts
from tests.support.sla.series import BEGIN, both, leak, noisy, points, wave


def test_a_leak_is_foretold_before_its_limit_with_the_error_stated() -> None:
    found = days_of(declare(state_bytes=Declared(breach=60e9)))
    assert found["state_bytes"].level == "warn"
    rate, reach = found["growth"], found["time_to_limit"]
    assert rate.level == "warn" and rate.value == pytest.approx(2e9 / 24, rel=0.02)
    # 30 GB + 8 days of 2 GB + the crest of 5 GB: 9 GB to go.
    assert reach.level == "warn" and reach.value == pytest.approx(4.5 * 86_400, rel=0.1)
    assert reach.limit == 7 * 86_400 and "state_bytes reaches 60 GB in 4 d" in reach.why
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
    assert still["time_to_limit"].value is None and "Nothing certainly grows" in still["time_to_limit"].why
    assert "may be chance" in still["growth"].why


def test_a_query_that_stands_still_grows_no_more() -> None:
    history = points("state_bytes", leak(2e9, 30e9), days=8)
    policy = declare(state_bytes=Declared(breach=55e9))
    soon = verdicts(history, policy, now=history[-1].at)["time_to_limit"]
    later = verdicts(history, policy, now=history[-1].at + timedelta(days=1))["time_to_limit"]
    assert soon.value is not None and later.value == pytest.approx(soon.value - 86_400, abs=1)
    stopped = verdicts(history, policy, now=history[-1].at + timedelta(days=2, hours=1))
    assert stopped["time_to_limit"].level == stopped["growth"].level == "unknown"
    assert "while no batch runs" in stopped["growth"].why


def test_a_size_without_enough_history_is_said_beside_one_that_has_it() -> None:
    history = points("state_bytes", leak(2e9, 30e9), days=8)
    history[-1] = replace(history[-1], values={**history[-1].values, "checkpoint_bytes": 5e9})
    policy = declare(checkpoint_bytes=Declared(breach=1e12))
    found = verdicts(history, policy, now=history[-1].at)["time_to_limit"]
    assert found.subject == "state_bytes" and found.evidence[-1].startswith("checkpoint_bytes: A trend needs")


def test_a_short_history_never_breaks_by_its_trend_and_less_is_unknown() -> None:
    history = points("state_bytes", leak(50e9, 1e9), days=0.2, every_s=30)
    found = verdicts(history, now=history[-1].at)
    assert found["time_to_limit"].level == "warn" and found["growth"].level == "warn"
    assert any("daily wave" in line for line in found["time_to_limit"].evidence)
    strict = verdicts(history, declare(growth=Declared(breach=2e6)), now=history[-1].at)["growth"]
    assert (strict.level, strict.limit) == ("warn", 1e6) and strict.value == pytest.approx(
        50e9 / 24, rel=0.01
    )
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
