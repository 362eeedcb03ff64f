"""What a take does not do: read, list or write more than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.workloads import LargeFiles, SmallFiles
from streambank.core.errors import IntegrityError
from streambank.repository import catalog
from streambank.repository.manifest import FileEntry, encode, glance
from streambank.repository.repository import Repository
from streambank.repository.sealed import dumps
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage.local.store import LocalStore
from streambank.work.copy import CopyTask
from streambank.work.executor import bundles
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.paths import ROOT
from tests.support.repository.repositories import manifest_of
from tests.support.storage.faulty_store import READS, FaultyStore


def operations(store: FaultyStore) -> set[str]:
    return {call.operation for call in store.calls}


def test_a_batch_that_has_its_savepoint_is_not_planned(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path).run(6)
    first = shop.take()
    source = FaultyStore(shop.checkpoint)
    again = shop.take(source)
    assert (again.savepoint, again.already_there, again.new_files) == (first.savepoint, True, 0)
    assert "list" not in operations(source) and "hold" not in operations(source)
    assert {call.key.partition("/")[0] for call in source.calls} <= {"metadata", "offsets", "commits"}


def test_one_more_batch_reads_no_unchanged_file_and_moves_little_more_than_it(tmp_path: Path) -> None:
    workload = LargeFiles(partitions=2, files=50, file_bytes=100_000)
    workload.build(tmp_path / "ck")
    repository = Repository.open(LocalStore(tmp_path / "repository", fsync=False), create=True)
    take(TakeRequest(LocalStore(tmp_path / "ck"), repository, JOB))
    added = workload.add_batch(tmp_path / "ck")
    before = {info.path: info.size_bytes for info in repository.store.list()}

    source = FaultyStore(LocalStore(tmp_path / "ck"))
    result = take(TakeRequest(source, repository, JOB))

    new = {str(path.relative_to(tmp_path / "ck")) for path in added}
    opened = {call.key for call in source.calls if call.operation in READS}
    assert {key for key in opened if key.endswith(".sst")} <= new
    held = {call.key for call in source.calls if call.operation == "hold"}
    assert held <= new and result.new_files == len(new)
    moved = sum(info.size_bytes for info in repository.store.list() if info.path not in before)
    # Here the manifest's own size counts more than with files of a megabyte.
    manifest_bytes = repository.store.stat(catalog.manifest_key(JOB, result.savepoint)).size_bytes
    assert moved - manifest_bytes < 1.05 * sum(path.stat().st_size for path in added)


def test_a_damaged_newest_savepoint_is_not_built_upon(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path)
    good = shop.run(3).take()
    bad = shop.run(1).take()
    key = catalog.manifest_key(JOB, bad.savepoint)
    data = shop.repository_store.read(key)
    shop.repository_store.write(key, data.replace(b'"role": "commits"', b'"role": "Commits"'))
    with pytest.raises(IntegrityError):
        shop.repository.load(JOB, bad.savepoint)

    result = shop.run(1).take()
    assert shop.repository.load(JOB, result.savepoint).parent == good.savepoint
    assert verify(shop.repository, JOB, result.savepoint, "full").ok


def test_the_newest_batch_comes_first(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path)
    taken = [shop.run(1).take().savepoint for _ in range(4)]
    assert [head.savepoint for head in catalog.heads(shop.repository_store, JOB)] == taken[::-1]
    assert not catalog.distrusted(shop.repository_store, JOB)
    shop.repository.record_verification(JOB, taken[1], level="full", ok=False, findings=1)
    assert catalog.distrusted(shop.repository_store, JOB)
    shop.repository.record_verification(JOB, taken[1], level="full", ok=True)
    assert not catalog.distrusted(shop.repository_store, JOB)


def test_a_glance_is_the_head() -> None:
    manifest = manifest_of(note='a "files": [ in a note', query_id="q")
    data = b"".join(encode(manifest))
    assert glance(data) == replace(manifest, files=())
    assert glance(data[: data.index(b'\n"files"')]) is None
    assert glance(b"") is None and glance(b'{\n"format": 9\n"files": [\n') is None


@pytest.mark.parametrize("extra", [{}, {"block": [1, "x"]}])
def test_an_entry_is_written_as_json_always_was(extra: dict[str, object]) -> None:
    entry = FileEntry('a/"b\u2028ü', 7, "blake3:" + "0" * 64, 5, 'i\\"\t', "röle", extra)
    assert entry.to_json() == dumps(entry.to_dict())


def test_bundles_keep_the_order_and_are_small() -> None:
    sizes = [10, 2_000_000, 10, 900_000, 900_000, *[1] * 200]
    tasks = [CopyTask(-1, str(number), size, 0, "", "") for number, size in enumerate(sizes)]
    found = list(bundles(tasks))
    assert [task for bundle in found for task in bundle] == tasks
    assert all(len(bundle) == 1 or sum(task.size_bytes for task in bundle) <= 1 << 20 for bundle in found)
    assert max(map(len, found)) <= 64


def test_a_linked_restore_is_reported_until_it_is_gone(tmp_path: Path) -> None:
    LargeFiles(partitions=1, files=3).build(tmp_path / "ck")
    shop = SimulatedJob(tmp_path / "shop")
    result = take(TakeRequest(LocalStore(tmp_path / "ck"), shop.repository, JOB))
    assert verify(shop.repository, JOB, result.savepoint).findings == ()

    report = shop.restore(result.savepoint, link=True)
    assert report.layout.linked_files == 3
    assert any("share their bytes with the repository" in warning for warning in report.warnings)
    for level in ("quick", "full"):
        (finding,) = verify(shop.repository, JOB, result.savepoint, level).findings
        assert (finding.code, finding.severity) == ("objects-shared", "info")
        assert finding.cause.startswith("3 objects")
    checked = verify(shop.repository, JOB, result.savepoint)
    assert checked.ok and checked.restorable
    assert not catalog.distrusted(shop.repository_store, JOB)

    for path in (tmp_path / "shop/restored").rglob("*.sst"):
        path.unlink()
    assert verify(shop.repository, JOB, result.savepoint).findings == ()


def test_a_linked_restore_still_finds_damage(tmp_path: Path) -> None:
    LargeFiles(partitions=1, files=2).build(tmp_path / "ck")
    shop = SimulatedJob(tmp_path / "shop")
    result = take(TakeRequest(LocalStore(tmp_path / "ck"), shop.repository, JOB))
    (first, *_) = sorted((tmp_path / "shop/repository/objects").rglob("*/*"))
    data = bytearray(first.read_bytes())
    data[500] ^= 1
    first.write_bytes(data)
    with pytest.raises(IntegrityError):
        shop.restore(result.savepoint, link=True)


def test_the_small_shape_needs_a_part(tmp_path: Path) -> None:
    SmallFiles(partitions=3).build(tmp_path)
    repository = Repository.open(LocalStore(tmp_path / "r", fsync=False), create=True)
    assert take(TakeRequest(LocalStore(tmp_path), repository, JOB)).files == 3 * 17 + 6


def test_giving_way_is_for_this_process_alone() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    script = "import os; from streambank.work.pace import give_way; give_way(); print(os.getpriority(0, 0))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(ROOT / "provider")},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.strip() == b"19"
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_checkpoint_that_began_anew_builds_upon_its_own_savepoints(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path, sink=False)
    shop.run(9).take()
    for info in list(shop.checkpoint.list()):
        shop.checkpoint.delete(info.path)
    shop.live = LiveCheckpoint(shop.checkpoint)
    first = shop.run(2).take(new_query=True)
    second = shop.run(1).take()
    assert shop.repository.load(JOB, second.savepoint).parent == first.savepoint
    assert second.new_files < second.files
