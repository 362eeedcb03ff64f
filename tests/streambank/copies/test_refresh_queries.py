"""A copy of a job with several queries: all of them are one copy, and change in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.position import batches_of
from streambank.control.copies import settle_refresh
from streambank.control.generations import Generation, Generations
from streambank.control.operation import Operation
from streambank.copies.refresh import RefreshRequest, refresh
from streambank.copies.report import RefreshReport
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.outputs import Output
from streambank.driver.prepare import prepare_launch
from streambank.driver.redirected import redirected
from streambank.driver.spec import LaunchSpec
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.simulated_job import BY
from tests.support.storage.faulty_store import SimulatedCrash, killed_at

QUERIES = ("hours", "sessions")


class Pair:
    """A job of two queries with a copy of their state, and a savepoint of each."""

    def __init__(self, folder: Path) -> None:
        (folder / "app.py").write_text("")
        self.jobs = folder / "jobs.toml"
        self.jobs.write_text(
            'repository = "repository"\n[jobs.flights]\napplication = "app.py"\ncheckpoint = "ck"\n'
            'queries = ["hours", "sessions"]\n[jobs.flights.copies.look]\ncheckpoint = "look/ck"\n'
        )
        self.repository = Repository.open(open_store(self.job.repository), create=True)
        self.live = {name: LiveCheckpoint(open_store(self.job.queries[name])) for name in QUERIES}
        self.go_on()

    @property
    def job(self) -> Job:
        return load_jobs(self.jobs).job("flights")

    @property
    def copy(self) -> Job:
        return load_jobs(self.jobs).job("flights@look")

    def go_on(self) -> None:
        for name, live in self.live.items():
            live.run(3)
            take(TakeRequest(open_store(self.job.queries[name]), self.repository, f"flights/{name}"))

    def refresh(self) -> RefreshReport:
        return refresh(RefreshRequest(self.job, "look", by=BY))

    def in_use(self) -> dict[str, tuple[int, int | None]]:
        """Number and batch of the generation of each query that would be started now."""
        records = self.copy.records()
        with records.operation("start", by=BY) as operation:
            settle_refresh(records, operation=operation)
        found = {}
        for name in QUERIES:
            generation = records.generation(name)
            assert generation is not None
            found[name] = (generation.number, batches_of(generation.location).committed)
        return found


def test_they_have_one_number_and_one_place(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    other = tmp_path / "look/ck/hours.g0002"
    other.mkdir(parents=True)
    (other / "notes").write_text("mine")
    report = pair.refresh()
    assert {one.query: one.generation for one in report.queries} == dict.fromkeys(QUERIES, 3)
    assert report.skew_s < 3600 and report.state_only
    assert pair.in_use() == dict.fromkeys(QUERIES, (3, 2))
    locations = {one.query: one.location for one in report.queries}
    assert locations == {name: (tmp_path / f"look/ck/{name}.g0003").as_uri() for name in QUERIES}


def test_nearest_is_one_place_for_all_of_them(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    declared = pair.jobs.read_text()
    pair.jobs.write_text(f'{declared}[jobs.flights.replicate]\nto = ["replica"]\n')
    succeed("replicate", "-r", tmp_path / "repository", "--to", tmp_path / "replica")
    request = RefreshRequest(pair.job, "look", repository="nearest", by=BY)
    assert {one.repository for one in refresh(request).queries} == {pair.repository.store.uri}
    for info in list(pair.repository.store.list("savepoints/flights/sessions")):
        pair.repository.store.write(info.path, b"{}")
    report = refresh(request)
    assert {one.repository for one in report.queries} == {open_store(tmp_path / "replica").uri}
    assert any(pair.repository.store.uri in warning for warning in report.warnings)
    assert pair.in_use() == dict.fromkeys(QUERIES, (3, 2))


def test_what_ends_between_two_of_them_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    pair.refresh()
    pair.go_on()
    switched: list[str] = []
    switch = Generations.switch

    def once(self: Generations, generation: Generation, *, operation: Operation) -> None:
        if switched:
            raise SimulatedCrash
        switched.append(self.query)
        switch(self, generation, operation=operation)

    with monkeypatch.context() as patch:
        patch.setattr(Generations, "switch", once)
        with pytest.raises(SimulatedCrash):
            pair.refresh()
    assert switched == ["hours"], "the fault fired after the first"
    assert pair.in_use() == dict.fromkeys(QUERIES, (3, 5))


def test_what_ends_before_leaves_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path)
    pair.refresh()
    pair.go_on()
    with killed_at(monkeypatch, "streambank.copies.refresh.commit_refresh"):
        pair.refresh()
    assert pair.in_use() == dict.fromkeys(QUERIES, (2, 2))
    assert {one.batch for one in pair.refresh().queries} == {5}


def test_two_that_write_to_one_topic_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """Both have a batch 3."""
    pair = Pair(tmp_path)
    pair.jobs.write_text(pair.jobs.read_text() + 'outputs = { events = "look/events" }\n')
    for name in QUERIES:
        pair.job.records().record_query(name, {"output": {"kind": "kafka", "path": None, "name": "events"}})
    pair.refresh()
    launch = prepare_launch(pair.copy, pair.copy.records(), by=BY)
    events = Output("kafka", name="events")
    places = {
        name: redirected(one.redirect, events, name).path
        for name, one in launch.queries.items()
        if one.redirect is not None
    }
    output = (tmp_path / "look/events.g0002").as_uri()
    assert places == {"hours": f"{output}/query=hours", "sessions": f"{output}/query=sessions"}
    again = LaunchSpec.from_dict(launch.to_dict()).queries["hours"].redirect
    assert again is not None and again.folder == "query=hours", "the driver reads it"
