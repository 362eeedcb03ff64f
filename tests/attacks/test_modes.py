"""Another user of the host reads state: a checkpoint that is closed to them is closed in every copy of it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.doctor.checks.locations import check_openness
from streambank.driver.prepare import prepare_launch
from streambank.driver.spec import write_launch
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank.storage.local.modes import Openness, make_directory, openness
from streambank_spark.state.staging import Staging, materialized_checkpoint
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.declared import BY, declare


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def closed_checkpoint(folder: Path, directory: int = 0o700, file: int = 0o600) -> Path:
    """A checkpoint that its user has closed."""
    LiveCheckpoint(open_store(folder / "checkpoint")).run(3)
    for root, _, names in os.walk(folder / "checkpoint"):
        for name in names:
            Path(root, name).chmod(file)
    (folder / "checkpoint").chmod(directory)
    return folder / "checkpoint"


def can_read(path: Path) -> bool:
    """Whether a user without rights of its own can."""
    for parent in reversed(path.parents):
        if mode(parent) & 0o001 == 0:
            return False
    return mode(path) & 0o004 != 0


@pytest.mark.parametrize(("directory", "file"), [(0o700, 0o600), (0o755, 0o600), (0o750, 0o644)])
def test_neither_the_repository_nor_a_restore_shows_what_the_checkpoint_hides(
    tmp_path: Path, directory: int, file: int
) -> None:
    checkpoint = closed_checkpoint(tmp_path, directory, file)
    taken = succeed("take", checkpoint, "-r", tmp_path / "saved", "--job", "orders", "--json").document
    again = tmp_path / "again"
    succeed("restore", taken["savepoint"], "-r", tmp_path / "saved", "--into", again, "--json")
    expected = 0o750 if directory == 0o750 else 0o700
    assert mode(tmp_path / "saved") == mode(again) == expected
    assert not can_read(again / "metadata") and not can_read(tmp_path / "saved" / "repository.json")
    succeed("replicate", "-r", tmp_path / "saved", "--to", tmp_path / "replica", "--json")
    assert mode(tmp_path / "replica") == expected


def test_a_restore_is_closed_although_the_checkpoint_is_gone(tmp_path: Path) -> None:
    checkpoint = closed_checkpoint(tmp_path)
    repository = Repository.open(open_store(tmp_path / "saved"), create=True)
    savepoint = take(TakeRequest(open_store(checkpoint), repository, "orders")).savepoint
    assert repository.load("orders", savepoint).taken_by["mode"] == "0700"
    checkpoint.rename(tmp_path / "gone")
    restore(RestoreRequest(repository, savepoint, into=open_store(tmp_path / "again"), sink="accept"))
    assert mode(tmp_path / "again") == 0o700


def test_an_open_checkpoint_stays_as_open_as_the_umask_lets_it(tmp_path: Path) -> None:
    checkpoint = closed_checkpoint(tmp_path, 0o775, 0o644)
    taken = succeed("take", checkpoint, "-r", tmp_path / "saved", "--job", "orders", "--json").document
    os.umask(0o002)
    again = tmp_path / "shared" / "again"
    again.parent.mkdir()
    again.parent.chmod(0o2775)
    succeed("restore", taken["savepoint"], "-r", tmp_path / "saved", "--into", again, "--json")
    assert again.stat().st_mode & 0o7777 == 0o2775, "a group that shares the folder shares what is restored"


def test_a_jobs_arguments_are_not_for_everybody(tmp_path: Path) -> None:
    job = declare(tmp_path, "--secret", "x")
    control = job.records()
    write_launch(control, prepare_launch(job, control, by=BY))
    launches = tmp_path / "repository.control" / "flights" / "launches"
    assert mode(launches) == 0o750
    launches.chmod(0o755)  # as an earlier version made it
    write_launch(control, prepare_launch(job, control, by=BY))
    assert mode(launches) == 0o750
    os.umask(0o002)
    launches.chmod(0o2775)  # shared by a group, of which a driver's user is one
    write_launch(control, prepare_launch(job, control, by=BY))
    assert launches.stat().st_mode & 0o7777 == 0o2770


def test_state_that_is_laid_out_is_for_its_user_and_goes_after_a_kill(tmp_path: Path) -> None:
    checkpoint = closed_checkpoint(tmp_path, 0o755, 0o644)
    work = tmp_path / "work"
    staging = Staging("local[1]", str(work), print)
    with materialized_checkpoint(str(checkpoint), None, staging) as found:
        place = Path(found.location.removeprefix("file://"))
        assert mode(place) == 0o700
        left = work / f"inspect-{'0' * 32}"
        subprocess.run(["cp", "-a", str(place), str(left)], check=True)
    young = work / f"inspect-{'1' * 32}"
    subprocess.run(["cp", "-a", str(left), str(young)], check=True)
    week = time.time() - 8 * 86_400
    for path in left.rglob("*"):
        os.utime(path, (week, week))
    with materialized_checkpoint(str(checkpoint), None, staging):
        pass
    assert sorted(path.name for path in work.iterdir()) == [young.name]


def test_a_repository_that_is_more_open_is_named(tmp_path: Path) -> None:
    checkpoint = closed_checkpoint(tmp_path)
    (tmp_path / "saved").mkdir()
    (finding,) = check_openness(checkpoint.as_uri(), (tmp_path / "saved").as_uri())
    assert finding.code == "repository-more-open" and "everybody" in finding.cause
    (tmp_path / "saved").chmod(0o700)
    assert not list(check_openness(checkpoint.as_uri(), (tmp_path / "saved").as_uri()))


def test_what_a_savepoint_says_of_modes_opens_nothing(tmp_path: Path) -> None:
    """Who writes a manifest can name any mode: the umask has the last word."""
    os.umask(0o077)
    for number, said in enumerate(("0777", "0000", "7777", "rwx", 511, None)):
        make_directory((tmp_path / str(number)).as_uri(), Openness.parse(said) or Openness(0o777))
        assert mode(tmp_path / str(number)) & 0o077 == 0
    assert openness("s3://lake/x") is None and openness((tmp_path / "nowhere").as_uri()) is None


def test_a_group_that_shares_a_repository_still_writes_to_it(tmp_path: Path) -> None:
    """The negative control: Spark makes checkpoints that only their owner writes to."""
    checkpoint = tmp_path / "ck"
    checkpoint.mkdir()
    checkpoint.chmod(0o750)
    (checkpoint / "metadata").write_text("{}")
    before = os.umask(0o002)
    try:
        Repository.open(open_store(tmp_path / "saved"), create=True, like=checkpoint.as_uri())
    finally:
        os.umask(before)
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o770
