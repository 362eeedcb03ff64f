"""A copy whose checkpoint, repository, records and outputs are on S3, beside a job that is there, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.checkpoint.position import batches_of
from streambank.control.copies import settle_refresh
from streambank.copies.refresh import RefreshRequest, plan_refresh, refresh
from streambank.copies.report import QueryRefresh
from streambank.core.errors import IntegrityError, StorageError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.sinks.file.log import list_log
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.cli import succeed
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob
from tests.support.storage.faulty_store import WRITES, Fault, FaultyStore
from tests.support.storage.s3_servers import S3Server, moto_server, seaweedfs, versitygw

__all__ = ["moto_server", "seaweedfs", "versitygw"]  # fixtures


class CopyOnS3(SimulatedJob):
    """A job on S3 with two batches after its savepoint, and the copy that it declares there."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        super().__init__(server.location())
        (folder / "app.py").write_text("")
        self.jobs = folder / "jobs.toml"
        self.jobs.write_text(
            f'repository = "{self.base}/repository"\n[jobs.{JOB}]\napplication = "app.py"\n'
            f'checkpoint = "{self.base}/ck"\n[jobs.{JOB}.copies.staging]\nkeep = 1\n'
            f'checkpoint = "{self.base}/staging/ck"\n'
            f'outputs = {{ "{self.base}/out" = "{self.base}/staging/out" }}\n'
        )
        self.run(3)
        self.saved = self.take().savepoint
        self.run(2)

    @property
    def job(self) -> Job:
        return load_jobs(self.jobs).job(JOB)

    @property
    def copy(self) -> Job:
        return load_jobs(self.jobs).job(f"{JOB}@staging")

    def refresh(self) -> QueryRefresh:
        (query,) = refresh(RefreshRequest(self.job, "staging", by=BY)).queries
        return query

    def live_objects(self) -> dict[str, bytes]:
        """Every object of the live job but those of its repository."""
        stores = [self.checkpoint, self.sink_store, self.control().store]
        return {f"{store.uri}/{one.path}": store.read(one.path) for store in stores for one in store.list()}

    def savepoints(self) -> dict[str, bytes]:
        """What no refresh changes in the repository: objects and manifests."""
        return {
            one.path: self.repository_store.read(one.path)
            for folder in ("packs", "objects", "savepoints")
            for one in self.repository_store.list(folder)
        }

    def names(self) -> set[str]:
        """The directories of the copy, without the claims beside them."""
        found = {one.path.partition("/")[0] for one in self.open("staging").list() if ".g0" in one.path}
        return {one for one in found if not one.endswith(".json")}

    def in_use(self) -> str:
        records = self.copy.records()
        with records.operation("start", by=BY) as operation:
            settle_refresh(records, operation=operation)
        generation = records.generation()
        assert generation is not None
        return generation.location


@pytest.fixture(
    params=[
        "seaweedfs",
        pytest.param("moto_server", marks=pytest.mark.storm),
        pytest.param("versitygw", marks=pytest.mark.storm),
    ]
)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> CopyOnS3:
    server: S3Server = request.getfixturevalue(request.param)
    return CopyOnS3(tmp_path, server.use(monkeypatch))


@pytest.mark.storm
def test_it_is_made_and_made_again_and_the_live_objects_stay_as_they_are(made: CopyOnS3) -> None:
    before, saved = made.live_objects(), made.savepoints()
    assert not plan_refresh(RefreshRequest(made.job, "staging", by=BY)).refusals
    assert not made.names(), "a plan writes nothing"

    first = made.refresh()
    assert (made.live_objects(), made.savepoints()) == (before, saved)
    assert first.location == f"{made.base}/staging/ck.g0002" == made.in_use()
    assert batches_of(first.location).committed == 2
    assert first.outputs == {f"{made.base}/out": f"{made.base}/staging/out.g0002"}
    assert max(one.batch for one in list_log(open_store(first.outputs[f"{made.base}/out"]))) == 2
    launch = prepare_launch(made.copy, made.copy.records(), by=BY).queries["main"]
    assert launch.checkpoint == first.location and launch.redirect is not None
    assert launch.redirect.outputs == first.outputs

    made.run(1).take()
    before, saved = made.live_objects(), made.savepoints()
    second = made.refresh()
    assert (made.live_objects(), made.savepoints()) == (before, saved)
    assert second.location == f"{made.base}/staging/ck.g0003" == made.in_use()
    assert batches_of(second.location).committed == 5 and second.query_id != first.query_id
    assert made.names() == {"ck.g0003", "out.g0003"}, "one copy stays, as declared"

    # A savepoint of the copy itself, and a restore of that, stay within the copy.
    succeed("job", "savepoint", f"{JOB}@staging", "--jobs", made.jobs)
    done = succeed("job", "restore", f"{JOB}@staging", "--jobs", made.jobs, "--json").document
    assert done["queries"]["main"]["location"] == f"{made.base}/staging/ck.g0004" == made.in_use()
    assert (made.live_objects(), made.savepoints()) == (before, saved)


def test_a_copy_that_is_declared_by_another_name_of_its_service_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moto_server: S3Server
) -> None:
    made = CopyOnS3(tmp_path, moto_server.use(monkeypatch))
    made.refresh()
    text, place = made.jobs.read_text(), f"{made.base}/staging/ck"
    made.jobs.write_text(text.replace(place, f"s3a{place.removeprefix('s3')}"))
    assert made.copy.checkpoint.startswith("s3a://"), "as Spark spells it"
    made.run(1).take()
    assert batches_of(made.refresh().location).committed == 5


@pytest.mark.storm
def test_a_refresh_that_s3_cuts_off_leaves_the_copy_in_use(made: CopyOnS3) -> None:
    first = made.refresh()
    made.run(1).take()
    before = made.live_objects()
    faults: list[FaultyStore] = []

    def opened(where: object) -> Store:
        store = FaultyStore(open_store(str(where)), Fault("error", 3, WRITES))
        faults.append(store)
        return store

    with pytest.raises((StorageError, IntegrityError)):
        refresh(RefreshRequest(made.job, "staging", by=BY, opener=opened))
    assert any(one.fired for one in faults)
    assert made.in_use() == first.location and batches_of(first.location).committed == 2
    assert made.live_objects() == before
    assert batches_of(made.refresh().location).committed == 5
    assert made.live_objects() == before
