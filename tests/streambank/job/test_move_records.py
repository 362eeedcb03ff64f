"""Moving a job's records: all of them, once, with nobody writing meanwhile, and after a kill at any step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.marker import read_marker, renew_marker
from streambank.control.place import MOVED, MOVING
from streambank.core.errors import ConflictError, InputError, NotFoundError, RefusedError, StreambankError
from streambank.core.signing import VARIABLE, new_key
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.move_records import move_records
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import FileInfo
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses


class Killed(BaseException):
    """The process ended here."""


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """Nothing is written or deleted any more from this call on; what was asked for until then."""
    calls: list[str] = []
    kept = {name: getattr(LocalStore, name) for name in ("write", "delete")}

    def mortal(name: str) -> Any:
        def call(self: LocalStore, *arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return None
            calls.append(f"{name} {arguments[0]}")
            if len(calls) >= step:
                raise Killed
            return kept[name](self, *arguments, **named)

        return call

    for name in kept:
        setattr(LocalStore, name, mortal(name))
    try:
        yield calls
    finally:
        for name, whole in kept.items():
            setattr(LocalStore, name, whole)


def ran(folder: Path, where: str = "repository/jobs") -> Job:
    """A job that has run and was stopped, with its records in a place."""
    job = declare(folder)
    control = JobControl.open(str(folder / where), "flights")
    generation = control.generations().ensure_first(job.checkpoint, by=BY)
    control.set_desired("stopped", by=BY, why="upgrade")
    control.record_event("stopped", epoch=1)
    with control.lease.held("restore", by=BY):
        pass
    control.store.write("progress/main/0000000001.jsonl", b"{}\n" * 1000)
    control.store.write("bundles/1/streambank.zip", b"program")
    renew_marker(job.checkpoint, job="flights", query="main", generation=generation, control=control, by=BY)
    return job


def files(folder: Path) -> dict[str, bytes]:
    """All records, but what the move itself leaves, and the program for clusters."""
    own = ("operation/", "events/0000000002", "bundles/", MOVED, "lease/0000000002")
    store = open_store(folder)
    return {info.path: store.read(info.path) for info in store.list() if not info.path.startswith(own)}


def is_moved(folder: Path, before: dict[str, bytes]) -> None:
    assert files(folder / "repository.control/flights") == before
    left = {name for name in files(folder / "repository/jobs/flights") if not name.startswith("lease/")}
    assert left == set()
    control = declare(folder).records()
    assert control.store.uri == f"file://{folder}/repository.control/flights"
    desired, generation = control.desired(), control.generation()
    assert desired is not None and (desired.state, desired.why) == ("stopped", "upgrade")
    assert generation is not None and generation.number == 1
    assert [one.data["kind"] for one in control.events()] == ["stopped", "records-moved"]


def test_all_that_a_job_remembers_is_moved_and_its_marker_follows(tmp_path: Path) -> None:
    job = ran(tmp_path)
    before = files(tmp_path / "repository/jobs/flights")
    moved = move_records(job, by=BY, why="apart")
    is_moved(tmp_path, before)
    assert moved.files == len(before) and moved.warnings == ()
    marker = read_marker(job.checkpoint)
    assert marker is not None and marker.control == f"file://{tmp_path}/repository.control"
    again = move_records(job, by=BY)
    assert again.source is None and again.target == moved.target
    with job.records().operation("start", by=BY):
        pass  # the lock works where it is now


def test_after_a_kill_at_any_step_the_records_count_somewhere_and_the_next_call_moves_them(
    tmp_path: Path,
) -> None:
    step, finished = 0, False
    while not finished:
        step += 1
        folder = tmp_path / str(step)
        folder.mkdir()
        job = ran(folder)
        before = files(folder / "repository/jobs/flights")
        with killed_at(step) as calls:
            try:
                move_records(job, by=BY)
                finished = True
            except Killed:
                pass
        assert len(calls) >= step or finished, "the kill came"
        control = job.records()
        desired, generation = control.desired(), control.generation()
        assert desired is not None and desired.state == "stopped" and generation is not None
        if not control.store.exists(MOVED):
            control.operation_lock.break_off(by=BY, why="killed", even_live=True)
            control.lease.break_off(by=BY, why="killed", even_live=True)
        move_records(job, by=BY)
        is_moved(folder, before)
    assert step > 20


@pytest.mark.parametrize("after", [0, 1])
def test_after_a_kill_around_the_switch_signed_records_are_read_and_written_where_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    new_key(tmp_path / "keys")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "keys"))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole, job = ran(tmp_path / "whole"), ran(tmp_path / "killed")
    with killed_at(1_000_000) as calls:
        move_records(whole, by=BY)
    identity = job.records().signer.identity()
    assert identity is not None
    with pytest.raises(Killed), killed_at(calls.index(f"write {MOVED}") + 1 + after):
        move_records(job, by=BY)
    control = job.records()
    assert control.store.uri.endswith("repository.control/flights") is (after > 0)
    desired = control.desired()
    assert desired is not None and desired.why == "upgrade" and control.generation() is not None
    control.set_desired("stopped", by=BY, why="after the kill")
    if after <= 0:
        control.operation_lock.break_off(by=BY, why="killed", even_live=True)
        control.lease.break_off(by=BY, why="killed", even_live=True)
    move_records(job, by=BY)
    moved = job.records()
    desired, now = moved.desired(), moved.signer.identity()
    assert desired is not None and (desired.why, desired.number) == ("after the kill", 2)
    assert moved.generation() is not None and now is not None and now.id == identity.id


def test_a_job_that_runs_or_is_meant_to_is_left_alone(tmp_path: Path) -> None:
    job = ran(tmp_path)
    control = job.records()
    control.set_desired("running", by=BY)
    with refuses(RefusedError, "not-stopped"):
        move_records(job, by=BY)
    control.set_desired("stopped", by=BY)
    with control.lease.held("run", by=BY), pytest.raises(RefusedError) as caught:
        move_records(job, by=BY)
    assert caught.value.code == "lease-held"
    with control.operation("restore", by=BY), pytest.raises(ConflictError) as busy:
        move_records(job, by=BY)
    assert busy.value.code == "operation-in-progress"
    assert not (tmp_path / "repository.control").exists()


def test_who_opened_the_old_place_before_gets_neither_its_lock_nor_its_lease(tmp_path: Path) -> None:
    job = ran(tmp_path)
    old = job.records()
    move_records(job, by=BY)
    with pytest.raises(ConflictError) as caught, old.operation("start", by=BY):
        pass
    assert caught.value.code == "records-moved"
    with refuses(ConflictError, "records-moved"):
        old.lease.acquire([])
    view = old.lease.view()
    assert view is not None and view.state == "ended"
    with refuses(ConflictError, "records-moved"):
        old.set_desired("running", by=BY)


def test_a_lock_that_was_broken_meanwhile_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ran(tmp_path)
    control = job.records()
    whole = LocalStore.write

    def write(self: LocalStore, key: str, data: Any, *, exclusive: bool = False) -> None:
        whole(self, key, data, exclusive=exclusive)
        if key == MOVED:
            control.lease.break_off(by=BY, why="it hung", even_live=True)

    monkeypatch.setattr(LocalStore, "write", write)
    with refuses(ConflictError, "claim-lost"):
        move_records(job, by=BY)
    assert not control.store.exists(MOVED)
    assert job.records().store.uri == control.store.uri


def test_a_place_of_ones_own_has_to_be_declared(tmp_path: Path) -> None:
    job = ran(tmp_path)
    move_records(job, by=BY, to=str(tmp_path / "control"))
    with refuses(RefusedError, "records-moved") as caught:
        job.records()
    assert f"file://{tmp_path}/control" in caught.value.message
    file = tmp_path / "streaming_jobs.toml"
    file.write_text(f'control = "control"\n{file.read_text(encoding="utf-8")}', encoding="utf-8")
    declared = load_jobs(file).job("flights")
    assert declared.records().generation() is not None
    back = move_records(declared, by=BY)
    assert back.target == f"file://{tmp_path}/repository.control/flights"
    with pytest.raises(RefusedError):
        declared.records()


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("repository/jobs/flights/x", "bad-location"),
        ("checkpoints/flights/x", "bad-location"),
        ("taken", "records-twice"),
    ],
)
def test_records_are_moved_neither_into_themselves_nor_onto_others(
    tmp_path: Path, to: str, code: str
) -> None:
    job = ran(tmp_path)
    JobControl.open(str(tmp_path / "taken"), "flights").record_event("stopped")
    with refuses(StreambankError, code):
        move_records(job, by=BY, to=str(tmp_path / to))
    assert job.records().generation() is not None


def test_a_job_without_records_and_a_repository_with_nothing_beside_it(tmp_path: Path) -> None:
    with refuses(NotFoundError, "never-started"):
        move_records(declare(tmp_path), by=BY)
    with refuses(InputError, "no-place-beside"):
        move_records(replace(declare(tmp_path), repository="s3://bucket"), by=BY)


def test_a_mark_in_the_new_place_that_names_another_folder_has_nothing_deleted_there(tmp_path: Path) -> None:
    job = ran(tmp_path)
    other = tmp_path / "other" / "flights"
    other.mkdir(parents=True)
    (other / MOVED).write_text("{}")
    (other / "kept").write_text("kept")
    target = open_store(tmp_path / "repository.control").child("flights")
    target.write(MOVING, f'{{"from": "file://{other}"}}'.encode())
    with refuses(ConflictError, "records-twice"):
        move_records(job, by=BY)
    assert (other / "kept").exists()


def test_what_is_begun_in_the_new_place_right_after_the_switch_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who had opened the old place says `stopped` there at the same time, by the same number."""
    job = ran(tmp_path)
    old = job.records()
    write, listing = LocalStore.write, LocalStore.list
    begun: list[int] = []

    def late(self: LocalStore, key: str, data: Any, *, exclusive: bool = False) -> None:
        write(self, key, data, exclusive=exclusive)
        if key == MOVED:
            with pytest.raises(ConflictError, match="moved"):
                old.set_desired("stopped", by=BY, why="late")

    def begins(self: LocalStore, prefix: str = "") -> Iterator[FileInfo]:
        found = list(listing(self, prefix))
        if "repository.control" in self.uri and not begun and old.store.exists(MOVED):
            begun.append(1)
            job.records().set_desired("running", by=BY, why="in the new place")
        return iter(found)

    monkeypatch.setattr(LocalStore, "write", late)
    monkeypatch.setattr(LocalStore, "list", begins)
    move_records(job, by=BY)
    assert begun
    desired = job.records().desired()
    assert desired is not None and (desired.why, desired.number) == ("in the new place", 2)
