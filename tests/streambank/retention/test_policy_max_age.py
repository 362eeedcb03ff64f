"""A limit of age goes before pins and promises: never without a word, and never while a savepoint is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import InputError, IntegrityError
from streambank.core.verb_options import ExpireOptions
from streambank.repository.catalog import SavepointSummary
from streambank.repository.holds import Holds
from streambank.repository.marks import PIN, latest, marks_prefix, read_mark
from streambank.repository.repository import Repository
from streambank.retention import expire as expire_module
from streambank.retention.expire import expire
from streambank.retention.policy import Policy, RetentionDecision, decide, policy_of
from streambank.retention.sweep import sweep
from streambank.retention.undelete import undelete
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses
from tests.support.repository.retention import HOUR_S, assert_whole, store_and_list
from tests.support.storage.faulty_store import WRITES, Fault, FaultyStore, SimulatedCrash
from tests.support.time_travel import Clock

JOB = "flights"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY_S = 86400.0
NINETY = Policy(max_age_s=90 * DAY_S)


def old(days: float, **more: object) -> SavepointSummary:
    fields = {"savepoint": f"b{int(1000 - days):06d}", "job": JOB, "batch": 1}
    return SavepointSummary(**{**fields, "taken_at": NOW - timedelta(days=days), **more})  # type: ignore[arg-type]


def rules(decisions: list[RetentionDecision]) -> list[tuple[str, bool, list[str], tuple[str, ...]]]:
    return [
        (each.summary.savepoint, each.keep, [one.rule for one in each.reasons], each.overrules)
        for each in decisions
    ]


def test_alone_it_keeps_what_is_young_and_drops_what_is_old() -> None:
    decisions = decide([old(91), old(90), old(1)], NINETY, NOW)
    assert rules(decisions) == [
        ("b000999", True, ["young"], ()),
        ("b000910", True, ["young"], ()),
        ("b000909", False, ["max-age"], ()),
    ]
    assert decisions[2].reasons[0].why == "91 d old; at most 90 d is allowed"


def test_it_goes_before_pins_and_verified_ones_and_names_them() -> None:
    summaries = [old(200, pinned=True, verified_ok=True), old(100, verified_ok=True), old(95)]
    decisions = decide(summaries, replace(NINETY, keep_last=1, min_verified=1), NOW)
    assert rules(decisions) == [
        ("b000905", False, ["max-age"], ("last",)),
        ("b000900", False, ["max-age"], ("min-verified",)),
        ("b000800", False, ["max-age"], ("pinned",)),
    ]


def test_what_is_too_old_takes_no_place_from_the_rest() -> None:
    summaries = [old(100, verified_ok=True), old(20), old(10)]
    decisions = decide(summaries, replace(NINETY, keep_last=1, min_verified=1), NOW)
    assert rules(decisions)[:2] == [("b000990", True, ["last"], ()), ("b000980", False, ["last"], ())]


def test_an_unreadable_one_stays_since_nobody_knows_its_age() -> None:
    error = IntegrityError("The manifest is damaged.", code="record-damaged")
    unreadable = SavepointSummary(savepoint="b000001", job=JOB, error=error)
    assert rules(decide([unreadable, old(100)], NINETY, NOW)) == [
        ("b000001", True, ["unreadable"], ()),
        ("b000900", False, ["max-age"], ()),
    ]


def test_a_limit_that_cannot_be_meant() -> None:
    with refuses(InputError, "bad-policy"):
        policy_of(ExpireOptions(max_age_s=0.0))


some = st.builds(
    old,
    st.integers(0, 200),
    pinned=st.booleans(),
    verified_ok=st.sampled_from([True, False, None]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(some, max_size=12, unique_by=lambda one: one.savepoint),
    st.builds(
        Policy, keep_last=st.integers(0, 3), keep_daily=st.integers(1, 3), min_verified=st.integers(0, 3)
    ),
)
def test_nothing_old_stays_and_the_young_fare_as_if_the_old_were_not_there(
    history: list[SavepointSummary], policy: Policy
) -> None:
    limit = 90 * DAY_S
    decisions = decide(history, replace(policy, max_age_s=limit), NOW)
    young = [one for one in history if one.taken_at and (NOW - one.taken_at).total_seconds() <= limit]
    assert [one for one in decisions if one.summary in young] == decide(young, policy, NOW)
    rest = [one for one in decisions if one.summary not in young]
    assert all(one.by_age for one in rest)
    assert all(("pinned" in one.overrules) == one.summary.pinned for one in rest)


@pytest.fixture
def repository() -> Repository:
    """Two savepoints of long ago, and one of today."""
    repository = Repository.open(MemoryStore(), create=True)
    now = datetime.now(UTC)
    for batch, days in ((1, 200), (2, 100), (3, 0)):
        at = now - timedelta(days=days)
        store_and_list(repository, {"metadata": b"q", "offsets": b"%d" % batch}, batch, taken_at=at)
    return repository


def batches(repository: Repository) -> list[int | None]:
    return [each.batch for each in Repository.open(repository.store).manifests()]


def name_of(repository: Repository, batch: int) -> str:
    return next(each.savepoint for each in repository.manifests() if each.batch == batch)


def test_pins_are_taken_off_and_the_report_says_it_loudly(repository: Repository, clock: Clock) -> None:
    first, second = name_of(repository, 1), name_of(repository, 2)
    repository.pin(JOB, first)
    repository.record_verification(JOB, second, level="full", ok=True)
    before = {info.path: info.identity for info in repository.store.list()}
    dry = expire(repository, NINETY, dry_run=True)
    assert {info.path: info.identity for info in repository.store.list()} == before
    assert dry.warnings == (
        f"max-age overrides pins, so these savepoints would go: flights/{first}.",
        f"max-age overrides min_verified, so these savepoints would go: flights/{second}.",
        "flights would keep 0 verified savepoints.",
    )
    done = expire(repository, NINETY)
    assert batches(repository) == [3]
    assert done.to_dict()["overruled"] == 2 and done.to_dict()["verified_left"] == {"flights": 0}
    name = latest(repository.store.names(marks_prefix(JOB, first)), PIN)
    assert name is not None and not repository.pinned(JOB, first)
    assert read_mark(repository.store, JOB, first, name).fields["note"].startswith("max-age: 200 d old")
    # The next one does not bring it back for the sake of the pin; a person can, and sweeps end it.
    expire(repository, Policy(keep_last=9))
    assert batches(repository) == [3]
    undelete(repository, first)
    assert batches(repository) == [1, 3] and not repository.pinned(JOB, first)
    expire(repository, NINETY)
    for _ in range(3):
        clock.advance(2 * HOUR_S)
        sweep(repository, grace_s=HOUR_S)
    assert not repository.store.names(f"expired/flights/{first}")
    assert len(assert_whole(repository.store)) == 1


def test_what_is_being_read_stays_with_its_pin_until_it_is_not(repository: Repository, clock: Clock) -> None:
    first = name_of(repository, 1)
    repository.pin(JOB, first)
    with Holds(repository, "restore", {"user": "ann"}).held(JOB, first):
        report = expire(repository, NINETY)
        kept = report.decisions[-1]
        assert [reason.rule for reason in kept.reasons] == ["held", "max-age"]
        assert batches(repository) == [1, 3] and repository.pinned(JOB, first)
        assert report.warnings == ()
    assert [each.summary.savepoint for each in expire(repository, NINETY).dropped] == [first]


def test_what_the_source_still_lists_goes_from_a_replica(repository: Repository) -> None:
    replica = Repository.open(MemoryStore(), create=True)
    for summary in repository.manifests():
        assert summary.batch is not None
        store_and_list(
            replica, {"metadata": b"q", "offsets": b"%d" % summary.batch}, summary.batch,
            taken_at=summary.taken_at,
        )  # fmt: skip
    assert batches(replica) == [1, 2, 3]
    report = expire(replica, replace(NINETY, keep_last=1), source=repository)
    assert batches(replica) == [3]
    assert [each.overrules for each in report.dropped] == [("source",), ("source",)]


def test_one_wrong_clock_takes_nothing(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is a year ahead; the storage, which stamps the copies, is not."""
    ahead = datetime.now(UTC) + timedelta(days=365)
    monkeypatch.setattr(expire_module, "utc_now", lambda: ahead)
    assert len(expire(repository, NINETY, dry_run=True).dropped) == 3, "without a write nobody tells"
    report = expire(repository, NINETY)
    assert batches(repository) == [3]
    assert [reason.rule for reason in report.decisions[0].reasons] == ["young"]


def test_a_crash_at_any_write_is_put_right_by_the_next(repository: Repository) -> None:
    repository.pin(JOB, name_of(repository, 1))
    crashes = 0
    while True:
        inner = MemoryStore()
        for info in repository.store.list():
            inner.write(info.path, [repository.store.read(info.path)])
        faulty = FaultyStore(inner, Fault("crash-after", call=crashes + 1, operations=WRITES))
        try:
            expire(Repository.open(faulty), NINETY)
        except SimulatedCrash:
            crashes += 1
        else:
            break
        assert_whole(inner)
        expire(Repository.open(inner), NINETY)
        assert batches(Repository.open(inner)) == [3]
    assert crashes > 5
