"""What each command does where a disk is full: it says so, harms nothing, and works once there is room.

Each cell once on a small disk that is really full (the storm), and where that is quick with files that cannot
be created.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.load import load_jobs
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.storage.local.errors import translate
from streambank.storage.local.root import Root
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import BY, end_drivers, fake_installation
from tests.support.storage.small_disk import SmallDisk, small_disk
from tests.support.waiting import poll

PLACES = ("repository", "records", "checkpoint", "target")
DECLARED = """
repository = "{0}/repository/savepoints"
control = "{0}/records/control"

[jobs.flights]
application = "app.py"
args = ["--period-s", "0.1"]
checkpoint = "{0}/checkpoint/flights"

[jobs.flights.drill]
scratch = "{0}/target/scratch"

[jobs.flights.lease]
beat = "100ms"
ttl = "2s"
"""
FULL, UNSAID = (7, "disk-full"), (7, "report-not-written")
ENDS: dict[tuple[str, str], tuple[int, str]] = {
    ("take", "repository"): FULL,
    ("take", "records"): UNSAID,
    ("restore", "records"): FULL,
    ("restore", "checkpoint"): FULL,
    ("restore-all", "records"): FULL,
    ("restore-all", "checkpoint"): FULL,
    ("restore-into", "records"): FULL,
    ("restore-into", "target"): FULL,
    ("verify", "repository"): (0, ""),
    ("expire", "repository"): FULL,
    ("sweep", "repository"): FULL,
    ("replicate", "target"): FULL,
    ("compact", "records"): FULL,
    ("compact", "checkpoint"): FULL,
    ("drill", "records"): UNSAID,
    ("drill", "target"): (1, "disk-full"),
    ("start", "records"): FULL,
    ("start", "checkpoint"): FULL,
}
"""How a command ends where such a place is full; of the other places it needs no room."""
SLOW = ("drill", "start")
"""They start drivers; and it is the file system that a start asks for its room."""


@dataclass
class Story:
    """A stopped job with two savepoints and six batches since, each place on a disk of its own.

    Attributes:
        full: What is full of those that are not mounted.
    """

    folder: Path
    disks: dict[str, SmallDisk] = field(default_factory=dict)
    full: Path | None = None
    refused: int = 0

    @property
    def jobs(self) -> Path:
        return self.folder / "streaming_jobs.toml"

    @property
    def arguments(self) -> dict[str, tuple[str | Path, ...]]:
        repository, target = self.folder / "repository/savepoints", self.folder / "target"
        job = ("--job", "flights", "--jobs", self.jobs)
        return {
            "take": ("job", "savepoint", "flights", "--jobs", self.jobs),
            "restore": ("restore", "latest", "--generation", *job),
            "restore-all": ("job", "restore", "flights", "latest", "--jobs", self.jobs),
            "restore-into": ("restore", "latest", "--into", target / "restored", *job),
            "verify": ("verify", "--all", "-r", repository, "--level", "full"),
            "expire": ("expire", "-r", repository, "--keep-last", "1", "--min-verified", "0"),
            "sweep": ("sweep", "-r", repository),
            "replicate": ("replicate", "-r", repository, "--to", target / "replica"),
            "compact": ("compact", "--stopped", *job),
            "drill": ("drill", "flights", "--jobs", self.jobs),
            "start": ("job", "start", "flights", "--jobs", self.jobs),
        }

    def run(self, command: str) -> Any:
        return streambank(*self.arguments[command], "--json")

    def go_on(self, batches: int) -> None:
        """Run it for some batches more, and stop it."""
        job = load_jobs(self.jobs).job("flights")
        commits = self.folder / "checkpoint/flights/commits"
        last = max((int(one.name) for one in commits.glob("[0-9]*")), default=-1)
        start_job(job, by=BY)
        poll(lambda: (commits / str(last + batches)).exists(), timeout_s=60)
        stop_job(job, by=BY)

    def fill(self, place: str, but_bytes: int = 0) -> None:
        if self.disks:
            self.disks[place].fill(but_bytes)
        else:
            self.full, self.refused = self.folder / place, 0

    def free(self) -> None:
        self.full = None
        for disk in self.disks.values():
            disk.free()

    def facts(self) -> dict[str, Any]:
        """What a command that has failed must leave as it was."""
        control = load_jobs(self.jobs).job("flights").records()
        views = control.operation_lock.view(), control.lease.view()
        desired = control.desired()
        listed = succeed("list", "-r", self.folder / "repository/savepoints", "--json")
        return {
            "savepoints": [one["savepoint"] for one in listed.document],
            "generation": control.generation(),
            "held": [view is not None and not view.free for view in views],
            "desired": desired and desired.state,
        }


@contextmanager
def told(folder: Path, *, real: bool) -> Iterator[Story]:
    """The story, on disks or in folders; and what ends it."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        story = Story(folder)
        (folder / "app.py").write_text("", encoding="utf-8")
        story.jobs.write_text(DECLARED.format(folder), encoding="utf-8")
        for place in PLACES:
            if real:
                story.disks[place] = stack.enter_context(small_disk(folder / place, 8 << 20))
            else:
                (folder / place).mkdir()
        installation = fake_installation(folder)
        patch.setattr("streambank.driver.launchers.local.installation_of", lambda job: installation)
        create = Root.create_temporary

        def create_if_there_is_room(self: Root, directory: int) -> tuple[str, int]:
            if story.full is not None and Path(self.path).is_relative_to(story.full):
                story.refused += 1
                raise translate(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), self.join("file"))
            return create(self, directory)

        patch.setattr(Root, "create_temporary", create_if_there_is_room)
        stack.callback(lambda: end_drivers(load_jobs(story.jobs).job("flights").records()))
        for _ in range(2):
            story.go_on(6)
            succeed(*story.arguments["take"])
        story.go_on(6)
        for place in PLACES:
            shutil.copytree(folder / place, folder / "before" / place)
        yield story


