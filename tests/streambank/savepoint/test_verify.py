from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.core.errors import InputError, NotFoundError, StorageError
from streambank.repository.repository import Repository
from streambank.savepoint.spark_checksums import crc32c
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.work.executor import Pace
from streambank.work.pace import Step
from tests.support.checkpoint.recorded import checkpoint
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store
from tests.support.storage.faulty_store import READS, Fault, FaultyStore

OPEN = frozenset({"held.open"})


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(f"memory://{tmp_path.name}", state_bytes=400_000).run(6)


def checksum(data: bytes, **changes: object) -> bytes:
    value = crc32c(data)
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return json.dumps({"algorithm": "CRC32C", "value": signed, "mainFileSize": len(data), **changes}).encode()


def test_a_whole_savepoint(shop: SimulatedJob) -> None:
    savepoint = shop.take().savepoint
    steps: list[Step] = []
    report = verify(
        shop.repository, JOB, savepoint, "full", pace=Pace(progress=steps.append), by={"user": "me"}
    )
    manifest = shop.repository.load(JOB, savepoint)
    assert (report.ok, report.restorable, report.findings) == (True, True, ())
    assert (report.files, report.batch) == (manifest.file_count, 5)
    assert steps[-1].bytes_done == steps[-1].bytes_total == sum(manifest.objects().values())
    (left,) = shop.repository.verifications(JOB, savepoint)
    assert (left.level, left.ok, left.by) == ("full", True, {"user": "me"})
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True


def test_quick_reads_no_object(shop: SimulatedJob) -> None:
    savepoint = shop.take().savepoint
    store = FaultyStore(shop.repository_store)
    assert verify(Repository.open(store), JOB, savepoint, record=False).ok
    assert not [call for call in store.calls if call.operation in READS and call.key.startswith("objects/")]


def test_a_damaged_one_is_recorded_and_named_file_by_file(shop: SimulatedJob) -> None:
    savepoint = shop.take().savepoint
    key = next(info.path for info in shop.repository_store.list("objects"))
    data = bytearray(shop.repository_store.read(key))
    data[7] ^= 1
    shop.repository_store.write(key, bytes(data))
    assert verify(shop.repository, JOB, savepoint, "quick").ok
    report = verify(shop.repository, JOB, savepoint, "full")
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("object-damaged", "error")
    assert finding.file.endswith("5.snapshot")
    assert "latest-good" in finding.hint
    assert [one.ok for one in shop.repository.verifications(JOB, savepoint)] == [True, False]


def test_a_damaged_manifest_is_a_finding(shop: SimulatedJob) -> None:
    savepoint = shop.take().savepoint
    key = f"savepoints/{JOB}/{savepoint}.json"
    shop.repository_store.write(key, shop.repository_store.read(key).replace(b'"batch": 5', b'"batch": 4'))
    report = verify(shop.repository, JOB, savepoint)
    assert (report.ok, report.batch, report.findings[0].file) == (False, None, key)


def test_damaged_marks_are_a_warning(shop: SimulatedJob) -> None:
    savepoint = shop.take(pin=True).savepoint
    key = next(info.path for info in shop.repository_store.list("marks"))
    shop.repository_store.write(key, b"{}")
    report = verify(shop.repository, JOB, savepoint, "full")
    assert (report.ok, report.restorable) == (False, True)
    assert [(finding.code, finding.file) for finding in report.findings] == [("mark-damaged", key)]


def test_what_cannot_be_asked(shop: SimulatedJob) -> None:
    savepoint = shop.take().savepoint
    with pytest.raises(InputError):
        verify(shop.repository, JOB, savepoint, "thorough")  # type: ignore[arg-type]  # what a person may type
    with pytest.raises(NotFoundError):
        verify(shop.repository, JOB, "b000001-000000000000")
    store = FaultyStore(shop.repository_store, Fault("denied", operations=OPEN, key="objects/"))
    with pytest.raises(StorageError):
        verify(Repository.open(store), JOB, savepoint, "full")


class TestSparkChecksums:
    @pytest.mark.parametrize("name", ["4.3.0/ids-changelog-window", "4.3.0/ids-changelog-transform"])
    def test_of_a_real_checkpoint_agree(self, tmp_path: Path, name: str) -> None:
        source = checkpoint(name).into(quick_store(f"memory://{tmp_path.name}/ck"))
        repository = Repository.open(quick_store(f"memory://{tmp_path.name}/repository"), create=True)
        result = take(TakeRequest(source, repository, JOB))
        roles = [entry.role for entry in repository.load(JOB, result.savepoint).files]
        assert "checksum" in roles
        assert verify(repository, JOB, result.savepoint, "full").ok

    def test_damage_before_the_savepoint_was_taken_is_found(self, tmp_path: Path) -> None:
        source = checkpoint("4.3.0/ids-changelog-window").into(quick_store(f"memory://{tmp_path.name}/ck"))
        repository = Repository.open(quick_store(f"memory://{tmp_path.name}/repository"), create=True)
        first = take(TakeRequest(source, repository, JOB))
        entries = repository.load(JOB, first.savepoint).files
        path = next(entry.path for entry in entries if entry.path.endswith(".changelog.crc"))
        main = path.removesuffix(".crc")
        data = bytearray(source.read(main))
        data[-1] ^= 1
        source.write(main, bytes(data))
        second = take(TakeRequest(source, repository, "again"))
        report = verify(repository, "again", second.savepoint, "full")
        assert [(finding.code, finding.file) for finding in report.findings] == [("spark-checksum", main)]
        assert not report.restorable

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            (checksum(b"a" * 400_000), "CRC-32C"),
            (b"{", "not a checksum"),
            (b"[]", "not a checksum"),
            (b'{"algorithm": "CRC32C"}', "not a checksum"),
            (b'{"algorithm": "SHA1", "value": 1}', ""),
        ],
    )
    def test_checksums_that_are_wrong_or_unknown(self, shop: SimulatedJob, text: bytes, found: str) -> None:
        shop.checkpoint.write("state/0/0/6.delta.crc", text)
        data = shop.checkpoint.read("state/0/1/6.delta")
        shop.checkpoint.write("state/0/1/6.delta.crc", checksum(data))
        report = verify(shop.repository, JOB, shop.take().savepoint, "full")
        assert [found in finding.cause for finding in report.findings] == ([True] if found else [])

    def test_a_size_that_disagrees(self, shop: SimulatedJob) -> None:
        data = shop.checkpoint.read("state/0/1/6.delta")
        shop.checkpoint.write("state/0/1/6.delta.crc", checksum(data, mainFileSize=1))
        report = verify(shop.repository, JOB, shop.take().savepoint, "full")
        assert "says 1" in report.findings[0].cause
