"""A crash before, during and after every call that a writer makes, and writers that run at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streambank.repository.objects import write
from streambank.repository.repository import Repository
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from tests.support.paths import ROOT
from tests.support.repository.repositories import FILES, assert_whole, manifest_of, save
from tests.support.storage.faulty_store import Fault, FaultyStore, Kind, SimulatedCrash


def work(store: FaultyStore | MemoryStore) -> None:
    """Everything that writes, in its order."""
    repository = Repository.open(store, create=True)
    save(repository)
    save(repository, {**FILES, "commits/4": b"next"}, batch=4)
    savepoint = manifest_of().savepoint
    repository.pin("flights", savepoint)
    repository.record_verification("flights", savepoint, level="full", ok=True)
    repository.objects.index.rebuild()


@pytest.mark.parametrize("kind", ["crash-before", "crash-during", "crash-after"])
def test_after_a_crash_at_any_call_every_listed_savepoint_is_whole(kind: Kind) -> None:
    undisturbed = FaultyStore(MemoryStore())
    work(undisturbed)
    calls = len(undisturbed.calls)
    assert calls > 35

    for number in range(1, calls + 1):
        inner = MemoryStore()
        faulty = FaultyStore(inner, Fault(kind, call=number))
        with pytest.raises(SimulatedCrash):
            work(faulty)
        faulty.assert_fired()
        assert_whole(inner)

        work(inner)  # a second try

        assert_whole(inner)
        assert [summary.batch for summary in Repository.open(inner).manifests()] == [3, 4]


def test_a_killed_writer_leaves_most_of_its_work_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "INDEX_EVERY_PACKS", 2)
    inner = MemoryStore()
    Repository.open(inner, create=True)
    faulty = FaultyStore(inner, Fault("crash-before", call=6, operations=frozenset({"write"}), key="packs/"))
    contents = [number.to_bytes(2, "big") * 250_000 for number in range(500)]
    with pytest.raises(SimulatedCrash), Repository.open(faulty).objects.writer() as writer:
        for data in contents:
            writer.add(data, len(data))
    faulty.assert_fired()

    with Repository.open(inner).objects.writer() as writer:
        for data in contents:
            writer.add(data, len(data))
    assert writer.known_objects >= 4 * 67
    assert writer.new_objects + writer.known_objects == len(contents)


def test_many_threads_add_the_same_and_other_objects() -> None:
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    contents = [b"%d" % (number % 700) * (1 + number % 90) for number in range(2000)]
    with repository.objects.writer() as writer, ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(lambda data: writer.add(data, len(data)), contents))

    distinct = set(contents)
    assert (writer.new_objects, writer.new_bytes) == (len(distinct), sum(map(len, distinct)))
    assert writer.known_objects == len(contents) - len(distinct)
    fresh = Repository.open(store)
    assert dict(fresh.objects.read_many(digests)) == dict(zip(digests, contents, strict=True))


def test_a_failed_pack_fails_the_flush_in_every_thread() -> None:
    inner = MemoryStore()
    Repository.open(inner, create=True)
    faulty = FaultyStore(inner, Fault("full", operations=frozenset({"write"}), key="packs/"))
    contents = [bytes([number]) * 500_000 for number in range(80)]
    writer = Repository.open(faulty).objects.writer()
    with ThreadPoolExecutor(4) as pool:
        outcomes = [pool.submit(writer.add, data, len(data)) for data in contents]
    assert sum(outcome.exception() is not None for outcome in outcomes) == 1
    with pytest.raises(Exception, match="full"):
        writer.flush()
    assert inner.names("index") == []


def test_of_many_commits_of_one_savepoint_one_makes_it() -> None:
    store = MemoryStore()
    repository = Repository.open(store, create=True)
    with repository.objects.writer() as writer:
        for data in FILES.values():
            writer.add(data, len(data))
    barrier = threading.Barrier(8)

    def commit(number: int) -> bool:
        barrier.wait()
        return Repository.open(store).commit(manifest_of(note=str(number)))

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(commit, range(8)))
    assert sum(made) == 1
    assert repository.load("flights", manifest_of().savepoint).note == str(made.index(True))


PROGRAM = """
import sys
from pathlib import Path
from streambank.repository.repository import Repository
from streambank.storage.local.store import LocalStore
from tests.support.repository.repositories import FILES, save
sys.stdin.readline()
repository = Repository.open(LocalStore(sys.argv[1]), create=True)
for batch in range(12):
    save(repository, {**FILES, "offsets/%d" % batch: b"offsets %d" % batch}, batch=batch)
    repository.pin("flights", next(iter(repository.manifests())).savepoint)
    if batch % 4 == 3:
        repository.objects.index.rebuild()
print(repository.id)
"""


def test_processes_write_one_repository_at_once(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "repository")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'provider'}{os.pathsep}{ROOT}"},
        )
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ids = set()
    for racer in racers:
        out, _ = racer.communicate(timeout=120)
        assert racer.returncode == 0
        ids.add(out.strip())
    assert len(ids) == 1

    repository = Repository.open(LocalStore(tmp_path / "repository"))
    summaries = list(repository.manifests())
    assert [summary.batch for summary in summaries] == list(range(12))
    assert repository.objects.index.check() == []
    for summary in summaries:
        assert summary.error is None
        manifest = repository.load(summary.job, summary.savepoint)
        assert all(isinstance(data, bytes) for _, data in repository.objects.read_many(manifest.objects()))
    pins = repository.store.names(f"marks/flights/{summaries[0].savepoint}")
    assert len(pins) == 36
    assert pins[-1] == "pin-0000000036.json"
