"""A listing is late, as on NFS; a clock is hours off: nothing is lost by either, and nothing counts twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.core.errors import ConflictError, IntegrityError, RefusedError
from streambank.core.units import utc_now
from streambank.repository.catalog import manifest_key
from streambank.repository.repository import Repository
from streambank.retention.sweep import sweep
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.storage.store import FileInfo, Store
from tests.support.refuses import refuses
from tests.support.repository.retention import HOUR_S, assert_whole, content, drop, large, store_and_list
from tests.support.storage.interrupting_store import interrupting
from tests.support.time_travel import Clock, time_travel

BY = {"user": "tester"}
_SERIAL = itertools.count()


class LateStore:
    """Lists what there was at some moment, until it is fresh again; whatever else is asked, it knows.

    Args:
        inner: What it is about.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._then: list[FileInfo] | None = None
        self.late_answers = 0
        self.most_late_answers = 1_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def freeze(self) -> LateStore:
        """From now on it lists what there is now."""
        self._then = [*self._inner.list()]
        return self

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        if self._then is None or self.late_answers == self.most_late_answers:
            yield from self._inner.list(prefix)
            return
        self.late_answers += 1
        yield from (one for one in self._then if not prefix or one.path.startswith(f"{prefix}/"))

    def names(self, prefix: str = "") -> Sequence[str]:
        skip = len(prefix) + 1 if prefix else 0
        return sorted({info.path[skip:].partition("/")[0] for info in self.list(prefix)})


def late(inner: Store) -> tuple[Store, LateStore]:
    """The store, and the same object to freeze it."""
    made = LateStore(inner)
    return cast("Store", made), made


@pytest.fixture
def clock() -> Iterator[Clock]:
    with time_travel() as clock:
        yield clock


# Records: who lists late sees what was, and takes no number that somebody has.


@pytest.fixture
def records() -> tuple[JobControl, JobControl, LateStore]:
    """The records of a job as two processes see them, the second one late."""
    place = open_store(f"memory://late-{next(_SERIAL)}/orders")
    here, (store, frozen) = JobControl(place, "orders"), late(place)
    here.generations().ensure_first("memory://lake/ck", by=BY)
    here.set_desired("running", by=BY)
    here.record_event("driver-started")
    frozen.freeze()
    return here, JobControl(store, "orders"), frozen


def test_a_restore_that_lists_late_moves_nothing(
    records: tuple[JobControl, JobControl, LateStore],
) -> None:
    here, there, frozen = records
    first = here.generations().current()
    assert first is not None
    with here.operation("restore", by=BY) as operation:
        made = here.generations().propose(taken=lambda location: False)
        here.generations().switch(made, operation=operation)
    assert there.generations().current() == first, "it sees what was"

    class Held:
        def check(self) -> None:
            """As if the lock had been held all the time."""

    for location in (made.location, "memory://lake/ck.g0002-of-another"):
        other = Generation(made.number, location, None, utc_now(), BY)
        with refuses(ConflictError, "generation-moved"):
            there.generations().switch(other, operation=cast("Any", Held()))
    assert frozen.late_answers
    current = here.generations().current()
    assert current is not None and (current.number, current.location) == (2, made.location)
    assert JobControl(here.store, "orders").generations().current() == current


def test_two_restores_do_not_work_at_once_though_one_lists_late(
    records: tuple[JobControl, JobControl, LateStore],
) -> None:
    here, there, frozen = records
    frozen.most_late_answers = 3
    with here.operation("restore", by=BY):
        with pytest.raises(ConflictError) as refused, there.operation("restore", by=BY):
            pytest.fail("two work on the job")
        assert refused.value.code == "operation-in-progress"
    assert frozen.late_answers == 3


@pytest.mark.parametrize("stream", ["desired", "events"])
def test_of_two_who_append_neither_loses_a_record(
    records: tuple[JobControl, JobControl, LateStore], stream: str
) -> None:
    here, there, frozen = records

    def append(control: JobControl, number: int) -> int:
        if stream == "events":
            return control.record_event("killed", why=str(number))
        return control.desired_records.append(
            {"state": "stopped", "at": "2026-11-25T10:00:00.000Z", "n": number}
        )

    numbers = [append(one, number) for number, one in enumerate([here, there, here, there, there, here])]
    assert frozen.late_answers and len({*numbers}) == 6 and numbers == sorted(numbers)
    found = JobControl(here.store, "orders")
    kept = (found.event_records if stream == "events" else found.desired_records).all()
    said = [one.data.get("why", one.data.get("n")) for one in kept if one.number in numbers]
    assert [int(one) for one in said if one is not None] == [0, 1, 2, 3, 4, 5]


