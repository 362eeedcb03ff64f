"""Files of the state that are gone: doctor names them and what is there, and an older batch can be saved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.core.finding import Finding
from streambank.doctor.diagnose import diagnose_checkpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed

TEMPORARY = ".14.delta.3f0c9d0e-7f35-4c4c-9e0a-0d7b9a3c6f11.tmp"


def newest_zip(checkpoint: Path) -> str:
    """The snapshot of the newest batch was never uploaded (SPARK-57658)."""
    (checkpoint / "state/0/1/8.zip").unlink()
    return (
        "state/0/1/8.changelog is missing, and so is 8.zip. state/0/1 has .zip files of versions 1 to 7, and "
        "no .changelog file."
    )


def shared_sst(checkpoint: Path) -> str:
    """Maintenance has deleted an SST file that a newer snapshot uses again (SPARK-55892)."""
    (sst,) = (checkpoint / "state/0/1/SSTs").glob("000016-*.sst")
    sst.unlink()
    return f"state/0/1/SSTs/{sst.name} is missing, and state/0/1/8.zip needs it."


def not_renamed(checkpoint: Path) -> str:
    """A delta still has its temporary name, since the rename was not applied (SPARK-40826)."""
    delta = checkpoint / "state/0/0/14.delta"
    delta.rename(delta.with_name(TEMPORARY))
    return (
        "state/0/0/14.delta is missing, and so is 14.snapshot. state/0/0 has .snapshot files of versions 5, "
        "10, and .delta files of versions 1 to 13."
    )


CASES = [
    pytest.param("4.3.0/rocksdb-window", newest_zip, 6, id="zip"),
    pytest.param("4.3.0/rocksdb-window", shared_sst, 5, id="sst"),
    pytest.param("4.3.0/hdfs-window", not_renamed, 12, id="rename"),
]


def errors(checkpoint: Path) -> list[Finding]:
    return [one for one in diagnose_checkpoint(str(checkpoint)).findings if one.severity == "error"]


@pytest.mark.parametrize(("of", "lose", "whole"), CASES)
def test_the_file_is_named_with_what_is_there_and_an_older_whole_batch_can_be_saved(
    tmp_path: Path, of: str, lose: Callable[[Path], str], whole: int
) -> None:
    checkpoint = unpack(of, tmp_path) / "checkpoint"
    said = lose(checkpoint)
    (found,) = errors(checkpoint)
    assert (found.code, found.cause) == ("missing-state-file", said)

    take = ("take", checkpoint, "-r", tmp_path / "repository", "--job", "orders")
    refused = streambank(*take)
    assert (refused.code, said in refused.err) == (3, True), refused
    succeed(*take, "--batch", whole)
    succeed("verify", "latest", "-r", tmp_path / "repository", "--job", "orders", "--level", "full")


def test_a_snapshot_that_changelogs_can_replace_is_missed_by_nothing(tmp_path: Path) -> None:
    """With changelogs, a snapshot that was not uploaded in time costs nothing but a longer replay."""
    checkpoint = unpack("4.3.0/rocksdb-changelog-window", tmp_path) / "checkpoint"
    (checkpoint / "state/0/1/12.zip").unlink()
    assert not errors(checkpoint)
    succeed("take", checkpoint, "-r", tmp_path / "repository", "--job", "orders")


def test_state_that_is_gone_altogether_is_missed_by_a_savepoint(tmp_path: Path) -> None:
    """Nothing else in the checkpoint says that the query had state (SPARK-54307)."""
    checkpoint = unpack("4.3.0/hdfs-window", tmp_path) / "checkpoint"
    take = ("take", checkpoint, "-r", tmp_path / "repository", "--job", "orders")
    succeed(*take)
    shutil.rmtree(checkpoint / "state")
    found = diagnose_checkpoint(str(checkpoint), repository=str(tmp_path / "repository"), name="orders")
    (damaged,) = [one for one in found.findings if one.code == "checkpoint-damaged"]
    assert damaged.severity == "error" and "state/0" in damaged.cause
