"""What connectors keep in a checkpoint is saved, verified and restored; what is not understood is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.checkpoint.recorded import Checkpoint
from tests.support.checkpoint.with_connectors import (
    ICEBERG_BEGINNING,
    SCHEMA_LOG,
    reading_delta,
    reading_iceberg,
)

JOB = "j"


def beside_sinks(warnings: tuple[str, ...]) -> list[str]:
    """What is said besides that these checkpoints have no known sink."""
    return [one for one in warnings if not one.startswith("No sink is known")]


class Saved:
    """A checkpoint with its repository."""

    def __init__(self, found: Checkpoint, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = found.into(open_store(str(folder / "ck")))
        self.repository = Repository.open(open_store(str(folder / "repo")), create=True)
        self.taken = take(TakeRequest(self.checkpoint, self.repository, JOB))

    def request(self, into: str = "back") -> RestoreRequest:
        return RestoreRequest(
            self.repository,
            self.taken.savepoint,
            job=JOB,
            into=open_store(str(self.folder / into)),
            sink="accept",
        )


def test_delta_finds_its_schema_log_bound_to_the_restored_source(tmp_path: Path) -> None:
    saved = Saved(reading_delta({0: 0, 1: 5, 2: 40}), tmp_path)
    assert not beside_sinks(saved.taken.warnings)
    report = restore(saved.request())
    back = open_store(report.layout.target)
    assert sorted(back.names(SCHEMA_LOG)) == ["0", "1"]
    bound = json.loads(back.read(f"{SCHEMA_LOG}/1").partition(b"\n")[2])["sourceMetadataPath"]
    assert bound == f"file:{tmp_path}/back/sources/0"
    assert set(report.layout.rewritten) >= {f"{SCHEMA_LOG}/0", f"{SCHEMA_LOG}/1"}
    again = take(TakeRequest(back, saved.repository, JOB))
    assert again.batch == saved.taken.batch


def test_iceberg_goes_on_from_its_first_offset(tmp_path: Path) -> None:
    saved = Saved(reading_iceberg(), tmp_path)
    report = restore(saved.request())
    first = open_store(report.layout.target).read(ICEBERG_BEGINNING)
    assert first == saved.checkpoint.read(ICEBERG_BEGINNING)


def test_what_is_not_understood_is_named_by_take_verify_and_restore(tmp_path: Path) -> None:
    unknown = {"_connector/log/0": b"a", "_connector/log/1": b"b", "why.txt": b"c", "x/.part.crc": b"d"}
    saved = Saved(reading_iceberg().having(unknown), tmp_path)
    [sentence] = beside_sinks(saved.taken.warnings)
    assert sentence.startswith(
        "3 files of the checkpoint are not understood, and not in the savepoint: _connector/log/0, why.txt."
    )
    again = take(TakeRequest(saved.checkpoint, saved.repository, JOB))
    assert beside_sinks(again.warnings) == [sentence]
    for level in ("quick", "full"):
        report = verify(saved.repository, JOB, saved.taken.savepoint, level)
        assert report.ok and report.restorable
        assert [(one.code, one.cause) for one in report.findings] == [("files-left-out", sentence)]
    assert sentence in plan_restore(saved.request()).warnings
    assert sentence in restore(saved.request()).warnings


@pytest.mark.parametrize("harmless", [{}, {"_temporary/0/x": b"x", "offsets/7.tmp": b"x", ".DS_Store": b"x"}])
def test_nothing_is_said_of_what_is_harmless(harmless: dict[str, bytes], tmp_path: Path) -> None:
    saved = Saved(reading_iceberg().having(harmless), tmp_path)
    manifest = saved.repository.load(JOB, saved.taken.savepoint)
    assert (
        not beside_sinks(saved.taken.warnings)
        and manifest.left_out == ()
        and "left_out" not in manifest.to_dict()
    )
    assert not verify(saved.repository, JOB, saved.taken.savepoint, "quick").findings
