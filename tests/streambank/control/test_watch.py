"""A watcher is known by more than its number: where records were lost, another one has that as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.records import decode_json, encode_json
from streambank.control.watch import Watcher, WatcherState, WatchView
from streambank.core.units import to_json_time, utc_now
from streambank.storage.store import Store
from tests.support.storage.faulty_store import FaultyStore

OLD = {"dag_id": "flights.run", "run_id": "manual__old"}
NEW = {"dag_id": "flights.run", "run_id": "manual__new"}
MINE = WatcherState()


class _ByNew:
    """Equal to how one stands beside a newer watcher that may act."""

    def __eq__(self, found: object) -> bool:
        return isinstance(found, WatcherState) and not found.lost and found.replaced_by == WHO_NEW

    __hash__ = None  # type: ignore[assignment]


WHO_NEW = "run manual__new of flights.run"
BY_NEW = _ByNew()


def lose(control: JobControl) -> None:
    """All that is known of watchers is gone."""
    for name in [*control.store.names("watch")]:
        control.store.delete(f"watch/{name}")


def begin(control: JobControl, times: int, by: dict[str, str]) -> Watcher:
    """The last of so many watchers."""
    return [control.watches.begin(by=by, desired=1) for _ in range(times)][-1]


def view(control: JobControl) -> WatchView:
    found = control.watches.view()
    assert found is not None
    return found


def as_before_identities(control: JobControl, watcher: Watcher) -> Watcher:
    """The same watcher as the version before has left it."""
    for suffix in ("", ".beat"):
        key = control.watches.records.key(watcher.number, suffix)
        if control.store.exists(key):
            data = decode_json(control.store.read(key), key)
            assert data.pop("id") == watcher.identity
            control.store.write(key, encode_json(data))
    return Watcher(watcher.number)


class Late(FaultyStore):
    """A store whose caller stands still before each write, while something else is done."""

    def __init__(self, inner: Store, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.meanwhile = meanwhile

    def write(self, *args: Any, **kwargs: Any) -> Any:
        self.meanwhile()
        return super().write(*args, **kwargs)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (3, 3), (1, 3)])
def test_a_watcher_whose_number_another_one_has_acts_for_that_one_in_nothing(
    control: JobControl, before: int, after: int
) -> None:
    old = begin(control, before, OLD)
    control.watches.sign(old, desired=1)
    seen = view(control)
    lose(control)
    new = begin(control, after, NEW)
    control.watches.sign(new, desired=1, next_s=600.0, doing="pausing")

    assert control.watches.standing(old) == BY_NEW
    assert control.watches.sign(old, desired=1) == BY_NEW
    assert not control.watches.end(old, "replaced")
    control.watches.note_idle(seen, "flights.run is paused")

    found = view(control)
    assert (found.number, found.by, found.doing, found.next_s) == (after, NEW, "pausing", 600.0)
    assert (found.end, found.idle) == ({}, {})
    assert control.watches.standing(new) == MINE == control.watches.sign(new, desired=1)
    control.watches.note_idle(view(control), "its run is over")
    assert view(control).idle["why"] == "its run is over"
    assert control.watches.end(new, "stopped")
    assert view(control).end["how"] == "stopped"


def test_one_whose_records_are_lost_and_that_none_follows_learns_it_and_leaves_nothing(
    control: JobControl,
) -> None:
    old = begin(control, 2, OLD)
    seen = view(control)
    lose(control)
    assert control.watches.standing(old) == WatcherState(lost=True)
    assert control.watches.sign(old, desired=1) == WatcherState(lost=True)
    assert not control.watches.end(old, "failed")
    control.watches.note_idle(seen, "flights.run is paused")
    assert [*control.store.names("watch")] == []


def test_it_begins_again_unless_another_one_was_faster(control: JobControl) -> None:
    old = begin(control, 2, OLD)
    assert control.watches.begin_again(old, by=OLD, desired=1) is None, "nothing is lost"
    lose(control)
    again = control.watches.begin_again(old, by=OLD, desired=1)
    assert again is not None and control.watches.sign(again, desired=1) == MINE
    assert view(control).by == OLD
    new = control.watches.begin(by=NEW, desired=1)
    assert control.watches.begin_again(old, by=OLD, desired=1) is None
    assert control.watches.standing(again) == BY_NEW
    assert control.watches.standing(new) == MINE


def test_of_several_that_begin_at_once_one_is_the_watcher_and_the_others_learn_it(
    control: JobControl,
) -> None:
    many, found = Barrier(8), []

    def one(by: dict[str, str]) -> None:
        many.wait()
        found.append(control.watches.begin(by=by, desired=1))

    threads = [Thread(target=one, args=({"dag_id": "flights.run", "run_id": f"r{n}"},)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.number for one in found) == [*range(1, 9)]
    assert len({one.identity for one in found}) == 8
    stand = [control.watches.sign(one, desired=1) for one in found]
    assert stand.count(MINE) == 1
    assert {one.replaced_by for one in stand} == {None, view(control).who}


def test_of_several_that_begin_again_at_once_one_does(control: JobControl) -> None:
    many, found = Barrier(8), []
    old = begin(control, 1, OLD)
    lose(control)

    def one() -> None:
        many.wait()
        found.append(control.watches.begin_again(old, by=OLD, desired=1))

    threads = [Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in found if one is not None]) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_records_from_before_it_replace_no_watcher(control: JobControl, ended: bool) -> None:
    """A copy of older records was put back, or its own record was moved away as damaged."""
    first = begin(control, 1, OLD)
    if ended:
        control.watches.end(first, "replaced")
    time.sleep(0.002)
    mine = control.watches.begin(by=NEW, desired=1)
    control.store.delete(control.watches.records.key(mine.number))

    assert control.watches.standing(mine) == WatcherState(lost=True) == control.watches.sign(mine, desired=1)
    again = control.watches.begin_again(mine, by=NEW, desired=1)
    assert again is not None and again.number == 2
    assert control.watches.sign(again, desired=1) == MINE
    assert control.watches.standing(first) == BY_NEW
    assert (view(control).by, view(control).end) == (NEW, {})


def test_one_that_begins_in_the_moment_of_the_search_is_not_replaced(control: JobControl) -> None:
    begin(control, 1, OLD)
    time.sleep(0.002)
    mine = control.watches.begin(by=OLD, desired=1)
    control.store.delete(control.watches.records.key(mine.number))
    new: list[Watcher] = []
    late = JobControl(Late(control.store, lambda: new.append(begin(control, 1, NEW))), "flights").watches
    assert late.begin_again(mine, by=OLD, desired=1) is None
    assert control.watches.standing(new[0]) == MINE


@pytest.mark.parametrize("suffix", ["beat", "end", "idle"])
def test_what_an_old_watcher_still_writes_in_the_moment_of_the_loss_is_not_of_the_new_one(
    control: JobControl, suffix: str
) -> None:
    """It has found its record, stands still, and writes when the new one has its number."""
    old = begin(control, 1, OLD)
    seen = view(control)
    new: list[Watcher] = []

    def lose_and_begin() -> None:
        lose(control)
        new.append(begin(control, 1, NEW))

    late = JobControl(Late(control.store, lose_and_begin), "flights").watches
    if suffix == "beat":
        late.sign(old, desired=7, next_s=7.0, doing="starting")
    elif suffix == "end":
        late.end(old, "replaced")
    else:
        late.note_idle(seen, "flights.run is paused")
    assert control.store.exists(f"watch/0000000001.{suffix}.json") and new

    found = view(control)
    assert (found.by, found.desired, found.doing) == (NEW, 1, "watching")
    assert (found.end, found.idle) == ({}, {})
    assert control.watches.end(new[0], "stopped"), "its own end is recorded all the same"
    assert view(control).end["how"] == "stopped"


def test_a_watcher_of_the_version_before_goes_on_and_its_records_are_read(control: JobControl) -> None:
    old = begin(control, 2, OLD)
    control.watches.sign(old, desired=1)
    old = as_before_identities(control, old)
    assert (view(control).doing, view(control).identity) == ("watching", None)
    assert control.watches.sign(old, desired=1, doing="pausing") == MINE
    control.watches.note_idle(view(control), "flights.run is paused")
    found = view(control)
    assert (found.number, found.doing, found.idle["why"]) == (2, "pausing", "flights.run is paused")

    new = control.watches.begin(by=NEW, desired=1)
    assert control.watches.sign(old, desired=1) == BY_NEW
    assert control.watches.end(old, "replaced") and view(control).end == {}
    assert control.watches.sign(new, desired=1) == MINE


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (1, 3)])
def test_nor_does_it_act_for_a_new_one_where_the_records_were_lost(
    control: JobControl, before: int, after: int
) -> None:
    old = Watcher(begin(control, before, OLD).number)
    lose(control)
    begin(control, after, NEW)
    assert control.watches.sign(old, desired=1) == BY_NEW
    assert not control.watches.end(old, "replaced") and view(control).end == {}


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (1, 3)])
def test_nor_a_new_one_for_a_watcher_of_the_version_before(
    control: JobControl, before: int, after: int
) -> None:
    """A worker that was not upgraded yet has begun after the loss."""
    mine = begin(control, before, OLD)
    lose(control)
    other = begin(control, after, NEW)
    as_before_identities(control, other)
    assert control.watches.sign(mine, desired=1) == BY_NEW
    assert not control.watches.end(mine, "replaced") and view(control).end == {}


def last_sign(control: JobControl, watcher: Watcher, ago: timedelta) -> None:
    data = {"id": watcher.identity, "at": to_json_time(utc_now() - ago), "next_s": 60.0, "desired": 1}
    control.store.write(control.watches.records.key(watcher.number, ".beat"), encode_json(data))


def test_a_newer_watcher_that_is_silent_replaces_none(control: JobControl) -> None:
    """Its run is not in the database that came back from a backup, or its record is one from a copy."""
    old, dead = begin(control, 1, OLD), begin(control, 4, NEW)
    last_sign(control, dead, timedelta(seconds=170))
    assert control.watches.standing(old) == BY_NEW, "its next sign may still come"
    last_sign(control, dead, timedelta(seconds=190))

    found = control.watches.sign(old, desired=1)
    assert found.lost and found.other is None
    again = control.watches.begin_again(old, by=OLD, desired=1)
    assert again is not None and again.number == 6
    assert control.watches.sign(again, desired=1) == MINE
    assert control.watches.standing(dead).replaced_by == "run manual__old of flights.run", "if it comes back"


@pytest.mark.parametrize("how", ["failed", "replaced", "stopped"])
def test_nor_does_one_that_has_ended(control: JobControl, how: Any) -> None:
    old, newer = begin(control, 1, OLD), begin(control, 1, NEW)
    assert control.watches.standing(old) == BY_NEW
    control.watches.end(newer, how, "because")
    found = control.watches.standing(old)
    assert (found.lost, found.other) == (True, None)
    assert found.why == f"Its watcher, run manual__new of flights.run, ended ({how}: because)."


def test_what_a_newer_one_has_given_up_no_older_one_goes_on_with(control: JobControl) -> None:
    old, newer = begin(control, 1, OLD), begin(control, 1, NEW)
    control.watches.end(newer, "gave-up", "the checkpoint is damaged")
    last_sign(control, newer, timedelta(hours=1))
    assert control.watches.standing(old) == BY_NEW and control.watches.sign(old, desired=1) == BY_NEW


def test_one_makes_room_for_who_has_seen_that_it_is_gone_and_for_none_else(control: JobControl) -> None:
    old, newer = begin(control, 1, OLD), begin(control, 1, NEW)
    assert control.watches.begin_again(old, by=OLD, desired=1) is None
    assert control.watches.begin_again(old, by=OLD, desired=1, gone=Watcher(2, "another")) is None
    again = control.watches.begin_again(old, by=OLD, desired=1, gone=newer)
    assert again is not None and again.number == 3
    assert control.watches.begin_again(old, by=OLD, desired=1, gone=newer) is None, "another one was faster"


def test_a_sign_says_which_process_has_left_it(control: JobControl) -> None:
    mine = begin(control, 1, OLD)
    assert control.watches.sign(mine, desired=1, process="a").process is None
    assert control.watches.sign(mine, desired=1, process="b").process == "a"
    control.watches.sign(mine, desired=1)  # the task's own, or that of the version before
    assert control.watches.sign(mine, desired=1, process="b").process is None
