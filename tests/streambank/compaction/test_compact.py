"""Dead files go into a quarantine and come back, or are deleted for good; every refusal changes nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.compaction.compact import CompactionRequest, compact, plan
from streambank.compaction.dead_files import DeadReason
from streambank.compaction.purge import purge
from streambank.compaction.quarantine import Quarantine, check_place, quarantine_location
from streambank.compaction.quiet_check import QuietCheck
from streambank.compaction.undo import bring_back
from streambank.core.errors import ConflictError, InputError, NotFoundError, RefusedError, StreambankError
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.pace import Step
from tests.support.checkpoint.recorded import checkpoint
from tests.support.checkpoint.with_garbage import STOPPED, closure, commit_next, write_with_garbage
from tests.support.refuses import refuses
from tests.support.storage.contents import contents


@pytest.fixture(params=["local", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Where a checkpoint with garbage lies; in memory nothing can be linked, as on S3."""
    store: Store = LocalStore(tmp_path, fsync=False)
    if request.param == "memory":
        store = MemoryStore(str(tmp_path))
    write_with_garbage(store.child("ck"))
    return store


def undo(base: Store) -> object:
    return bring_back(base.child("ck"), Quarantine(base.child("q")), check=lambda: None)


def refused(work: object, *args: object, **kwargs: object) -> str:
    with pytest.raises(StreambankError) as error:
        work(*args, **kwargs)  # type: ignore[operator]  # what is called is a function
    return error.value.code


def test_there_and_back(base: Store) -> None:
    before, needed = contents(base.child("ck")), closure(base.child("ck"))
    steps: list[Step] = []

    report = compact(base.child("ck"), base.child("q"), STOPPED, progress=steps.append)

    assert closure(base.child("ck")) == needed
    after = contents(base.child("ck"))
    assert {*before} - {*after} == {file.path for file in report.files}
    assert {file.reason for file in report.files} == {
        DeadReason.OLD_LOG_ENTRY,
        DeadReason.ABANDONED_ATTEMPT,
        DeadReason.ABANDONED_PARTITION,
        DeadReason.SUPERSEDED,
        DeadReason.TEMPORARY,
        DeadReason.ORPHAN_CHECKSUM,
    }
    assert {"offsets/4", "sources/0/0", "metadata"} <= {*after}
    assert report.won.bytes == sum(len(before[file.path]) for file in report.files)
    assert report.to_dict()["kept_files"] == len(after)
    assert steps[-1].files_done == steps[-1].files_total == report.won.files

    back = bring_back(base.child("ck"), Quarantine(base.child("q")), check=lambda: None)
    assert (back.files, back.left, back.missing) == (report.won.files, (), ())
    assert contents(base.child("ck")) == before
    assert not [*base.list("q")]


def test_a_dry_run_changes_nothing_and_says_the_same(base: Store) -> None:
    before = contents(base)
    planned = plan(base.child("ck"), STOPPED)
    assert contents(base) == before
    assert planned.dry_run and planned.quarantine is None
    done = compact(base.child("ck"), base.child("q"), STOPPED)
    assert done.files == planned.files
    assert done.quarantine == base.child("q").uri


def test_nothing_to_do_makes_no_quarantine(base: Store) -> None:
    compact(base.child("ck"), base.child("q"), STOPPED)
    again = compact(base.child("ck"), base.child("q2"), STOPPED)
    assert (again.files, again.quarantine, again.already_done) == ((), None, False)
    assert not [*base.list("q2")]


def test_the_same_compaction_again_is_done_already(base: Store) -> None:
    first = compact(base.child("ck"), base.child("q"), STOPPED)
    before = contents(base)
    again = compact(base.child("ck"), base.child("q"), STOPPED)
    assert again.already_done and again.files == first.files
    assert contents(base) == before


def test_a_purge_deletes_the_quarantine_and_nothing_else(base: Store) -> None:
    report = compact(base.child("ck"), base.child("q"), STOPPED)
    base.write("q/notes.txt", b"of somebody")
    before = contents(base.child("ck"))
    done = purge(Quarantine(base.child("q")))
    assert (done.files, done.bytes) == (report.won.files, report.won.bytes)
    assert contents(base.child("ck")) == before
    assert [info.path for info in base.list("q")] == ["q/notes.txt"]
    assert refused(undo, base) == "not-a-quarantine"
    assert refused(purge, Quarantine(base.child("q"))) == "not-a-quarantine"


