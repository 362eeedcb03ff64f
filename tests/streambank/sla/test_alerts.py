"""Once when it breaks, once when it has healed, however often it is judged and whatever goes wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import FormatError
from streambank.declaration.sla import Mute
from streambank.sla.alerts import LevelChange, OpenAlerts, news, read_told, without
from streambank.sla.verdict import LEVELS, Level, Verdict
from tests.support.refuses import refuses

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
HOUR = timedelta(hours=1)
MUTE = Mute(BEGIN + 1000 * HOUR, "known")


def verdict(
    level: Level,
    hour: int = 0,
    *,
    objective: str = "state_bytes",
    query: str = "main",
    mute: Mute | None = None,
) -> Verdict:
    at = BEGIN + hour * HOUR
    since = at - HOUR if level in ("warn", "breach") else None
    return Verdict(
        job="flights", query=query, objective=objective, level=level, why="", since=since, mute=mute, at=at
    )


def through(
    levels: Sequence[Level], *, least: Level = "warn", told: OpenAlerts | None = None
) -> tuple[list[str], OpenAlerts]:
    """Kinds of all news of one objective, hour by hour, and what has been told in the end."""
    kinds: list[str] = []
    for hour, level in enumerate(levels):
        found, told = news([verdict(level, hour)], told or OpenAlerts(), least=least)
        kinds += [f"{one.kind} {one.verdict.level}" for one in found]
    return kinds, told or OpenAlerts()


def test_what_is_of_the_whole_job_is_told_once_and_heals_once_whatever_queries_it_has() -> None:
    def judged(level: Level) -> list[Verdict]:
        return [
            verdict(level, objective=objective, query=query)
            for query in ("left", "right")
            for objective in ("alive", "state_bytes")
        ]

    def keys(found: Sequence[LevelChange]) -> list[tuple[str, str, str]]:
        return [(one.kind, one.verdict.query, one.verdict.objective) for one in found]

    broke, told = news(judged("breach"), OpenAlerts())
    assert keys(broke) == [
        ("broke", "left", "alive"),
        ("broke", "left", "state_bytes"),
        ("broke", "right", "state_bytes"),
    ]
    assert keys(news(judged("breach"), told)[0]) == []
    assert len(news(judged("ok"), told)[0]) == 3
    failed = without(told, OpenAlerts(), broke[:1])
    assert keys(news(judged("breach"), failed)[0]) == [("broke", "left", "alive")], "nobody has got it"


@pytest.mark.parametrize(
    ("levels", "kinds"),
    [
        (["ok", "ok"], []),
        (["breach", "breach", "breach"], ["broke breach"]),
        (["breach", "ok", "ok"], ["broke breach", "healed ok"]),
        (["breach", "ok", "breach"], ["broke breach", "healed ok", "broke breach"]),
        (["warn", "breach", "warn", "breach", "ok"], ["broke warn", "worse breach", "healed ok"]),
        (["breach", "unknown", "unknown", "breach"], ["broke breach"]),
        (["breach", "unknown", "ok"], ["broke breach", "healed ok"]),
        (["unknown", "ok"], []),
    ],
)
def test_each_breach_is_told_once_and_each_healing_once(levels: list[Level], kinds: list[str]) -> None:
    assert through(levels)[0] == kinds


def test_warnings_may_be_left_untold() -> None:
    assert through(["warn", "breach", "warn", "ok"], least="breach")[0] == ["broke breach", "healed ok"]
    assert through(["warn", "ok"], least="breach") == ([], OpenAlerts())


def test_what_is_told_says_since_when_and_what_it_was() -> None:
    (first,), told = news([verdict("warn", 5)], OpenAlerts())
    assert (first.since, first.was) == (BEGIN + 4 * HOUR, None)
    (worse,), told = news([verdict("breach", 6)], told)
    assert (worse.since, worse.was) == (BEGIN + 4 * HOUR, "warn")
    (healed,), told = news([verdict("ok", 7)], told)
    assert (healed.since, healed.was) == (BEGIN + 4 * HOUR, "breach") and not told.open
    assert json.loads(json.dumps(healed.to_dict()))["was"] == "breach"


def test_what_heals_and_breaks_again_while_nobody_judges_began_the_second_time() -> None:
    _, told = news([verdict("warn", 5)], OpenAlerts())
    (worse,), told = news([verdict("breach", 9)], told)
    assert worse.since == BEGIN + 8 * HOUR
    assert news([verdict("breach", 20)], told)[0] == ()
    (healed,), _ = news([verdict("ok", 21)], news([verdict("breach", 20)], told)[1])
    assert healed.since == BEGIN + 19 * HOUR


def test_what_breaks_under_a_mute_is_told_when_the_mute_ends_and_so_is_a_healing() -> None:
    found, told = news([verdict("breach", mute=MUTE)], OpenAlerts())
    assert found == () and told == OpenAlerts()
    (late,), told = news([verdict("breach", 1)], told)
    assert late.kind == "broke"
    found, told = news([verdict("ok", 2, mute=MUTE)], told)
    assert found == () and len(told.open) == 1
    (healed,), told = news([verdict("ok", 3)], told)
    assert healed.kind == "healed" and not told.open


def test_a_notifier_that_fails_is_asked_again_since_nothing_was_kept() -> None:
    before = OpenAlerts()
    first, _ = news([verdict("breach", 1)], before)
    again, after = news([verdict("breach", 2)], before)
    assert [one.kind for one in first] == [one.kind for one in again] == ["broke"]
    assert news([verdict("breach", 3)], after)[0] == ()


def test_queries_and_objectives_are_told_apart_and_what_is_gone_is_forgotten() -> None:
    both = [verdict("breach"), verdict("breach", query="right"), verdict("ok", objective="growth")]
    found, told = news(both, OpenAlerts())
    assert [one.verdict.query for one in found] == ["main", "right"]
    found, told = news([verdict("breach", 1)], told)
    assert found == () and [*told.open] == [("flights", "main", "state_bytes")]


@given(st.lists(st.tuples(st.sampled_from(LEVELS), st.booleans(), st.booleans()), max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_breach_goes_untold_and_no_news_comes_twice(hours: list[tuple[Level, bool, bool]]) -> None:
    """Levels, whether it is muted, and whether the telling works."""
    told = OpenAlerts()
    kept: list[LevelChange] = []
    for hour, (level, muted, works) in enumerate(hours):
        found, after = news([verdict(level, hour, mute=MUTE if muted else None)], told)
        assert len(found) <= 1 and not (muted and found)
        if works:
            told = after
            kept += found
        if works and not muted and level in ("warn", "breach"):
            (one,) = told.open.values()
            assert LEVELS.index(one.level) >= LEVELS.index(level)
        assert read_told(json.loads(json.dumps(told.to_dict()))) == told
    kinds = [one.kind for one in kept]
    # Between a beginning and the next there is a healing, and a healing has its beginning.
    rounds = "".join({"broke": "b", "worse": "w", "healed": "h"}[kind] for kind in kinds)
    assert all(part in ("b", "bw") for part in rounds.split("h")[:-1])
    assert rounds.split("h")[-1] in ("", "b", "bw")


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"format": 2, "open": []},
        {"format": 1, "open": 5},
        {"format": 1, "open": [{}]},
        {
            "format": 1,
            "open": [
                {
                    "job": "a",
                    "query": "main",
                    "objective": "x",
                    "level": "ok",
                    "since": "2026-11-21T00:00:00Z",
                    "told_at": "2026-11-21T00:00:00Z",
                }
            ],
        },
    ],
)
def test_a_record_that_cannot_be_read_is_said(data: object) -> None:
    with refuses(FormatError, "bad-told") as caught:
        read_told(data)
    assert "reported once more" in caught.value.hint


def test_what_nobody_got_stays_news() -> None:
    before = news([verdict("warn"), verdict("breach", objective="pause")], OpenAlerts())[1]
    now = [
        verdict("breach", 1),
        verdict("ok", 1, objective="pause"),
        verdict("breach", 1, objective="growth"),
        verdict("breach", 1, objective="hot_key"),
    ]
    found, after = news(now, before)

    told = without(after, before, found[1:])

    assert [(one.kind, one.verdict.objective) for one in found] == [
        ("worse", "state_bytes"),
        ("healed", "pause"),
        ("broke", "growth"),
        ("broke", "hot_key"),
    ]
    assert news(now, told) == (found[1:], after)
    assert without(after, before, found) == before
    assert without(after, before, ()) == after
