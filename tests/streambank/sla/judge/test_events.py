"""Objectives about what is not in the history: kept, broken, and what nobody looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from streambank.declaration.objectives import PROMISES
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.driver.launchers.disks import Disk, DiskLocation
from streambank.inputs.replayable import Replayable
from streambank.job.alive import Life
from streambank.kafka.retention import KafkaReplay
from streambank.sla.fact import Fact
from streambank.sla.judge.events import Drills, Facts, Sign
from streambank.sla.verdict import Verdict
from streambank.storage.local.space import Space
from tests.support.sla.judged_histories import MINUTE, NOW, STEADY, batches, declare, verdicts


def held(minutes: float) -> KafkaReplay:
    """A source that can be read again for so long from now."""
    return KafkaReplay("0", ("flights",), "until", NOW + minutes * MINUTE, "retention.ms")


def disk(free_mb: int) -> Disk:
    space = Space(f"/mnt/{free_mb}", free_mb, free_mb * 1_000_000, 10**12, None, read_only=False)
    return Disk(space, (DiskLocation("checkpoint", f"/mnt/{free_mb}/checkpoint"),))


REPORTED: Mapping[str, tuple[Facts, Facts, Declared]] = {
    "alive": (
        Facts(life=Life(True, up=False, down_since=NOW - 5 * MINUTE)),
        Facts(life=Life(True, up=False, down_since=NOW - 6 * MINUTE, down_why="It died.")),
        Declared(),
    ),
    "free_space": (
        Facts(disks=(disk(9_000), disk(2_000))),
        Facts(disks=(disk(900), disk(59))),
        Declared(breach=60e6),
    ),
    "restart_rate": (
        Facts(restarts=[Fact(NOW - n * MINUTE, 1, f"driver {n}") for n in range(2)]),
        Facts(restarts=[Fact(NOW - n * MINUTE, 1, f"driver {n}") for n in range(10)]),
        Declared(),
    ),
    "savepoint_age": (
        Facts(savepoints=(Fact(NOW - 59 * MINUTE, subject="b1"), Fact(NOW - 300 * MINUTE))),
        Facts(savepoints=(Fact(NOW - 61 * MINUTE, subject="b1"),)),
        Declared(breach=3600.0),
    ),
    "replayable_for": (
        Facts(replayable=Replayable("b1", (held(61), KafkaReplay("1", (), "for-ever", None, "")))),
        Facts(replayable=Replayable("b1", (KafkaReplay("1", (), "for-ever", None, ""), held(59)))),
        Declared(breach=3600.0),
    ),
    "replica_age": (
        Facts(replicas={"s3://west": Fact(NOW - 59 * MINUTE, subject="b1")}),
        Facts(
            replicas={
                "s3://west": Fact(NOW - 61 * MINUTE, subject="b1"),
                "s3://south": Fact(NOW - 2 * MINUTE, subject="b2"),
            }
        ),
        Declared(breach=3600.0),
    ),
    "copy_age": (
        Facts(copies={"staging": Fact(NOW - 59 * MINUTE, subject="b1")}),
        Facts(
            copies={
                "staging": Fact(NOW - 61 * MINUTE, subject="b1"),
                "analysis": Fact(NOW - 2 * MINUTE, subject="b2"),
            }
        ),
        Declared(breach=3600.0),
    ),
    "drill_age": (
        Facts(drills=Drills(NOW - 59 * MINUTE)),
        Facts(drills=Drills(NOW - 61 * MINUTE)),
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
    assert (verdict.since is None) == (name in ("free_space", "partition_skew", "hot_key"))
    nobody = verdicts(history, policy)[name]
    assert nobody.level == "unknown" and "Not measured" in nobody.why


def test_why_traffic_is_not_measured_stands_beside_a_hot_key_that_is_not_known() -> None:
    facts = Facts(no_traffic="operator 0 (Join): two sides")
    verdict = verdicts(batches([STEADY] * 5), facts=facts)["hot_key"]
    assert (verdict.level, verdict.evidence) == ("unknown", ("operator 0 (Join): two sides.",))


def test_state_that_is_even_does_not_answer_for_traffic_that_is_not_measured() -> None:
    kept, broken, declared = REPORTED["hot_key"]
    policy, history, why = declare(hot_key=declared), batches([STEADY] * 5), "it is too old"
    verdict = verdicts(history, policy, replace(kept, no_traffic=why))["hot_key"]
    assert (verdict.level, verdict.evidence) == ("unknown", ("it is too old.",))
    assert verdicts(history, policy, replace(broken, no_traffic=why))["hot_key"].level == "breach"


def test_each_reported_objective_has_a_case() -> None:
    reported = {name for name, promise in PROMISES.items() if promise.measure.kind == "reported"}
    assert reported == {*REPORTED, "progress_age"}


def test_a_query_that_stands_still_is_told_by_the_age_of_its_newest_batch() -> None:
    policy = declare(progress_age=Declared(breach=600.0))
    assert verdicts(batches([STEADY] * 5), policy)["progress_age"].level == "ok"
    still = verdicts(batches([STEADY] * 5, until=NOW - 20 * MINUTE), policy)["progress_age"]
    assert still.level == "breach" and still.since == NOW - 10 * MINUTE - timedelta(seconds=1)
    assert verdicts([], policy)["progress_age"].level == "unknown"


def test_an_idle_query_is_told_from_one_that_hangs_by_its_drivers_word() -> None:
    """Without new input no batch is committed, however well the query is."""
    day = batches([STEADY] * 5, until=NOW - timedelta(days=1))

    def level(sign: Sign | None) -> str:
        return verdicts(day, None, Facts(sign=sign))["progress_age"].level

    assert level(Sign(NOW - 10 * MINUTE)) == "ok"
    assert level(Sign(NOW - 31 * MINUTE)) == "breach"
    assert level(Sign(NOW - 170 * MINUTE, limit_s=3 * 3600.0)) == "ok", "its trigger comes once an hour"
    assert level(Sign(over="it is meant to be stopped")) == "ok"
    assert level(None) == "unknown" == level(Sign()), "a checkpoint alone does not tell"
    nightly = declare(progress_age=Declared(breach=3600.0))
    ended = Facts(sign=Sign(over="its application ran to its end", finished=True))
    assert verdicts(day, None, ended)["progress_age"].level == "ok"
    assert verdicts(day, nightly, ended)["progress_age"].level == "breach"


def test_a_job_that_runs_unwatched_is_broken_and_one_that_was_stopped_is_not() -> None:
    def verdict(life: Life) -> Verdict:
        return verdicts([], None, Facts(life=life))["alive"]

    left = verdict(
        Life(True, up=True, unwatched_since=NOW - 20 * MINUTE, unwatched_why="Nothing has watched it.")
    )
    assert left.level == "breach" and left.since == NOW - 20 * MINUTE and left.value == 1200.0
    assert left.why == (
        "It runs, but has had no watcher to restart it for 20 min, above the limit of 5 min. "
        "Nothing has watched it."
    )
    both = verdict(
        Life(
            True,
            up=False,
            down_since=NOW - 30 * MINUTE,
            down_why="No driver lives.",
            unwatched_since=NOW - 20 * MINUTE,
            unwatched_why="Its watcher is gone.",
        )
    )
    assert both.since == NOW - 30 * MINUTE and both.why.endswith("No driver lives. Its watcher is gone.")
    assert verdict(Life(False, "it is meant to be stopped")).level == "ok"
    assert verdict(Life(True, up=True, watched=True)).level == "ok"
    assert verdict(Life(True, up=None)).level == "unknown"


def test_a_job_without_a_savepoint_has_as_long_as_its_schedule_gives() -> None:
    policy = SlaPolicy(usual={"savepoint_age": 10_800.0})

    def level(minutes: int | None) -> str:
        begun = None if minutes is None else NOW - minutes * MINUTE
        return verdicts(batches([STEADY]), policy, Facts(savepoints=(), begun=begun))["savepoint_age"].level

    assert [level(None), level(2), level(179), level(181)] == ["unknown", "ok", "ok", "breach"]


def test_three_failures_in_a_row_are_tolerated_and_a_commit_ends_the_row() -> None:
    def failed(count: int) -> Verdict:
        facts = Facts(failures=[Fact(NOW + n * MINUTE, 1, f"driver {n}") for n in range(count)])
        return verdicts(batches([STEADY] * 5), None, facts)["failed_batches"]

    assert [failed(count).level for count in range(6)] == ["ok", "warn", "warn", "warn", "breach", "breach"]
    committed = batches([STEADY] * 5, until=NOW + 10 * MINUTE)
    facts = Facts(failures=[Fact(NOW + n * MINUTE) for n in range(9)])
    assert verdicts(committed, None, facts)["failed_batches"].value == 0


def test_a_job_without_a_drill_that_passed_has_as_long_as_the_limit_gives() -> None:
    policy = declare(drill_age=Declared(breach=8 * 86_400.0))

    def found(drills: Drills) -> Verdict:
        return verdicts(batches([STEADY]), policy, Facts(drills=drills))["drill_age"]

    assert found(Drills()).level == "unknown", "it was never started"
    assert found(Drills(begun=NOW - timedelta(days=7))).level == "ok"
    old = found(Drills(begun=NOW - timedelta(days=9)))
    assert old.level == "breach" and old.since == NOW - timedelta(days=1)
    assert old.why.startswith("No drill of it has passed, and its checkpoint has an age of 9 d")


def test_the_newest_drill_says_at_which_step_it_failed_and_does_not_count() -> None:
    failed = "The newest drill failed at the step restore: It is damaged."
    policy = declare(drill_age=Declared(breach=8 * 86_400.0))
    for days, level in ((7, "ok"), (9, "breach")):
        drills = Drills(NOW - timedelta(days=days), failed)
        verdict = verdicts(batches([STEADY]), policy, Facts(drills=drills))["drill_age"]
        assert verdict.level == level and verdict.why.endswith(failed)


def test_a_drill_that_did_not_run_the_application_says_so_in_its_verdict() -> None:
    drills = Drills(NOW - timedelta(days=1), not_run="Its sink is foreachBatch.")
    policy = declare(drill_age=Declared(breach=8 * 86_400.0))
    verdict = verdicts(batches([STEADY]), policy, Facts(drills=drills))["drill_age"]
    assert verdict.level == "ok"
    assert verdict.why.endswith(" It proved the savepoint alone: Its sink is foreachBatch.")


GONE = KafkaReplay("1", (), "gone", None, "Source 1 has read 2 files after the savepoint.")
AWAY = KafkaReplay("2", ("late",), "not-known", None, "Kafka is down.")
EVER = KafkaReplay("3", (), "for-ever", None, "its files are there")


@pytest.mark.parametrize(
    ("sources", "level", "value", "why"),
    [
        (
            (held(700), EVER),
            "ok",
            42_000.0,
            "for 11 h 40 min, not below the warning of 6 h",
        ),
        ((held(300), EVER), "warn", 18_000.0, "can be read again for 5 h, below the warning of 6 h"),
        ((held(59), AWAY), "breach", 3540.0, "for 59 min, below the limit of 1 h: retention.ms."),
        ((held(-5),), "breach", 0.0, "may be deleted at any moment: retention.ms."),
        (
            (held(59), GONE),
            "breach",
            0.0,
            "Part of the input after the newest savepoint, b1, is gone.",
        ),
        ((held(700), AWAY), "unknown", None, "It is not known how long"),
        ((AWAY,), "unknown", None, "b1, can be read again: Kafka is down."),
        ((EVER,), "ok", None, "Nothing limits how long"),
        ((), "ok", None, "Nothing limits how long"),
    ],
)
def test_the_source_that_ends_first_says_how_long_the_input_can_be_read_again(
    sources: tuple[KafkaReplay, ...], level: str, value: float | None, why: str
) -> None:
    policy = declare(replayable_for=Declared(warn=6 * 3600.0, breach=3600.0))
    facts = Facts(replayable=Replayable("b1", sources))
    found = verdicts(batches([STEADY]), policy, facts)["replayable_for"]
    assert (found.level, found.value) == (level, value)
    assert why in found.why
    assert len(found.evidence) == len(sources)
    assert ("Take a savepoint now" in found.advice) == (level in ("warn", "breach"))


def test_what_is_gone_is_below_any_limit_and_no_savepoint_needs_no_input() -> None:
    policy = declare(replayable_for=Declared(breach=0.0))

    def level(found: Replayable) -> str:
        return verdicts(batches([STEADY]), policy, Facts(replayable=found))["replayable_for"].level

    assert [level(Replayable("b1", (one,))) for one in (held(-5), GONE)] == ["ok", "breach"]
    assert level(Replayable()) == "unknown"


def test_a_replica_without_a_savepoint_is_worse_than_an_old_one() -> None:
    policy = declare(replica_age=Declared(breach=60.0))

    def found(replicas: Mapping[str, Fact | None]) -> Verdict:
        return verdicts(batches([STEADY]), policy, Facts(replicas=replicas))["replica_age"]

    empty = found({"s3://west": Fact(NOW), "s3://south": None})
    assert (empty.level, empty.value) == ("breach", None) and "s3://south" in empty.why
    assert found({"s3://west": Fact(NOW, subject="b9")}).level == "ok", "no batch is newer"
    assert found({}).level == "unknown", "it has no replica"


def test_a_replica_that_cannot_be_read_hides_no_other_one_that_is_too_old() -> None:
    policy = declare(replica_age=Declared(breach=60.0))
    old, new = {"s3://west": Fact(NOW - 59 * MINUTE, subject="b1")}, {"s3://west": Fact(NOW, subject="b9")}

    def level(replicas: Mapping[str, Fact | None]) -> Verdict:
        facts = Facts(replicas=replicas, unknown_replicas=("s3://away",))
        return verdicts(batches([STEADY]), policy, facts)["replica_age"]

    assert (level(old).level, level(new).level, level({}).level) == ("breach", "unknown", "unknown")
    assert "s3://away" in level(new).why


def test_a_copy_that_was_never_made_is_worse_than_an_old_one() -> None:
    policy = declare(copy_age=Declared(breach=60.0))

    def found(copies: Mapping[str, Fact | None]) -> Verdict:
        return verdicts(batches([STEADY]), policy, Facts(copies=copies))["copy_age"]

    missing = found({"staging": Fact(NOW), "analysis": None})
    assert (missing.level, missing.value) == ("breach", None) and "analysis" in missing.why
    assert found({"staging": Fact(NOW, subject="b9")}).level == "ok", "no batch is newer"
    assert found({}).level == "unknown", "no copy is declared"


def test_no_savepoint_at_all_is_worse_than_an_old_one() -> None:
    found = verdicts(batches([STEADY]), declare(savepoint_age=Declared(breach=60.0)), Facts(savepoints=()))
    assert found["savepoint_age"].level == "breach" and found["savepoint_age"].value is None
    warned = verdicts(batches([STEADY]), declare(savepoint_age=Declared(warn=60.0)), Facts(savepoints=()))
    assert warned["savepoint_age"].level == "warn"


def test_the_advice_of_a_slow_recovery_is_that_of_its_longest_step() -> None:
    slow = Fact(NOW - timedelta(days=1), 900.0, what="A start.", advice="Look at the launch.")
    quick = Fact(NOW - timedelta(days=2), 20.0, what="A start.", advice="Look at the batch.")
    policy, history = declare(recovery_time=Declared()), batches([STEADY] * 5)
    both = verdicts(history, policy, Facts(recoveries=(slow, quick)))["recovery_time"]
    assert (both.level, both.advice) == ("breach", "Look at the launch.")
    assert verdicts(history, policy, Facts(recoveries=(quick,)))["recovery_time"].advice == ""