def test_empty_partitions_go_and_come_back(tmp_path: Path) -> None:
    write_with_garbage(LocalStore(tmp_path / "ck"))
    base = LocalStore(tmp_path)
    compact(base.child("ck"), base.child("q"), STOPPED)
    assert not (tmp_path / "ck/state/0/2").exists()
    undo(base)
    assert (tmp_path / "ck/state/0/2/4.delta").exists()


def test_files_keep_their_inodes_on_one_disk(tmp_path: Path) -> None:
    write_with_garbage(LocalStore(tmp_path / "ck"))
    base = LocalStore(tmp_path)
    before = {info.path: info.identity for info in base.list("ck")}
    compact(base.child("ck"), base.child("q"), STOPPED)
    undo(base)
    assert {info.path: info.identity for info in base.list("ck")} == before


def test_an_undo_is_refused_once_the_query_has_gone_on(base: Store) -> None:
    compact(base.child("ck"), base.child("q"), STOPPED)
    commit_next(base.child("ck"), 4)
    before = contents(base)
    assert refused(undo, base) == "query-went-on"
    assert contents(base) == before
    assert purge(Quarantine(base.child("q"))).files


def test_an_undo_after_a_start_that_failed_brings_back_what_batches_need(base: Store) -> None:
    """The attempt was given up and made again: its old state has no place any more, and no batch needs it."""
    report = compact(base.child("ck"), base.child("q"), STOPPED)
    base.write("ck/state/0/0/6.delta", b"of another attempt")
    back = bring_back(base.child("ck"), Quarantine(base.child("q")), check=lambda: None)
    assert back.left == ("state/0/0/6.delta",)
    assert back.files == report.won.files - 1
    assert base.read("ck/state/0/0/6.delta") == b"of another attempt"
    assert base.exists("q/files/state/0/0/6.delta") and base.exists("q/quarantine.json")


def test_an_undo_is_refused_where_another_file_has_the_name(base: Store) -> None:
    compact(base.child("ck"), base.child("q"), STOPPED)
    base.write("ck/offsets/0", b"something else")
    before = contents(base)
    assert refused(undo, base) == "undo-conflict"
    assert contents(base) == before


def test_an_undo_needs_its_own_checkpoint(base: Store) -> None:
    compact(base.child("ck"), base.child("q"), STOPPED)
    write_with_garbage(base.child("other"))
    other = base.child("other")
    assert refused(bring_back, other, Quarantine(base.child("q")), check=lambda: None) == "other-checkpoint"
    assert refused(compact, other, base.child("q"), STOPPED) == "other-checkpoint"


def test_files_that_are_in_neither_place_are_named(base: Store) -> None:
    compact(base.child("ck"), base.child("q"), STOPPED)
    base.delete("q/files/offsets/0")
    back = bring_back(base.child("ck"), Quarantine(base.child("q")), check=lambda: None)
    assert back.missing == ("offsets/0",)


WATCHED = CompactionRequest(stopped=True, watch=QuietCheck(quiet_s=600, watch_s=0))


def test_a_young_file_is_a_sign_of_life(base: Store) -> None:
    before = contents(base)
    with refuses(RefusedError, "signs-of-life", match=r"was written .* s ago"):
        compact(base.child("ck"), base.child("q"), WATCHED)
    assert contents(base) == before
    assert [refusal.code for refusal in plan(base.child("ck"), WATCHED).refusals] == ["signs-of-life"]
    later = QuietCheck(quiet_s=600, watch_s=0, now_ns=lambda: time.time_ns() + 601 * 10**9)
    assert compact(base.child("ck"), base.child("q"), replace(WATCHED, watch=later)).files


def test_a_change_while_looking_is_a_sign_of_life(base: Store) -> None:
    def write(seconds: float) -> None:
        assert seconds == 5.0
        base.write("ck/state/0/1/6.delta", b"of a query that runs")

    watch = QuietCheck(quiet_s=0, watch_s=5.0, sleep=write)
    assert (
        refused(compact, base.child("ck"), base.child("q"), replace(WATCHED, watch=watch)) == "signs-of-life"
    )
    assert not [*base.list("q")]


