from __future__ import annotations

import json
from pathlib import Path

from streambank.control.progress import ProgressWriter
from streambank.control.records import RecordStream
from streambank.core.units import from_json_time
from streambank.declaration.declaration import Job
from streambank.job.history import Happening, job_history
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.recovery.reinstate import reinstate
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.declared import BY, declare, fake_launcher, started
from tests.support.jobs.left_behind import go_on, next_generation, repository_of, save

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


def test_events_of_a_clock_that_was_ahead_stay_where_they_happened(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    times = {"first": "10:00", "ahead": "12:05", "after": "10:10", "last": "10:20"}
    for kind, clock in times.items():
        records.event_records.append({"kind": kind, "at": f"2026-11-28T{clock}:00.000Z"})
    assert [one.kind for one in job_history(job)] == list(times)


def test_a_damaged_record_is_shown_as_damaged_and_hides_no_other(folder: Path) -> None:
    job = started(folder)
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


def of(job: Job, kind: str) -> Happening:
    (one,) = (one for one in job_history(job) if one.kind == kind)
    return one


def processed(job: Job, epoch: int, *batches: int) -> None:
    """Batches that a driver has recorded."""
    writer = ProgressWriter(job.records().store, None, epoch=epoch)
    for batch in batches:
        writer.add({"runId": f"run-{epoch}", "batchId": batch})
    writer.flush()


def test_a_restore_says_from_where_and_how_far_it_went_back(folder: Path) -> None:
    job = declare(folder)
    live = LiveCheckpoint(open_store(job.checkpoint)).run(3)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    savepoint = save(job)
    live.run(2)
    next_generation(job, savepoint, sink="accept")
    facts = of(job, "restored").facts or {}
    assert facts["repository"] == repository_of(job).store.uri
    assert (facts["generation"], facts["savepoint"], facts["batch"], facts["mode"]) == (
        2,
        savepoint,
        2,
        "no-claim",
    )
    assert facts["batches_back"] == 2 and facts["seconds"] > 0
    assert "query went on to batch 4" in facts["lost"], "what was accepted"
    shown = succeed("job", "history", "flights", "--jobs", folder / "streaming_jobs.toml").out
    assert "batches back 2" in shown.replace("\n", " ")

    # A report of an older version does not say from where.
    reports = RecordStream(job.records().store, "restores")
    old = {name: value for name, value in reports.read(1).items() if name not in ("repository", "reached")}
    job.records().store.write(reports.key(1), json.dumps(old).encode())
    facts = of(job, "restored").facts or {}
    assert "repository" not in facts and "batches_back" not in facts and facts["savepoint"] == savepoint


def test_nothing_is_said_to_be_lost_that_was_not(folder: Path) -> None:
    job = declare(folder, batches=3)
    savepoint = save(job)
    next_generation(job, savepoint)
    assert "lost" not in (of(job, "restored").facts or {})
    reinstate(repository_of(job), job.name, savepoint, generation=1, control=job.records(), by=BY, why="no")
    back = of(job, "reinstated")
    assert (back.facts or {})["again"] == 1 and back.why == "no"
    assert len([one for one in job_history(job) if one.kind == "restored"]) == 1


def test_how_long_nothing_was_processed_stands_at_the_driver_and_at_the_restore(folder: Path) -> None:
    job = declare(folder, batches=3)
    records = job.records()
    records.record_event("driver-started", epoch=1)
    processed(job, 1, 0, 1, 2)
    next_generation(job, save(job))
    records.record_event("driver-started", epoch=2)
    processed(job, 2, 3, 4)
    go_on(job)
    records.record_event("driver-started", epoch=3)
    records.record_event("restarted", epoch=3, cause="health")
    processed(job, 3, 5)
    found = job_history(job)
    started = {
        (one.facts or {})["epoch"]: (one.facts or {}).get("paused_s")
        for one in found
        if one.kind == "driver-started"
    }
    restored, restarted = of(job, "restored").facts or {}, of(job, "restarted").facts or {}
    assert started[1] is None, "nothing came before it"
    assert started[2] == restored["paused_s"] >= 0
    assert started[3] == restarted["paused_s"] >= 0
    lines = [
        from_json_time(json.loads(line)["at"])
        for info in sorted(records.store.list("progress/main"), key=lambda info: info.path)
        for line in records.store.read(info.path).splitlines()
    ]
    assert started[2] == round((lines[3] - lines[2]).total_seconds(), 1)
    shown = succeed("job", "history", "flights", "--jobs", folder / "streaming_jobs.toml", "--json").document
    assert [one["facts"].get("paused_s") for one in shown] == [
        (one.facts or {}).get("paused_s") for one in found
    ]


def test_facts_of_any_kind_of_event_are_shown_and_only_texts_and_numbers(folder: Path) -> None:
    job = declare(folder)
    job.records().record_event(
        "upgraded", **{"from": "b000004", "to": "b000005"}, seconds=4.25, paused_s=2.0, rows_lost=7,
        by=BY, why="new code", report={"much": "more"}, batch=None,
    )  # fmt: skip
    job.records().record_event("drilled", passed=False, step="state", rto_s=61.0, repository="s3://b/replica")
    upgraded, drilled = of(job, "upgraded"), of(job, "drilled")
    assert upgraded.facts == {
        "from": "b000004",
        "to": "b000005",
        "seconds": 4.25,
        "paused_s": 2.0,
        "rows_lost": 7,
    }
    assert upgraded.by is not None and upgraded.why == "new code"
    assert drilled.facts == {"passed": False, "step": "state", "repository": "s3://b/replica", "rto_s": 61.0}
    shown = succeed("job", "history", "flights", "--jobs", folder / "streaming_jobs.toml").out.replace(
        "\n", " "
    )
    assert "RTO 1 min 1 s" in shown
