"""What `latest` and `latest-good` mean once state was changed: that state, once a job goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import NotFoundError, StorageError
from streambank.recovery.choosing.resolve import choose
from streambank.replicas.replicate import newest_first, open_replica, replicate_to
from streambank.repository.catalog import summarize
from streambank.repository.marks import REHEARSAL, add_mark
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import succeed
from tests.support.refuses import refuses
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
    """What `latest-good` means, and `latest`, as long as nothing is damaged: both go by one order."""
    found = changed.repository.resolve("latest-good", JOB).savepoint
    assert changed.repository.resolve("latest", JOB).savepoint == found
    return found


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


def rehearsed(changed: Changed, passed: bool) -> None:
    """A rehearsal of what was made has begun, or passed."""
    place = (changed.repository.store, changed.repository.digest_name, JOB, changed.made)
    add_mark(*place, REHEARSAL, fields={"passed": passed})


def test_what_failed_in_its_rehearsal_is_meant_by_its_id_alone(changed: Changed, tmp_path: Path) -> None:
    repository = changed.repository
    at = repository.load(JOB, changed.made).taken_at.isoformat()
    assert repository.resolve(at, JOB).savepoint == changed.made, "a time means what was taken last"
    assert repository.resolve("latest", JOB).savepoint == changed.taken, "nothing went on from what was made"
    rehearsed(changed, passed=False)
    assert repository.resolve(at, JOB).savepoint == changed.taken
    assert repository.resolve("latest", JOB).savepoint == changed.taken == good(changed)
    assert choose(repository, "latest", JOB, record=False).manifest.savepoint == changed.taken
    assert repository.resolve(changed.made, JOB).savepoint == changed.made
    assert [one.rejected for one in summarize(repository.store) if one.savepoint == changed.made] == [True]
    assert "its rehearsal has not passed" in succeed("list", "-r", tmp_path / "savepoints").out
    rehearsed(changed, passed=True)
    assert repository.resolve(at, JOB).savepoint == changed.made
    repository.store.delete(f"savepoints/{JOB}/{changed.taken}.json")
    assert repository.resolve("latest", JOB).savepoint == changed.made


def test_a_time_does_not_mean_it_either_until_a_job_goes_on_from_it(changed: Changed) -> None:
    repository = changed.repository
    rehearsed(changed, passed=False)
    at = repository.load(JOB, changed.made).taken_at.isoformat()
    assert repository.resolve(at, JOB).savepoint == changed.taken
    changed.restore(changed.made)
    assert repository.resolve(at, JOB).savepoint == changed.made == good(changed)
    assert repository.resolve("latest", JOB).savepoint == changed.made


def test_a_replica_knows_of_the_rehearsal_and_of_the_restore(changed: Changed, tmp_path: Path) -> None:
    source = changed.repository
    replica = open_replica(source, open_store(tmp_path / "replica"))

    def bring() -> str:
        replicate_to(source, open_store, str(tmp_path / "replica"), newest_first(source))
        return replica.resolve("latest", JOB).savepoint

    rehearsed(changed, passed=False)
    assert [bring(), bring()] == [changed.taken, changed.taken]
    marks = len(list(replica.store.list("marks")))
    changed.restore(changed.made)
    assert bring() == changed.made == replica.resolve("latest-good", JOB).savepoint
    bring()
    assert len(list(replica.store.list("marks"))) == marks + 1, "each mark is carried once"


def test_where_nothing_else_is_there_no_savepoint_is_meant(changed: Changed) -> None:
    rehearsed(changed, passed=False)
    changed.repository.store.delete(f"savepoints/{JOB}/{changed.taken}.json")
    with refuses(NotFoundError, "no-such-savepoint", match="rehearsal has not passed"):
        changed.repository.resolve("latest", JOB)
    with pytest.raises(NotFoundError):
        changed.repository.resolve("latest-good", JOB)
