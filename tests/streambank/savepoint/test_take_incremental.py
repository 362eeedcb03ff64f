"""What a take need not read or store again."""

from __future__ import annotations

import pytest

from streambank.core.errors import ConflictError, IntegrityError
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.repository.retention import drop
from tests.support.storage.faulty_store import READS, FaultyStore


class TestIncremental:
    def test_moves_only_new_files_and_reads_no_unchanged_one(self, shop: SimulatedJob) -> None:
        first = shop.run(8).take()
        shop.run(1)
        source = FaultyStore(shop.checkpoint)
        second = shop.take(source)
        old = {entry.path for entry in shop.repository.load(JOB, first.savepoint).files}
        new = {entry.path for entry in shop.repository.load(JOB, second.savepoint).files} - old
        copied = {call.key for call in source.calls if call.operation == "held.open"}
        assert copied == new
        # the plan itself looks into the small logs of the batch, and into no state
        read = {call.key for call in source.calls if call.operation in READS - {"held.open"}}
        assert not [key for key in read if key.startswith("state/") and "_metadata" not in key]
        assert second.new_files == len(new) + 1  # and the sink's new log entry
        manifest = shop.repository.load(JOB, second.savepoint)
        new_bytes = sum(entry.size_bytes for entry in manifest.files if entry.path in new)
        assert second.new_bytes <= new_bytes + 1000
        assert manifest.parent == first.savepoint
        assert verify(shop.repository, JOB, second.savepoint, "full").ok

    def test_a_file_written_again_is_read_again(self, shop: SimulatedJob) -> None:
        shop.run(5).take()
        data = shop.checkpoint.read("state/0/0/3.delta")
        shop.checkpoint.write("state/0/0/3.delta", bytes(reversed(data)))
        second = shop.run(1).take()
        manifest = shop.repository.load(JOB, second.savepoint)
        digest = next(entry.digest for entry in manifest.files if entry.path == "state/0/0/3.delta")
        assert shop.repository.objects.read(digest) == bytes(reversed(data))

    def test_a_lost_object_is_stored_again(self, shop: SimulatedJob) -> None:
        first = shop.run(5).take()
        for info in list(shop.repository_store.list("packs")):
            shop.repository_store.delete(info.path)
        repository = Repository.open(shop.repository_store)
        assert not verify(repository, JOB, first.savepoint, record=False).ok
        shop.run(1)
        second = take(TakeRequest(shop.checkpoint, repository, JOB))
        assert verify(Repository.open(shop.repository_store), JOB, second.savepoint, "full").restorable

    def test_known_damage_is_not_shared(self, shop: SimulatedJob) -> None:
        first = shop.run(5).take()
        pack = next(info.path for info in shop.repository_store.list("packs"))
        data = bytearray(shop.repository_store.read(pack))
        data[100] ^= 4
        shop.repository_store.write(pack, bytes(data))
        assert not verify(shop.repository, JOB, first.savepoint, "full").ok
        shop.run(1)
        with refuses(IntegrityError, "repository-damaged"):
            shop.take()
        assert len(list(shop.repository.manifests(JOB))) == 1

        # Whoever sees a damaged savepoint gets rid of it, and what it shared is there all the same.
        drop(shop.repository, shop.repository.load(JOB, first.savepoint))
        assert list(shop.repository.manifests(JOB)) == []
        with pytest.raises(IntegrityError):
            shop.take()
        assert list(shop.repository.manifests(JOB)) == []


class TestAgain:
    def test_the_same_batch_gives_the_savepoint_that_is_there(self, shop: SimulatedJob) -> None:
        first = shop.run(4).take()
        before = {info.path for info in shop.repository_store.list()}
        second = shop.take(pin=True)
        assert (second.savepoint, second.already_there, second.new_bytes) == (first.savepoint, True, 0)
        assert shop.repository.pinned(JOB, first.savepoint)
        after = {info.path for info in shop.repository_store.list()}
        assert {path for path in after - before if not path.startswith("marks/")} == set()

    def test_a_damaged_one_is_not_passed_off_as_a_savepoint(self, shop: SimulatedJob) -> None:
        shop.run(4).take()
        for info in list(shop.repository_store.list("packs")):
            shop.repository_store.delete(info.path)
        with refuses(IntegrityError, "savepoint-damaged"):
            take(TakeRequest(shop.checkpoint, Repository.open(shop.repository_store), JOB))

    def test_another_query_id_is_a_conflict_unless_meant(self, shop: SimulatedJob) -> None:
        shop.run(4).take()
        other = LiveCheckpoint(shop.open("other"), seed=1).run(4)
        with refuses(ConflictError, "another-query", hint="--new-query"):
            take(TakeRequest(other.store, shop.repository, JOB))
        assert take(TakeRequest(other.store, shop.repository, JOB, new_query=True)).batch == 3
        take(TakeRequest(other.run(1).store, shop.repository, JOB))  # both ids are the job's now
        assert take(TakeRequest(other.store, shop.repository, f"{JOB}/second")).batch == 4

    def test_the_same_batch_of_another_timeline_is_another_savepoint(self, shop: SimulatedJob) -> None:
        first = shop.run(4).take()
        other = LiveCheckpoint(shop.open("other"), seed=1, query_id=shop.live.query_id).run(4)
        text = (
            other.store.read("offsets/3").decode().replace('"batchTimestampMs": 3', '"batchTimestampMs": 4')
        )
        other.store.write("offsets/3", text.encode())
        assert take(TakeRequest(other.store, shop.repository, JOB)).savepoint != first.savepoint
