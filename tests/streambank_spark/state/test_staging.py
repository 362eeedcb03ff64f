"""Where state is laid out for Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank_spark.state.staging import Staging, materialized_checkpoint, materialized_savepoint
from tests.support.jobs.copied_job import CopiedJob
from tests.support.jobs.simulated_job import JOB


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
