"""Storage that cannot be read is said in its part, and nothing is raised."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streambank.control.records import RecordStream
from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank.job.savepoint import savepoint_job
from streambank.overview.line import LINE_BYTES
from streambank.overview.plain import size_of
from streambank.overview.snapshot import Snapshot, snapshot
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.left_behind import save
from tests.support.jobs.lost_repository import worked
from tests.support.overview.shown_job import mismatched, use_fake_launcher
from tests.support.permissions import as_ordinary_user, open_folder


@pytest.fixture(autouse=True)
def _launcher(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_launcher(folder, monkeypatch)


@pytest.fixture
def job(folder: Path) -> Job:
    """A job with one savepoint and a checkpoint, which runs no driver."""
    job = declare(folder, more='[jobs.flights.replicate]\nto = ["replica"]')
    worked(job)
    savepoint_job(job, by=BY)
    job.records().record_event("driver-started", epoch=1)
    return job


def errors(found: Snapshot) -> dict[str, str]:
    return {name: part["error"]["code"] for name, part in found.parts.items() if part["error"]}


def test_a_repository_that_is_gone(job: Job, folder: Path) -> None:
    shutil.rmtree(folder / "repository")
    found = snapshot(job)
    assert errors(found) == {"repository": "repository-lost", "savepoints": "repository-lost"}
    assert found.line["error"]["part"] == "repository" and found.line["error"]["hint"]
    assert found.line["state"] == "never-started" and found.parts["events"]["events"]
    assert found.parts["repository"]["replicas"][0]["error"]["code"] == "no-repository"
    assert found.line["replicas"] and found.parts["repository"]["location"] == job.repository
    history = [one for one in found.parts["verdicts"]["verdicts"] if one["level"] == "unknown"]
    assert history and found.parts["charts"]["unreadable"]


def test_a_checkpoint_that_is_gone(job: Job, folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints/flights")
    found = snapshot(job)
    assert errors(found) == {} and found.line["state"] == "checkpoint-lost"
    assert found.parts["savepoints"]["savepoints"] and found.parts["charts"]["unreadable"]


def test_a_record_that_is_damaged(job: Job) -> None:
    records = job.records()
    records.set_desired("running", by=BY)
    records.store.write(records.desired_records.key(1), b"{")
    found = snapshot(job)
    assert errors(found)["status"] == "damaged-record"
    assert found.line["state"] == "unreadable" and "cannot be read" in found.line["state_why"]
    assert found.line["error"]["part"] == "status"
    assert found.parts["savepoints"]["savepoints"] and found.parts["events"]["events"]


def test_what_the_line_cannot_read_by_itself_is_its_error(job: Job) -> None:
    records = job.records()
    records.set_desired("running", by=BY)
    key = records.event_records.key(records.event_records.numbers()[-1])
    whole = records.store.read(key)
    records.store.write(key, b"{")
    records.record_event("stopped", how="none")  # the status is known by this one alone
    found = snapshot(job)
    assert errors(found) == {} and found.line["state"] == "never-started" and found.line["waits"] == []
    error = found.line["error"]
    assert (error["part"], error["code"]) == ("line", "damaged-record") and key in error["message"]
    later = snapshot(job, parts={"line"}, before=found)
    assert later.line["error"] == error
    records.store.write(key, whole)
    assert snapshot(job, parts={"line"}, before=later).line["error"] is None


@pytest.mark.parametrize(
    ("what", "part", "left_out"),
    [
        ("line._measured", "line", ("state_rows", "lag", "commit_s")),
        ("snapshot.sparkline", "charts", ("spark",)),
        ("snapshot.newest_verified", "savepoints", ("savepoint",)),
    ],
)
def test_fields_that_cannot_be_made_have_an_error(
    job: Job, monkeypatch: pytest.MonkeyPatch, what: str, part: str, left_out: tuple[str, ...]
) -> None:
    def fail(*args: object) -> None:
        raise StorageError("The store is away.", code="store-away", hint="Ask again.")

    monkeypatch.setattr(f"streambank.overview.{what}", fail)
    found = snapshot(job)
    assert found.line["error"] == {
        "part": part, "code": "store-away", "message": "The store is away.", "hint": "Ask again.",
    }  # fmt: skip
    assert all(found.line[name] is None for name in left_out) and errors(found) == {}


@pytest.mark.parametrize("odd", ["[]", '{"started_at": 3, "steps": 4, "queries": 7, "by": "x"}', "{"])
def test_reports_that_are_odd_are_shown_as_they_are_or_left_out(job: Job, odd: str) -> None:
    store = job.records().store
    for stream in ("drills", "restores"):
        store.write(RecordStream(store, stream).key(1), odd.encode())
    found = snapshot(job)
    assert found.line["job"] == "flights" and set(errors(found)) <= {"recoveries"}


def test_a_manifest_and_a_mark_that_are_damaged(job: Job, folder: Path) -> None:
    repository = job.open_repository()
    (one,) = repository.manifests()
    repository.pin(one.job, one.savepoint, by=BY)
    mark = next((folder / "repository/marks").rglob("pin-*.json"))
    mark.write_bytes(mark.read_bytes()[:-9])
    found = snapshot(job)
    (row,) = found.parts["savepoints"]["savepoints"]
    assert row["pinned"] and "pin-0000000001.json" in row["damage"]
    manifest = folder / f"repository/savepoints/flights/{one.savepoint}.json"
    manifest.write_bytes(b"{")
    found = snapshot(job)
    (row,) = found.parts["savepoints"]["savepoints"]
    assert row["batch"] is None and row["taken_at"] is None and row["damage"]
    assert found.parts["repository"]["damage"] == [
        {"savepoint": one.savepoint, "query": "main", "what": row["damage"]}
    ]
    assert found.line["savepoint"] is None and errors(found) == {}


def test_a_replica_that_is_not_there_is_said_in_its_place(job: Job) -> None:
    found = snapshot(job)
    (replica,) = found.parts["repository"]["replicas"]
    assert replica["error"]["code"] == "no-repository" and replica["behind"] is None
    assert "replica" in found.line["replicas"][0]["error"]


def test_places_where_we_may_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_folder() as folder:
        launcher = fake_launcher(folder)
        monkeypatch.setattr("streambank.job.status.launcher_for", lambda job: launcher)
        job = declare(folder, batches=3)
        job.records().generations().ensure_first(job.checkpoint, by=BY)
        save(job)
        for place, code in (("repository", "no-permission"), ("checkpoints/flights", "no-permission")):
            (folder / place).chmod(0)
            try:
                with as_ordinary_user():
                    found = snapshot(job)
            finally:
                (folder / place).chmod(0o755)
            assert code in errors(found).values(), place
            assert found.line["error"] is not None and found.line["job"] == "flights"
        (folder / "repository.control").chmod(0)
        try:
            with as_ordinary_user():
                found = snapshot(job)
        finally:
            (folder / "repository.control").chmod(0o755)
        assert found.line["state"] == "unreadable" and errors(found)["status"] == "no-permission"


def test_a_mistake_of_ours_is_said_in_its_part(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("tail")

    monkeypatch.setattr("streambank.overview.snapshot.job_history", fails)
    found = snapshot(job)
    assert errors(found) == {"events": "internal"}
    assert found.parts["events"]["error"]["message"] == "KeyError: 'tail'"
    assert found.parts["savepoints"]["savepoints"]


@pytest.mark.parametrize(
    "damage",
    [
        {"verdicts": None, "objectives": [], "level": 3},
        {"verdicts": ["x"], "replicas": [None], "waits": 5},
        {"replicas": 5, "spark": [1], "drill": "x", "savepoint": []},
        {"parts": []},
        {"parts": "x", "error": "x"},
        {"parts": {"charts": 5, "events": {"at": "x"}, "log": {"at": "x" * 5000, "digest": 1}}},
        {"error": {"part": ["x"]}, "spark": {"rows": [1] * 5000}},
        {"format": 2, "level": "breach"},
    ],
)
def test_an_earlier_line_that_is_damaged_is_left_out(job: Job, damage: dict[str, Any]) -> None:
    before = snapshot(job, parts={"savepoints"})
    found = snapshot(job, parts={"line"}, before=Snapshot({**before.line, **damage}))
    assert size_of(found.line) <= LINE_BYTES and mismatched(found) == []
    assert found.line["state"] == before.line["state"] and found.line["level"] is None
    assert found.line["parts"].keys() <= {"savepoints"}
    assert snapshot(job, parts={"line"}, before=Snapshot.from_dict({"line": "x"})).line["parts"] == {}


def test_a_mistake_of_ours_in_the_line_leaves_its_fields_out(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("tail")

    monkeypatch.setattr("streambank.overview.snapshot.newest_verified", fails)
    found = snapshot(job, parts={"savepoints"})
    assert found.line["savepoint"] is None and found.parts["savepoints"]["savepoints"]
