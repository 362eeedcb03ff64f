"""Checkpoints and targets that are hostile or broken: one clear error each, and nothing half done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import (
    FormatError,
    InputError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.permissions import as_ordinary_user, open_folder
from tests.support.refuses import refuses
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import Fault, FaultyStore


def assert_nothing_saved(shop: SimulatedJob) -> None:
    assert list(shop.repository.manifests()) == []


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, sink=False)


class TestCheckpoints:
    def test_a_link_that_leaves_the_checkpoint(self, shop: SimulatedJob, tmp_path: Path) -> None:
        shop.run(4)
        secret = tmp_path / "secret"
        secret.write_bytes(b"x" * 200)
        victim = tmp_path / "ck/state/0/0/4.delta"
        victim.unlink()
        victim.symlink_to(secret)
        with pytest.raises(StreambankError) as caught:
            shop.take()
        assert caught.value.exit_code in (4, 5)
        assert_nothing_saved(shop)

    def test_a_linked_directory(self, shop: SimulatedJob, tmp_path: Path) -> None:
        shop.run(4)
        (tmp_path / "ck/state/0/1").rename(tmp_path / "elsewhere")
        (tmp_path / "ck/state/0/1").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StreambankError):
            shop.take()
        assert_nothing_saved(shop)

    def test_a_missing_directory_an_empty_one_and_something_else(
        self, shop: SimulatedJob, tmp_path: Path
    ) -> None:
        for name in ("not-there", "empty", "other"):
            place = tmp_path / name
            if name != "not-there":
                place.mkdir()
            if name == "other":
                (place / "readme.txt").write_text("hello")
            with pytest.raises(NotFoundError):
                take(TakeRequest(open_store(place), shop.repository, JOB))
        assert_nothing_saved(shop)

    @pytest.mark.parametrize(
        ("path", "data", "kind"),
        [
            ("metadata", b'{"id":', FormatError),
            ("metadata", b"", FormatError),
            ("offsets/3", b"v1\n{", FormatError),
            ("offsets/3", b"v9\n{}\n{}", FormatError),
            ("offsets/2", b"", FormatError),
            ("commits/3", b"v99\n{}", FormatError),
            ("commits/3", b"", FormatError),
            ("sources/0/3", b"", FormatError),
            ("state/0/0/4.delta", b"", FormatError),
        ],
    )
    def test_half_written_and_future_files(
        self, shop: SimulatedJob, path: str, data: bytes, kind: type[Exception]
    ) -> None:
        shop.run(4)
        shop.checkpoint.write(path, data)
        with pytest.raises(kind, match=path.partition("/")[0]):
            shop.take()
        assert_nothing_saved(shop)

    @pytest.mark.parametrize(
        "path", ["metadata", "offsets/2", "offsets/3", "sources/0/2", "state/0/1/2.delta"]
    )
    def test_a_missing_file_is_named(self, shop: SimulatedJob, path: str) -> None:
        shop.run(4)
        shop.checkpoint.delete(path)
        with pytest.raises(NotFoundError):
            shop.take()
        assert_nothing_saved(shop)

    def test_a_missing_partition(self, shop: SimulatedJob) -> None:
        shop.run(4)
        for info in list(shop.checkpoint.list("state/0/1")):
            shop.checkpoint.delete(info.path)
        with pytest.raises(NotFoundError, match="state/0/1"):
            shop.take()
        assert_nothing_saved(shop)

    def test_file_names_that_cannot_be_keys(self, shop: SimulatedJob, tmp_path: Path) -> None:
        shop.run(4)
        (tmp_path / "ck" / "commits" / "back\\slash").write_bytes(b"")
        with pytest.raises(StreambankError):
            shop.take()
        assert_nothing_saved(shop)


class TestPermissions:
    def test_checkpoint_repository_and_target(self) -> None:
        with open_folder() as folder:
            shop = SimulatedJob(folder, sink=False)
            savepoint = shop.run(3).take().savepoint
            shop.run(1)
            (folder / "ck/state/0/0/4.delta").chmod(0o000)
            with as_ordinary_user(), pytest.raises(StorageError) as caught:
                shop.take()
            assert "4.delta" in caught.value.message or "ck" in caught.value.message
            (folder / "ck/state/0/0/4.delta").chmod(0o644)
            with as_ordinary_user(), pytest.raises(StorageError):
                shop.take()  # the repository cannot be written
            assert len(list(shop.repository.manifests())) == 1
            with as_ordinary_user(), pytest.raises(StorageError):
                shop.restore(savepoint)
            assert not (folder / "restored").exists()
            assert verify(shop.repository, JOB, savepoint, "full").ok


class TestTargets:
    def test_a_full_disk_leaves_nothing(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.run(4).take().savepoint
        for call in (1, 5, 12):
            fault = Fault("full", call=call, operations=frozenset({"write"}))
            target = FaultyStore(quick_store(tmp_path / "restored"), fault)
            with refuses(StorageError, "disk-full"):
                restore(RestoreRequest(shop.repository, savepoint, into=target, opener=quick_store))
            target.assert_fired()
            assert contents(quick_store(tmp_path / "restored")) == {}
        shop.restore(savepoint)

    def test_a_target_that_is_a_link_into_the_checkpoint(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.run(4).take().savepoint
        (tmp_path / "restored").symlink_to(tmp_path / "ck")
        before = contents(shop.checkpoint)
        with pytest.raises(RefusedError):
            shop.restore(savepoint)
        assert contents(shop.checkpoint) == before

    def test_a_target_that_is_a_file(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.run(4).take().savepoint
        (tmp_path / "restored").write_text("precious")
        with pytest.raises(StreambankError):
            shop.restore(savepoint)
        assert (tmp_path / "restored").read_text() == "precious"

    @pytest.mark.parametrize("reference", ["..", "../x", "a/b/c/d", "", "b\n", "%2e%2e", "b*"])
    def test_odd_references(self, shop: SimulatedJob, reference: str) -> None:
        shop.run(2).take()
        with pytest.raises((InputError, NotFoundError)):
            shop.restore(reference)


class TestRepositories:
    def test_one_of_a_later_version(self, shop: SimulatedJob) -> None:
        shop.run(2).take()
        text = shop.repository_store.read("repository.json")
        shop.repository_store.write("repository.json", text.replace(b'"format": 1', b'"format": 7'))
        with pytest.raises((FormatError, IntegrityError)):
            Repository.open(shop.repository_store)

    def test_one_inside_of_the_checkpoint_is_left_out(self, tmp_path: Path) -> None:
        """Nobody should put it there; a take must neither loop nor save its own repository."""
        store = LocalStore(tmp_path / "ck", fsync=False)
        LiveCheckpoint(store).run(3)
        repository = Repository.open(store.child("savepoints-of-mine"), create=True)
        result = take(TakeRequest(store, repository, JOB))
        paths = [entry.path for entry in repository.load(JOB, result.savepoint).files]
        assert not [path for path in paths if path.startswith("savepoints-of-mine")]

    def test_a_manifest_that_is_a_link(self, shop: SimulatedJob, tmp_path: Path) -> None:
        savepoint = shop.run(2).take().savepoint
        manifest = tmp_path / "repository" / "savepoints" / JOB / f"{savepoint}.json"
        manifest.rename(tmp_path / "elsewhere.json")
        manifest.symlink_to(tmp_path / "elsewhere.json")
        options: dict[str, Any] = {"into": shop.open("restored"), "opener": quick_store}
        with pytest.raises(StreambankError):
            restore(RestoreRequest(shop.repository, savepoint, job=JOB, **options))
        assert contents(shop.open("restored")) == {}
