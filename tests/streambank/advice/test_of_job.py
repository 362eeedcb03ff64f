"""The state of a declared job, as its newest progress record shows it."""

from __future__ import annotations

from pathlib import Path

from streambank.advice.of_job import state_of_job
from streambank.core.errors import InputError
from tests.support.jobs.declared import declare
from tests.support.paths import ROOT
from tests.support.refuses import refuses

RECORDS = ROOT / "tests/data/progress/4.3.0"


def test_the_newest_record_says_how_large_it_is(tmp_path: Path) -> None:
    job = declare(tmp_path)
    job.records().store.write(
        "progress/main/0000000001.jsonl", (RECORDS / "aircraft-sessions/0000000001.jsonl").read_bytes()
    )
    now = state_of_job(job, None)
    assert now is not None
    assert (now.provider, now.partitions, now.stores) == ("rocksdb", 2, 1)
    assert now.rows > 0 and now.batch_ms and now.memory_bytes
    assert set(now.to_dict()) == set(now.__slots__)


def test_a_job_that_never_ran_shows_no_state(tmp_path: Path) -> None:
    assert state_of_job(declare(tmp_path), None) is None


def test_a_query_that_the_job_does_not_have_is_refused(tmp_path: Path) -> None:
    with refuses(InputError, "which-query"):
        state_of_job(declare(tmp_path), "other")
