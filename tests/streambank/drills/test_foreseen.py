"""Whether a rehearsal could run the application is known before: by what the last driver recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import NotFoundError, RefusedError, StreambankError
from streambank.declaration.load import load_jobs
from streambank.drills.foreseen import foresee_rehearsal
from tests.support.jobs.managed_job import Managed, managed_job
from tests.support.refuses import refuses

FILES = {"kind": "files", "path": "file:///out", "name": None}
FUNCTION = {"kind": "foreachBatch", "path": None, "name": None}


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    with managed_job(tmp_path, monkeypatch) as managed:
        yield managed


def recorded(managed: Managed, **facts: Any) -> None:
    """What the driver of the current generation left behind."""
    control = managed.control
    generation = control.generations().ensure_first(managed.job.checkpoint, by={"user": "test"})
    known = {"generation": generation.number, "query_id": "q", "output": FILES, "sink_path": "file:///out"}
    control.record_query(None, {**known, "kafka": {"streams": ["FileSource"]}, "fixed_options": [], **facts})


def foresee(managed: Managed) -> None:
    foresee_rehearsal(managed.job, managed.control)


def test_an_application_that_can_be_rehearsed_is_let_pass(managed: Managed) -> None:
    foresee(managed)  # it was never started: nothing is known
    recorded(managed)
    foresee(managed)
    recorded(managed, output={"kind": "kafka", "path": None, "name": "orders"}, kafka={})
    foresee(managed)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"output": FUNCTION}, "only the function of foreachBatch knows where it writes"),
        ({"output": FILES, "redirected_from": {"kind": "foreach"}}, "foreach"),
        ({"kafka": {"streams": ["kafka", "sqs"]}}, "reading the source sqs takes something"),
        ({"fixed_options": ["cleanSource"]}, "its source has the option cleanSource"),
    ],
)
def test_what_a_copy_must_not_do_is_refused(managed: Managed, facts: dict[str, Any], said: str) -> None:
    recorded(managed, **facts)
    with pytest.raises(RefusedError) as refused:
        foresee(managed)
    assert refused.value.code == "rehearsal-not-run" and said in refused.value.message
    assert "Leave out the rehearsal" in refused.value.hint
    recorded(managed, **{**facts, "generation": 7})
    foresee(managed)  # the negative control: of another generation, which may have had another sink


def test_a_source_that_the_job_declares_as_harmless_is_none(managed: Managed) -> None:
    recorded(managed, kafka={"streams": ["sqs"]})
    managed.declare('\n[jobs.flights.drill]\nsources = ["sqs"]\n')
    foresee(managed)


def test_an_application_that_is_gone_or_a_copy_that_is_not_apart_is_refused(managed: Managed) -> None:
    recorded(managed)
    managed.declare('\n[jobs.flights.drill]\nscratch = "repository/drills"\n')
    with refuses(StreambankError, "scratch-not-apart"):
        foresee(managed)


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        'repository = "savepoints"\n[jobs.orders]\napplication = "gone.py"\ncheckpoint = "checkpoint"\n'
    )
    job = load_jobs(tmp_path / "jobs.toml").job("orders")
    with pytest.raises(NotFoundError) as refused:
        foresee_rehearsal(job, job.records())
    assert "gone.py" in refused.value.message
