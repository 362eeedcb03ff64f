"""Objectives about what is not in the history: kept, broken, and what nobody looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streambank.declaration.objectives import PROMISES, Promise
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.driver.launchers.disks import Disk, DiskLocation
from streambank.inputs.replayable import Replayable
from streambank.job.alive import Life
from streambank.kafka.retention import KafkaReplay
from streambank.sla.fact import Fact
from streambank.sla.judge.facts import REPORTED as OBJECTS
from streambank.sla.judge.facts import Facts
from streambank.sla.judge.reported import ReportedObjective
from streambank.sla.judge.running import Sign
from streambank.sla.judge.savepoints import Drills, Elsewhere, NewestSavepoints
from streambank.sla.judge.spread import Spread
from streambank.sla.verdict import Verdict
from streambank.storage.local.space import Space
from tests.support.sla.judged_histories import MINUTE, NOW, STEADY, batches, declare, verdicts


def held(minutes: float) -> KafkaReplay:
    """A source that can be read again for so long from now."""
    return KafkaReplay("0", ("flights",), "until", NOW + minutes * MINUTE, "retention.ms")


def disk(free_mb: int) -> Disk:
    space = Space(f"/mnt/{free_mb}", free_mb, free_mb * 1_000_000, 10**12, None, read_only=False)
    return Disk(space, (DiskLocation("checkpoint", f"/mnt/{free_mb}/checkpoint"),))


def judged(name: str, fact: Any, declared: Declared | None = None, **more: Any) -> Verdict:
    """The verdict on a fact, of a query whose newest batch has just been committed."""
    policy = declare(**{name: declared or Declared()})
    return verdicts(batches([STEADY] * 5, **more), policy, Facts({name: fact}))[name]


REPORTED: Mapping[str, tuple[Any, Any, Declared]] = {
    "alive": (
        Life(True, up=False, down_since=NOW - 5 * MINUTE),
        Life(True, up=False, down_since=NOW - 6 * MINUTE, down_why="It died."),
        Declared(),
    ),
    "free_space": (
        (disk(9_000), disk(2_000)),
        (disk(900), disk(59)),
        Declared(breach=60e6),
    ),
    "restart_rate": (
        [Fact(NOW - n * MINUTE, 1, f"driver {n}") for n in range(2)],
        [Fact(NOW - n * MINUTE, 1, f"driver {n}") for n in range(10)],
        Declared(),
    ),
    "savepoint_age": (
        NewestSavepoints((Fact(NOW - 59 * MINUTE, subject="b1"), Fact(NOW - 300 * MINUTE))),
        NewestSavepoints((Fact(NOW - 61 * MINUTE, subject="b1"),)),
        Declared(breach=3600.0),
    ),
    "replayable_for": (
        Replayable("b1", (held(61), KafkaReplay("1", (), "for-ever", None, ""))),
        Replayable("b1", (KafkaReplay("1", (), "for-ever", None, ""), held(59))),
        Declared(breach=3600.0),
    ),
    "replica_age": (
        Elsewhere({"s3://west": Fact(NOW - 59 * MINUTE, subject="b1")}),
        Elsewhere(
            {
                "s3://west": Fact(NOW - 61 * MINUTE, subject="b1"),
                "s3://south": Fact(NOW - 2 * MINUTE, subject="b2"),
            }
        ),
        Declared(breach=3600.0),
    ),
    "copy_age": (
        Elsewhere({"staging": Fact(NOW - 59 * MINUTE, subject="b1")}),
        Elsewhere(
            {
                "staging": Fact(NOW - 61 * MINUTE, subject="b1"),
                "analysis": Fact(NOW - 2 * MINUTE, subject="b2"),
            }
        ),
        Declared(breach=3600.0),
    ),
    "drill_age": (
        Drills(NOW - 59 * MINUTE),
        Drills(NOW - 61 * MINUTE),
        Declared(breach=3600.0),
    ),
    "failed_batches": (
        (Fact(NOW - 60 * MINUTE, 1, "driver 1", "exit code 1"),),
        tuple(Fact(NOW + n * MINUTE, 1, f"driver {n}", "exit code 1") for n in range(4)),
        Declared(),
    ),
    "recovery_time": (
        (Fact(NOW - timedelta(days=1), 40.0), Fact(NOW - timedelta(days=40), 4000.0)),
        (Fact(NOW - timedelta(days=1), 301.0, what="A restore."),),
        Declared(),
    ),
    "partition_skew": (
        Spread((Fact(NOW, 2.9, "operator 0"),)),
        Spread((Fact(NOW, 2.9, "operator 0"), Fact(NOW, 5.0, "operator 1", "Partition 7 has 5 GB."))),
        Declared(breach=4.0),
    ),
    "hot_key": (
        Spread((Fact(NOW, 9.0),)),
        Spread((Fact(NOW, 99.0, "JFK"),)),
        Declared(breach=50),
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_each_objective_about_what_was_found_is_kept_or_broken_or_unknown(name: str) -> None:
    kept, broken, declared = REPORTED[name]
    assert judged(name, kept, declared).level == "ok"
    verdict = judged(name, broken, declared)
    assert verdict.level == "breach" and verdict.advice
    assert (verdict.since is None) == (name in ("free_space", "partition_skew", "hot_key"))
    nobody = judged(name, None, declared)
    assert nobody.level == "unknown" and "Not measured" in nobody.why


def test_each_reported_objective_has_an_object_and_a_case() -> None:
    reported = {name for name, promise in PROMISES.items() if promise.kind == "reported"}
    assert reported == OBJECTS.keys() == {*REPORTED, "progress_age"}


def test_an_objective_is_added_by_its_row_and_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Promise("reported", "count", "open windows", "Close one.", breach=2.0)
    windows: ReportedObjective[int] = ReportedObjective(
        "Its windows", lambda *_: 3, lambda case, count: case.verdict("ok", f"It has {count}.")
    )
    monkeypatch.setitem(PROMISES, "windows", row)
    monkeypatch.setitem(OBJECTS, "windows", windows)
    assert judged("windows", 3).why == "It has 3."
    assert judged("windows", None).why == "Not measured: open windows."


def test_why_traffic_is_not_measured_stands_beside_a_hot_key_that_is_not_known() -> None:
    verdict = judged("hot_key", Spread(None, "operator 0 (Join): two sides"))
    assert (verdict.level, verdict.evidence) == ("unknown", ("operator 0 (Join): two sides.",))


def test_state_that_is_even_does_not_answer_for_traffic_that_is_not_measured() -> None:
    kept, broken, declared = REPORTED["hot_key"]
    verdict = judged("hot_key", replace(kept, why="it is too old"), declared)
    assert (verdict.level, verdict.evidence) == ("unknown", ("it is too old.",))
    assert judged("hot_key", replace(broken, why="it is too old"), declared).level == "breach"


def test_a_query_that_stands_still_is_told_by_the_age_of_its_newest_batch() -> None:
    declared = Declared(breach=600.0)
    assert judged("progress_age", None, declared).level == "ok"
    still = judged("progress_age", None, declared, until=NOW - 20 * MINUTE)
    assert still.level == "breach" and still.since == NOW - 10 * MINUTE - timedelta(seconds=1)
    assert verdicts([], declare(progress_age=declared))["progress_age"].level == "unknown"


def test_an_idle_query_is_told_from_one_that_hangs_by_its_drivers_word() -> None:
    """Without new input no batch is committed, however well the query is."""

    def level(sign: Sign | None, declared: Declared | None = None) -> str:
        return judged("progress_age", sign, declared, until=NOW - timedelta(days=1)).level

    assert level(Sign(NOW - 10 * MINUTE)) == "ok"
    assert level(Sign(NOW - 31 * MINUTE)) == "breach"
    assert level(Sign(NOW - 170 * MINUTE, limit_s=3 * 3600.0)) == "ok", "its trigger comes once an hour"
    assert level(Sign(over="it is meant to be stopped")) == "ok"
    assert level(None) == "unknown" == level(Sign()), "a checkpoint alone does not tell"
    ended = Sign(over="its application ran to its end", finished=True)
    assert level(ended) == "ok"
    assert level(ended, Declared(breach=3600.0)) == "breach", "it is meant to run again each night"


def test_a_job_that_runs_unwatched_is_broken_and_one_that_was_stopped_is_not() -> None:
    left = judged(
        "alive",
        Life(True, up=True, unwatched_since=NOW - 20 * MINUTE, unwatched_why="Nothing has watched it."),
    )
    assert left.level == "breach" and left.since == NOW - 20 * MINUTE and left.value == 1200.0
    assert left.why == (
        "It runs, but has had no watcher to restart it for 20 min, above the limit of 5 min. "
        "Nothing has watched it."
    )
    both = judged(
        "alive",
        Life(
            True,
            up=False,
            down_since=NOW - 30 * MINUTE,
            down_why="No driver lives.",
            unwatched_since=NOW - 20 * MINUTE,
            unwatched_why="Its watcher is gone.",
        ),
    )
    assert both.since == NOW - 30 * MINUTE and both.why.endswith("No driver lives. Its watcher is gone.")
    assert judged("alive", Life(False, "it is meant to be stopped")).level == "ok"
    assert judged("alive", Life(True, up=True, watched=True)).level == "ok"
    assert judged("alive", Life(True, up=None)).level == "unknown"


def test_a_job_without_a_savepoint_has_as_long_as_its_schedule_gives() -> None:
    policy = SlaPolicy(usual={"savepoint_age": 10_800.0})

    def level(minutes: int | None) -> str:
        begun = None if minutes is None else NOW - minutes * MINUTE
        facts = Facts({"savepoint_age": NewestSavepoints((), begun)})
        return verdicts(batches([STEADY]), policy, facts)["savepoint_age"].level

    assert [level(None), level(2), level(179), level(181)] == ["unknown", "ok", "ok", "breach"]


def test_three_failures_in_a_row_are_tolerated_and_a_commit_ends_the_row() -> None:
    def failed(count: int, **more: Any) -> Verdict:
        return judged(
            "failed_batches", [Fact(NOW + n * MINUTE, 1, f"driver {n}") for n in range(count)], **more
        )

    assert [failed(count).level for count in range(6)] == ["ok", "warn", "warn", "warn", "breach", "breach"]
    assert failed(9, until=NOW + 10 * MINUTE).value == 0


WEEKLY = Declared(breach=8 * 86_400.0)


def test_a_job_without_a_drill_that_passed_has_as_long_as_the_limit_gives() -> None:
    assert judged("drill_age", Drills(), WEEKLY).level == "unknown", "it was never started"
    assert judged("drill_age", Drills(begun=NOW - timedelta(days=7)), WEEKLY).level == "ok"
    old = judged("drill_age", Drills(begun=NOW - timedelta(days=9)), WEEKLY)
    assert old.level == "breach" and old.since == NOW - timedelta(days=1)
    assert old.why.startswith("No drill of it has passed, and its checkpoint has an age of 9 d")


DAMAGED = "The newest drill failed at the step restore: It is damaged."


@pytest.mark.parametrize(
    ("days", "failed", "not_run", "level", "end"),
    [
        (7, DAMAGED, "", "ok", DAMAGED),
        (9, DAMAGED, "", "breach", DAMAGED),
        (1, "", "Its sink is a table.", "ok", " It proved the savepoint alone: Its sink is a table."),
    ],
)
def test_the_newest_drill_says_what_it_did_not_prove(
    days: int, failed: str, not_run: str, level: str, end: str
) -> None:
    verdict = judged("drill_age", Drills(NOW - timedelta(days=days), failed, not_run=not_run), WEEKLY)
    assert verdict.level == level and verdict.why.endswith(end)


GONE = KafkaReplay("1", (), "gone", None, "Source 1 has read 2 files after the savepoint.")
AWAY = KafkaReplay("2", ("late",), "not-known", None, "Kafka is down.")
EVER = KafkaReplay("3", (), "for-ever", None, "its files are there")


@pytest.mark.parametrize(
    ("sources", "level", "value", "why"),
    [
        ((held(700), EVER), "ok", 42_000.0, "for 11 h 40 min, not below the warning of 6 h"),
        ((held(300), EVER), "warn", 18_000.0, "can be read again for 5 h, below the warning of 6 h"),
        ((held(59), AWAY), "breach", 3540.0, "for 59 min, below the limit of 1 h: retention.ms."),
        ((held(-5),), "breach", 0.0, "may be deleted at any moment: retention.ms."),
        ((held(59), GONE), "breach", 0.0, "Part of the input after the newest savepoint, b1, is gone."),
        ((held(700), AWAY), "unknown", None, "It is not known how long"),
        ((AWAY,), "unknown", None, "b1, can be read again: Kafka is down."),
        ((EVER,), "ok", None, "Nothing limits how long"),
        ((), "ok", None, "Nothing limits how long"),
    ],
)
def test_the_source_that_ends_first_says_how_long_the_input_can_be_read_again(
    sources: tuple[KafkaReplay, ...], level: str, value: float | None, why: str
) -> None:
    declared = Declared(warn=6 * 3600.0, breach=3600.0)
    found = judged("replayable_for", Replayable("b1", sources), declared)
    assert (found.level, found.value) == (level, value)
    assert why in found.why
    assert len(found.evidence) == len(sources)
    assert ("Take a savepoint now" in found.advice) == (level in ("warn", "breach"))


def test_what_is_gone_is_below_any_limit_and_no_savepoint_needs_no_input() -> None:
    at_all = Declared(breach=0.0)
    levels = [judged("replayable_for", Replayable("b1", (one,)), at_all).level for one in (held(-5), GONE)]
    assert levels == ["ok", "breach"]
    assert judged("replayable_for", Replayable(), at_all).level == "unknown"


@pytest.mark.parametrize("name", ["replica_age", "copy_age"])
def test_a_place_without_a_savepoint_is_worse_than_an_old_one(name: str) -> None:
    def found(known: Mapping[str, Fact | None]) -> Verdict:
        return judged(name, Elsewhere(known), Declared(breach=60.0))

    empty = found({"west": Fact(NOW), "south": None})
    assert (empty.level, empty.value) == ("breach", None) and "south" in empty.why
    assert found({"west": Fact(NOW, subject="b9")}).level == "ok", "no batch is newer"
    assert found({}).level == "unknown", "it has no such place"


@pytest.mark.parametrize("name", ["replica_age", "copy_age"])
def test_a_place_that_cannot_be_read_hides_no_other_one_that_is_too_old(name: str) -> None:
    def found(known: Mapping[str, Fact | None]) -> Verdict:
        return judged(name, Elsewhere(known, {"away": "It is away."}), Declared(breach=60.0))

    assert found({"west": Fact(NOW - 59 * MINUTE, subject="b1")}).level == "breach"
    assert found({}).level == "unknown"
    new = found({"west": Fact(NOW, subject="b9")})
    assert new.level == "unknown" and "away" in new.why


def test_no_savepoint_at_all_is_worse_than_an_old_one() -> None:
    broken = judged("savepoint_age", NewestSavepoints(()), Declared(breach=60.0))
    assert (broken.level, broken.value) == ("breach", None)
    assert judged("savepoint_age", NewestSavepoints(()), Declared(warn=60.0)).level == "warn"


def test_the_advice_of_a_slow_recovery_is_that_of_its_longest_step() -> None:
    slow = Fact(NOW - timedelta(days=1), 900.0, what="A start.", advice="Look at the launch.")
    quick = Fact(NOW - timedelta(days=2), 20.0, what="A start.", advice="Look at the batch.")
    both = judged("recovery_time", (slow, quick))
    assert (both.level, both.advice) == ("breach", "Look at the launch.")
    assert judged("recovery_time", (quick,)).advice == ""
