"""An output that already lacks data files: doctor and take say so, in bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.doctor.checks.checkpoint import check_output
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file import lacking
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.named import NamedFiles
from streambank.storage.store import FileInfo
from tests.support.checkpoint.doctor_inputs import check_checkpoint
from tests.support.jobs.simulated_job import SimulatedJob
from tests.support.storage.faulty_store import FaultyStore


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path).run(3)


def lose(shop: SimulatedJob, batch: int) -> str:
    path = f"part-00000-a{batch:04d}-c000.json"
    shop.sink_store.delete(path)
    return path


def test_doctor_lists_an_output_against_its_log(shop: SimulatedJob) -> None:
    assert list(check_output("out", shop.sink_store)) == []
    path = lose(shop, 1)
    (found,) = check_output("out", shop.sink_store)
    assert (found.code, found.severity) == ("sink-files-gone", "error")
    assert f"lacks 1 data file ({path})" in found.cause
    checked = check_checkpoint(shop.checkpoint, {"out": shop.sink_store})
    assert [one.code for one in checked if one.severity == "error"] == ["sink-files-gone"]


def test_a_file_that_was_cut_off_counts(shop: SimulatedJob) -> None:
    shop.sink_store.write("part-00000-a0002-c000.json", b"")
    (found,) = check_output("out", shop.sink_store)
    assert "a0002" in found.cause


def test_what_the_log_has_forgotten_does_not(shop: SimulatedJob) -> None:
    shop.run(8)
    log = "_spark_metadata/9.compact"
    lines = shop.sink_store.read(log).decode().split("\n")
    shop.sink_store.write(log, "\n".join(one for one in lines if "-a0001-" not in one).encode())
    lose(shop, 1)
    assert list(check_output("out", shop.sink_store)) == []
    assert shop.take().warnings == ()


def test_a_take_says_it_each_time_and_in_the_savepoint(shop: SimulatedJob) -> None:
    path = lose(shop, 1)
    for _ in range(2):
        taken = shop.take()
        (said,) = taken.warnings
        assert f"lacks 1 data file ({path}): a restore of this savepoint is refused until" in said
    manifest = shop.repository.load("orders", taken.savepoint)
    assert manifest.sinks[0]["missing"] == {"files": 1, "such_as": [path], "checked": 3}


def test_of_many_files_a_take_looks_for_some(shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lacking, "MOST_LOOKED_FOR", 2)
    path = lose(shop, 2)
    output, checkpoint = FaultyStore(shop.sink_store), FaultyStore(shop.checkpoint)
    sinks = [FileSinkCapture(shop.sink_store.uri, output)]
    (said,) = take(TakeRequest(checkpoint, shop.repository, "orders", sinks=sinks)).warnings
    assert f"lacks 1 data file of 2 that were looked for ({path}): a restore" in said
    looked = [call for call in output.calls if call.key.startswith("part-")]
    assert [call.operation for call in looked] == ["stat", "stat"]
    assert not [call for call in output.calls if call.operation == "list" and not call.key]


def test_a_take_looks_for_files_when_its_plan_stands(shop: SimulatedJob) -> None:
    """What is written again while it looks means no other plan."""
    order: list[str] = []

    class Watched(FileSinkCapture):
        def _missing(self, named: NamedFiles) -> dict[str, object]:
            order.append("looked")
            return super()._missing(named)

    class Checkpoint(FaultyStore):
        def stat(self, key: str) -> FileInfo:
            order.append("checked")
            return super().stat(key)

        def list(self, prefix: str = "") -> Iterator[FileInfo]:
            order.append("checked")
            return super().list(prefix)

    sinks = [Watched(shop.sink_store.uri, shop.sink_store)]
    take(TakeRequest(Checkpoint(shop.checkpoint), shop.repository, "orders", sinks=sinks))
    assert order.count("looked") == 1 and order[-1] == "looked"
