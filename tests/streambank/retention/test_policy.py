"""Which savepoints a policy keeps, and why: a year of them as golden files, and promises as properties."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import InputError, IntegrityError
from streambank.repository.catalog import SavepointSummary
from streambank.retention.policy import Policy, RetentionDecision, decide
from tests.data.retention import make
from tests.support.refuses import refuses

NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def made(hours: float, **more: Any) -> SavepointSummary:
    at = NEW_YEAR + timedelta(hours=hours)
    return SavepointSummary(
        **{"savepoint": f"b{int(hours * 10):06d}", "job": "flights", "batch": 1, "taken_at": at, **more}
    )


def kept(decisions: list[RetentionDecision]) -> list[str]:
    return [decision.summary.savepoint for decision in decisions if decision.keep]


@pytest.mark.parametrize("name", make.POLICIES)
def test_a_year_of_savepoints(name: str) -> None:
    assert make.golden(name) == (make.HERE / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("policy", [Policy(), Policy(min_verified=5)])
def test_an_empty_policy_is_refused(policy: Policy) -> None:
    for summaries in ([], [made(1)]):
        with refuses(InputError, "empty-policy"):
            decide(summaries, policy, NOW)


def test_a_negative_number_is_refused() -> None:
    with refuses(InputError, "bad-policy"):
        decide([made(1)], Policy(keep_last=3, keep_daily=-1), NOW)


def test_each_query_is_judged_by_itself() -> None:
    summaries = [
        made(hours, job=job) for job in ("orders/late", "orders", "orders/early") for hours in (1, 2)
    ]
    decisions = decide(summaries, Policy(keep_last=1), NOW)
    assert [(each.summary.job, each.keep) for each in decisions] == [
        ("orders", True), ("orders", False),
        ("orders/early", True), ("orders/early", False),
        ("orders/late", True), ("orders/late", False),
    ]  # fmt: skip


def test_what_cannot_be_read_stays_and_takes_no_place() -> None:
    error = IntegrityError("The manifest is damaged.", code="record-damaged")
    unreadable = SavepointSummary(savepoint="b000009-x", job="flights", error=error)
    decisions = decide([unreadable, made(1), made(2)], Policy(keep_last=1), NOW)
    assert kept(decisions) == ["b000009-x", "b000020"]
    assert decisions[0].reasons[0].rule == "unreadable" and error.message in decisions[0].reasons[0].why


def test_damaged_ones_take_no_place_from_whole_ones() -> None:
    summaries = [made(1), made(2), made(3, verified_ok=False), made(4, verified_ok=False)]
    decisions = decide(summaries, Policy(keep_last=2, min_verified=0), NOW)
    assert kept(decisions) == ["b000040", "b000030", "b000020", "b000010"]
    decisions = decide(summaries, Policy(keep_last=1, min_verified=0), NOW)
    assert kept(decisions) == ["b000040", "b000020"]
    assert [reason.rule for reason in decisions[1].reasons] == ["damaged", "last"]


def test_those_whose_rehearsal_failed_take_no_place_from_others() -> None:
    summaries = [made(1), made(2), made(3, rejected=True), made(4, rejected=True)]
    decisions = decide(summaries, Policy(keep_last=1, min_verified=0), NOW)
    assert kept(decisions) == ["b000040", "b000020"]
    verified = [made(1, verified_ok=True), made(3, rejected=True, verified_ok=True)]
    assert "b000010" in kept(decide(verified, Policy(keep_last=1, min_verified=1), NOW))


def test_those_of_another_line_take_no_place_from_the_job_s_own() -> None:
    """A site that could not be fenced goes on to save, verified and more often."""
    own = [made(1, verified_ok=True), made(2, verified_ok=True)]
    foreign = [made(hours, verified_ok=True) for hours in (3, 4, 5)]
    others = {(one.job, one.savepoint) for one in foreign}
    for policy in (Policy(keep_last=1), Policy(keep_daily=1), Policy(keep_last=1, max_age_s=1e12)):
        decisions = decide([*own, *foreign], policy, NOW, others=others)
        assert kept(decisions) == ["b000050", "b000020"], "nor is it removed for what it is"
    assert kept(decide([*own, *foreign], Policy(keep_last=1), NOW)) == ["b000050"]


def test_where_all_were_found_damaged_the_policy_still_keeps_them() -> None:
    summaries = [made(hours, verified_ok=False) for hours in range(5)]
    assert len(kept(decide(summaries, Policy(keep_last=3), NOW))) == 3


def test_a_savepoint_from_the_future_does_not_drop_those_of_today() -> None:
    future = made(24 * 365)
    today = NEW_YEAR + timedelta(hours=10)
    decisions = decide([made(1), made(9), future], Policy(keep_within_s=7200, min_verified=0), today)
    assert kept(decisions) == [future.savepoint, "b000090"]
    long_dead = decide([made(1), made(9)], Policy(keep_within_s=7200, min_verified=0), NOW)
    assert kept(long_dead) == ["b000090"]  # a dead job keeps what it had when it died


RULES = [Policy(keep_last=2), Policy(keep_hourly=2), Policy(keep_daily=2), Policy(keep_monthly=2)]


def test_a_savepoint_from_the_future_is_not_called_the_last_one_beside_that_of_today() -> None:
    today = made(9).taken_at
    assert today is not None
    found = decide([made(9), made(24 * 365)], Policy(keep_last=1, min_verified=0), today)
    said = {one.summary.savepoint: [reason.why for reason in one.reasons] for one in found}
    assert sorted(said.values()) == [
        ["one of the last 1"],
        ["one of the last 1, by a time that is in the future"],
    ]


@pytest.mark.parametrize("policy", RULES)
def test_savepoints_from_the_future_take_no_place_from_those_of_today(policy: Policy) -> None:
    """A machine's clock was years ahead for a while: what is taken since must not go at once."""
    future = [made(24 * 365 * years, verified_ok=True) for years in (3, 4, 5)]
    today = NEW_YEAR + timedelta(days=200)
    usual = [made(24 * day, verified_ok=day < 195 or None) for day in (10, 50, 100, 150, 194, 199)]
    promised = kept(decide(usual, policy, today))
    assert usual[-1].savepoint in promised and usual[-2].savepoint in promised
    assert set(promised) < set(kept(decide([*usual, *future], policy, today)))


