from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.errors import ConflictError, InputError, IntegrityError, NotFoundError, StorageError
from streambank.savepoint import holding
from streambank.savepoint.progress import Step
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.savepoint.verify import verify
from streambank.storage.base import FileInfo, Held, Store
from tests.support.faulty_store import READS, Fault, FaultyStore
from tests.support.live_checkpoint import LiveCheckpoint, add_debris
from tests.support.workshop import JOB, Workshop, quick_store

WRITE = frozenset({"write"})


@pytest.fixture(params=["local", "memory"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Workshop:
    return Workshop(tmp_path if request.param == "local" else f"memory://{tmp_path.name}")


class Meddling(FaultyStore):
    """A store in which something happens behind the reader's back before chosen calls."""

    def __init__(self, inner: Store, meddle: Callable[[str, str], None]) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def hold(self, key: str) -> Held:  # type: ignore[override]  # the wrapped one is enough
        self._meddle("hold", key)
        return super().hold(key)

    def stat(self, key: str) -> FileInfo:
        self._meddle("stat", key)
        return super().stat(key)

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        self._meddle("list", prefix)
        return super().list(prefix)


class TestWhatIsSaved:
    def test_the_closure_and_what_is_known_about_it(self, shop: Workshop) -> None:
        shop.run(8)
        result = shop.take(note="before the upgrade", spark_version="4.3.0", taken_by={"dag_id": "d"})
        manifest = shop.repository.load(JOB, result.savepoint)
        closure = CheckpointReader(shop.checkpoint).closure(7, "safe")
        assert {entry.path for entry in manifest.files} == set(closure.paths)
        assert manifest.batch == result.batch == 7
        assert manifest.watermark_ms == 7500
        assert manifest.query_id == shop.live.query_id
        assert manifest.checkpoint == shop.checkpoint.uri
        assert manifest.note == "before the upgrade"
        assert manifest.spark_version == "4.3.0"
        assert manifest.taken_by["dag_id"] == "d"
        assert manifest.offset_conf["spark.sql.shuffle.partitions"] == "2"
        assert manifest.operators[0]["stores"][0]["partitions"] == 2
        assert [entry["path"] for entry in manifest.sinks[0]["files"]] == [
            f"_spark_metadata/{batch}" for batch in range(8)
        ]
        assert result.files == manifest.file_count == len(closure.paths) + 8
        assert result.bytes == manifest.bytes == sum(entry.size_bytes for entry in manifest.all_files())
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    def test_minimal_has_fewer_files(self, shop: Workshop) -> None:
        shop.run(8)
        minimal = shop.take(closure="minimal")
        assert shop.repository.load(JOB, minimal.savepoint).closure == "minimal"
        assert minimal.files == len(CheckpointReader(shop.checkpoint).closure(7, "minimal").paths) + 8

    def test_an_older_batch(self, shop: Workshop) -> None:
        shop.run(8)
        result = shop.take(batch=3)
        assert result.batch == 3
        manifest = shop.repository.load(JOB, result.savepoint)
        assert len(manifest.sinks[0]["files"]) == 4
        assert not [entry.path for entry in manifest.files if entry.path.endswith("/5.delta")]

    def test_a_planned_batch_is_left_out(self, shop: Workshop) -> None:
        shop.run(4)
        shop.live.plan()
        add_debris(shop.checkpoint, 4)
        result = shop.take()
        assert result.batch == 3
        paths = [entry.path for entry in shop.repository.load(JOB, result.savepoint).files]
        assert "offsets/4" not in paths
        assert not [path for path in paths if path.rpartition("/")[2].startswith(".")]

    def test_nothing_committed(self, shop: Workshop) -> None:
        shop.live.plan()
        with pytest.raises(NotFoundError) as caught:
            shop.take()
        assert caught.value.code == "no-committed-batch"
        assert list(shop.repository.manifests()) == []

    def test_a_batch_that_is_not_there(self, shop: Workshop) -> None:
        shop.run(8)
        shop.live.purge(2)
        with pytest.raises(NotFoundError):
            shop.take(batch=1)
        with pytest.raises(NotFoundError):
            shop.take(batch=99)

    def test_the_checkpoint_is_only_read(self, shop: Workshop) -> None:
        shop.run(4)
        source = FaultyStore(shop.checkpoint)
        shop.take(source)
        assert {call.operation for call in source.calls} <= {
            "list", "names", "read", "open", "stat", "exists", "hold", "held.open", "held.current",
        }  # fmt: skip

    def test_pin_and_progress(self, shop: Workshop) -> None:
        shop.run(4)
        steps: list[Step] = []
        result = shop.take(pin=True, progress=steps.append)
        assert shop.repository.pinned(JOB, result.savepoint)
        assert (steps[-1].files_done, steps[-1].bytes_done) == (steps[-1].files_total, steps[-1].bytes_total)
        assert steps[-1].files_total == result.files

    @pytest.mark.parametrize("job", ["", "..", "a/../b", "a b", "/etc", "a/b/c", "x" * 101, "ä", "a\n"])
    def test_odd_job_names(self, shop: Workshop, job: str) -> None:
        shop.run(1)
        with pytest.raises(InputError):
            take(shop.checkpoint, shop.repository, job)

    def test_other_bad_input(self, shop: Workshop) -> None:
        shop.run(1)
        for options in ({"note": "x" * 5000}, {"parallel": 0}, {"batch": -1}):
            with pytest.raises(InputError):
                shop.take(**options)


class TestIncremental:
    def test_moves_only_new_files_and_reads_no_unchanged_one(self, shop: Workshop) -> None:
        shop.run(8)
        first = shop.take()
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

    def test_a_file_written_again_is_read_again(self, shop: Workshop) -> None:
        shop.run(5)
        shop.take()
        data = shop.checkpoint.read("state/0/0/3.delta")
        shop.checkpoint.write("state/0/0/3.delta", bytes(reversed(data)))
        shop.run(1)
        second = shop.take()
        manifest = shop.repository.load(JOB, second.savepoint)
        digest = next(entry.digest for entry in manifest.files if entry.path == "state/0/0/3.delta")
        assert shop.repository.read_object(digest) == bytes(reversed(data))

    def test_a_lost_object_is_stored_again(self, shop: Workshop) -> None:
        shop.run(5)
        first = shop.take()
        for info in list(shop.repository_store.list("packs")):
            shop.repository_store.delete(info.path)
        repository = Repository.open(shop.repository_store)
        assert not verify(repository, JOB, first.savepoint, record=False).ok
        shop.run(1)
        second = take(shop.checkpoint, repository, JOB)
        assert verify(Repository.open(shop.repository_store), JOB, second.savepoint, "full").restorable

    def test_known_damage_is_not_shared(self, shop: Workshop) -> None:
        shop.run(5)
        first = shop.take()
        pack = next(info.path for info in shop.repository_store.list("packs"))
        data = bytearray(shop.repository_store.read(pack))
        data[100] ^= 4
        shop.repository_store.write(pack, bytes(data))
        assert not verify(shop.repository, JOB, first.savepoint, "full").ok
        shop.run(1)
        with pytest.raises(IntegrityError) as caught:
            shop.take()
        assert caught.value.code == "repository-damaged"
        assert len(list(shop.repository.manifests(JOB))) == 1


class TestAgain:
    def test_the_same_batch_gives_the_savepoint_that_is_there(self, shop: Workshop) -> None:
        shop.run(4)
        first = shop.take()
        before = {info.path for info in shop.repository_store.list()}
        second = shop.take(pin=True)
        assert (second.savepoint, second.already_there, second.new_bytes) == (first.savepoint, True, 0)
        assert shop.repository.pinned(JOB, first.savepoint)
        after = {info.path for info in shop.repository_store.list()}
        assert {path for path in after - before if not path.startswith("marks/")} == set()

    def test_a_damaged_one_is_not_passed_off_as_a_savepoint(self, shop: Workshop) -> None:
        shop.run(4)
        shop.take()
        for info in list(shop.repository_store.list("packs")):
            shop.repository_store.delete(info.path)
        with pytest.raises(IntegrityError) as caught:
            take(shop.checkpoint, Repository.open(shop.repository_store), JOB)
        assert caught.value.code == "savepoint-damaged"

    def test_another_query_id_is_a_conflict_unless_meant(self, shop: Workshop) -> None:
        shop.run(4)
        shop.take()
        other = LiveCheckpoint(shop.open("other"), seed=1).run(4)
        with pytest.raises(ConflictError) as caught:
            take(other.store, shop.repository, JOB)
        assert caught.value.code == "another-query"
        assert "--new-query" in caught.value.hint
        assert take(other.store, shop.repository, JOB, new_query=True).batch == 3
        take(other.run(1).store, shop.repository, JOB)  # both ids are the job's now
        assert take(other.store, shop.repository, f"{JOB}/second").batch == 4

    def test_the_same_batch_of_another_timeline_is_another_savepoint(self, shop: Workshop) -> None:
        shop.run(4)
        first = shop.take()
        other = LiveCheckpoint(shop.open("other"), seed=1, query_id=shop.live.query_id).run(4)
        text = (
            other.store.read("offsets/3").decode().replace('"batchTimestampMs": 3', '"batchTimestampMs": 4')
        )
        other.store.write("offsets/3", text.encode())
        assert take(other.store, shop.repository, JOB).savepoint != first.savepoint


class TestBesideALiveQuery:
    def test_files_that_vanish_before_they_are_held_mean_a_newer_batch(self, shop: Workshop) -> None:
        shop.run(8)
        fired: list[str] = []

        def meddle(operation: str, key: str) -> None:
            if operation == "hold" and key.endswith(".delta") and len(fired) < 2:
                fired.append(key)
                shop.run(3)
                shop.live.purge(2)

        result = shop.take(Meddling(shop.checkpoint, meddle), max_replans=4)
        assert len(fired) == 2
        assert result.replans >= 1
        assert result.batch > 7
        assert verify(shop.repository, JOB, result.savepoint, "full").ok
        assert shop.repository.load(JOB, result.savepoint).stats["replans"] == result.replans

    def test_files_that_vanish_once_held_are_no_matter_on_a_disk(self, tmp_path: Path) -> None:
        shop = Workshop(tmp_path)
        shop.run(8)
        fired: list[int] = []

        def purge(step: Step) -> None:
            if step.files_done == 1 and not fired:
                fired.append(shop.live.last)
                for info in list(shop.checkpoint.list("state/0/0")):
                    shop.checkpoint.delete(info.path)

        result = shop.take(progress=purge, parallel=1)
        assert fired
        assert result.replans == 0
        assert verify(shop.repository, JOB, result.savepoint, "full").ok
        manifest = shop.repository.load(JOB, result.savepoint)
        assert "state/0/0/8.delta" in {entry.path for entry in manifest.files}

    def test_a_file_rewritten_meanwhile_means_planning_again(self, shop: Workshop) -> None:
        shop.run(5)
        fired: list[str] = []
        looks = {"stat", "list"}

        def meddle(operation: str, key: str) -> None:
            calls = source.calls
            copied = any(call.operation == "held.open" and "state/" in call.key for call in calls)
            if operation in looks and copied and not fired:
                fired.append(key)
                shop.checkpoint.write("state/0/1/6.delta", b"of another driver")

        shop.run(1)
        source = Meddling(shop.checkpoint, meddle)
        result = shop.take(source)
        assert fired
        assert result.replans == 1
        manifest = shop.repository.load(JOB, result.savepoint)
        digest = next(entry.digest for entry in manifest.files if entry.path == "state/0/1/6.delta")
        assert shop.repository.read_object(digest) == b"of another driver"

    def test_a_lease_that_changes_hands_means_planning_again(self, shop: Workshop) -> None:
        shop.run(5)
        epochs = iter(["1", "2", "2", "2"])
        result = shop.take(lease_epoch=lambda: next(epochs))
        assert result.replans == 1

    def test_a_query_that_never_lets_it_finish_is_refused_with_the_budget(self, shop: Workshop) -> None:
        shop.run(5)

        def meddle(operation: str, key: str) -> None:
            if operation == "hold" and key.startswith("state/"):
                shop.run(4)
                shop.live.purge(1)

        with pytest.raises(ConflictError) as caught:
            shop.take(Meddling(shop.checkpoint, meddle), max_replans=2)
        assert caught.value.code == "take-cannot-converge"
        assert "in 3 attempts" in caught.value.message
        assert "batches" in caught.value.message
        assert list(shop.repository.manifests()) == []

    def test_what_has_arrived_is_not_read_again(self, shop: Workshop) -> None:
        shop.run(9)
        fired: list[str] = []

        def meddle(operation: str, key: str) -> None:
            # all but the last are copied by then
            if operation in ("stat", "list") and not fired and source.calls[-1].operation == "held.current":
                fired.append(key)
                shop.checkpoint.write("state/0/1/10.delta", b"again")

        shop.run(1)
        source = Meddling(shop.checkpoint, meddle)
        result = shop.take(source, parallel=1)
        assert fired
        assert result.replans == 1
        opened = [call.key for call in source.calls if call.operation == "held.open"]
        assert sorted({key for key in opened if opened.count(key) > 1}) == ["state/0/1/10.delta"]

    def test_more_files_than_descriptors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holding, "_room_for", lambda wanted: 3)
        shop = Workshop(tmp_path)
        shop.run(8)
        result = shop.take()
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    def test_beside_a_writer_that_purges_as_fast_as_it_can(self, tmp_path: Path) -> None:
        store = quick_store(tmp_path / "ck")
        live = LiveCheckpoint(store, retain=20, snapshot_every=3).run(4)
        repository = Repository.open(quick_store(tmp_path / "repository"), create=True)
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                live.run(1)

        writer = threading.Thread(target=write)
        writer.start()
        taken = []
        try:
            for _ in range(12):
                try:
                    taken.append(take(store, repository, JOB, max_replans=30))
                except ConflictError as error:
                    assert error.code == "take-cannot-converge"
        finally:
            stop.set()
            writer.join()
        assert taken
        for result in taken:
            assert verify(repository, JOB, result.savepoint, "full").ok
            manifest = repository.load(JOB, result.savepoint)
            target = quick_store(tmp_path / result.savepoint)
            for entry in manifest.files:
                target.write(entry.path, repository.read_object(entry.digest))
            assert CheckpointReader(target).closure(kind="minimal").batch == result.batch


class TestTakesAtOnce:
    def test_threads(self, shop: Workshop) -> None:
        shop.run(6)
        results: list[object] = []
        barrier = threading.Barrier(6)

        def work() -> None:
            barrier.wait()
            try:
                results.append(take(shop.checkpoint, Repository.open(shop.repository_store), JOB))
            except Exception as error:  # shown by the assertion below
                results.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        there = [getattr(result, "already_there", result) for result in results]
        assert sorted(map(str, there)) == ["False", *["True"] * 5]
        (summary,) = Repository.open(shop.repository_store).manifests(JOB)
        assert verify(Repository.open(shop.repository_store), JOB, summary.savepoint, "full").ok

    def test_processes(self, tmp_path: Path) -> None:
        shop = Workshop(tmp_path, sink=False)
        shop.run(6)
        code = (
            "import sys; from streambank.savepoint.repository import Repository\n"
            "from streambank.savepoint.take import take; from streambank.storage import open_store\n"
            "sys.stdin.readline()\n"
            "repository = Repository.open(open_store(sys.argv[2]), create=True)\n"
            "print(take(open_store(sys.argv[1]), repository, 'orders').already_there)\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(tmp_path / "ck"), str(tmp_path / "new")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for _ in range(3)
        ]
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("go\n")
            run.stdin.flush()
        answers = sorted(run.communicate(timeout=60)[0].strip() for run in runs)
        assert answers == ["False", "True", "True"]
        repository = Repository.open(quick_store(tmp_path / "new"))
        (summary,) = repository.manifests(JOB)
        assert verify(repository, JOB, summary.savepoint, "full").ok


class TestFaults:
    def test_a_full_disk_is_one_clear_error_and_the_next_take_succeeds(self, shop: Workshop) -> None:
        shop.run(4)
        store = FaultyStore(shop.repository_store, Fault("full", operations=WRITE, key="packs/"))
        with pytest.raises(StorageError) as caught:
            take(shop.checkpoint, Repository.open(store), JOB)
        store.assert_fired()
        assert caught.value.code == "disk-full"
        assert list(shop.repository.manifests()) == []
        assert verify(shop.repository, JOB, shop.take().savepoint, "full").ok

    def test_no_permission_on_a_file_of_the_checkpoint(self, shop: Workshop) -> None:
        shop.run(4)
        store = FaultyStore(
            shop.checkpoint, Fault("denied", operations=frozenset({"hold"}), key="state/0/1/4.delta")
        )
        with pytest.raises(StorageError) as caught:
            shop.take(store)
        store.assert_fired()
        assert caught.value.code == "no-permission"
        assert list(shop.repository.manifests()) == []

    def test_a_lost_reply_to_the_commit(self, shop: Workshop) -> None:
        shop.run(4)
        store = FaultyStore(shop.repository_store, Fault("lost-reply", operations=WRITE, key="savepoints/"))
        with pytest.raises(StorageError):
            take(shop.checkpoint, Repository.open(store), JOB)
        result = shop.take()
        assert result.already_there
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    @pytest.mark.parametrize("kind", ["flip", "short-read"])
    def test_bytes_spoilt_on_the_way_are_never_called_good(self, shop: Workshop, kind: str) -> None:
        # A short read is noticed; a bit flipped between disk and us cannot be, and is saved as it was read.
        shop.run(4)
        fault = Fault(kind, operations=frozenset({"held.open"}), key="4.delta")  # type: ignore[arg-type]  # a kind
        store = FaultyStore(shop.checkpoint, fault)
        result = shop.take(store)
        store.assert_fired()
        assert result.replans == (1 if kind == "short-read" else 0)


def test_a_task_is_plain_data() -> None:
    from streambank.savepoint.copying import CopyTask

    task = CopyTask.of(FileInfo("offsets/3", 4, 5, "id"), "offsets")
    assert CopyTask.from_dict(json.loads(json.dumps(task.to_dict()))) == task
