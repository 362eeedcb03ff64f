"""A disk fills up, or is mounted for reading alone, anywhere in the middle: what was there stays whole.

In files that are refused from some point on, in the middle (quick) and at many others (storm); the storm also
on a small disk that is really full, by bytes and by files.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streambank.control.copies import copied
from streambank.core.errors import StreambankError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.retention.expire import expire
from streambank.retention.expired import expired_savepoints
from streambank.retention.policy import Policy
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.local.errors import translate
from streambank.storage.local.root import Root
from tests.support.cli import streambank
from tests.support.jobs.copied_job import STAGING, CopiedJob
from tests.support.jobs.simulated_job import BY
from tests.support.storage.small_disk import SmallDisk, small_disk


class Story:
    """A job with a copy of its state and two savepoints, made anew before each attack.

    A process remembers which locks of which records it has let go of, so that no records are there twice.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.number = 0
        self.begin_again()

    def begin_again(self) -> None:
        if self.number:
            shutil.rmtree(self.folder)
        self.number += 1
        self.folder.mkdir()
        self.made: CopiedJob = CopiedJob(self.folder, STAGING)
        self.made.refresh()
        self.made.take()
        self.made.run(1)
        self.saved = self.listed()
        assert len(self.saved) == 2

    @property
    def folder(self) -> Path:
        return self.place / f"job-{self.number}"

    @property
    def repository(self) -> Repository:
        return Repository.open(open_store(self.made.job.repository))

    def listed(self) -> set[str]:
        """The savepoints that are listed, each of them whole to its last byte."""
        repository = self.repository
        summaries = [*repository.manifests()]
        for one in summaries:
            assert one.error is None
            assert verify(repository, one.job, one.savepoint, "full", record=False).restorable
        return {one.savepoint for one in summaries}

    def live(self) -> Mapping[str, str]:
        """The live checkpoint and the live output."""
        return {path: data for path, data in self.made.live_files().items() if ".control" not in path}

    def copies(self) -> dict[str, Any]:
        """What the copy uses; it must be there."""
        found = copied(self.made.on().records())
        for one in found.values():
            for place in one.generation.places():
                assert [*open_store(place).list()]
            assert open_store(one.generation.location).exists("metadata")
        return {name: one.generation.location for name, one in found.items()}

    def generation(self) -> str:
        """The checkpoint that counts; it must be there."""
        current = self.made.job.records().generation()
        location = current.location if current is not None else self.made.job.checkpoint
        assert open_store(location).exists("metadata")
        return location

    def restore(self) -> object:
        records = self.made.job.records()
        return restore(
            RestoreRequest(
                self.repository, self.made.saved, job=self.made.job.name, generation=records,
                checkpoint=self.made.job.checkpoint, by=BY, sink="accept",
            )
        )  # fmt: skip


VERBS: Mapping[str, Callable[[Story], object]] = {
    "take": lambda story: story.made.take(),
    "expire": lambda story: expire(story.repository, Policy(keep_last=1, min_verified=0), by=BY),
    "restore": Story.restore,
    "refresh": lambda story: story.made.refresh(),
}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("full"))


def attack(story: Story, verb: str, failing: Callable[[], Any], codes: set[str]) -> bool:
    """Run a verb while something fails, and again when nothing does; whether it did fail."""
    story.begin_again()
    live, generation, copies = story.live(), story.generation(), story.copies()
    failed = False
    with failing():
        try:
            VERBS[verb](story)
        except StreambankError as error:
            assert error.code in codes and error.exit_code == 7, error
            assert error.hint
            failed = True
    assert story.live() == live, "the live checkpoint and its output are as they were"
    found = story.listed()
    expired = {one.savepoint for one in expired_savepoints(story.repository.store)}
    assert found | expired >= story.saved and (verb == "expire" or not expired)
    if failed and verb != "restore":
        assert story.generation() == generation
    if failed and verb != "refresh":
        assert story.copies() == copies
    VERBS[verb](story)
    assert story.listed()
    assert story.live() == live
    if verb == "restore":
        assert story.generation() != generation
    if verb == "refresh":
        assert story.copies() != copies
    return failed


NONE = 1 << 30
"""The number of a file that is never made."""


@contextmanager
def refused(folder: Path, number: int, from_file: int = NONE, *, fires: bool = True) -> Iterator[list[str]]:
    """From some file on no more can be made below a folder, as long as the block lasts; the files."""
    asked: list[str] = []
    create = Root.create_temporary

    def create_if_there_is_room(self: Root, directory: int) -> tuple[str, int]:
        if Path(self.path).is_relative_to(folder):
            asked.append(str(self.path))
            if len(asked) >= from_file:
                raise translate(OSError(number, os.strerror(number)), self.join("file"))
        return create(self, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Root, "create_temporary", create_if_there_is_room)
        yield asked
    assert from_file == NONE or not fires or len(asked) >= from_file, "the fault did not fire"


def files_of(story: Story, verb: str) -> int:
    """How many files a verb makes where nothing fails."""
    story.begin_again()
    with refused(story.folder, errno.ENOSPC) as asked:
        VERBS[verb](story)
    assert asked
    return len(asked)


