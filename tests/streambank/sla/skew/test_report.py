"""Skew of checkpoints and savepoints that real Spark versions wrote, from their files alone."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import ConflictError, FormatError, IntegrityError, NotFoundError
from streambank.repository.digest import digest_of
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.view import SavedFiles
from streambank.sla.skew.report import SkewReport, skew_of_checkpoint, skew_of_closure, skew_of_savepoint
from streambank.storage.memory import MemoryStore
from tests.support.checkpoint.recorded import PLANNED, REFUSED, Checkpoint, checkpoint
from tests.support.refuses import refuses
from tests.support.repository.repositories import LARGE, flip, save
from tests.support.storage.contents import keys


def numbers(report: SkewReport) -> dict[str, list[int | None]]:
    return {store.store: [part.rows for part in store.parts] for store in report.stores}


def report_of(found: Checkpoint) -> SkewReport:
    return skew_of_closure("somewhere", found.plan())


@pytest.mark.parametrize("name", PLANNED)
def test_every_layout_is_read_and_its_parts_add_up(name: str) -> None:
    found = checkpoint(name)
    closure = found.plan()
    report = skew_of_closure("somewhere", closure)
    assert len(report.stores) == sum(len(operator.stores) for operator in closure.operators)
    states = [store for operator in closure.operators for store in operator.stores]
    for store, state in zip(report.stores, states, strict=True):
        assert [part.partition for part in store.parts] == list(range(state.partitions))
        assert store.rows == state.rows
        # All of its files but the zips, of whose rows nothing is in them, and Spark's checksums.
        assert 0 <= store.bytes <= state.bytes
        assert store.skew is None or 1.0 <= store.skew <= state.partitions
        assert not store.uneven, "a few rows in two partitions"
    json.dumps(report.to_dict())


@pytest.mark.parametrize("name", [name for name in PLANNED if "hdfs" in name or "stateless" in name])
def test_no_state_file_of_the_hdfs_backed_provider_is_opened(name: str) -> None:
    found = checkpoint(name)
    report_of(found)
    opened = [path for path in found.reads if path.endswith((".delta", ".snapshot"))]
    assert opened == []


@pytest.mark.parametrize("name", [name for name in PLANNED if "rocksdb" in name or "/ids" in name])
def test_of_rocksdb_the_zips_and_the_heads_of_changelogs_are_read_and_no_sst(name: str) -> None:
    found = checkpoint(name)
    report_of(found)
    assert any(path.endswith(".zip") for path in found.reads)
    assert not any(path.endswith(".sst") for path in found.reads)


def test_rows_are_those_that_the_zips_count() -> None:
    found = checkpoint("4.3.0/rocksdb-window")
    counts = []
    for partition in range(2):
        with zipfile.ZipFile(io.BytesIO(found.files[f"state/0/{partition}/8.zip"])) as archive:
            counts.append(json.loads(archive.read("metadata").partition(b"\n")[2])["numKeys"])
    report = report_of(found)
    assert numbers(report) == {"default": counts} == {"default": [5, 8]}
    (store,) = report.stores
    assert store.skew == 8 * 2 / 13
    assert (store.name, report.provider, report.uneven) == ("stateStoreSave", "rocksdb", False)
    sizes = [
        sum(len(data) for path, data in found.files.items() if path.startswith(f"state/0/{n}/SSTs/"))
        for n in (0, 1)
    ]
    assert all(part.base_bytes <= size for part, size in zip(store.parts, sizes, strict=True))


def test_changes_after_the_newest_snapshot_are_said_and_not_counted() -> None:
    report = report_of(checkpoint("4.3.0/rocksdb-changelog-window"))
    (store,) = report.stores
    assert store.rows is None
    assert [(part.base_version, part.base_rows, part.change_files) for part in store.parts] == [
        (12, 7, 2),
        (12, 7, 2),
    ]
    assert "2 of 2 partitions have changed" in store.unknown[0]


def test_a_safe_closure_tells_the_same() -> None:
    for name in ("4.3.0/rocksdb-changelog-window", "4.3.0/hdfs-window", "4.3.0/rocksdb-window"):
        found = checkpoint(name)
        safe = skew_of_closure("x", found.plan(None, "safe"))
        assert safe.to_dict() == skew_of_closure("x", found.plan(None, "minimal")).to_dict()


def test_empty_state_is_known_to_be_empty_in_both_providers() -> None:
    for name in ("4.3.0/hdfs-empty-state", "4.3.0/rocksdb-empty-state"):
        (store,) = report_of(checkpoint(name)).stores
        assert store.empty == [0, 1]
        assert store.advice == "It is empty."


def test_each_store_of_a_join_is_judged_by_itself() -> None:
    report = report_of(checkpoint("4.3.0/hdfs-join"))
    assert [store.store for store in report.stores] == [
        "left-keyToNumValues",
        "left-keyWithIndexToValue",
        "right-keyToNumValues",
        "right-keyWithIndexToValue",
    ]
    assert report.worst is max(report.stores, key=lambda store: store.skew or 0)


def test_no_state_no_stores() -> None:
    report = report_of(checkpoint("4.3.0/stateless"))
    assert (report.stores, report.worst, report.uneven, report.provider) == ((), None, False, None)


def test_what_cannot_be_planned_is_refused_by_name() -> None:
    with refuses(FormatError, "async-progress"):
        report_of(checkpoint(REFUSED[0]))
    whole = checkpoint("4.3.0/rocksdb-window")
    gone = [path for path in whole.files if path.startswith("state/0/1/")]
    with refuses(NotFoundError, "missing-state-file"):
        report_of(whole.but(*gone))


def test_a_checkpoint_that_moves_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    checkpoint("4.3.0/rocksdb-window").into(store)
    closure = CheckpointReader.closure
    moves = iter([True, True, False])
    asked = []

    def moving(self: CheckpointReader, *arguments: object) -> object:
        asked.append(arguments)
        if next(moves):
            raise ConflictError("It moved.", code="checkpoint-moved")
        return closure(self, None, "minimal")

    monkeypatch.setattr(CheckpointReader, "closure", moving)
    assert skew_of_checkpoint(store).batch == 7
    assert len(asked) == 3
    moves = iter([True] * 9)
    with pytest.raises(ConflictError):
        skew_of_checkpoint(store)


@pytest.mark.parametrize("name", ["4.3.0/hdfs-window", "4.3.0/rocksdb-window", "4.3.0/ids-changelog-join"])
def test_a_savepoint_tells_what_its_checkpoint_does(name: str) -> None:
    source = checkpoint(name).into(MemoryStore())
    repository = Repository.open(MemoryStore(), create=True)
    saved = take(TakeRequest(source, repository, "orders"))
    manifest = repository.load("orders", saved.savepoint)
    report = skew_of_savepoint(repository, manifest)
    assert report.location == f"orders/{saved.savepoint}"
    of_checkpoint = skew_of_checkpoint(source)
    assert report.to_dict() | {"location": ""} == of_checkpoint.to_dict() | {"location": ""}


def test_a_savepoint_that_lost_bytes_says_so() -> None:
    source = checkpoint("4.3.0/rocksdb-window").into(MemoryStore())
    repository = Repository.open(MemoryStore(), create=True)
    saved = take(TakeRequest(source, repository, "orders"))
    manifest = repository.load("orders", saved.savepoint)
    (pack,) = keys(repository.store, "packs")
    for where in range(40, len(repository.store.read(pack)), 97):
        flip(repository.store, pack, where)
    with refuses(IntegrityError, "object-damaged"):
        skew_of_savepoint(Repository.open(repository.store), manifest)
    repository.store.delete(pack)
    with pytest.raises(IntegrityError) as missing:
        skew_of_savepoint(Repository.open(repository.store), manifest)
    assert missing.value.code in ("object-missing", "pack-missing")


def test_of_a_large_file_only_the_part_that_is_wanted_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.open(MemoryStore(), create=True)
    files = SavedFiles(repository, save(repository))
    assert files.read("state/0/1/4.zip", 10, 20) == LARGE[10:30]
    assert files.read("state/0/1/4.zip", len(LARGE) - 4, 100) == LARGE[-4:]
    assert files.read("state/0/1/4.zip", len(LARGE) + 4, 100) == b""
    assert files.read("state/0/1/4.zip") == LARGE
    assert files.read("state/0/0/4.delta", 5, 5) == b"delta"
    assert files.read("state/0/1/4.delta") == b""
    with pytest.raises(NotFoundError):
        files.read("offsets/9")
    (key,) = keys(repository.store, "objects")
    at = repository.objects.locate(digest_of(repository.digest_name, LARGE))
    repository.store.delete(key)
    monkeypatch.setattr(repository.objects, "locate", lambda digest: at)
    with refuses(IntegrityError, "object-missing"):
        files.read("state/0/1/4.zip", 1, 2)


def test_a_savepoint_that_is_no_whole_checkpoint_is_named() -> None:
    repository = Repository.open(MemoryStore(), create=True)
    with refuses(IntegrityError, "savepoint-incomplete"):
        SavedFiles(repository, save(repository)).closure()
