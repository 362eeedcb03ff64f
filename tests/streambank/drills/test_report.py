"""What a report says of a drill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.drills import outcomes
from streambank.core.units import utc_now
from streambank.drills.drill import leave_report
from streambank.drills.report import BatchDrill, DrillReport, QueryDrill
from streambank.drills.request import DrillRequest
from streambank.job.history import job_history
from streambank.sla.judge.savepoints import drills_seen
from tests.support.cli import succeed
from tests.support.jobs.declared import declare

EVEN = BatchDrill(
    42,
    4.1,
    input_rows=20,
    live_input_rows=20,
    state_rows=30,
    live_state_rows=30,
    output={"rows": 10, "live_rows": 10, "only_copy": 0, "only_live": 0},
)


def query(**changes: Any) -> QueryDrill:
    return replace(QueryDrill("main", "b000041", 41, utc_now(), 60.0, batches=(EVEN,)), **changes)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (EVEN, []),
        (replace(EVEN, input_rows=19), ["batch 42 has 19 rows of input, and 20 in the live query"]),
        (replace(EVEN, live_state_rows=3000), ["batch 42 has 30 rows of state, and 3,000 in the live query"]),
        (replace(EVEN, input_rows=19, live_input_rows=None), []),
        (
            replace(EVEN, output={"rows": 9, "live_rows": 10, "only_copy": 0, "only_live": 1}),
            ["the output of batch 42 lacks 1 rows of the live query's"],
        ),
        (
            replace(EVEN, output={"rows": 10, "live_rows": 10, "only_copy": 2, "only_live": 2}),
            [
                "the output of batch 42 lacks 2 rows of the live query's "
                "and has 2 rows that the live query's has not"
            ],
        ),
        (replace(EVEN, output={"why": "only what a file sink writes is compared, row by row"}), []),
    ],
)
def test_a_batch_says_in_what_it_differs(batch: BatchDrill, says: list[str]) -> None:
    assert batch.differences() == says
    assert query(batches=(batch,)).differences() == says


def test_state_that_differs_is_a_difference_and_state_that_was_not_compared_is_none() -> None:
    assert query(state_equal=True).differences() == []
    assert query(state_equal=None).differences() == []
    assert query(state_equal=False).differences() == [
        "the state after batch 42 is not that of the live query"
    ]


def report_of(*queries: QueryDrill, not_run: str = "") -> DrillReport:
    return DrillReport(
        job="orders",
        repository="file:///savepoints",
        queries=queries,
        steps={"choose": 0.1234},
        not_run=not_run,
        scratch="file:///scratch",
        started_at=utc_now(),
        seconds=1.0,
    )


def test_what_a_drill_did_not_run_is_said_wherever_it_is_said_that_it_passed(folder: Path) -> None:
    job, why = declare(folder), "Its sink is foreachBatch."
    for not_run in ("", why):
        leave_report(DrillRequest(job), report_of(query(), not_run=not_run))
    ran, alone = (one.facts or {} for one in job_history(job))
    assert ran["passed"] is alone["passed"] is True
    assert "not_run" not in ran and alone["not_run"] == why
    said = succeed("job", "history", "flights", "--jobs", folder / "streaming_jobs.toml").out
    assert said.count("the application was not run: Its sink is foreachBatch.") == 1
    assert next(outcomes(job.records())).not_run == drills_seen(job.records(), ()).not_run == why


def test_the_oldest_savepoint_is_the_rpo_and_a_failed_step_fails_the_drill() -> None:
    report = report_of(query(), query(age_s=90.0))
    assert report.passed
    assert (report.rpo_s, report.to_dict()["rto_s"]) == (90.0, None)
    assert report.to_dict()["steps"] == {"choose": 0.123}
    failed = replace(report, failed_step="restore", queries=())
    assert not failed.passed
    assert failed.to_dict()["rpo_s"] is None


def test_people_read_of_a_batch_what_is_the_same_or_what_differs() -> None:
    rows = query(state_equal=True, batches_behind=2, not_compared=("nothing to read",)).rows()
    assert rows[0] == ("query main", "b000041 of batch 41, 1 min old, 2 batches behind")
    same = "20 rows of input, 30 rows of state, 10 rows of output"
    assert rows[1] == ("batch 42", f"4.1 s, as in the live query: {same}")
    assert rows[2:] == [("state after 42", "as in the live query"), ("not compared", "nothing to read")]
    other = replace(EVEN, output={"rows": 10, "live_rows": 10, "only_copy": 2, "only_live": 2})
    rows = query(batches=(other,), state_equal=False).rows()
    assert [title for title, _ in rows] == ["query main", "batch 42", "differs", "differs"]
    assert rows[1] == ("batch 42", "4.1 s, it differs")
    rows = query(batches=(BatchDrill(42, 4.1, input_rows=20),)).rows()
    assert rows[1] == ("batch 42", "4.1 s, nothing of it was compared")
