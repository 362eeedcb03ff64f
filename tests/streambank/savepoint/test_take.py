"""What a take saves."""

from __future__ import annotations

import json

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import InputError, NotFoundError
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage.store import FileInfo
from streambank.work.executor import Pace
from streambank.work.pace import Step
from tests.support.checkpoint.live_checkpoint import add_debris
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import FaultyStore


class TestWhatIsSaved:
    def test_the_closure_and_what_is_known_about_it(self, shop: SimulatedJob) -> None:
        result = shop.run(8).take(note="before the upgrade", spark_version="4.3.0", taken_by={"dag_id": "d"})
        manifest = shop.repository.load(JOB, result.savepoint)
        closure = CheckpointReader(shop.checkpoint).closure(7, "safe")
        assert {entry.path for entry in manifest.files} == set(closure.paths)
        assert manifest.batch == result.batch == 7
        assert manifest.watermark_ms == 7500
        assert manifest.query_id == shop.live.query_id
        assert manifest.checkpoint == shop.checkpoint.uri
        assert manifest.note == "before the upgrade"
        assert manifest.spark_version == "4.3.0"
        assert manifest.taken_by["dag_id"] == "d"
        assert manifest.offset_conf["spark.sql.shuffle.partitions"] == "2"
        assert manifest.operators[0]["stores"][0]["partitions"] == 2
        assert [entry["path"] for entry in manifest.sinks[0]["files"]] == [
            f"_spark_metadata/{batch}" for batch in range(8)
        ]
        assert result.files == manifest.file_count == len(closure.paths) + 8
        assert result.bytes == manifest.bytes == sum(entry.size_bytes for entry in manifest.all_files())
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    def test_minimal_has_fewer_files(self, shop: SimulatedJob) -> None:
        minimal = shop.run(8).take(closure="minimal")
        assert shop.repository.load(JOB, minimal.savepoint).closure == "minimal"
        assert minimal.files == len(CheckpointReader(shop.checkpoint).closure(7, "minimal").paths) + 8

    def test_an_older_batch(self, shop: SimulatedJob) -> None:
        result = shop.run(8).take(batch=3)
        assert result.batch == 3
        manifest = shop.repository.load(JOB, result.savepoint)
        assert len(manifest.sinks[0]["files"]) == 4
        assert not [entry.path for entry in manifest.files if entry.path.endswith("/5.delta")]

    def test_a_planned_batch_is_left_out(self, shop: SimulatedJob) -> None:
        shop.run(4)
        shop.live.plan()
        add_debris(shop.checkpoint, 4)
        result = shop.take()
        assert result.batch == 3
        paths = [entry.path for entry in shop.repository.load(JOB, result.savepoint).files]
        assert "offsets/4" not in paths
        assert not [path for path in paths if path.rpartition("/")[2].startswith(".")]

    def test_nothing_committed(self, shop: SimulatedJob) -> None:
        shop.live.plan()
        with refuses(NotFoundError, "no-committed-batch"):
            shop.take()
        assert list(shop.repository.manifests()) == []

    def test_a_batch_that_is_not_there(self, shop: SimulatedJob) -> None:
        shop.run(8)
        shop.live.purge(2)
        with pytest.raises(NotFoundError):
            shop.take(batch=1)
        with pytest.raises(NotFoundError):
            shop.take(batch=99)

    def test_the_checkpoint_is_only_read(self, shop: SimulatedJob) -> None:
        shop.run(4)
        source = FaultyStore(shop.checkpoint)
        shop.take(source)
        assert {call.operation for call in source.calls} <= {
            "list", "names", "read", "open", "stat", "exists", "hold", "held.open", "held.current",
        }  # fmt: skip

    def test_pin_and_progress(self, shop: SimulatedJob) -> None:
        shop.run(4)
        steps: list[Step] = []
        result = shop.take(pin=True, pace=Pace(progress=steps.append))
        assert shop.repository.pinned(JOB, result.savepoint)
        assert (steps[-1].files_done, steps[-1].bytes_done) == (steps[-1].files_total, steps[-1].bytes_total)
        assert steps[-1].files_total == result.files

    @pytest.mark.parametrize("job", ["", "..", "a/../b", "a b", "/etc", "a/b/c", "x" * 101, "ä", "a\n"])
    def test_odd_job_names(self, shop: SimulatedJob, job: str) -> None:
        shop.run(1)
        with pytest.raises(InputError):
            take(TakeRequest(shop.checkpoint, shop.repository, job))

    def test_other_bad_input(self, shop: SimulatedJob) -> None:
        shop.run(1)
        for options in ({"note": "x" * 5000}, {"max_replans": -1}, {"batch": -1}):
            with pytest.raises(InputError):
                shop.take(**options)


def test_a_task_is_plain_data() -> None:
    from streambank.work.copy import CopyTask

    task = CopyTask.of(FileInfo("offsets/3", 4, 5, "id"), "offsets")
    assert CopyTask.from_dict(json.loads(json.dumps(task.to_dict()))) == task
