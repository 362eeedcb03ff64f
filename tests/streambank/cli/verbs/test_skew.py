"""The verb `skew`: a bar per partition, an exit code, and the same of a checkpoint and of its savepoint."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from streambank.cli.output import console
from streambank.cli.verbs import skew
from streambank.sla.skew.skew import DEFAULT_LIMIT
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack("4.3.0/rocksdb-window", tmp_path)


def test_each_partition_has_its_rows_its_bytes_and_its_bar(folder: Path) -> None:
    said = succeed("skew", folder / "checkpoint").out.splitlines()
    assert said[0].startswith("state of  file://")
    assert said[1].split() == ["batch", "7"]
    assert said[3] == "operator 0 stateStoreSave, store default: 1.23 times the mean by rows"
    assert said[4].split() == ["partition", "rows", "bytes", "times", "mean"]
    bars = [line.split()[-1] for line in said[5:7]]
    assert [len(bar) for bar in bars] == [19, 30]
    assert said[5].split()[:4] == ["0", "5", "5.25", "kB"]
    assert said[7] == "It is spread evenly enough."


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    said = succeed("skew", unpack("4.3.0/rocksdb-changelog-window", tmp_path) / "checkpoint").out
    assert "7 at version 12" in said
    assert "not known: 2 of 2 partitions have changed since their newest snapshots" in said
    said = succeed("skew", unpack("4.3.0/hdfs-window", tmp_path / "hdfs") / "checkpoint").out
    assert " ? " in said
    assert "not known: The files of 2 of 2 partitions do not count rows." in said


def test_a_query_without_state(tmp_path: Path) -> None:
    said = succeed("skew", unpack("4.3.0/stateless", tmp_path) / "checkpoint").out
    assert said.endswith("The query keeps no state.\n")


def test_a_savepoint_is_named_by_its_id_and_its_repository(folder: Path) -> None:
    where = ("-r", folder / "savepoints")
    saved = succeed("take", folder / "checkpoint", *where, "--job", "orders", "--json").document["savepoint"]
    of_savepoint = succeed("skew", saved, *where, "--job", "orders", "--json").document
    of_checkpoint = succeed("skew", folder / "checkpoint", "--json").document
    assert of_savepoint["location"] == f"orders/{saved}"
    assert of_savepoint["stores"] == of_checkpoint["stores"]


def test_an_older_batch_is_as_its_own_savepoint_says(folder: Path) -> None:
    older = succeed("skew", folder / "checkpoint", "--batch", 5, "--json").document
    assert older["batch"] == 5
    assert older["stores"][0]["partitions"][0]["snapshot_version"] == 6


def test_the_exit_code_tells_an_uneven_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.sla.skew.skew.chance_skew", lambda keys, partitions: 1.0)
    answer = streambank("skew", folder / "checkpoint", "--limit", "1.2")
    assert answer.code == 1
    assert "Partition 1 has 1.2 times the mean by rows." in answer.out
    document = streambank("skew", folder / "checkpoint", "--limit", "1.2", "--json").document
    assert (document["ok"], document["limit"], document["stores"][0]["uneven"]) == (False, 1.2, True)
    assert streambank("skew", folder / "checkpoint", "--limit", "1.3").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--job", "orders"), "--job needs a repository: give -r, or the jobs file."),
        (("-r", "x", "--batch", "3"), "--batch is for checkpoints: a savepoint holds only one batch."),
        (("--limit", "0.5"), "Invalid value for '--limit'"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], says: str) -> None:
    answer = streambank("skew", "somewhere", *arguments)
    assert answer.code == 2
    assert says in answer.err


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert streambank("skew", tmp_path / "nothing").code == 3
    assert streambank("skew", "b000007", "-r", tmp_path / "nothing").code == 3


def test_of_many_partitions_the_largest_are_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew, "SHOWN", 1)
    said = succeed("skew", folder / "checkpoint").out.splitlines()
    assert said[5].split()[:2] == ["1", "8"]
    assert said[6] == "and 1 smaller partition"


def test_the_repository_of_the_environment_does_not_make_a_savepoint_of_a_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMBANK_REPOSITORY", str(folder / "savepoints"))
    succeed("skew", folder / "checkpoint")


def test_the_default_limit_is_the_engine_s() -> None:
    assert inspect.signature(skew.skew).parameters["limit"].default == DEFAULT_LIMIT


def test_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "is_utf8", lambda: True)
    assert [len(console.bar(share, 10)) for share in (0.0, 0.001, 0.5, 1.0, 7.0)] == [0, 1, 5, 10, 10]
    monkeypatch.setattr(console, "is_utf8", lambda: False)
    assert console.bar(0.3, 10) == "###"
