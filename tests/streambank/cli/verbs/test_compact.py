"""The verb `compact`: of a checkpoint, of a declared job, back again, and for good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.compaction import quiet_check
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from tests.support.checkpoint.with_garbage import closure, write_with_garbage
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import write_jobs
from tests.support.storage.contents import contents


@pytest.fixture(autouse=True)
def watch_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_check, "WATCH_S", 0.0)
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint that nobody has written to for an hour."""
    write_with_garbage(LocalStore(tmp_path / "ck", fsync=False))
    for path in (tmp_path / "ck").rglob("*"):
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - 3600 * 10**9))
    return tmp_path / "ck"


def test_a_dry_run_says_what_and_why_and_changes_nothing(folder: Path) -> None:
    before = contents(LocalStore(folder.parent))
    said = succeed("compact", folder, "--stopped", "--dry-run")
    assert contents(LocalStore(folder.parent)) == before
    assert "state/0/2/4.delta" in said.out and "a partition beyond the number" in said.out
    assert "would be moved: " in said.out and "batches kept  3" in said.out


def test_there_and_back(folder: Path) -> None:
    before, needed = contents(LocalStore(folder)), closure(LocalStore(folder))
    done = succeed("compact", folder, "--stopped", "--json").document
    assert done["quarantine"].startswith(f"file://{folder}.quarantine-20")
    assert closure(LocalStore(folder)) == needed
    back = succeed("compact", folder, "--stopped", "--undo", done["quarantine"])
    assert f"brought back: {done['files']} files" in back.out
    assert contents(LocalStore(folder)) == before
    assert not Path(done["quarantine"].removeprefix("file://")).exists()


def test_for_good(folder: Path, tmp_path: Path) -> None:
    said = succeed("compact", folder, "--stopped", "--quarantine", tmp_path / "q")
    assert f"quarantine: file://{tmp_path}/q" in said.out
    assert "moved: " in said.err or "move: " in said.err
    assert "deleted for good" in succeed("compact", "--purge", tmp_path / "q").out
    assert not (tmp_path / "q").exists()
    assert "There are no dead files." in succeed("compact", folder, "--stopped").out


def test_without_a_word_that_it_is_stopped_only_unfinished_writes_go(folder: Path) -> None:
    done = succeed("compact", folder, "--json").document
    assert (done["mode"], done["files"]) == ("running", 0)
    done = succeed("compact", folder, "--stopped", "--json").document
    refused = streambank("compact", folder, "--undo", done["quarantine"])
    assert refused.code == 2 and "give --stopped" in refused.err


def test_a_young_checkpoint_is_refused(folder: Path) -> None:
    (folder / "offsets/4").touch()
    refused = streambank("compact", folder, "--stopped", "--json")
    assert (refused.code, refused.document["error"]) == (8, "signs-of-life")
    planned = streambank("compact", folder, "--stopped", "--dry-run", "--json")
    assert planned.code == refused.code
    assert [one["error"] for one in planned.document["refusals"]] == ["signs-of-life"]
    shown = streambank("compact", folder, "--stopped", "--dry-run")
    assert (shown.code, "refused: offsets/4" in shown.out) == (refused.code, True)
    assert succeed("compact", folder, "--stopped", "--quiet", "0s", "--json").document["files"]


def test_a_declared_job_is_held_by_its_lease(tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path)
    place = tmp_path / "checkpoints/flights"
    write_with_garbage(open_store(place))
    before = contents(open_store(place))
    refused = streambank("compact", place, "--stopped", "--jobs", jobs)
    assert refused.code == 2 and "--job flights" in refused.err
    done = succeed("compact", "--job", "flights", "--jobs", jobs, "--json").document
    assert (done["job"], done["mode"]) == ("flights", "stopped")
    refused = streambank("compact", place, "--stopped", "--jobs", jobs, "--undo", done["quarantine"])
    assert refused.code == 2 and "--job flights" in refused.err
    succeed("compact", "--job", "flights", "--jobs", jobs, "--undo", done["quarantine"])
    assert contents(open_store(place)) == before


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("ck", "--job", "flights"),
        ("ck", "--undo", "q", "--purge", "q"),
        ("ck", "--undo", "q", "--dry-run"),
        ("--job", "flights"),
        ("ck", "--older-than", "5m"),
        ("ck", "--stopped", "--keep-batches", "0"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    given = [str(tmp_path) if each == "ck" else each for each in arguments]
    assert streambank("compact", *given).code == 2


def test_what_is_not_there_is_said(folder: Path, tmp_path: Path) -> None:
    assert streambank("compact", tmp_path / "nothing", "--stopped").code == 3
    assert streambank("compact", folder, "--stopped", "--undo", tmp_path / "nothing").code == 3
    done = succeed("compact", folder, "--stopped", "--json").document
    (Path(done["quarantine"].removeprefix("file://")) / "files/offsets/0").unlink()
    back = streambank("compact", folder, "--stopped", "--undo", done["quarantine"])
    assert back.code == 1 and "missing: offsets/0" in back.out
