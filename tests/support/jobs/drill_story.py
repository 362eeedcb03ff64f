"""A running job of which a restore can be rehearsed: a savepoint, and batches after it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.release_story import APPLICATION, NAME, ReleaseStory


def hashes(*folders: Path) -> dict[str, str]:
    """Every file below some folders, by what is in it."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def story_in(folder: Path, application: str = APPLICATION, more: str = "") -> Iterator[ReleaseStory]:
    """A running job with a savepoint of batch 0 or later, and batches after it."""
    story = ReleaseStory(folder, more, application=application)
    try:
        story.feed(2)
        story.do("start")
        story.until_batch(1)
        story.do("savepoint")
        story.feed(3)
        story.until_batch(4)
        yield story
    finally:
        end_drivers(load_jobs(story.jobs).job(NAME).records())


def drill(story: ReleaseStory, *options: str | int, code: int = 0) -> Any:
    answer = streambank("drill", NAME, "--jobs", story.jobs, "--json", *options)
    assert answer.code == code, f"{answer.out}{answer.err}"
    return answer.document
