"""Whose state a command is about, and what is refused by small files, before a Spark is started for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint import rewritable
from tests.support.cli import streambank, succeed
from tests.support.declared_commands import install_commands
from tests.support.spark.saved_state import save_jobs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some recorded checkpoints, a repository with a savepoint of each, and a jobs file that declares it."""
    folder = tmp_path_factory.mktemp("saved")
    save_jobs(folder, "hdfs-window", "rocksdb-window", "hdfs-global", "stateless")
    (folder / "jobs.toml").write_text(f'repository = "{folder}/savepoints"\n[jobs]\n')
    return folder


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each use of Spark is an error of the test."""
    install_commands(monkeypatch)

    def started(*arguments: object, **named: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("streambank_spark.submit.session.spark_session", started)
    monkeypatch.setattr("streambank_spark.state.staging.materialize", started)


@pytest.mark.parametrize(
    ("verb", "job", "code", "says"),
    [
        (
            "rescale latest --partitions 4",
            "hdfs-window",
            "hdfs-backed",
            "streambank state migrate --partitions N",
        ),
        ("rescale latest --partitions 2", "rocksdb-window", "same-partitions", "Name another number"),
        ("rescale latest --partitions 4", "stateless", "no-state", "streambank inspect"),
        ("state erase latest --key k1", "hdfs-window", "bad-key-text", "such as --key"),
        ("state erase latest --key k1", "hdfs-global", "no-key", "one key"),
        ("state read latest --key k1", "rocksdb-window", "bad-key-text", """'{"k": "c-17"}'"""),
        ("state compact latest --where value.nope>1", "hdfs-window", "bad-expression", "key.k"),
        ("state compact latest --where true --operator 7", "hdfs-window", "which-operator", "operators"),
    ],
)
def test_what_the_state_does_not_bear_is_refused_before_spark(
    folder: Path, verb: str, job: str, code: str, says: str
) -> None:
    answer = streambank(*verb.split(), "-r", folder / "savepoints", "--job", job, "--json")
    assert answer.document["error"] == code, answer.document
    assert says in answer.document["hint"]


@pytest.mark.parametrize(
    "verb", ['erase latest --key {"k":"k1"}', "compact latest --where true", "migrate latest"]
)
def test_a_package_that_is_missing_is_named_before_spark(
    folder: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewritable, "find_spec", lambda name: None)
    more = ("-r", folder / "savepoints", "--job", "hdfs-window", "--json")
    answer = streambank("state", *verb.split(), *more)
    assert answer.document["error"] == "missing-package" and "lz4 and xxhash" in answer.document["message"]


def test_a_key_of_a_checkpoint_is_checked_by_its_files(folder: Path) -> None:
    answer = streambank("state", "read", folder / "rocksdb-window/checkpoint", "--key", "k1", "--json")
    assert answer.document["error"] == "bad-key-text"


def test_what_fits_goes_on_to_spark(folder: Path) -> None:
    """The negative control of the tests above."""
    for verb in ('state read latest --key {"k":"k1"}', "rescale latest --partitions 4"):
        answer = streambank(*verb.split(), "-r", folder / "savepoints", "--job", "rocksdb-window", "--json")
        assert "Spark was started" in answer.document["message"]


def test_a_name_of_a_savepoint_is_one_of_the_declared_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("latest", "--job", "rocksdb-window", "--against", folder / "rocksdb-window/checkpoint")
    assert "same" in succeed("state", "schema", *asked, "--jobs", folder / "jobs.toml").out
    monkeypatch.setenv("STREAMBANK_JOBS", str(folder / "jobs.toml"))
    assert "same" in succeed("state", "schema", *asked).out
    assert streambank("skew", "latest", "--job", "rocksdb-window").code in (0, 1)
    monkeypatch.delenv("STREAMBANK_JOBS")
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(folder / "savepoints"))
    assert "same" in succeed("state", "schema", *asked).out


def test_a_directory_that_is_there_is_a_checkpoint_whatever_is_declared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "rocksdb-window")
    monkeypatch.setenv("STREAMBANK_JOBS", str(folder / "jobs.toml"))
    answer = succeed(
        "state", "schema", "checkpoint", "--against", f"{folder}/rocksdb-window/checkpoint", "--json"
    )
    assert answer.document["before"]["of"].endswith("/rocksdb-window/checkpoint")


def test_a_directory_that_is_not_there_is_said_to_be_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STREAMBANK_JOBS", "STREAMBANK_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    answer = streambank("state", "read", "latest", "--key", "1")
    assert answer.code == 3
    assert answer.err.splitlines()[0] == "There is no directory latest."
    assert "-r" in answer.err and "changed while" not in answer.err
    for words in (("state", "read", "/nowhere"), ("skew", "/nowhere"), ("inspect", "/nowhere"),
                  ("take", "/nowhere", "-r", tmp_path / "r", "--job", "j")):  # fmt: skip
        answer = streambank(*words)
        assert answer.code == 3 and "There is no directory file:///nowhere" in answer.err, words
