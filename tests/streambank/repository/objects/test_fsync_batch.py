"""Objects that become durable in groups, and a take that goes on where a killed one stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.workloads import LargeFiles
from streambank.core.errors import StorageError
from streambank.repository.digest import digest_of
from streambank.repository.objects import write
from streambank.repository.objects.fsync_batch import FsyncBatch
from streambank.repository.objects.large import object_key
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.executor import Pace
from tests.support.paths import ROOT
from tests.support.storage.faulty_store import Fault, FaultyStore, SimulatedCrash

LARGE = [bytes([number]) * 600_000 for number in range(12)]


def keys(store: Store) -> list[str]:
    return sorted(info.path for info in store.list("objects"))


def test_an_object_has_no_name_before_its_bytes_are_durable(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    repository = Repository.open(store, create=True)
    with repository.objects.writer() as writer:
        for data in LARGE:
            writer.add(data, len(data))
        assert keys(store) == []
        writer.flush()
        assert keys(store) == sorted(object_key(digest_of("blake3", data)) for data in LARGE)
    assert list(tmp_path.glob(".streambank*")) == []


def test_a_power_cut_takes_whole_objects_or_none(tmp_path: Path) -> None:
    inner = LocalStore(tmp_path, fsync=True)
    Repository.open(inner, create=True)
    faulty = FaultyStore(inner, Fault("crash-before", operations=frozenset({"settle"})))
    with pytest.raises(SimulatedCrash), Repository.open(faulty).objects.writer() as writer:
        for data in LARGE:
            writer.add(data, len(data))
    faulty.assert_fired()
    assert set(keys(inner)) <= {object_key(digest_of("blake3", data)) for data in LARGE}
    for data in LARGE:
        digest = digest_of("blake3", data)
        if inner.exists(object_key(digest)):
            assert inner.read(object_key(digest)) == data


class Names:
    """Which folders were synced, in order; the process is killed where it is about to sync one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.synced: list[str] = []
        self.kill_at = ""
        self._root = root
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            folder = str(path.relative_to(self._root)) if path != self._root else ""
            if self.kill_at and folder.startswith(self.kill_at):
                self.kill_at = ""
                raise SimulatedCrash(folder)
            self.synced.append(folder)
        self._fsync(descriptor)


@pytest.mark.parametrize(
    ("size_bytes", "kill_at"), [(600_000, "objects/"), (500, "packs/"), (500, "index"), (500, "savepoints/")]
)
def test_nobody_counts_on_names_that_a_killed_writer_left_before_they_were_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int, kill_at: str
) -> None:
    LargeFiles(partitions=1, files=3, file_bytes=size_bytes).build(tmp_path / "ck")
    checkpoint, store = LocalStore(tmp_path / "ck"), LocalStore(tmp_path / "repository")
    Repository.open(store, create=True)
    names = Names(monkeypatch, store.root)
    names.kill_at = kill_at
    with pytest.raises(SimulatedCrash):
        take(TakeRequest(checkpoint, Repository.open(store), "orders"), pace=Pace(parallel=1))
    assert names.kill_at == ""
    left = {info.path.rpartition("/")[0] for info in store.list() if info.path.startswith(kill_at)}
    lost = left - set(names.synced)  # what a power cut may take now
    assert lost

    names.synced.clear()
    result = take(TakeRequest(checkpoint, Repository.open(store), "orders"), pace=Pace(parallel=1))
    assert lost <= set(names.synced)
    listed = "savepoints/orders"
    if not result.already_there:
        assert max(map(names.synced.index, lost)) < len(names.synced) - 1 - names.synced[::-1].index(listed)
    assert verify(Repository.open(store), "orders", result.savepoint, "full").ok


def test_what_is_there_is_not_written(tmp_path: Path) -> None:
    inner = LocalStore(tmp_path, fsync=False)
    with Repository.open(inner, create=True).objects.writer() as writer:
        for data in LARGE[:7]:
            writer.add(data, len(data))
    store = FaultyStore(inner)
    with Repository.open(store).objects.writer() as writer:
        for data in [*LARGE, *LARGE]:
            writer.add(data, len(data))
    assert (writer.new_objects, writer.known_objects) == (5, 19)
    assert len([call for call in store.calls if call.operation == "write_named"]) == 5


def test_a_failed_settling_fails_every_later_one() -> None:
    faulty = FaultyStore(MemoryStore(), Fault("lost-reply", operations=frozenset({"settle"})))
    settling = FsyncBatch(faulty)
    with settling.files() as files:
        files.write("a", b"x")
    for _ in range(2):
        with pytest.raises(StorageError):
            settling.settle()
    faulty.assert_fired()


def test_a_settling_waits_for_writes_that_are_under_way() -> None:
    store = MemoryStore()
    settling = FsyncBatch(store)
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        with settling.files() as files:
            begun.set()
            assert go_on.wait(30)
            files.write("a", b"x")

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(slowly)
        assert begun.wait(30)
        done = pool.submit(settling.settle)
        assert not done.done()
        go_on.set()
        writing.result(30)
        done.result(30)
    assert store.read("a") == b"x"


KILLED = """
import os, pathlib, signal, sys
from streambank.repository.objects import write
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage.local.store import LocalStore
from streambank.work.executor import Pace

write.SETTLE_BYTES = 3_000_000

def progress(step):
    if len(list(pathlib.Path(sys.argv[2]).glob("objects/*/*"))) >= 5:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint, repository = map(LocalStore, sys.argv[1:])
request = TakeRequest(checkpoint, Repository.open(repository, create=True), "orders")
take(request, pace=Pace(parallel=1, progress=progress))
"""


def test_a_take_after_a_kill_writes_only_what_had_not_arrived(tmp_path: Path) -> None:
    LargeFiles(partitions=2, files=10, file_bytes=600_000).build(tmp_path / "ck")
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "ck"), str(tmp_path / "repository")]
    killed = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": str(ROOT / "provider")}, check=False)
    assert killed.returncode == -signal.SIGKILL
    inner = LocalStore(tmp_path / "repository", fsync=False)
    arrived = keys(inner)
    assert len(arrived) == 5
    assert list(Repository.open(inner).manifests()) == []

    store = FaultyStore(inner)
    repository = Repository.open(store)
    result = take(TakeRequest(LocalStore(tmp_path / "ck"), repository, "orders"))

    written = [call for call in store.calls if call.operation == "write_named"]
    assert len(written) == 20 - len(arrived)
    assert result.new_bytes < result.bytes - len(arrived) * 600_000 + 1
    assert verify(repository, "orders", result.savepoint, "full").ok


def test_large_objects_settle_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "SETTLE_BYTES", 2 * len(LARGE[0]))
    store = LocalStore(tmp_path, fsync=True)
    with Repository.open(store, create=True).objects.writer() as writer:
        for data in LARGE[:5]:
            writer.add(data, len(data))
        assert len(keys(store)) == 4
