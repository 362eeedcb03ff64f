"""Expire and undelete: what goes, what comes back, and what several people do at once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streambank.core.errors import InputError, IntegrityError, NotFoundError, StorageError
from streambank.repository.catalog import manifest_key
from streambank.repository.repository import Repository
from streambank.retention import expire as expire_module
from streambank.retention.expire import ExpireReport, expire
from streambank.retention.expired import expired_savepoints
from streambank.retention.policy import Policy
from streambank.retention.sweep import sweep
from streambank.retention.undelete import undelete
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.refuses import refuses
from tests.support.repository.retention import HOUR_S, assert_whole, drop, large, store_and_list
from tests.support.storage.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import Clock

LAST = Policy(keep_last=1)


@pytest.fixture
def repository() -> Repository:
    repository = Repository.open(MemoryStore(), create=True)
    for batch in range(4):
        store_and_list(repository, {"metadata": b"q", "offsets": b"%d" % batch, "zip": large(batch)}, batch)
    return repository


def batches(repository: Repository) -> list[int | None]:
    return [summary.batch for summary in Repository.open(repository.store).manifests()]


def ids(repository: Repository) -> list[str]:
    return [summary.savepoint for summary in repository.manifests()]


def verdicts(report: ExpireReport) -> list[tuple[int | None, bool, list[str]]]:
    return [
        (each.summary.batch, each.keep, [reason.rule for reason in each.reasons]) for each in report.decisions
    ]


def test_a_dry_run_changes_nothing_and_says_the_same(repository: Repository) -> None:
    before = {info.path: info.identity for info in repository.store.list()}
    dry = expire(repository, LAST, dry_run=True)
    assert {info.path: info.identity for info in repository.store.list()} == before
    done = expire(repository, LAST)
    assert verdicts(dry) == verdicts(done) == [
        (3, True, ["last"]), (2, False, ["last"]), (1, False, ["last"]), (0, False, ["last"]),
    ]  # fmt: skip
    assert batches(repository) == [3]


def test_an_empty_policy_is_refused_before_anything_is_touched(repository: Repository) -> None:
    for policy in (Policy(), Policy(min_verified=9), lambda job: Policy()):
        with refuses(InputError, "empty-policy"):
            expire(repository, policy)
    assert batches(repository) == [0, 1, 2, 3]
    with pytest.raises(InputError):
        expire(Repository.open(MemoryStore(), create=True), Policy())


def test_pinned_verified_and_damaged_ones_stay(repository: Repository) -> None:
    names = ids(repository)
    repository.pin("flights", names[0])
    repository.record_verification("flights", names[1], level="full", ok=True)
    key = manifest_key("flights", names[2])
    repository.store.write(key, repository.store.read(key)[:-3])
    report = expire(repository, LAST)
    assert not report.dropped
    assert [reasons for _, _, reasons in verdicts(report)] == [
        ["unreadable"], ["last"], ["min-verified"], ["pinned"],
    ]  # fmt: skip
    assert len(report.unreadable) == 1 and not report.to_dict()["ok"]


def test_a_job_of_whom_no_policy_is_known_is_left_alone(repository: Repository) -> None:
    store_and_list(repository, {"a": b"1"}, 7, job="orders/late")
    store_and_list(repository, {"a": b"2"}, 8, job="orders/late")
    report = expire(repository, lambda job: LAST if job.startswith("orders") else None)
    assert verdicts(report) == [(8, True, ["last"]), (7, False, ["last"])]
    assert batches(repository) == [0, 1, 2, 3, 8]
    assert not expire(repository, LAST, job="orders").dropped


def test_what_was_expired_comes_back_with_its_marks(repository: Repository) -> None:
    name = ids(repository)[1]
    manifest = repository.load("flights", name)
    repository.record_verification("flights", name, level="full", ok=False)
    raw = repository.store.read(manifest_key("flights", name))
    expire(repository, LAST)
    with pytest.raises(NotFoundError):
        repository.load("flights", name)

    result = undelete(repository, "flights/b000001", by={"user": "ann"})
    assert (result.savepoint, result.already_listed, result.stored_again) == (name, False, 0)
    assert repository.store.read(manifest_key("flights", name)) == raw
    assert repository.load("flights", name) == manifest
    assert [each.ok for each in repository.verifications("flights", name)] == [False]
    kinds = {key.rpartition("/")[2].partition("-")[0] for key in paths(repository, f"marks/flights/{name}")}
    assert kinds == {"verified", "expired", "undeleted"}
    assert undelete(repository, name).already_listed
    assert_whole(repository.store)


def paths(repository: Repository, prefix: str) -> list[str]:
    return [info.path for info in repository.store.list(prefix)]


def test_undelete_says_what_it_does_not_find(repository: Repository) -> None:
    expire(repository, LAST)
    for wrong in ("b000009", "orders/b000001"):
        with refuses(NotFoundError, "not-expired"):
            undelete(repository, wrong)
    with refuses(InputError, "ambiguous"):
        undelete(repository, "b00000")


def test_of_several_copies_one_that_is_whole_is_brought_back(repository: Repository) -> None:
    """An expire was killed after its copies; the next one made its own, and the disk has bitten into them."""
    (manifest, *_) = (repository.load("flights", name) for name in ids(repository))
    copies = [drop(repository, manifest)]
    repository.commit(manifest)
    copies.append(drop(repository, manifest))
    for copy in reversed(copies):
        whole = repository.store.read(copy.key)
        repository.store.write(copy.key, whole[:-3])
        if copy is copies[0]:
            with pytest.raises(IntegrityError):
                undelete(repository, manifest.savepoint)
            repository.store.write(copy.key, whole)
    assert not undelete(repository, manifest.savepoint).already_listed
    assert manifest.savepoint in assert_whole(repository.store)


def test_undelete_ends_with_the_grace_and_with_the_bytes(repository: Repository, clock: Clock) -> None:
    first, second = (repository.load("flights", name) for name in ids(repository)[:2])
    copies = [drop(repository, manifest) for manifest in (first, second)]
    data = repository.store.read(copies[1].key)
    clock.advance(HOUR_S / 2)
    assert not undelete(repository, "b000000").already_listed
    clock.advance(HOUR_S)
    assert [copy.savepoint for copy in sweep(repository, grace_s=HOUR_S).removed] == [second.savepoint]
    with pytest.raises(NotFoundError):
        undelete(repository, second.savepoint)
    clock.advance(2 * HOUR_S)
    sweep(repository, grace_s=HOUR_S)
    repository.store.write(copies[1].key, data)  # somebody put it back from a backup
    with refuses(IntegrityError, "savepoint-swept"):
        undelete(Repository.open(repository.store), second.savepoint)
    assert first.savepoint in assert_whole(repository.store)


def test_pinned_at_any_moment_of_an_expire(repository: Repository) -> None:
    """Either the pin says that the savepoint is gone, or the savepoint stays."""
    counted = interrupting(copy_of(repository.store), {})
    expire(Repository.open(counted[0]), LAST)
    name = ids(repository)[1]
    stayed = refused = 0
    for number in range(1, counted[1].calls + 1):
        inner = copy_of(repository.store)
        outcome: list[str] = []

        def pin(inner: Store = inner, outcome: list[str] = outcome) -> None:
            try:
                Repository.open(inner).pin("flights", name)
            except NotFoundError:
                outcome.append("refused")
            else:
                outcome.append("pinned")

        expire(Repository.open(interrupting(inner, {number: pin})[0]), LAST)
        listed = name in ids(Repository.open(inner))
        assert listed or outcome == ["refused"]
        stayed += listed
        refused += not listed
    assert stayed > 5 and refused > 5


def test_an_expire_that_dies_over_a_pin_is_put_right_by_the_next(repository: Repository) -> None:
    name = ids(repository)[1]
    copy_pin = Fault("crash-after", operations=frozenset({"delete"}), key=f"savepoints/flights/{name}")
    faulty = FaultyStore(repository.store, copy_pin)
    with pytest.raises(SimulatedCrash):
        expire(Repository.open(faulty), LAST)
    faulty.assert_fired()
    # Its mark was on the way when the expire looked, and arrived before the delete did.
    key = manifest_key("flights", name)
    (copy,) = [copy for copy in expired_savepoints(repository.store) if copy.savepoint == name]
    repository.store.write(key, repository.store.read(copy.key))
    repository.pin("flights", name)
    repository.store.delete(key)

    expire(repository, LAST)
    assert name in ids(repository)


def test_two_policies_at_once_do_not_leave_fewer_than_promised(repository: Repository) -> None:
    """Each keeps what the other one drops: without a last look nothing would be left."""
    names = ids(repository)
    for name in names:
        repository.record_verification("flights", name, level="full", ok=True)
    counted = interrupting(copy_of(repository.store), {})
    expire(Repository.open(counted[0]), LAST)
    for number in range(1, counted[1].calls + 1):
        inner = copy_of(repository.store)

        def other(inner: Store = inner) -> None:
            other_way = Repository.open(inner)
            for name in ids(other_way)[-1:]:
                drop(other_way, other_way.load("flights", name))

        store, interrupted = interrupting(inner, {number: other})
        expire(Repository.open(store), LAST)
        assert interrupted.happened
        verified = [each for each in Repository.open(inner).manifests() if each.verified_ok]
        late = number > counted[1].calls - 4  # it came after the last look: one that was kept is gone
        assert verified or late, number


def test_a_copy_that_has_grown_old_is_made_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(expire_module, "COMMIT_WINDOW_S", -1.0)
    with pytest.raises(Exception, match="too long") as slow:
        expire(repository, LAST)
    assert getattr(slow.value, "code", "") == "expire-too-slow"
    assert batches(repository) == [0, 1, 2, 3]


def test_the_future_is_limited_by_this_machines_clock(repository: Repository) -> None:
    now = datetime(2013, 1, 1, 9, tzinfo=UTC)
    store_and_list(repository, {"a": b"9"}, 9, taken_at=datetime(2099, 1, 1, tzinfo=UTC))
    report = expire(repository, Policy(keep_within_s=2 * HOUR_S), now=now)
    assert [batch for batch, keep, _ in verdicts(report) if keep] == [9, 3, 2, 1]


def copy_of(store: Store) -> MemoryStore:
    copied = MemoryStore()
    for info in store.list():
        copied.write(info.path, store.read(info.path))
    return copied


def replica_of(repository: Repository, more: int) -> Repository:
    """A repository with the same savepoints, and some that are older."""
    replica = Repository.open(MemoryStore(), create=True)
    for batch in range(-more, 4):
        store_and_list(replica, {"metadata": b"q", "offsets": b"%d" % batch}, batch + 100)
    for batch in range(4):
        store_and_list(repository, {"metadata": b"q", "offsets": b"%d" % batch}, batch + 100)
    return replica


def test_a_replica_never_drops_what_its_source_lists(repository: Repository) -> None:
    replica = replica_of(repository, 3)
    gone = expire(replica, Policy(keep_last=1, min_verified=0), source=repository)
    assert [(batch, keep, rules[-1]) for batch, keep, rules in verdicts(gone)] == [
        (103, True, "source"), (102, True, "source"), (101, True, "source"), (100, True, "source"),
        (99, False, "last"), (98, False, "last"), (97, False, "last"),
    ]  # fmt: skip
    assert batches(replica) == [100, 101, 102, 103]


def test_what_the_source_drops_a_replica_keeps_by_its_own_rules(repository: Repository) -> None:
    replica = replica_of(repository, 3)
    expire(repository, LAST)
    expire(replica, Policy(keep_last=3), source=repository)
    assert batches(replica) == [101, 102, 103]
    assert expire(replica, Policy(keep_last=3), source=repository).dropped == ()


def test_an_empty_source_leaves_a_replica_its_own_rules(repository: Repository) -> None:
    replica = replica_of(repository, 0)
    expire(replica, Policy(keep_last=2), source=Repository.open(MemoryStore(), create=True))
    assert batches(replica) == [102, 103]


def test_a_source_that_cannot_be_read_leaves_all_in_the_replica(repository: Repository) -> None:
    replica = replica_of(repository, 2)
    before = batches(replica)
    store = FaultyStore(repository.store)
    expire(replica, LAST, source=Repository.open(store), dry_run=True)
    for number in range(1, len(store.calls) + 1):
        broken = FaultyStore(repository.store, Fault("error", call=number))
        with pytest.raises(StorageError):
            expire(replica, LAST, source=Repository.open(broken))
        broken.assert_fired()
        assert batches(replica) == before


def test_a_repository_is_no_replica_of_itself(repository: Repository) -> None:
    with pytest.raises(InputError) as refused:
        expire(repository, LAST, source=Repository.open(repository.store))
    assert refused.value.code == "same-repository" and len(batches(repository)) == 4
