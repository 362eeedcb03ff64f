"""Tags in Iceberg that live as long as their savepoints, which are taken and expired by the real verbs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sinks import tags
from streambank.sinks.iceberg_catalog import IcebergTable
from streambank.sinks.tags import TagScope, add_tag, settle_tags
from streambank.storage import open_store
from tests.support.cli import succeed
from tests.support.sinks.ice_job import IceJob
from tests.support.sinks.iceberg import NAME


@pytest.fixture
def job(folder: Path) -> IceJob:
    return IceJob(folder)


def test_a_tag_goes_with_its_savepoint(job: IceJob) -> None:
    job.take()
    job.run()
    job.take()
    assert job.tagged() == [2, 3]
    (report,) = job.expire()
    assert job.tagged() == [3] and report["table"] == NAME and len(report["removed"]) == 1
    assert not job.expire(), "there is nothing left to do"


def test_a_plan_removes_no_tag(job: IceJob) -> None:
    job.take()
    job.run()
    job.take()
    job.expire("--dry-run")
    assert job.tagged() == [2, 3]


def test_a_catalog_that_was_away_loses_its_tags_with_the_next_savepoint(job: IceJob) -> None:
    job.take()
    job.run()
    job.take()
    database = job.ice.folder / "catalog.db"
    database.rename(job.folder / "aside")
    (report,) = job.expire()
    database.unlink(missing_ok=True)
    (job.folder / "aside").rename(database)
    assert "were not all brought up to date" in report["warnings"][0]
    assert job.tagged() == [2, 3]
    job.run()
    _, warnings = job.take()
    assert job.tagged() == [3, 4] and not warnings


def test_the_tag_of_a_take_that_failed_goes_with_the_next(
    job: IceJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(repository: Repository, *_: object) -> bool:
        raise OSError("the disk is full")

    with monkeypatch.context() as fault:
        fault.setattr(Repository, "commit", fail)
        with pytest.raises(OSError, match="the disk is full"):
            job.take()
    assert job.tagged() == [2], "it had tagged already"
    job.run()
    job.take()
    assert job.tagged() == [3]


def test_a_replica_that_has_the_savepoint_keeps_the_tag(folder: Path) -> None:
    job = IceJob(folder, "replica")
    job.take()
    job.run()
    job.take()
    succeed("replicate", "-r", job.job.repository, "--job", "flights", "--to", folder / "replica")
    assert not job.expire()
    assert job.tagged() == [2, 3]
    gone = ("--keep-last", 1, "--min-verified", 0, "--replica-of", job.job.repository, "--jobs", job.jobs)
    succeed("expire", "-r", folder / "replica", *gone)
    assert job.tagged() == [3]


def test_a_replica_that_cannot_be_read_keeps_the_tag(folder: Path) -> None:
    """A mount that is not there looks like an empty folder."""
    job = IceJob(folder, "replica")
    job.take()
    job.run()
    job.take()
    (report,) = job.expire()
    assert "replica" in report["warnings"][0] and job.tagged() == [2, 3]
    Repository.open(open_store(folder / "replica"), create=True)
    job.expire()
    assert job.tagged() == [3]


def test_a_savepoint_that_comes_back_gets_its_tag_again(job: IceJob) -> None:
    first, _ = job.take()
    job.run()
    job.take()
    job.expire()
    assert job.tagged() == [3]
    back = ("undelete", first, "-r", job.job.repository, "--jobs", job.jobs, "--json")
    (report,) = succeed(*back).document["sink_tags"]
    assert job.tagged() == [2, 3] and len(report["added"]) == 1


def test_tags_of_others_stay(job: IceJob) -> None:
    """Of people, of other jobs, and of the same job in another repository."""
    snapshot = job.ice.current()
    repository = job.job.open_repository(create=True)
    names = [
        "release",
        "streambank_notes",
        TagScope(repository.id, "flights2").name(0, snapshot),
        TagScope("another", "flights").name(0, snapshot),
        TagScope(repository.id, "flights/other").name(0, snapshot),
    ]
    for name in names:
        add_tag(job.ice.place, name, snapshot)
    job.take()
    assert set(names) < job.ice.tags().keys() and job.tagged() == [2]


def test_two_tags_of_one_batch_are_told_apart(job: IceJob) -> None:
    """After a rollback another batch has the number; what savepoints keep says which tag is whose."""
    job.take()
    stray = TagScope(job.job.open_repository().id, "flights").name(2, job.ice.snapshots()[0])
    add_tag(job.ice.place, stray, job.ice.snapshots()[0])
    assert job.tagged() == [2, 2]
    job.run()
    job.take()
    assert job.tagged() == [2, 3] and stray not in job.ice.tags()


def test_a_savepoint_that_cannot_be_read_keeps_all_tags_of_its_batch(job: IceJob) -> None:
    first, _ = job.take()
    scope = TagScope(job.job.open_repository().id, "flights")
    add_tag(job.ice.place, scope.name(2, job.ice.snapshots()[0]), job.ice.snapshots()[0])
    path = Path(job.job.repository.removeprefix("file://")) / "savepoints" / "flights" / f"{first}.json"
    path.write_text("{", encoding="utf-8")
    job.job.settle_tags(job.job.open_repository())
    assert job.tagged() == [2, 2]


def test_a_take_that_others_overtake_has_its_tag(job: IceJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run lists the savepoints between the tag and the manifest, and removes the tag."""
    commit = Repository.commit
    removed: list[str] = []

    def late(repository: Repository, manifest: Manifest, *_: object) -> bool:
        for report in job.job.settle_tags(repository):
            removed.extend(report.removed)
        return commit(repository, manifest)

    monkeypatch.setattr(Repository, "commit", late)
    job.take()
    assert removed and job.tagged() == [2]


def test_a_tag_whose_savepoint_is_listed_meanwhile_is_put_back(
    job: IceJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run has listed the savepoints, and removes the tag when the savepoint has its manifest."""
    commit, remove = Repository.commit, tags._remove
    found: list[tuple[tuple[str, ...], list[int]]] = []

    def late(repository: Repository, manifest: Manifest, *_: object) -> bool:
        def when_listed(place: IcebergTable, names: Iterable[str]) -> list[str]:
            assert commit(repository, manifest)
            gone = remove(place, names)
            assert gone and not job.tagged()
            return gone

        with monkeypatch.context() as fault:
            fault.setattr(tags, "_remove", when_listed)
            report = settle_tags(job.ice.place, "flights", repository)
            found.append((report.removed, job.tagged()))
        return True

    monkeypatch.setattr(Repository, "commit", late)
    job.take()
    assert found == [((), [2])]


def test_each_savepoint_without_a_tag_says_so(job: IceJob) -> None:
    job.ice.refuse_changes()
    assert any("got no tag" in one for one in job.take()[1])
    job.live.run(1)
    _, warnings = job.take()
    assert any("got no tag" in one for one in warnings), "though the savepoint before has said it"


def test_a_table_that_is_gone_stops_no_savepoint(job: IceJob) -> None:
    job.take()
    shutil.rmtree(job.ice.folder)
    job.live.run(1)
    _, warnings = job.take()
    assert any("brought up to date" in one for one in warnings)


def test_names_are_plain(job: IceJob) -> None:
    scope = TagScope("id", "Shop.Orders-2/main")
    name = scope.name(41, 12)
    assert name.startswith("streambank_shop_orders_2_main_b41_") and name.endswith("_12")
    assert name.replace("_", "").isalnum() and scope.batch(name) == 41
    assert TagScope("id", "shop.orders-2/main").batch(name) is None, "another job"
