"""Killed before or after a request of take and restore, all of it on a real S3 server: a second try goes on.

`make test` takes some of the requests, `make test-storm` every one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.control.control import JobControl
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from streambank.storage.s3 import write as s3_write
from streambank.work.executor import Pace
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob
from tests.support.storage.faulty_store import SimulatedCrash
from tests.support.storage.killed_s3_client import KilledClient, When, dying
from tests.support.storage.s3_servers import BUCKET, S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture

pytestmark = pytest.mark.filterwarnings(
    # A heartbeat of the process that was killed comes to its end in the same way.
    "ignore:Exception in thread keep-:pytest.PytestUnhandledThreadExceptionWarning"
)

LARGE = 1_100_000
"""Larger than what goes into packs."""
SOME = 2
"""How many of the requests `make test` takes, killed before and after them in turn."""
KINDS: tuple[When, ...] = ("before", "after")
WHICH = [SOME, *(pytest.param(when, marks=(pytest.mark.storm, pytest.mark.timeout(3600))) for when in KINDS)]
"""How many requests are fatal; or all of them, one after the other, before or after they arrive."""


class World:
    """A job on the server that can be put back to how it was, which is quicker than a new one."""

    def __init__(self, location: str) -> None:
        self.shop = SimulatedJob(location, state_bytes=LARGE)
        self.store = open_store(location)
        self.files: dict[str, tuple[str, bytes]] = {}

    def keep(self) -> None:
        """Remember how it is now."""
        self.files = {info.path: (info.identity, self.store.read(info.path)) for info in self.store.list()}

    def put_back(self) -> None:
        now = {info.path: info.identity for info in self.store.list()}
        for path in now.keys() - self.files.keys():
            self.store.delete(path)
        for path, (identity, data) in self.files.items():
            if now.get(path) != identity:
                self.store.write(path, data)


@pytest.fixture
def world(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> World:
    seaweedfs.use(monkeypatch)
    found = World(seaweedfs.location())
    found.shop.run(3)
    return found


def run_take(world: World) -> None:
    sinks = [FileSinkCapture(world.shop.sink_store.uri, open_store(world.shop.sink_store.uri))]
    repository = Repository.open(open_store(world.shop.repository_store.uri))
    take(
        TakeRequest(open_store(world.shop.checkpoint.uri), repository, JOB, sinks=sinks, pin=True),
        pace=Pace(parallel=1),
    )


def run_restore(world: World) -> None:
    repository = Repository.open(open_store(world.shop.repository_store.uri))
    control = JobControl.open(f"{world.shop.repository_store.uri}.control", JOB)
    restore(
        RestoreRequest(repository, "latest-good", job=JOB, generation=control, sink="rollback"),
        pace=Pace(parallel=1),
    )


def whole_savepoints(world: World) -> list[str]:
    """Those that are listed; each is whole, read by somebody who knows nothing of the crash."""
    repository = Repository.open(open_store(world.shop.repository_store.uri))
    summaries = list(repository.manifests())
    for summary in summaries:
        assert summary.error is None
        report = verify(repository, summary.job, summary.savepoint, "full", record=False)
        assert report.restorable, report.findings
    return [summary.savepoint for summary in summaries]


def kill_at(when: When, request: int, run: Callable[[], None]) -> KilledClient:
    with dying(when, request) as life, pytest.raises(SimulatedCrash):
        run()
    assert life.over
    return life


def crashes(requests: Sequence[str], which: int | When) -> list[tuple[When, int]]:
    """Which requests are fatal: all of them, or some writes that are far apart, the last one among them."""
    everything = range(1, len(requests) + 1)
    if not isinstance(which, int):
        return [(which, number) for number in everything]
    writes = [n for n in everything if not requests[n - 1].startswith(("get", "head", "list"))]
    chosen = [writes[round(n * (len(writes) - 1) / (which - 1))] for n in range(which)]
    return list(zip(itertools.cycle(KINDS), chosen, strict=False))


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.storm
def test_take_killed_at_a_request(world: World, which: int | When) -> None:
    world.keep()
    with dying("before", request=0) as undisturbed:
        run_take(world)
    assert len(whole_savepoints(world)) == 1
    for when, request in crashes(undisturbed.requests, which):
        world.put_back()
        kill_at(when, request, lambda: run_take(world))
        assert len(whole_savepoints(world)) <= 1
        run_take(world)
        (listed,) = whole_savepoints(world)
        assert Repository.open(open_store(world.shop.repository_store.uri)).pinned(JOB, listed)


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.storm
def test_restore_killed_at_a_request(world: World, which: int | When) -> None:
    run_take(world)
    world.shop.run(2)
    world.keep()
    with dying("before", request=0) as undisturbed:
        run_restore(world)
    assert_restored(world)
    for when, request in crashes(undisturbed.requests, which):
        world.put_back()
        kill_at(when, request, lambda: run_restore(world))
        control = JobControl.open(f"{world.shop.repository_store.uri}.control", JOB)
        current = control.generation()
        if current is not None and current.number > 1:
            assert b'"id"' in open_store(current.location).read("metadata")
        # What a real kill does by itself: who held lock and lease is this process, and lives.
        control.operation_lock.break_off(by=BY, why="killed", even_live=True)
        control.lease.break_off(by=BY, why="killed", even_live=True)
        run_restore(world)
        assert_restored(world)


def assert_restored(world: World) -> None:
    current = JobControl.open(f"{world.shop.repository_store.uri}.control", JOB).generation()
    assert current is not None and current.number > 1
    assert CheckpointReader(open_store(current.location)).closure().batch == 2
    assert world.shop.sink is not None
    assert sorted({row["batch"] for row in world.shop.sink.read()}, key=str) == [1, 2]
    assert len(whole_savepoints(world)) == 1


@pytest.mark.parametrize("which", WHICH)
def test_an_upload_in_parts_killed_at_a_request(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, which: int | When
) -> None:
    """The object is there whole, or not at all; parts stay, as they do after every crash."""
    seaweedfs.use(monkeypatch)
    monkeypatch.setattr(s3_write, "PART_BYTES", 5 << 20)
    location, data = seaweedfs.location(), b"0123456789abcdef" * (3 << 16) * 2
    with dying("before", request=0) as undisturbed:
        open_store(location).write("whole", [data])
    for when, request in crashes(undisturbed.requests, which):
        key = f"{request}-{when}"
        kill_at(when, request, partial(write, location, key, data))
        store = open_store(location)
        assert not store.exists(key) or store.read(key) == data
        write(location, key, data)
        assert store.read(key) == data
    with seaweedfs.client() as client:
        left = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    assert isinstance(which, int) or left, "no crash was in the middle"


def write(location: str, key: str, data: bytes) -> None:
    open_store(location).write(key, [data])
