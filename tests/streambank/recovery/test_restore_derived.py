"""What `latest-good` means once state was changed: the changed state, as soon as a job goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import StorageError
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import succeed
from tests.support.repository.derived_savepoint import derive

JOB = "dedup"
JOBS = """
repository = "savepoints"
[jobs.dedup]
application = "app.py"
checkpoint = "old/checkpoint"
master = "local[1]"
"""


@dataclass
class Changed:
    """A job, a savepoint of it, and one that was made from that.

    Attributes:
        restore: Restores into the next generation; the document of the command.
    """

    repository: Repository
    taken: str
    made: str
    restore: Callable[[str], dict[str, Any]]


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(JOBS)
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    place = unpack("4.3.0/hdfs-dedup", tmp_path / "old") / "checkpoint"
    taken = take(TakeRequest(open_store(place), repository, JOB)).savepoint
    asked = ("--jobs", tmp_path / "jobs.toml", "--job", JOB, "--generation", "--json")

    def restore(savepoint: str) -> dict[str, Any]:
        found: dict[str, Any] = succeed(
            "restore", savepoint, *asked, "--sink", "accept", "--source", "accept"
        ).document
        return found

    return Changed(repository, taken, derive(repository, JOB, taken), restore)


def good(changed: Changed) -> str:
    return changed.repository.resolve("latest-good", JOB).savepoint


def test_state_that_was_changed_does_not_come_back_once_a_job_goes_on_from_it(changed: Changed) -> None:
    assert good(changed) == changed.taken, "what was made and not restored is only a proposal"
    assert changed.restore(changed.made)["generation"] == 2
    assert good(changed) == changed.made
    again = changed.restore("latest-good")
    assert (again["savepoint"], again["generation"]) == (changed.made, 3)
    further = derive(changed.repository, JOB, changed.made)
    assert good(changed) == changed.made
    changed.restore(further)
    assert good(changed) == further, "of several the last one"


def test_the_next_savepoint_of_the_job_is_newer_than_what_was_made(changed: Changed, tmp_path: Path) -> None:
    restored = changed.restore(changed.made)
    place = open_store(restored["location"])
    assert good(changed) == changed.made
    newer = take(TakeRequest(place, changed.repository, JOB, note="of generation 2"))
    assert good(changed) == newer.savepoint
    derive(changed.repository, JOB, changed.taken)
    assert good(changed) == newer.savepoint, "what is made of an old generation makes that no newer"


def test_a_restore_that_cannot_be_recorded_says_what_that_means(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise StorageError("The repository cannot be written to.", code="no-permission", hint="")

    monkeypatch.setattr("streambank.recovery.restore.add_mark", fail)
    (warning,) = (one for one in changed.restore(changed.made)["warnings"] if "latest-good" in one)
    assert changed.taken in warning and "cannot be written to" in warning
    assert good(changed) == changed.taken