UNSAID = {"report-not-written"}


@pytest.mark.parametrize("verb", ["take", "restore"])
def test_where_files_are_refused_from_the_middle_on_what_was_there_stays_whole(
    story: Story, verb: str
) -> None:
    files = files_of(story, verb)
    attack(
        story,
        verb,
        lambda: refused(story.folder, errno.ENOSPC, files // 2 + 1),
        {"disk-full"} | UNSAID,
    )


@pytest.mark.storm
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_at_each_third_file(story: Story, verb: str, number: int) -> None:
    failed = 0
    files = files_of(story, verb)
    skipped = (errno.ENOSPC, errno.EROFS, errno.EDQUOT).index(number) % files
    for first in range(skipped + 1, files + 1, 3):
        failing = lambda first=first: refused(story.folder, number, first)  # noqa: E731
        failed += attack(story, verb, failing, {"disk-full", "read-only"} | UNSAID)
    assert failed > files / 6


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Story, SmallDisk]]:
    folder = tmp_path_factory.mktemp("disks")
    with small_disk(folder / "disk", 16 << 20, files=2000) as disk:
        yield Story(disk.folder), disk


@contextmanager
def full_of(disk: SmallDisk, what: str, but: int) -> Iterator[None]:
    """The disk has so many pages of bytes, or so many files, left."""
    if what == "bytes":
        disk.fill(but * 4096)
    else:
        disk.use_up_files()
        for path in [*disk.folder.glob("file-*")][:but]:
            path.unlink()
    try:
        yield
    finally:
        disk.free()


@pytest.mark.storm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["bytes", "files"])
@pytest.mark.parametrize("verb", VERBS)
def test_on_a_disk_that_is_really_full(on_disk: tuple[Story, SmallDisk], verb: str, what: str) -> None:
    story, disk = on_disk
    failed = [
        attack(story, verb, partial(full_of, disk, what, but), {"disk-full"} | UNSAID)
        for but in (*range(16), 20, 24, 28, 32, 40, 48, 64, 80, 96)
    ]
    assert failed[0] and not failed[-1], "from no room to room enough"


READS = ("list", "show", "verify", "status")
WRITES = (
    "take",
    "expire",
    "sweep",
    "restore-into",
    "restore-generation",
    "undelete",
    "reindex",
    "pin",
    "refresh",
)


def arguments(story: Story, verb: str) -> tuple[str | Path, ...]:
    """How a verb is called, by the command line."""
    made, repository = story.made, story.folder / "repository"
    job = ("--jobs", made.jobs)
    return {
        "list": ("list", "-r", repository),
        "show": ("show", made.saved, "-r", repository),
        "verify": ("verify", "--all", "-r", repository, "--level", "quick"),
        "status": ("job", "status", made.job.name, *job),
        "take": ("job", "savepoint", made.job.name, *job),
        "expire": ("expire", "-r", repository, "--keep-last", "1", "--min-verified", "0"),
        "sweep": ("sweep", "-r", repository),
        "restore-into": ("restore", made.saved, "-r", repository, "--into", story.folder / "into"),
        "restore-generation": ("restore", made.saved, "--generation", "--job", made.job.name, *job),
        "undelete": ("undelete", min(story.saved), "-r", repository),
        "reindex": ("reindex", "-r", repository),
        "pin": ("pin", made.saved, "-r", repository),
        "refresh": ("fork", made.job.name, "staging", *job),
    }[verb]  # fmt: skip


def read_only(story: Story, verb: str, failing: Callable[[], Any]) -> None:
    if story.listed() != story.saved:
        story.begin_again()
    if verb == "undelete":
        VERBS["expire"](story)
    live, copies, before = story.live(), story.copies(), story.listed()
    with failing():
        answer = streambank(*arguments(story, verb), "--json")
    assert answer.code in ((0,) if verb in READS else (0, 7)), answer
    assert "Traceback" not in answer.err and "a bug" not in answer.err
    if answer.code == 7:
        assert '"hint": "' in answer.out and "read-only" in answer.out.lower(), answer
    assert (story.live(), story.copies(), story.listed()) == (live, copies, before)


@pytest.mark.parametrize("verb", [*READS, *WRITES])
def test_where_nothing_can_be_written_each_verb_says_so_or_needs_not_to(story: Story, verb: str) -> None:
    fires = verb in WRITES and verb != "reindex"  # of an index that is whole
    read_only(story, verb, lambda: refused(story.folder, errno.EROFS, 1, fires=fires))


@pytest.mark.storm
@pytest.mark.parametrize("verb", [*READS, *WRITES])
def test_on_a_disk_that_is_mounted_for_reading_alone(on_disk: tuple[Story, SmallDisk], verb: str) -> None:
    story, disk = on_disk

    @contextmanager
    def mounted() -> Iterator[None]:
        disk.remount("ro")
        try:
            with pytest.raises(OSError, match="Read-only"):
                (disk.folder / "file-x").touch()
            yield
        finally:
            disk.remount("rw")

    read_only(story, verb, mounted)