@pytest.fixture(scope="module")
def in_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with told(tmp_path_factory.mktemp("folders"), real=False) as story:
        yield story


@pytest.fixture(scope="module")
def on_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with told(tmp_path_factory.mktemp("disks"), real=True) as story:
        yield story


def begin_again(story: Story) -> None:
    """Everything as it was when the story began."""
    end_drivers(load_jobs(story.jobs).job("flights").records())
    for place in PLACES:
        for path in (story.folder / place).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(story.folder / "before" / place, story.folder / place, dirs_exist_ok=True)


def check(
    story: Story, command: str, place: str, ends: Sequence[tuple[int, str]], but_bytes: int = 0
) -> None:
    """Run a command while a place is full, and again once it is not; it ends in one of some ways."""
    begin_again(story)
    before = story.facts()
    story.fill(place, but_bytes)
    try:
        answer = story.run(command)
    finally:
        story.free()

    name = next((name for _, name in ends if name and f'"{name}"' in answer.out), "")
    assert (answer.code, name) in ends, answer
    assert "Traceback" not in answer.err and "a bug" not in answer.err
    if not name:
        return
    assert str(story.folder / place) in answer.out, answer
    assert answer.code == 1 or re.search(r'"hint": "[^"]', answer.out), "a drill has a report"
    after = story.facts()
    assert not any(after["held"])
    if name == "disk-full":
        assert after == before
    assert story.run(command).code == 0


@pytest.mark.parametrize(
    ("command", "place"), [cell for cell in ENDS if cell[0] not in SLOW], ids=lambda one: str(one)
)
def test_files_that_cannot_be_created_are_said_and_harm_nothing(
    in_folders: Story, command: str, place: str
) -> None:
    check(in_folders, command, place, [ENDS[command, place]])
    assert in_folders.refused


@pytest.mark.storm
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", sorted({command for command, _ in ENDS}))
def test_a_disk_that_is_really_full_is_said_and_harms_nothing(
    on_disks: Story, command: str, place: str
) -> None:
    check(on_disks, command, place, [ENDS.get((command, place), (0, ""))])


@pytest.mark.storm
@pytest.mark.parametrize("pages", range(1, 8))
@pytest.mark.parametrize("command", ["restore", "restore-all", "compact", "take"])
def test_a_disk_of_records_that_fills_up_in_the_middle_harms_nothing(
    on_disks: Story, command: str, pages: int
) -> None:
    """Each record takes a page: the next one, which has no room, is another one each time."""
    check(on_disks, command, "records", [(0, ""), FULL, UNSAID], pages * mmap.PAGESIZE)
