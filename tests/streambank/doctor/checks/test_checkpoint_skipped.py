"""What doctor says of a checkpoint that went back to a batch without its output."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from streambank.checkpoint.grammar import classify
from streambank.storage import open_store
from tests.support.checkpoint.doctor_inputs import check_checkpoint
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint


class TestSkipped:
    """A checkpoint went back, and its output did not: Spark commits batches that it does not compute."""

    def broken(self, tmp_path: Path, *, deleted: bool = False) -> tuple[LiveCheckpoint, Path]:
        live, out = LiveCheckpoint(open_store(tmp_path / "a/b/ck")), tmp_path / "a/out"
        sink = FileSinkWriter(open_store(out))
        if not deleted:
            for batch in range(8):
                sink.write(batch, [{}])
            time.sleep(0.01)  # the clock of a disk moves on
        for _ in range(7):
            live.plan()
            if deleted:
                time.sleep(0.01)
                sink.write(live.next_batch, [{}])
            live.commit()
        for one in list(live.store.list("state")):
            if (classify(one.path).version or 0) > 5:
                live.store.delete(one.path)
        return live, out

    @pytest.mark.parametrize("named", [True, False])
    def test_it_says_that_the_query_cannot_start_again_why_and_the_way_back(
        self, tmp_path: Path, named: bool
    ) -> None:
        live, out = self.broken(tmp_path)
        sinks = {"out": open_store(out)} if named else {}
        found = [one for one in check_checkpoint(live.store, sinks) if one.severity == "error"]
        skipped = found[0]
        assert skipped.code == "batches-skipped"
        assert "Batches 5 to 6 were committed without state" in skipped.cause
        assert f"{out} had them before they were planned" in skipped.cause
        assert skipped.effect.startswith("The query cannot start again")
        assert f"--file-sink file://{out} --sink rollback" in skipped.hint
        assert not any(one.code == "missing-state-file" for one in found)

    def test_files_of_state_that_were_deleted_are_not_blamed_on_the_sink(self, tmp_path: Path) -> None:
        live, out = self.broken(tmp_path, deleted=True)
        (skipped,) = [one for one in check_checkpoint(live.store, {}) if one.code == "batches-skipped"]
        assert str(out) not in skipped.cause and "Else the files of state were deleted" in skipped.cause

    def test_one_lost_file_is_what_it_is(self, tmp_path: Path) -> None:
        live = LiveCheckpoint(open_store(tmp_path / "ck")).run(7)
        live.store.delete("state/0/1/7.delta")
        found = {one.code for one in check_checkpoint(live.store)}
        assert "missing-state-file" in found and "batches-skipped" not in found
