"""A file sink that is found near a checkpoint, and logs that are not taken for it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from streambank.sinks.file import nearby
from streambank.sinks.file.nearby import LEAST_BATCHES, Nearby, look_nearby
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import quick_store


class Running:
    """A query that writes files, in Spark's order of writing."""

    def __init__(self, checkpoint: Path, output: Path | None, query_id: str = "ours") -> None:
        self.live = LiveCheckpoint(quick_store(checkpoint), query_id=query_id)
        self.sink = None if output is None else FileSinkWriter(quick_store(output))

    def run(self, batches: int) -> Running:
        for _ in range(batches):
            self.begin()
            self.end()
        return self

    def begin(self) -> None:
        self.live.plan()
        _tick()

    def end(self) -> None:
        if self.sink is not None:
            self.sink.write(self.live.next_batch, [{}])
        _tick()
        self.live.commit()
        _tick()


def _tick() -> None:
    """Longer than the clock by which a disk takes its times needs to move on."""
    time.sleep(0.01)


@pytest.fixture(name="tmp_path")
def tmp_path_of_its_own(tmp_path: Path) -> Path:
    """A look goes up two folders: into those of other tests, of which there are thousands, it must not."""
    below = tmp_path / "home" / "team"
    below.mkdir(parents=True)
    return below


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is cut off after two seconds, which is little on a machine that does much else."""
    monkeypatch.setattr("streambank.sinks.file.nearby._MOST_S", 60.0)


def look(folder: Path, name: str = "checkpoints/orders") -> Nearby:
    return look_nearby(str(folder / name))


def uri(place: Path) -> str:
    return f"file://{place}"


@pytest.mark.parametrize(
    ("checkpoint", "output"),
    [
        ("checkpoint", "output"),
        ("checkpoints/orders", "out/orders"),
        ("checkpoints/orders", "lake/bronze/orders"),
        ("out/orders/_checkpoint", "out/orders"),
        ("out/orders/_checkpoints/q1", "out/orders"),
        ("jobs/orders/checkpoint", "jobs/orders/output"),
    ],
)
def test_it_is_found_where_people_put_it(tmp_path: Path, checkpoint: str, output: str) -> None:
    Running(tmp_path / checkpoint, tmp_path / output).run(LEAST_BATCHES)
    assert look(tmp_path, checkpoint) == Nearby(uri(tmp_path / output))


def test_while_the_query_runs_a_batch(tmp_path: Path) -> None:
    query = Running(tmp_path / "checkpoint", tmp_path / "output").run(12)
    query.begin()
    assert look(tmp_path, "checkpoint").sink == uri(tmp_path / "output")
    assert query.sink is not None
    query.sink.write(query.live.next_batch, [{}])
    assert look(tmp_path, "checkpoint").sink == uri(tmp_path / "output")


def test_few_batches_make_a_candidate(tmp_path: Path) -> None:
    Running(tmp_path / "checkpoint", tmp_path / "output").run(LEAST_BATCHES - 1)
    assert look(tmp_path, "checkpoint") == Nearby(candidates=(uri(tmp_path / "output"),))


def test_the_log_of_another_query_is_not_it(tmp_path: Path) -> None:
    Running(tmp_path / "checkpoints/other", tmp_path / "out/other", "other").run(6)
    Running(tmp_path / "checkpoints/orders", None).run(6)
    assert look(tmp_path) == Nearby()


@pytest.mark.parametrize("both_write", [True, False])
def test_queries_that_run_in_step(tmp_path: Path, both_write: bool) -> None:
    """Each entry of one lies in the time of the other's batch: no time tells them apart."""
    one = Running(tmp_path / "checkpoints/orders", tmp_path / "out/orders" if both_write else None)
    other = Running(tmp_path / "checkpoints/other", tmp_path / "out/other", "other")
    for _ in range(6):
        one.begin()
        other.begin()
        other.end()
        one.end()
    found = look(tmp_path)
    assert found.sink is None and uri(tmp_path / "out/other") in found.candidates


def test_a_copy_of_the_own_checkpoint_is_no_other_query(tmp_path: Path) -> None:
    Running(tmp_path / "checkpoints/orders", tmp_path / "out/orders").run(4)
    shutil.copytree(tmp_path / "checkpoints/orders", tmp_path / "checkpoints/copy")
    assert look(tmp_path).sink == uri(tmp_path / "out/orders")
    assert look(tmp_path, "checkpoints/copy").sink == uri(tmp_path / "out/orders")


def test_a_sink_that_is_behind_or_ahead_is_not_it(tmp_path: Path) -> None:
    query = Running(tmp_path / "checkpoints/orders", tmp_path / "out/orders").run(4)
    sink, query.sink = query.sink, None
    query.run(1)
    assert look(tmp_path) == Nearby()
    assert sink is not None
    for batch in (4, 5, 6):
        sink.write(batch, [{}])
    assert look(tmp_path) == Nearby()


def test_times_that_a_copy_does_not_keep_prove_nothing(tmp_path: Path) -> None:
    Running(tmp_path / "checkpoints/orders", tmp_path / "out/orders").run(4)
    for name in ("metadata", *(f"{log}/{n}" for log in ("offsets", "commits") for n in range(4))):
        os.utime(tmp_path / "checkpoints/orders" / name)
        _tick()
    assert look(tmp_path).sink is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    Running(tmp_path / "a/b/c/checkpoints/orders", tmp_path / "far/out").run(4)
    (tmp_path / "a/b/c/out").symlink_to(tmp_path / "far/out")
    assert look(tmp_path, "a/b/c/checkpoints/orders") == Nearby()


def test_an_output_of_another_owner_is_a_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Running(tmp_path / "checkpoint", tmp_path / "output").run(4)
    monkeypatch.setattr(nearby, "_owner", lambda place: len(place.name))  # only root gives files away
    assert look(tmp_path, "checkpoint") == Nearby(candidates=(uri(tmp_path / "output"),))


def test_a_look_that_was_cut_off_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Running(tmp_path / "checkpoints/orders", tmp_path / "out/orders").run(4)
    for number in range(9):
        (tmp_path / f"out/more{number}/below").mkdir(parents=True)
    monkeypatch.setattr(nearby, "_MOST_DIRECTORIES", 8)
    assert look(tmp_path) == Nearby(candidates=(uri(tmp_path / "out/orders"),))


def test_what_cannot_be_looked_at_says_why(tmp_path: Path) -> None:
    assert "this machine" in look_nearby("s3a://bucket/checkpoint").why_not
    assert look_nearby(str(tmp_path / "gone/gone")).why_not
