from __future__ import annotations

import json
from pathlib import Path

from streambank.job.history import job_history
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from tests.support.jobs.declared import BY, declare, fake_launcher

FROM_AIRFLOW = {**BY, "triggered_by": "ann", "dag_id": "flights.stop"}


def test_nothing_has_happened_to_a_job_that_nobody_touched(folder: Path) -> None:
    assert job_history(declare(folder)) == []
    assert not (folder / "repository").exists(), "looking writes nothing"


def test_what_people_asked_and_what_drivers_did_stand_in_the_order_of_time(folder: Path) -> None:
    job = declare(folder, "--period-s", "0.05")
    started = start_job(job, by=BY, why="monday", launcher=fake_launcher(folder))
    savepoint = savepoint_job(job, by=BY, why="upgrade").savepoints["main"].savepoint
    stop_job(job, by=FROM_AIRFLOW, why="over", launcher=fake_launcher(folder))
    found = job_history(job)
    kinds = [one.kind for one in found]
    assert kinds[:2] == ["desired-running", "launched"] and kinds[-1] == "stopped"
    assert kinds.index("driver-started") < kinds.index("savepoint-taken") < kinds.index("desired-stopped")
    by_kind = {one.kind: one for one in found}
    assert by_kind["desired-stopped"].by == "ann by flights.stop" and by_kind["desired-stopped"].why == "over"
    assert (by_kind["savepoint-taken"].facts or {})["savepoint"] == savepoint
    assert (by_kind["driver-started"].facts or {})["epoch"] == started.epoch == 1
    assert [one.at for one in found] == sorted(one.at for one in found if one.at is not None)
    assert job_history(job, 2) == found[-2:]
    json.dumps([one.to_dict() for one in found])


def test_a_damaged_record_is_shown_as_damaged_and_hides_no_other(folder: Path) -> None:
    job = declare(folder)
    start_job(job, by=BY, launcher=fake_launcher(folder))
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    records = job.records()
    records.store.write(records.event_records.key(1), b"{")
    found = job_history(job)
    assert found[0].kind == "damaged-record" and found[0].at is None
    assert "stopped" in {one.kind for one in found}


def test_secrets_that_a_failure_carries_are_left_out(folder: Path) -> None:
    job = declare(folder)
    job.records().record_event("query-ended", query="main", failure="no login with password=swordfish77")
    (one,) = job_history(job)
    assert "swordfish77" not in json.dumps(one.to_dict()) and "no login" in json.dumps(one.to_dict())
