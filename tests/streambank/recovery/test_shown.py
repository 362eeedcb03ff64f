"""A plan is of the generations of its moment: where another one counts, what was approved is outdated."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.recovery.shown import check_generations, shown_generations
from tests.support.jobs.declared import declare

ANN = {"triggered_by": "ann", "dag_id": "flights.restore", "run_id": "manual__ann"}


class Holds:
    """An operation that still has the job."""

    def check(self) -> None:
        """It has."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return declare(tmp_path)


def restored(job: Job, by: dict[str, str]) -> None:
    """Another generation counts from now on."""
    generations = job.records().generations()
    proposed = generations.propose(taken=lambda location: False)
    made = type(proposed).from_dict({**proposed.to_dict(), "by": by})
    generations.switch(made, operation=Holds())  # type: ignore[arg-type]


def test_what_was_shown_stands_until_another_generation_counts(job: Job) -> None:
    assert shown_generations(job, None) == {"flights": 0}, "it was never started"
    check_generations(job, {"flights": 0}, run_id="mine")
    job.records().generations().ensure_first(job.checkpoint, by=ANN)
    shown = shown_generations(job, None)
    assert shown == {"flights": 1}
    check_generations(job, shown, run_id="mine")

    restored(job, ANN)

    with pytest.raises(RefusedError) as refused:
        check_generations(job, shown, run_id="mine")
    assert refused.value.code == "approval-outdated"
    assert "flights is in generation 2 now, made by ann by flights.restore at " in refused.value.message
    check_generations(job, shown, run_id="manual__ann")  # the run itself has made it: another try of its task
    check_generations(job, shown_generations(job, None), run_id="mine")