def test_a_query_that_starts_meanwhile_ends_the_compaction(
    base: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.compaction.moving.AT_A_TIME", 3)
    asked = 0

    def start_at_the_third() -> None:
        nonlocal asked
        asked += 1
        if asked == 4:
            commit_next(base.child("ck"), 4)

    needed, _ = closure(base.child("ck"))
    request = replace(STOPPED, check=start_at_the_third)
    with refuses(RefusedError, "signs-of-life", match=r"started meanwhile.*q"):
        compact(base.child("ck"), base.child("q"), request)
    assert all(base.exists(f"ck/{path}") for path in needed.paths)
    # The same place again: what was moved stays away, as the query has shown that it does without.
    again = compact(base.child("ck"), base.child("q"), STOPPED)
    assert again.already_done and again.files and "gone on" in again.notes[0]
    assert purge(Quarantine(base.child("q"))).files == again.won.files


def test_a_file_that_is_written_again_meanwhile_stays(base: Store) -> None:
    asked = 0

    def rewrite() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:  # after the second names are made, before the first ones go
            base.write("ck/state/0/0/6.delta", b"of a query that has just started")

    with refuses(ConflictError, "checkpoint-moved"):
        compact(base.child("ck"), base.child("q"), replace(STOPPED, check=rewrite))
    assert base.read("ck/state/0/0/6.delta") == b"of a query that has just started"
    assert not base.exists("q/files/state/0/0/6.delta")


def test_an_unfinished_compaction_is_not_purged(base: Store) -> None:
    calls = iter([None, None, ConflictError("The lock was lost.", code="claim-lost")])

    def lose_the_lock() -> None:
        if (error := next(calls)) is not None:
            raise error

    def opener(location: object) -> Store:
        return base.child("ck")

    with pytest.raises(ConflictError, match=r"The lock was lost\. What had been moved by then is in"):
        compact(base.child("ck"), base.child("q"), replace(STOPPED, check=lose_the_lock))
    quarantine = Quarantine(base.child("q"))
    assert refused(purge, quarantine, opener=opener) == "quarantine-unfinished"
    commit_next(base.child("ck"), 4)
    assert purge(quarantine, opener=opener).checkpoint == base.child("ck").uri


@pytest.mark.parametrize(
    ("checkpoint_uri", "expected"),
    [
        ("file:///data/ck/orders", "file:///data/ck/orders.quarantine-x"),
        ("file:///ck", "file:///ck.quarantine-x"),
        ("s3://bucket/ck", "s3://bucket/ck.quarantine-x"),
    ],
)
def test_a_quarantine_lies_beside_its_checkpoint(checkpoint_uri: str, expected: str) -> None:
    assert quarantine_location(checkpoint_uri, "x") == expected
    check_place(checkpoint_uri, expected)


def test_a_whole_bucket_has_no_place_beside_it() -> None:
    with pytest.raises(InputError, match="no place beside"):
        quarantine_location("s3://bucket", "x")


@pytest.mark.parametrize("place", ["ck", "ck/q", ""])
def test_a_quarantine_and_its_checkpoint_lie_apart(tmp_path: Path, place: str) -> None:
    store = LocalStore(tmp_path / place)
    assert refused(compact, LocalStore(tmp_path / "ck"), store, STOPPED) == "inside-checkpoint"


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    for request in (STOPPED, replace(STOPPED, stopped=False)):
        with pytest.raises(NotFoundError, match="not a checkpoint"):
            compact(LocalStore(tmp_path / "nothing"), LocalStore(tmp_path / "q"), request)


def test_a_recorded_checkpoint_there_and_back(tmp_path: Path) -> None:
    """Snapshots with SST files, two of each version's files, and partitions that nobody has any more."""
    base = LocalStore(tmp_path, fsync=False)
    whole = checkpoint("4.3.0/rocksdb-repartitioned")
    whole.into(base.child("ck"))
    needed = closure(base.child("ck"))
    report = compact(base.child("ck"), base.child("q"), STOPPED)
    assert {DeadReason.UNNAMED_DATA, DeadReason.ABANDONED_PARTITION} <= {*report.reasons}
    assert closure(base.child("ck")) == needed
    undo(base)
    assert contents(base.child("ck")) == whole.files
