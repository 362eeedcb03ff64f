"""A job is changed by its own records only: what is guessed about where they are is compared first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.marker import records_root, renew_marker
from streambank.control.place import MOVED
from streambank.core.errors import RefusedError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.repository import Repository
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.contents import contents

ELSEWHERE = "memory://elsewhere/jobs/orders"


def managed(shop: SimulatedJob, records: str) -> str:
    """A savepoint of a managed job whose records are at a place."""
    return shop.run(3).take(taken_by={"records": records}).savepoint


def changing(shop: SimulatedJob) -> list[dict[str, Any]]:
    """Restores that change something of the job, by records that nobody has named."""
    return [
        {"generation": shop.control(), "guessed": True, "opener": quick_store},
        {
            "into": shop.open("restored"),
            "sink": "rollback",
            "control": shop.control(),
            "guessed": True,
            "opener": quick_store,
        },
        {"into": shop.open("restored"), "sink": "rollback", "opener": quick_store},
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_guessed_records_that_are_not_the_jobs_change_nothing(shop: SimulatedJob, which: int) -> None:
    savepoint = managed(shop, ELSEWHERE)
    shop.run(2)
    target = changing(shop)[which]
    before = contents(quick_store(shop.base))
    with refuses(RefusedError, "other-records") as caught:
        restore(RestoreRequest(shop.repository, savepoint, by=BY, **target))
    assert ELSEWHERE in caught.value.message and "--jobs" in caught.value.hint
    plan = plan_restore(RestoreRequest(shop.repository, savepoint, **target))
    assert plan.refusals[0].code == "other-records"
    assert contents(quick_store(shop.base)) == before


def test_records_that_somebody_names_may_have_moved(shop: SimulatedJob) -> None:
    savepoint = managed(shop, ELSEWHERE)
    report = shop.restore_next(savepoint, by=BY)
    assert report.plan.generation == 2


def test_guessed_records_that_are_the_jobs_are_used(shop: SimulatedJob) -> None:
    savepoint = managed(shop, shop.control().store.uri)
    control = shop.control()
    report = restore(
        RestoreRequest(
            shop.repository, savepoint, generation=control, guessed=True, opener=quick_store, by=BY
        )
    )
    assert report.plan.generation == 2


def test_a_look_at_a_savepoint_in_a_directory_needs_no_records(shop: SimulatedJob) -> None:
    savepoint = managed(shop, ELSEWHERE)
    assert shop.restore(savepoint, control=shop.control(), guessed=True).plan.batch == 2


@pytest.mark.parametrize("to", ["where they are", "elsewhere"])
def test_records_that_were_moved_out_of_the_repository_are_the_jobs(shop: SimulatedJob, to: str) -> None:
    before = shop.repository_store.child("jobs/orders")
    savepoint = managed(shop, before.uri)
    place = records_root(shop.control()) if to == "where they are" else "memory://elsewhere"
    before.write(MOVED, json.dumps({"to": place}).encode())
    request = RestoreRequest(
        shop.repository, savepoint, generation=shop.control(), guessed=True, opener=quick_store, by=BY
    )
    if to == "where they are":
        assert restore(request).plan.generation == 2
    else:
        with refuses(RefusedError, "other-records"):
            restore(request)


def test_a_query_whose_driver_lives_by_other_records_is_not_restored(tmp_path: Path) -> None:
    """As where a disk was mounted over the place that the records of the job were found by."""
    shop = SimulatedJob(tmp_path / "shop", sink=False).run(3)
    shop.take()
    own, other = (JobControl.open(str(tmp_path / place), JOB) for place in ("own", "other"))
    checkpoint = shop.checkpoint.uri
    began = own.generations().ensure_first(checkpoint, by=BY)
    renew_marker(checkpoint, job=JOB, query="main", generation=began, control=own, by=BY)
    request = RestoreRequest(
        Repository.open(shop.repository_store), "latest", job=JOB, generation=other, checkpoint=checkpoint
    )
    with own.lease.held("run", by=BY), pytest.raises(RefusedError) as caught:
        restore(request)
    assert caught.value.code == "checkpoint-of-another-job" and str(tmp_path / "own") in caught.value.message
    assert other.generation() is None
    restore(request)  # nobody holds it any more
    assert other.generation() is not None
