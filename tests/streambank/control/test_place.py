"""Where a job's records are: where they were made, else beside the repository, and never in two places."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control import place
from streambank.control.control import JobControl
from streambank.control.place import MOVED, MOVING, at_declared, beside, find_records
from streambank.core.errors import ConflictError, RefusedError, StorageError
from streambank.storage import open_store
from streambank.storage.local import mounts
from streambank.storage.local.mounts import Mount
from streambank.storage.store import Store
from tests.support.refuses import refuses

LINKED = Mount("/", "ext4", "8:1", None, None)


def records(root: Path, *names: str) -> Store:
    """What a job `orders` has recorded below a control location."""
    store = open_store(root).child("orders")
    for name in names:
        store.write(name, b'{"to": "file:///elsewhere"}')
    return store


@pytest.mark.parametrize(
    ("repository", "apart"),
    [
        ("s3://lake/savepoints", "s3://lake/savepoints.control"),
        ("s3a://lake/a/b/", "s3a://lake/a/b.control"),
        ("hdfs://name:8020/savepoints", "hdfs://name:8020/savepoints.control"),
        ("file:///nowhere/savepoints", "file:///nowhere/savepoints.control"),
        ("s3://lake", None),
        ("memory://lake", None),
        ("file:///", None),
        ("file:///proc", None),
    ],
)
def test_nothing_is_beside_the_root_of_a_bucket_or_of_a_disk(repository: str, apart: str | None) -> None:
    assert beside(repository) == apart


def test_what_is_beside_a_link_to_another_disk_is_on_another_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    (tmp_path / "savepoints").symlink_to(far)
    far.mkdir()
    assert beside(str(tmp_path / "savepoints")) == f"file://{tmp_path}/savepoints.control"
    share = Mount(str(far), "nfs4", "0:50", None, None)
    monkeypatch.setattr(mounts, "mount_of", lambda path: share if path.resolve() == far else LINKED)
    assert beside(str(tmp_path / "savepoints")) is None
    assert find_records(open_store(tmp_path / "savepoints"), "orders").uri.endswith("/savepoints/jobs/orders")


def test_a_job_that_begins_has_its_records_beside_the_repository_and_an_old_one_where_they_are(
    tmp_path: Path,
) -> None:
    repository = open_store(tmp_path / "savepoints")
    assert find_records(repository, "orders").uri == f"file://{tmp_path}/savepoints.control/orders"
    old = records(tmp_path / "savepoints/jobs", "desired/0000000001.json")
    assert find_records(repository, "orders").uri == old.uri
    assert find_records(repository, "others").uri == f"file://{tmp_path}/savepoints.control/others"
    records(tmp_path / "savepoints.control", MOVING, "desired/0000000001.json")
    assert find_records(repository, "orders").uri == old.uri, "a copy that is not finished does not count"


def test_records_in_both_places_are_refused(tmp_path: Path) -> None:
    repository = open_store(tmp_path / "savepoints")
    records(tmp_path / "savepoints/jobs", "desired/0000000001.json")
    new = records(tmp_path / "savepoints.control", "desired/0000000001.json")
    with refuses(ConflictError, "records-twice"):
        find_records(repository, "orders")
    records(tmp_path / "savepoints/jobs", MOVED)
    assert find_records(repository, "orders").uri == new.uri


@pytest.mark.parametrize("where", ["savepoints/jobs", "savepoints.control"])
def test_records_that_were_moved_and_are_not_there_are_no_job_that_never_ran(
    tmp_path: Path, where: str
) -> None:
    records(tmp_path / where, MOVED)
    with refuses(RefusedError, "records-moved", match="to file:///elsewhere"):
        find_records(open_store(tmp_path / "savepoints"), "orders")


def test_a_declared_place_from_which_the_records_were_moved_is_refused(tmp_path: Path) -> None:
    declared = records(tmp_path / "control", "desired/0000000001.json")
    assert at_declared(declared, "orders") is declared
    records(tmp_path / "control", MOVING)
    with refuses(ConflictError, "records-moving"):
        at_declared(declared, "orders")
    records(tmp_path / "control", MOVED)
    with refuses(RefusedError, "records-moved"):
        at_declared(declared, "orders")


def test_who_may_not_look_beside_the_repository_finds_what_is_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(location: str) -> Store:
        store = open_store(location)
        if location.endswith(".control"):
            monkeypatch.setattr(type(store), "names", denied)
        return store

    whole = type(open_store(tmp_path)).names

    def denied(self: Store, prefix: str = "") -> object:
        if ".control" in self.uri:
            raise StorageError("It may not be read.", code="no-permission")
        return whole(self, prefix)

    monkeypatch.setattr(place, "open_store", closed)
    repository = open_store(tmp_path / "savepoints")
    with pytest.raises(StorageError):
        find_records(repository, "orders")
    assert JobControl.of_repository(repository, "orders").store.uri.endswith("/savepoints/jobs/orders")
    old = records(tmp_path / "savepoints/jobs", "desired/0000000001.json")
    assert find_records(repository, "orders").uri == old.uri, "as it was before there was another place"


def test_a_disk_that_is_mounted_at_the_repository_later_does_not_hide_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = open_store(tmp_path / "savepoints")
    records(tmp_path / "savepoints.control", "desired/0000000001.json", "lease/0000000001.json")
    monkeypatch.setattr(place, "_is_apart", lambda path: True)
    with refuses(ConflictError, "records-twice", match="mounted"):
        find_records(repository, "orders")
    assert find_records(repository, "others").uri.endswith("/savepoints/jobs/others")
    records(tmp_path / "savepoints.control", MOVED)
    assert find_records(repository, "orders").uri.endswith("/savepoints/jobs/orders")


def test_a_copy_that_is_not_finished_never_counts(tmp_path: Path) -> None:
    """Also where the place that it is copied from is not looked at any more."""
    records(tmp_path / "savepoints.control", MOVING, "desired/0000000001.json")
    with refuses(ConflictError, "records-moving"):
        find_records(open_store(tmp_path / "savepoints"), "orders")
