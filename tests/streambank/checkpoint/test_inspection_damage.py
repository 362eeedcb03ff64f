"""What a full disk leaves, empty files: all of them named, the effect first, and which batch is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.inspection import Inspection, inspect_listing
from streambank.core.errors import FormatError, StreambankError
from streambank.inputs.files import look_at_files
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import Checkpoint, checkpoint
from tests.support.refuses import refuses

NAME = "4.3.0/hdfs-window"
NEWEST = 13
LOG = max(
    (path for path in checkpoint(NAME).plan().paths if path.startswith("sources/0/")),
    key=lambda path: int(path.split("/")[2].partition(".")[0]),
)
EMPTY = [f"commits/{NEWEST}", f"offsets/{NEWEST}", "state/0/1/14.delta", LOG]
START = "Spark does not start from this checkpoint"


def emptied(*paths: str) -> Checkpoint:
    found = checkpoint(NAME)
    assert found.batches()[-1] == NEWEST and all(path in found.files for path in paths)
    return found.having(dict.fromkeys(paths, b""))


def inspect(found: Checkpoint) -> Inspection:
    return inspect_listing("ck", found.listing(), found.read)


def refused(found: Checkpoint, folder: Path) -> StreambankError:
    repository = Repository.open(open_store(str(folder / "repo")), create=True)
    with refuses(FormatError, "half-written") as raised:
        take(TakeRequest(found.into(open_store(str(folder / "ck"))), repository, "j"))
    return raised.value


@pytest.mark.parametrize("path", EMPTY)
def test_one_empty_file_is_one_finding_with_its_effect_and_the_batch_that_is_whole(
    path: str, tmp_path: Path
) -> None:
    found = emptied(path)
    (finding,) = [one for one in inspect(found).findings if one.severity == "error"]
    assert (finding.code, finding.file, finding.cause) == ("half-written", path, f"{path} is empty.")
    assert finding.effect == f"{START}, and no savepoint of its newest batch can be taken."
    whole = max(inspect(found).retained_batches)
    assert whole < NEWEST and finding.hint.startswith(
        f"Batch {whole} is whole, and can be saved by its number."
    )
    error = refused(found, tmp_path)
    assert error.message == f"{path} is empty."
    assert error.hint.startswith(f"{START}. Batch {whole} is whole, and can be saved by its number.")
    assert found.plan(whole).batch == whole


def test_every_empty_file_is_named(tmp_path: Path) -> None:
    found = emptied(*EMPTY, "state/0/0/3.delta")
    findings = inspect(found).findings
    (finding,) = [one for one in findings if one.severity == "error"]
    error = refused(found, tmp_path)
    for path in (*EMPTY, "state/0/0/3.delta"):
        assert finding.cause.count(f"{path}") == error.message.count(path) == 1
    assert len({one.cause for one in findings}) == len(findings)


def test_empty_metadata_is_said_once_with_the_way_back(tmp_path: Path) -> None:
    found = emptied("metadata")
    (finding,) = inspect(found).findings
    assert (finding.code, finding.severity, finding.file) == ("half-written", "error", "metadata")
    assert finding.effect.startswith(START)
    assert "Restore a savepoint, or bring the file back: it holds the query's id." in finding.hint
    error = refused(found, tmp_path)
    assert error.message == "metadata is empty." and "bring the file back" in error.hint


def test_of_damage_that_newer_batches_do_not_have_that_is_said() -> None:
    findings = inspect(emptied("commits/5", "offsets/9")).findings
    said = {one.file: one.effect for one in findings}
    assert said["commits/5"] == "No savepoint of batch 5 can be taken; newer batches are not affected."
    assert {one.severity for one in findings} == {"warning"} and len(findings) == len(said)


def test_a_safe_closure_that_lacks_an_older_snapshot_keeps_spark_from_nothing() -> None:
    found = checkpoint(NAME)
    older = set(found.plan(None, "safe").paths) - set(found.plan().paths)
    findings = inspect(emptied(min(older))).findings
    assert not [one for one in findings if START in one.effect + one.hint]


def test_a_query_that_stands_still_is_not_said_to_have_moved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = checkpoint(NAME).but("state/0/1/14.delta")
    repository = Repository.open(open_store(str(tmp_path / "repo")), create=True)
    with caplog.at_level("INFO"), pytest.raises(StreambankError) as raised:
        take(TakeRequest(found.into(open_store(str(tmp_path / "ck"))), repository, "j"))
    assert raised.value.code == "missing-state-file"
    assert f"{START}. Batch 12 is whole" in raised.value.hint
    assert "changed while they were copied" not in caplog.text


def test_a_source_whose_live_log_is_damaged_is_a_sentence(tmp_path: Path) -> None:
    found = checkpoint(NAME)
    repository = Repository.open(open_store(str(tmp_path / "repo")), create=True)
    live = found.into(open_store(str(tmp_path / "ck")))
    taken = take(TakeRequest(live, repository, "j", batch=3))
    live.write(LOG, b"")
    (standing,) = [
        one for one in look_at_files(repository.load("j", taken.savepoint), live.uri) if one.source == "0"
    ]
    assert standing.not_known.startswith(
        f"It is not known which files source 0 has read after the savepoint, as its log at {live.uri} is "
        f"damaged: {LOG} is empty"
    )
