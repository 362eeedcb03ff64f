"""What an earlier version has stored is read: a repository, a replica, a job's records and its checkpoint.

tests/data/stored/make.py tells how they came to be; they are never made again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.archives import unpack_tar
from tests.support.cli import Answer, streambank

STORED = Path(__file__).parent / "data" / "stored"
VERSIONS = sorted(file.name.removesuffix(".tar.xz") for file in STORED.glob("*.tar.xz"))
MADE_AT = b"/srv/words"
"""Where it was made: the records and the markers beside checkpoints name it, and are moved with it."""
LISTED = ["b000007-8dc6d803d597", "b000011-dfa6c37911c5", "b000012-03c406d2c01b"]
EXPIRED = "b000003-7bbad507c989"


@pytest.fixture(params=VERSIONS)
def stored(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything of a job, as that version left it; the folder that commands run in."""
    unpack_tar(STORED / f"{request.param}.tar.xz", tmp_path)
    records = (tmp_path / "repository" / "jobs").rglob("*.json*")
    for file in [*records, *tmp_path.glob("*.streambank.json")]:
        file.write_bytes(file.read_bytes().replace(MADE_AT, str(tmp_path).encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str) -> Any:
    """The answer of a verb."""
    answer = streambank(*words, "--json")
    assert answer.code == 0, answer
    return answer.document


@pytest.mark.usefixtures("stored")
def test_savepoints_are_listed_shown_and_verified() -> None:
    listed = ask("list", "-r", "repository")
    assert [(one["savepoint"], one["note"], one["pinned"], one["verified_level"]) for one in listed] == [
        (LISTED[0], "pinned", True, "full"),
        (LISTED[1], "of a stop", False, "full"),
        (LISTED[2], "after the restore", False, "full"),
    ]
    shown = ask("show", LISTED[1], "-r", "repository")
    assert (shown["batch"], len(shown["files"])) == (11, 31)
    ask("verify", "--all", "-r", "repository", "--level", "full")
    ask("verify", "--all", "-r", "replica", "--level", "full")


@pytest.mark.usefixtures("stored")
def test_what_was_expired_comes_back() -> None:
    assert [one["savepoint"] for one in ask("list", "-r", "repository", "--expired")] == [EXPIRED]
    ask("undelete", EXPIRED, "-r", "repository")
    assert [one["savepoint"] for one in ask("list", "-r", "repository")] == [EXPIRED, *LISTED]
    ask("verify", "--all", "-r", "repository", "--level", "full")


def test_a_savepoint_is_restored_byte_by_byte(stored: Path) -> None:
    for place, name in (("repository", LISTED[2]), ("replica", EXPIRED)):
        ask("restore", name, "-r", place, "--into", f"again-{place}", "--sink", "accept")
    left, again = stored / "checkpoint.g0002", stored / "again-repository"
    for file in (again / "state").rglob("[!.]*"):
        if file.is_file():
            assert file.read_bytes() == (left / file.relative_to(again)).read_bytes()
    assert sorted(int(one.name) for one in (again / "commits").iterdir() if one.name.isdigit())[-1] == 12


@pytest.mark.usefixtures("stored")
def test_its_savepoints_are_gone_on_from() -> None:
    """A take stores only what is new, and taking the newest batch again stores nothing."""
    taken = ask("job", "savepoint", "words", "--jobs", "jobs.toml")
    assert taken["batch"] == 14
    again = ask("job", "savepoint", "words", "--jobs", "jobs.toml")
    assert (again["savepoint"], again["already_there"]) == (taken["savepoint"], True)
    ask("replicate", "-r", "repository", "--to", "replica")
    ask("expire", "-r", "repository", "--keep-last", "1")
    ask("sweep", "-r", "repository")
    ask("verify", "--all", "-r", "repository", "--level", "full")
    ask("verify", "--all", "-r", "replica", "--level", "full")


def test_the_records_of_the_job_are_read(stored: Path) -> None:
    status = ask("job", "status", "words", "--jobs", "jobs.toml")
    assert (status["state"], status["desired"], status["desired_why"]) == ("stopped", "stopped", "the end")
    assert (status["epoch"], status["batch"]) == (4, 14)
    assert status["queries"]["main"]["generation"] == 2
    assert status["queries"]["main"]["from_savepoint"] == LISTED[1]
    assert status["queries"]["main"]["checkpoint"] == f"file://{stored}/checkpoint.g0002"
    assert streambank("sla", "words", "--jobs", "jobs.toml", "--json").code in (0, 1)


def test_a_lost_checkpoint_is_still_noticed(stored: Path) -> None:
    (stored / "checkpoint.g0002").rename(stored / "away")
    answer: Answer = streambank("job", "start", "words", "--jobs", "jobs.toml", "--json")
    assert answer.document["error"] == "checkpoint-lost"


def test_its_records_are_found_in_the_repository_and_can_be_moved_out(stored: Path) -> None:
    moved = ask("job", "move-records", "words", "--jobs", "jobs.toml")
    assert moved["from"] == f"file://{stored}/repository/jobs/words"
    assert moved["to"] == f"file://{stored}/repository.control/words"
    status = ask("job", "status", "words", "--jobs", "jobs.toml")
    assert (status["state"], status["epoch"], status["batch"]) == ("stopped", 4, 14)
    assert ask("job", "savepoint", "words", "--jobs", "jobs.toml")["batch"] == 14
    ask("verify", "--all", "-r", "repository", "--level", "full")
