"""A plan is of the generations of its moment: where another one counts, what was approved is outdated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.recovery.shown import check_generations, shown_generations
from tests.support.jobs.declared import declare
from tests.support.refuses import refuses

ANN = {"triggered_by": "ann", "dag_id": "flights.restore", "run_id": "scheduled__3"}
MINE = {"dag_id": "flights.restore", "run_id": "mine"}


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
    made = replace(proposed, by=by)
    generations.switch(made, operation=Holds())  # type: ignore[arg-type]


def test_what_was_shown_stands_until_another_generation_counts(job: Job) -> None:
    assert shown_generations(job, None) == {"flights": 0}, "it was never started"
    check_generations(job, {"flights": 0}, by=MINE)
    job.records().generations().ensure_first(job.checkpoint, by=ANN)
    shown = shown_generations(job, None)
    assert shown == {"flights": 1}
    check_generations(job, shown, by=MINE)

    restored(job, ANN)

    with refuses(RefusedError, "approval-outdated") as refused:
        check_generations(job, shown, by=MINE)
    assert "flights is in generation 2 now, made by ann by flights.restore at " in refused.value.message
    check_generations(job, shown, by=ANN)  # the run itself has made it: another try of its task
    with pytest.raises(RefusedError, match="generation 2 now"):
        check_generations(job, shown, by={**ANN, "dag_id": "own.restore"})  # its schedule is the same
    check_generations(job, shown_generations(job, None), by=MINE)


def test_a_generation_whose_record_is_lost_is_not_the_one_that_was_shown(job: Job) -> None:
    with refuses(RefusedError, "approval-outdated", match="is in no generation now"):
        check_generations(job, {"flights": 1}, by=MINE)
