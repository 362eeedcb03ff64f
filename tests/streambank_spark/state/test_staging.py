"""Where state is laid out for Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank_spark.state.staging import Staging, materialized_checkpoint, materialized_savepoint
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.simulated_job import JOB, SimulatedJob


def test_it_is_not_laid_out_where_the_query_reads_or_writes(tmp_path: Path) -> None:
    made = CopiedJob(tmp_path, inputs=tmp_path / "in")
    for work, code in (("in/work", "inside-input"), ("out/work", "inside-output")):
        staging = Staging("local[1]", str(tmp_path / work), print)
        with (
            pytest.raises(InputError, match="staging directory") as caught,
            materialized_savepoint(made.repository, JOB, made.saved, staging),
        ):
            pass
        assert caught.value.code == code and not (tmp_path / work).exists()
    staging = Staging("local[1]", str(tmp_path / "in/work"), print)
    with (
        pytest.raises(InputError, match="staging directory") as caught,
        materialized_checkpoint(made.checkpoint.uri, None, staging),
    ):
        pass
    assert caught.value.code == "inside-input" and not (tmp_path / "in/work").exists()


def test_beside_a_checkpoint_that_lies_there_itself_it_is_laid_out(tmp_path: Path) -> None:
    """The usual place for state is beside the checkpoint: doctor says that both had better be elsewhere."""
    shop = SimulatedJob(tmp_path)
    shop.checkpoint = shop.open("out/ck")
    shop.live = LiveCheckpoint(shop.checkpoint)
    saved = shop.run(2).take().savepoint
    staging = Staging("local[1]", str(tmp_path / "out/ck.work"), print)
    with materialized_savepoint(shop.repository, JOB, saved, staging) as laid:
        assert Path(laid.location, "metadata").is_file()
    with materialized_checkpoint(shop.checkpoint.uri, None, staging) as laid:
        assert Path(laid.location, "metadata").is_file()
