"""A crash at every storage call of compact, undo and purge: the query can start, and all can come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.compaction.compact import compact
from streambank.compaction.purge import purge
from streambank.compaction.quarantine import Quarantine
from streambank.compaction.undo import bring_back
from streambank.core.errors import NotFoundError, RefusedError, StreambankError
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.checkpoint.with_garbage import STOPPED, closure, copied, write_with_garbage
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import WRITES, Fault, FaultyStore, Kind, SimulatedCrash

KINDS = [
    "crash-before",
    "power-cut",
    pytest.param("crash-after", marks=pytest.mark.storm),
    pytest.param("lost-reply", marks=pytest.mark.storm),
]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one step, so that there is something between them."""
    monkeypatch.setattr("streambank.compaction.moving.AT_A_TIME", 12)


def do_compact(base: Store) -> object:
    return compact(base.child("ck"), base.child("q"), STOPPED)


def do_undo(base: Store) -> object:
    return bring_back(base.child("ck"), Quarantine(base.child("q")), check=lambda: None)


def do_purge(base: Store) -> object:
    return purge(Quarantine(base.child("q")))


def each_crash(
    kind: Kind, to: Path | None, work: Callable[[Store], object], prepare: Callable[[Store], object]
) -> int:
    """Do the work once for each of its calls, and let that call fail; then look, go on, and look again."""
    whole = contents(write_with_garbage(MemoryStore()).store)
    needed = closure(copied(whole).child("ck"))
    clean = copied(whole, to)
    prepare(clean)
    counting = FaultyStore(clean)
    work(counting)
    faults = 0
    for number, call in enumerate(counting.calls, start=1):
        if kind != "crash-before" and call.operation not in WRITES:
            continue  # the same as a crash before the next call
        base = copied(whole, to)
        prepare(base)
        faulty = FaultyStore(base, Fault(kind, call=number))
        with pytest.raises((SimulatedCrash, StreambankError)):
            work(faulty)
        faulty.assert_fired()
        faults += 1
        assert closure(base.child("ck")) == needed, f"{call} cost the query a file"
        if work is do_purge:
            assert_purged(base)
        elif number % 2:
            assert_undone(base, whole)
        else:
            do_compact(base)
            assert closure(base.child("ck")) == needed
            assert_undone(base, whole)
    return faults


def assert_undone(base: Store, whole: object) -> None:
    try:
        do_undo(base)
    except NotFoundError as error:
        assert error.code == "not-a-quarantine"
    assert contents(base.child("ck")) == whole
    assert not [*base.list("q")]


def assert_purged(base: Store) -> None:
    before = contents(base.child("ck"))
    if base.exists("q/purging.json"):
        with pytest.raises((RefusedError, NotFoundError)):
            do_undo(base)
    try:
        do_purge(base)
    except NotFoundError as error:
        assert error.code == "not-a-quarantine"
    assert not [*base.list("q")]
    assert contents(base.child("ck")) == before


@pytest.mark.parametrize("kind", KINDS)
def test_compact(kind: Kind) -> None:
    assert each_crash(kind, None, do_compact, lambda base: None) > (80 if kind == "crash-before" else 30)


@pytest.mark.parametrize("kind", KINDS)
def test_undo(kind: Kind) -> None:
    assert each_crash(kind, None, do_undo, do_compact) > 30


@pytest.mark.parametrize("kind", ["crash-before"])
def test_purge(kind: Kind) -> None:
    assert each_crash(kind, None, do_purge, do_compact) > 15


@pytest.mark.storm
@pytest.mark.parametrize(("work", "prepare"), [(do_compact, lambda base: None), (do_undo, do_compact)])
def test_on_a_disk_with_links(
    tmp_path: Path, work: Callable[[Store], object], prepare: Callable[[Store], object]
) -> None:
    assert each_crash("crash-after", tmp_path, work, prepare) > 30