def test_older_verified_ones_are_no_reason_to_drop_the_newest_verified() -> None:
    """The newest is not verified yet, and months ago there are some that are: none of them stands in."""
    months = [made(24 * 31 * number, verified_ok=True) for number in range(3)]
    last_good, newest = made(24 * 100, verified_ok=True), made(24 * 101)
    for old in (months, [replace(month, pinned=True) for month in months]):
        decisions = decide([*old, last_good, newest], Policy(keep_monthly=12), NOW)
        assert last_good.savepoint in kept(decisions)
        assert [one.rule for one in decisions[1].reasons] == ["min-verified"]


def test_calendars_are_those_of_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    summaries = [
        replace(each, taken_at=each.taken_at.astimezone(tokyo))
        for each in (made(23), made(24), made(47))
        if each.taken_at is not None
    ]
    assert kept(decide(summaries, Policy(keep_daily=2, min_verified=0), NOW)) == ["b000470", "b000230"]


def test_calendars_are_those_of_the_policys_time_zone() -> None:
    policy = Policy(keep_daily=2, min_verified=0, time_zone="Asia/Tokyo")
    decisions = decide([made(14), made(15), made(23), made(24)], policy, NOW)
    assert kept(decisions) == ["b000240", "b000140"]
    assert decisions[0].reasons[0].why == "the newest of 2013-01-02 (Asia/Tokyo)"


def test_a_policy_by_an_unknown_time_zone_is_refused() -> None:
    with refuses(InputError, "bad-time-zone"):
        decide([made(1)], Policy(keep_daily=1, time_zone="Europe/Berln"), NOW)


def test_a_year_that_no_calendar_of_the_zone_has_is_no_mistake_of_the_policy() -> None:
    far = SavepointSummary(
        savepoint="far", job="flights", batch=1, taken_at=datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    )
    policy = Policy(keep_hourly=1, min_verified=0, time_zone="Asia/Tokyo")
    assert kept(decide([far, made(1)], policy, NOW)) == ["far", "b000010"]


numbers = st.integers(0, 4)
policies = st.builds(
    Policy,
    keep_last=numbers, keep_hourly=numbers, keep_daily=numbers, keep_weekly=numbers, keep_monthly=numbers,
    keep_yearly=numbers, keep_within_s=st.sampled_from([0.0, 3600.0, 86400.0, 7 * 86400.0]),
    min_verified=st.integers(0, 6), time_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
).filter(lambda policy: not policy.is_empty)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[SavepointSummary]:
    hours = draw(st.lists(st.floats(0, 9000, allow_nan=False), unique=True, max_size=25))
    broken = IntegrityError("damaged")
    return [
        SavepointSummary(
            savepoint=f"b{number:06d}",
            job=draw(st.sampled_from(["flights", "orders/late"])),
            batch=number,
            taken_at=None if error else NEW_YEAR + timedelta(hours=at),
            error=error,
            pinned=draw(st.integers(0, 9)) == 0,
            verified_ok=None if error else draw(st.sampled_from([True, False, None])),
        )
        for number, at in enumerate(hours)
        for error in [broken if draw(st.integers(0, 14)) == 0 else None]
    ]


@settings(max_examples=120, deadline=None)
@given(histories(), policies)
def test_no_policy_leaves_fewer_than_it_promises(history: list[SavepointSummary], policy: Policy) -> None:
    decisions = decide(history, policy, NOW)

    assert {each.summary.savepoint for each in decisions} == {each.savepoint for each in history}
    for decision in decisions:
        assert decision.reasons
        assert decision.keep or (not decision.summary.pinned and decision.summary.error is None)
    for job in {each.job for each in history}:
        mine = [each for each in decisions if each.summary.job == job]
        verified = [each.keep for each in mine if each.summary.verified_ok]
        assert all(verified[: policy.min_verified])  # the newest ones
        good = [each for each in mine if not each.summary.error and each.summary.verified_ok is not False]
        assert sum(each.keep for each in good) >= min(policy.min_verified, len(good))
        ages = [each for each in good if each.summary.taken_at]
        assert sum(each.keep for each in ages[: policy.keep_last]) == min(policy.keep_last, len(ages))
        assert not ages or ages[0].keep  # every rule keeps the newest
    again = decide([each.summary for each in decisions if each.keep], policy, NOW)
    assert all(each.keep for each in again if each.summary.verified_ok is not False)


@settings(max_examples=40, deadline=None)
@given(histories(), policies, policies)
def test_more_rules_never_keep_less(history: list[SavepointSummary], one: Policy, other: Policy) -> None:
    same_clocks = {**other.to_dict(), "time_zone": one.time_zone}
    both = Policy(**{name: max(value, same_clocks[name]) for name, value in one.to_dict().items()})
    fewer = set(kept(decide(history, replace(one, min_verified=0), NOW)))
    assert fewer <= set(kept(decide(history, both, NOW)))
