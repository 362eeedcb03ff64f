"""Takes whose storage fails."""

from __future__ import annotations

import pytest

from streambank.core.errors import StorageError
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import Fault, FaultyStore, Kind

WRITE = frozenset({"write"})


class TestFaults:
    def test_a_full_disk_is_one_clear_error_and_the_next_take_succeeds(self, shop: SimulatedJob) -> None:
        shop.run(4)
        store = FaultyStore(shop.repository_store, Fault("full", operations=WRITE, key="packs/"))
        with refuses(StorageError, "disk-full"):
            take(TakeRequest(shop.checkpoint, Repository.open(store), JOB))
        store.assert_fired()
        assert list(shop.repository.manifests()) == []
        assert verify(shop.repository, JOB, shop.take().savepoint, "full").ok

    def test_no_permission_on_a_file_of_the_checkpoint(self, shop: SimulatedJob) -> None:
        shop.run(4)
        store = FaultyStore(
            shop.checkpoint, Fault("denied", operations=frozenset({"hold"}), key="state/0/1/4.delta")
        )
        with refuses(StorageError, "no-permission"):
            shop.take(store)
        store.assert_fired()
        assert list(shop.repository.manifests()) == []

    def test_a_lost_reply_to_the_commit(self, shop: SimulatedJob) -> None:
        shop.run(4)
        store = FaultyStore(shop.repository_store, Fault("lost-reply", operations=WRITE, key="savepoints/"))
        with pytest.raises(StorageError):
            take(TakeRequest(shop.checkpoint, Repository.open(store), JOB))
        result = take(TakeRequest(shop.checkpoint, shop.repository, JOB))
        assert result.already_there
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    @pytest.mark.parametrize("kind", ["flip", "short-read"])
    def test_bytes_spoilt_on_the_way_are_never_called_good(self, shop: SimulatedJob, kind: Kind) -> None:
        # A short read is noticed; a bit flipped between disk and us cannot be, and is saved as it was read.
        shop.run(4)
        fault = Fault(kind, operations=frozenset({"held.open"}), key="4.delta")
        store = FaultyStore(shop.checkpoint, fault)
        result = shop.take(store)
        store.assert_fired()
        assert result.replans == (1 if kind == "short-read" else 0)
