"""Takes beside a query that goes on, and beside each other."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import ConflictError
from streambank.core.python310 import UTC
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage.store import FileInfo, HeldFile, Store
from streambank.work import copy
from streambank.work.executor import Pace
from streambank.work.pace import Step
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.faulty_store import FaultyStore

BEGIN = datetime(2026, 11, 28, 12, tzinfo=UTC)


class Meddling(FaultyStore):
    """A store in which something happens behind the reader's back before chosen calls."""

    def __init__(self, inner: Store, meddle: Callable[[str, str], None]) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def hold(self, key: str) -> HeldFile:  # type: ignore[override]  # the wrapped one is enough
        self._meddle("hold", key)
        return super().hold(key)

    def stat(self, key: str) -> FileInfo:
        self._meddle("stat", key)
        return super().stat(key)

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        self._meddle("list", prefix)
        return super().list(prefix)


class TestBesideALiveQuery:
    def test_files_that_vanish_before_they_are_held_mean_a_newer_batch(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.run(8)
        fired: list[str] = []

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # of the base class
                return BEGIN + timedelta(hours=len(fired))

        def meddle(operation: str, key: str) -> None:
            if operation == "hold" and key.endswith(".delta") and len(fired) < 2:
                fired.append(key)
                shop.run(3)
                shop.live.purge(2)

        monkeypatch.setattr("streambank.savepoint.take.datetime", Clock)
        result = shop.take(Meddling(shop.checkpoint, meddle), max_replans=4)
        assert len(fired) == 2
        assert result.replans >= 1
        assert result.batch > 7
        assert verify(shop.repository, JOB, result.savepoint, "full").ok
        manifest = shop.repository.load(JOB, result.savepoint)
        assert manifest.stats["replans"] == result.replans
        assert manifest.taken_at == BEGIN + timedelta(hours=(result.batch - 7) // 3), "as its batch"

    def test_files_that_vanish_once_held_are_no_matter_on_a_disk(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path).run(8)
        fired: list[int] = []

        def purge(step: Step) -> None:
            if step.files_done == 1 and not fired:
                fired.append(shop.live.last)
                for info in list(shop.checkpoint.list("state/0/0")):
                    shop.checkpoint.delete(info.path)

        result = shop.take(pace=Pace(progress=purge, parallel=1))
        assert fired
        assert result.replans == 0
        assert verify(shop.repository, JOB, result.savepoint, "full").ok
        manifest = shop.repository.load(JOB, result.savepoint)
        assert "state/0/0/8.delta" in {entry.path for entry in manifest.files}

    def test_files_that_another_machine_removed_mean_planning_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # On a network file system a descriptor does not keep what is deleted elsewhere.
        shop = SimulatedJob(tmp_path).run(8)
        pread, fired = os.pread, list[str]()

        def of_another_machine(descriptor: int, count: int, offset: int) -> bytes:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if path.endswith(".delta") and not fired:
                fired.append(path)
                shop.run(1)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return pread(descriptor, count, offset)

        monkeypatch.setattr(os, "pread", of_another_machine)
        result = shop.take()
        assert fired
        assert (result.replans, result.batch) == (1, 8)
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    def test_a_savepoint_that_cannot_be_healed_in_time_means_a_newer_batch(self, shop: SimulatedJob) -> None:
        shop.run(4).take()
        for info in list(shop.repository_store.list("packs")):
            shop.repository_store.delete(info.path)
        fired: list[str] = []

        def meddle(operation: str, key: str) -> None:
            if operation == "hold" and not fired:
                fired.append(key)
                shop.checkpoint.delete(key)
                shop.run(6)
                shop.live.purge(2)

        shop.repository = Repository.open(shop.repository_store)
        result = shop.take(Meddling(shop.checkpoint, meddle))
        assert fired
        assert (result.batch, result.already_there) == (9, False)
        assert verify(shop.repository, JOB, result.savepoint, "full").ok

    def test_a_file_rewritten_meanwhile_means_planning_again(self, shop: SimulatedJob) -> None:
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
        assert shop.repository.objects.read(digest) == b"of another driver"

    def test_a_lease_that_changes_hands_means_planning_again(self, shop: SimulatedJob) -> None:
        shop.run(5)
        epochs = iter(["1", "2", "2", "2"])
        result = shop.take(lease_epoch=lambda: next(epochs))
        assert result.replans == 1

    def test_a_query_that_never_lets_it_finish_is_refused_with_the_budget(self, shop: SimulatedJob) -> None:
        shop.run(5)

        def meddle(operation: str, key: str) -> None:
            if operation == "hold" and key.startswith("state/"):
                shop.run(4)
                shop.live.purge(1)

        with refuses(ConflictError, "take-cannot-converge") as caught:
            shop.take(Meddling(shop.checkpoint, meddle), max_replans=2)
        assert "in 3 attempts" in caught.value.message
        assert "batches" in caught.value.message
        assert list(shop.repository.manifests()) == []

    def test_what_has_arrived_is_not_read_again(self, shop: SimulatedJob) -> None:
        shop.run(9)
        fired: list[str] = []

        def meddle(operation: str, key: str) -> None:
            # all but the last are copied by then
            if operation in ("stat", "list") and not fired and source.calls[-1].operation == "held.current":
                fired.append(key)
                shop.checkpoint.write("state/0/1/10.delta", b"again")

        shop.run(1)
        source = Meddling(shop.checkpoint, meddle)
        result = shop.take(source, pace=Pace(parallel=1))
        assert fired
        assert result.replans == 1
        opened = [call.key for call in source.calls if call.operation == "held.open"]
        assert sorted({key for key in opened if opened.count(key) > 1}) == ["state/0/1/10.delta"]

    def test_more_files_than_descriptors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(copy, "_room_for", lambda wanted: 3)
        shop = SimulatedJob(tmp_path)
        result = shop.run(8).take()
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
                    taken.append(take(TakeRequest(store, repository, JOB, max_replans=30)))
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
                target.write(entry.path, repository.objects.read(entry.digest))
            assert CheckpointReader(target).closure(kind="minimal").batch == result.batch


class TestTakesAtOnce:
    def test_threads(self, shop: SimulatedJob) -> None:
        shop.run(6)
        results: list[object] = []
        barrier = threading.Barrier(6)

        def work() -> None:
            barrier.wait()
            try:
                results.append(
                    take(TakeRequest(shop.checkpoint, Repository.open(shop.repository_store), JOB))
                )
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
        SimulatedJob(tmp_path, sink=False).run(6)
        code = (
            "import sys; from streambank.repository.repository import Repository\n"
            "from streambank.savepoint.take import TakeRequest, take\n"
            "from streambank.storage import open_store\n"
            "sys.stdin.readline()\n"
            "repository = Repository.open(open_store(sys.argv[2]), create=True)\n"
            "print(take(TakeRequest(open_store(sys.argv[1]), repository, 'orders')).already_there)\n"
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
