"""Of a query that may run only unfinished writes go: old ones that nobody can go on with."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.compaction.compact import compact
from streambank.compaction.plan import plan_running
from streambank.compaction.quarantine import Quarantine
from streambank.compaction.undo import bring_back
from streambank.core.errors import InputError
from streambank.storage.local.store import LocalStore
from tests.support.checkpoint.recorded import REFUSED, checkpoint
from tests.support.checkpoint.with_garbage import STOPPED, commit_next, write_with_garbage
from tests.support.storage.contents import contents

HOUR_S = 3600.0
RUNNING = replace(STOPPED, stopped=False)

UNFINISHED = str(uuid.UUID(int=1))
DEAD = (
    f"state/0/0/.4.delta.{UNFINISHED}.TID9.tmp",
    f"state/0/1/.4.snapshot.{UNFINISHED}.tmp",
    f"state/0/1/.3.zip.crc.{UNFINISHED}.tmp",
    f"offsets/.3.{UNFINISHED}.tmp",
    f"commits/.0.{UNFINISHED}.tmp",
    f"sources/0/.2.{UNFINISHED}.tmp",
    f".metadata.{UNFINISHED}.tmp",
    f"state/0/_metadata/.metadata.{UNFINISHED}.tmp",
    f"state/0/0/..4.delta.{UNFINISHED}.TID9.tmp.crc",
)
"""What they were to become is there, or belongs to a batch that was committed."""
ALIVE = (
    f"state/0/0/.6.delta.{UNFINISHED}.TID9.tmp",
    f"offsets/.5.{UNFINISHED}.tmp",
    f"commits/.4.{UNFINISHED}.tmp",
    f"sources/0/.5.{UNFINISHED}.tmp",
    f"state/0/0/SSTs/.000012-x.sst.{UNFINISHED}.tmp",
    f"state/0/0/_metadata/.schema.{UNFINISHED}.tmp",
    "commits/.9.crc",
    "state/0/0/6.delta",
    "state/0/2/4.delta",
)
"""Somebody may still be writing them, or they are no unfinished writes."""


def old(folder: Path, paths: tuple[str, ...], hours: float) -> None:
    for path in paths:
        stat = (folder / path).stat()
        os.utime(folder / path, ns=(stat.st_atime_ns, stat.st_mtime_ns - int(hours * 3600e9)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A running query: batch 3 is committed, batch 4 is planned."""
    store = LocalStore(tmp_path / "ck", fsync=False)
    write_with_garbage(store)
    for path in (*DEAD, *ALIVE):
        store.write(path, path.encode())
    return tmp_path / "ck"


def dead(folder: Path, older_than_s: float = HOUR_S, ahead_s: float = 0.0) -> set[str]:
    store = LocalStore(folder)
    listing = {info.path: info for info in store.list()}
    newest_ns = max(info.mtime_ns for info in listing.values())
    plan = plan_running(listing, store.read, older_than_s, newest_ns + int(ahead_s * 1e9))
    return {each.path for each in plan.dead}


def test_old_unfinished_writes_of_what_is_over_go(folder: Path) -> None:
    assert dead(folder) == set()
    everything = tuple(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    old(folder, tuple(path for path in everything if path != "metadata"), hours=2)
    litter_of_its_own = {path for path in everything if path.endswith(".tmp")} - {*DEAD, *ALIVE}
    assert dead(folder) - litter_of_its_own == {*DEAD}
    assert dead(folder, older_than_s=3 * HOUR_S) == set()


def test_a_clock_that_is_ahead_makes_nothing_older(folder: Path) -> None:
    """The newest file of the checkpoint tells its storage's own time."""
    assert dead(folder, ahead_s=5 * HOUR_S) == set()
    old(folder, DEAD, hours=2)
    assert {*DEAD} <= dead(folder, ahead_s=5 * HOUR_S)
    assert dead(folder, ahead_s=-1.5 * HOUR_S) == set(), "a clock that is behind makes everything younger"


def test_files_that_carry_no_time_stay() -> None:
    whole = checkpoint("4.3.0/hdfs-window").having({DEAD[0]: b"half"})
    assert plan_running(whole.listing(), whole.read, HOUR_S, 10**18).dead == ()


@pytest.mark.parametrize("name", REFUSED)
def test_any_kind_of_log_will_do(name: str) -> None:
    whole = checkpoint(name)
    assert plan_running(whole.listing(), whole.read, HOUR_S, 10**18).mode == "running"


def test_less_than_an_hour_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="left alone for an hour"):
        dead(folder, older_than_s=HOUR_S - 1)


def test_there_and_back_beside_a_query_that_goes_on(folder: Path) -> None:
    old(folder, DEAD, hours=2)
    base = LocalStore(folder.parent, fsync=False)
    before = contents(base.child("ck"))
    report = compact(base.child("ck"), base.child("q"), RUNNING)
    assert {file.path for file in report.files} == {*DEAD}
    assert (report.mode, report.kept_batches) == ("running", ())
    commit_next(base.child("ck"), 4)
    back = bring_back(base.child("ck"), Quarantine(base.child("q")), check=lambda: None)
    assert back.files == len(DEAD)
    assert {*before} <= {*contents(base.child("ck"))}
