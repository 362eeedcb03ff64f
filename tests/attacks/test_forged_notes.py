"""What drivers and operations note of a job is not signed: forged, it hinders by name, and moves nothing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.cleaning.clean import clean_job
from streambank.core.errors import StreambankError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.driver.preflight import check_start, declared_query
from streambank.driver.prepare import prepare_launch
from streambank.job.status import job_status
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.storage import local_path, open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import next_generation, repository_of, save
from tests.support.storage.contents import contents

NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]
FACTS: Mapping[str, Mapping[str, Any]] = {
    "another query": {"query_id": "00000000-0000-0000-0000-000000000000", "generation": 2},
    "another generation": {"query_id": "q", "generation": 99, "epoch": 99},
    "types": {"query_id": [], "generation": "x", "sink": 7, "sources": "text", "epoch": {}},
    "nested": {"query_id": NESTED, "sink": NESTED, "sources": NESTED, "kafka": NESTED},
    "large": {"query_id": "9" * 100_000, "generation": 10**280},
    "a place of the host": {"sink": "FileSink[file:///etc]", "sink_path": "file:///etc", "query_id": "q"},
    "a place above": {"sink": "FileSink[../../..]", "sink_path": "../../..", "query_id": "q"},
    "an address": {"sink": "FileSink[http://169.254.169.254/latest]", "sink_path": "webhdfs://127.0.0.1:1/x"},
    "no place": {"sink": "FileSink[\x00]", "sink_path": "\x00", "query_id": "\x00"},
    "servers": {"kafka": {"bootstrap": "evil:9092", "topics": {"t": {}}}, "query_id": "q"},
}
LOCKS: Mapping[str, Any] = {
    "nothing": {},
    "no object": [],
    "types": {"at": 7, "details": [], "processes": "x", "ttl_s": "long", "host": 7},
    "a process that is none": {"processes": [{"pid": -1, "role": "python", "started": 0}], "ttl_s": 1e300},
    "everything": {"processes": [{"pid": 0}, {"pid": 1}, {"pid": 2**64}], "ttl_s": -1},
    "for ever": {"ttl_s": 10**300, "beat_s": -1, "details": {"operation": "\x1b[2J<script>"}},
}
NOTES: Mapping[str, Any] = {
    "of a table": {"generation": 99, "sinks": {}, "tables": ["payments"]},
    "of outputs": {"generation": 99, "sinks": {"file:///etc": ["x"]}, "tables": []},
    "without a generation": {"sinks": {}, "tables": []},
    "types": {"generation": [], "sinks": 7, "tables": 7},
    "of another place": {
        "generation": 99,
        "location": "../..",
        "savepoint": "../x",
        "sinks": {"\x00": ["x"]},
    },
}


@pytest.fixture
def job(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose records that decide are signed, with an earlier generation that nothing needs."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    job = declare(tmp_path, batches=3)
    next_generation(job, save(job))
    generation = job.records().generation()
    assert generation is not None
    going_on = LiveCheckpoint(open_store(generation.location), seed=1)
    going_on.next_batch = 3
    going_on.run(2)
    return job


def request(job: Job) -> RestoreRequest:
    return RestoreRequest(
        repository_of(job), "latest-good", job=job.name, generation=job.records(), checkpoint=job.checkpoint,
        by=BY, sink="accept",
    )  # fmt: skip


def start(job: Job) -> None:
    records = job.records()
    generation = records.generation()
    assert generation is not None and generation.number == 2
    check_start(declared_query(job, "main", records), generation)
    launch = prepare_launch(job, records, by=BY)
    assert launch.queries["main"].checkpoint == generation.location


LOOKS: Mapping[str, Callable[[Job], object]] = {
    "plan": lambda job: plan_restore(request(job)),
    "clean": lambda job: clean_job(
        job, jobs={job.name: job}, by=BY, policy=GenerationsPolicy(keep=1, keep_for_s=0.001), dry_run=False,
        now=utc_now() + timedelta(days=7),
    ),
    "start": start,
    "status": lambda job: job_status(job),
}  # fmt: skip


def attacked(job: Job) -> set[str]:
    """Plan, clean, start and look: the codes of what is refused, and that nothing else was done."""
    current = job.records().generation()
    assert current is not None
    living = contents(open_store(current.location)), contents(open_store(job.repository))
    refused = set()
    for name, look in LOOKS.items():
        try:
            look(job)
        except StreambankError as error:
            assert error.exit_code != 70 and error.hint, (name, error)
            refused.add(f"{name}: {error.code}")
    assert (contents(open_store(current.location)), contents(open_store(job.repository))) == living
    assert job.records().generation() == current
    return refused


def forge(job: Job, folder: str, said: Any) -> str:
    """Write the next record of a folder, as who has no key writes it."""
    store = job.records().store
    numbers = [int(name[:10]) for name in store.names(folder) if name[:10].isdecimal()]
    key = f"{folder}/{max(numbers, default=0) + 1:010d}.json"
    store.write(key, json.dumps(said).encode())
    return key


def test_without_forgery_the_job_plans_cleans_and_starts(job: Job) -> None:
    """The negative control: and the earlier generation does go."""
    assert attacked(job) == set()
    assert not Path(local_path(job.checkpoint) or "").exists()


@pytest.mark.parametrize("what", FACTS)
def test_forged_facts_of_a_query_send_it_nowhere(job: Job, what: str) -> None:
    forge(job, "queries/main", {"at": "2026-11-25T10:00:00.000Z", **FACTS[what]})
    attacked(job)


@pytest.mark.parametrize("lock", ["operation", "lease"])
@pytest.mark.parametrize("what", LOCKS)
def test_a_forged_lock_hinders_by_name_until_it_is_broken(job: Job, lock: str, what: str) -> None:
    key = forge(job, lock, LOCKS[what])
    attacked(job)
    job.records().store.delete(key)
    assert attacked(job) == set()


@pytest.mark.parametrize("what", NOTES)
def test_a_forged_note_of_a_restore_hinders_by_name(job: Job, what: str) -> None:
    key = forge(job, "taken-back/main", NOTES[what])
    attacked(job)
    job.records().store.delete(key)
    assert attacked(job) == set()


@pytest.mark.parametrize(
    "what", [["types"], pytest.param([*LOCKS, *NOTES], marks=pytest.mark.storm)], ids=len
)
@pytest.mark.parametrize("folder", ["removed/main", "restored-together", "requests", "answers", "watch"])
def test_other_forged_notes_move_nothing(job: Job, folder: str, what: list[str]) -> None:
    for name in what:
        forge(job, folder, {**LOCKS, **NOTES}[name])
        attacked(job)