def test_a_create_that_looked_instead_would_lose_one(
    records: tuple[JobControl, JobControl, LateStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: with writes that exclude nobody the same listings do harm."""
    here, there, _ = records
    write = MemoryStore.write

    def careless(self: MemoryStore, key: str, data: Any, *, exclusive: bool = False) -> None:
        write(self, key, data)

    monkeypatch.setattr(MemoryStore, "write", careless)
    assert here.record_event("killed") == there.record_event("killed")


# Sweeps: by an old listing, or by a wrong clock.


def files(batch: int) -> dict[str, bytes]:
    return {"offsets": b"%d" % batch * 500, "shared": large(7), "zip": large(batch)}


def lived(clock: Clock) -> tuple[MemoryStore, str]:
    """A repository that has been swept, with a savepoint that has gone and one whose files it shares."""
    inner = MemoryStore()
    repository = Repository.open(inner, create=True)
    gone = store_and_list(repository, files(1), 1)
    stays = store_and_list(repository, files(2), 2)
    drop(repository, gone)
    clock.advance(2 * HOUR_S)
    sweep(Repository.open(inner), grace_s=HOUR_S)
    return inner, stays.savepoint


def due(clock: Clock) -> Store:
    """Nothing lists it, its files are old, and no sweep was there yet."""
    inner = MemoryStore()
    repository = Repository.open(inner, create=True)
    inner.delete(drop(repository, store_and_list(repository, files(1), 1)).key)
    clock.advance(3 * HOUR_S)
    return inner


def test_a_first_sweep_by_an_old_listing_does_not_sweep(clock: Clock) -> None:
    """It does not find in it what it has just written to learn the time."""
    inner = due(clock)
    store, frozen = late(inner)
    frozen.freeze()
    before = content(inner)
    with pytest.raises(RefusedError) as refused:
        sweep(Repository.open(store), grace_s=HOUR_S)
    assert refused.value.code == "no-file-times" and frozen.late_answers
    assert content(inner) == before
    assert sweep(Repository.open(inner), grace_s=HOUR_S).condemned.files == len(before), "a fresh one does"


@pytest.mark.parametrize("hours", [0.01, 0.5, 1.1, 3, 26])
def test_sweeps_by_a_listing_of_hours_ago_cost_no_savepoint(clock: Clock, hours: float) -> None:
    """Meanwhile savepoints came that share what was condemned, that are new, and that were expired."""
    inner, stays = lived(clock)
    store, frozen = late(inner)
    frozen.freeze()
    clock.advance(hours * HOUR_S)
    came = [store_and_list(Repository.open(inner), files(batch), batch).savepoint for batch in (3, 1, 4)]
    for _ in range(3):
        try:
            sweep(Repository.open(store), grace_s=HOUR_S)
        except (RefusedError, IntegrityError) as error:
            assert error.code in ("no-file-times", "object-missing", "index-damaged")
        assert assert_whole(inner) == {stays, *came}
        clock.advance(hours * HOUR_S)
    assert frozen.late_answers
    for _ in range(4):
        clock.advance(2 * HOUR_S)
        sweep(Repository.open(inner), grace_s=HOUR_S)
        assert assert_whole(inner) == {stays, *came}


def test_what_was_listed_too_late_to_be_kept_would_be_lost_without_two_graces(clock: Clock) -> None:
    """The negative control: a savepoint that nobody lists does go, by sweeps with right listings."""
    inner, stays = lived(clock)
    came = store_and_list(Repository.open(inner), files(3), 3)
    data = inner.read(manifest_key(came.job, came.savepoint))
    inner.delete(manifest_key(came.job, came.savepoint))
    for _ in range(3):
        clock.advance(2 * HOUR_S)
        sweep(Repository.open(inner), grace_s=HOUR_S)
    assert assert_whole(inner) == {stays}
    inner.write(manifest_key(came.job, came.savepoint), data)
    with pytest.raises(IntegrityError):
        assert_whole(inner)


@pytest.mark.parametrize("hours", [5, -5])
def test_a_sweep_whose_clock_is_hours_off_takes_nothing_from_a_take(clock: Clock, hours: float) -> None:
    """It comes twice between any two calls of a take that counts on files of a savepoint that is gone."""

    def begin() -> Store:
        inner = MemoryStore()
        repository = Repository.open(inner, create=True)
        inner.delete(drop(repository, store_and_list(repository, files(1), 1)).key)
        clock.advance(2 * HOUR_S)
        return inner

    store, counted = interrupting(begin(), {})
    store_and_list(Repository.open(store), files(1), 2)
    assert counted.calls > 10
    stored_again = 0
    for number in range(1, counted.calls + 1):
        inner = begin()
        old = content(inner)

        def twice(inner: Store = inner) -> None:
            for _ in range(2):
                clock.advance(hours * HOUR_S)
                sweep(Repository.open(inner), grace_s=HOUR_S)
                clock.advance(-hours * HOUR_S)

        store, interrupted = interrupting(inner, {number: twice})
        made = store_and_list(Repository.open(store), files(1), 2)
        assert interrupted.happened == [number]
        assert assert_whole(inner) == {made.savepoint}
        stored_again += bool(content(inner) - old)
    assert bool(stored_again) == (hours > 0), "behind, everything is too young to go"


def test_steps_of_a_sweep_are_really_late(clock: Clock) -> None:
    """That the fault fires: what comes after it was frozen is in no listing, and can be read."""
    inner = MemoryStore()
    inner.write("a/1", b"x")
    store, frozen = late(inner)
    frozen.freeze()
    inner.write("a/2", b"x")
    looks: dict[str, Callable[[], object]] = {
        "list": lambda: [one.path for one in store.list()],
        "names": lambda: store.names("a"),
    }
    assert (looks["list"](), looks["names"]()) == (["a/1"], ["1"])
    assert store.exists("a/2") and store.read("a/2") == b"x"
