"""A copy of a checkpoint as a savepoint: the newest batch that is whole, and no other."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, IntegrityError, NotFoundError, StreambankError
from streambank.core.python310 import UTC
from streambank.repository.repository import Repository
from streambank.savepoint.import_copy import Imported, import_copy
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import checkpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.contents import contents

MONDAY_MS = 1_795_000_000_000


def copied(source: Store, name: str) -> Store:
    """A copy that lies elsewhere."""
    target = quick_store(f"memory://{name}/copy")
    for path, data in contents(source).items():
        target.write(path, data)
    return target


def imported(shop: SimulatedJob, copy: Store, **how: object) -> Imported:
    sinks = [FileSinkCapture(shop.sink_store.uri, shop.sink_store)]
    return import_copy(TakeRequest(copy, shop.repository, JOB, sinks=sinks, **how))  # type: ignore[arg-type]


def test_a_whole_copy_is_what_a_savepoint_of_the_query_would_be(shop: SimulatedJob, tmp_path: Path) -> None:
    shop.run(8)
    copy = copied(shop.checkpoint, tmp_path.name)
    head, monday = shop.checkpoint.read("offsets/7"), b'"batchTimestampMs": %d' % MONDAY_MS
    copy.write("offsets/7", head.replace(b'"batchTimestampMs": 7', monday))
    shop.run(1)  # the query has gone on since
    result = imported(shop, copy, note="of monday")
    assert (result.taken.batch, result.passed_over, result.source) == (7, (), copy.uri)
    manifest = shop.repository.load(JOB, result.taken.savepoint)
    assert manifest.taken_at == result.batch_at == datetime.fromtimestamp(MONDAY_MS / 1000, UTC)
    assert (manifest.checkpoint, manifest.note) == (copy.uri, "of monday")
    assert manifest.taken_by["reason"] == "import"
    assert len(manifest.sinks[0]["files"]) == 8, "the log of the live sink up to the batch"
    assert verify(shop.repository, JOB, result.taken.savepoint, "full").ok
    report = shop.restore(result.taken.savepoint, sink="rollback")
    assert report.plan.batch == 7
    assert imported(shop, copy).taken.already_there


def test_of_a_torn_copy_the_newest_whole_batch_is_taken_and_the_others_are_named(
    shop: SimulatedJob, tmp_path: Path
) -> None:
    shop.run(8)
    copy = copied(shop.checkpoint, tmp_path.name)
    copy.delete("state/0/1/8.delta")  # of batch 7
    copy.write("state/0/0/7.delta", b"")  # of batches 6 and 7
    copy.delete("offsets/5")
    result = imported(shop, copy)
    assert result.taken.batch == 4
    assert [one.batch for one in result.passed_over] == [7, 6, 5]
    assert result.to_dict()["passed_over"][0]["batch"] == 7
    assert all(one.why and one.code for one in result.passed_over)
    assert verify(shop.repository, JOB, result.taken.savepoint, "full").ok
    with pytest.raises(StreambankError):
        imported(shop, copy, batch=6)
    assert imported(shop, copy, batch=3).taken.batch == 3


def test_a_sink_that_has_forgotten_the_batch_is_named_as_that(shop: SimulatedJob, tmp_path: Path) -> None:
    shop.run(8)
    copy = copied(shop.checkpoint, tmp_path.name)
    shop.run(4)  # its log was compacted since
    with pytest.raises(StreambankError, match="no longer tells which files were written up to batch 7"):
        imported(shop, copy)
    assert not list(shop.repository.manifests())
    without = import_copy(TakeRequest(copy, shop.repository, JOB))
    assert (without.taken.batch, without.passed_over) == (7, ())


def test_whatever_is_missing_no_savepoint_counts_that_is_not_whole(
    shop: SimulatedJob, tmp_path: Path
) -> None:
    shop.run(4)
    whole = contents(shop.checkpoint)
    for path in whole:
        copy = copied(shop.checkpoint, tmp_path.name)
        copy.delete(path)
        try:
            result = imported(shop, copy)
        except (NotFoundError, ConflictError):
            continue
        assert verify(shop.repository, JOB, result.taken.savepoint, "full").ok, path
    assert {one.batch for one in shop.repository.manifests(JOB)} <= {0, 1, 2, 3}


def test_a_copy_without_a_whole_batch_is_refused(shop: SimulatedJob, tmp_path: Path) -> None:
    shop.run(3)
    copy = copied(shop.checkpoint, tmp_path.name)
    for info in [*copy.list("state")]:
        if not info.path.startswith("state/0/_metadata"):
            copy.delete(info.path)
    with refuses(
        NotFoundError, "no-whole-batch", match=r"None of 3 committed batches of .* is whole\. Batch 2:"
    ):
        imported(shop, copy)
    assert list(shop.repository.manifests()) == []


def test_sparks_own_checksums_are_compared_before_it_counts(tmp_path: Path) -> None:
    source = checkpoint("4.3.0/ids-changelog-window").into(quick_store(f"memory://{tmp_path.name}/ck"))
    repository = Repository.open(quick_store(f"memory://{tmp_path.name}/repository"), create=True)
    first = take(TakeRequest(source, repository, "other"))
    entries = repository.load("other", first.savepoint).files
    path = next(entry.path for entry in entries if entry.path.endswith(".changelog.crc")).removesuffix(".crc")
    data = bytearray(source.read(path))
    data[len(data) // 2] ^= 1
    source.write(path, bytes(data))
    with refuses(IntegrityError, "copy-damaged"):
        import_copy(TakeRequest(source, repository, JOB, batch=first.batch))
    assert not list(repository.manifests(JOB))


def test_the_command(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "ck")).run(4)
    other = LiveCheckpoint(open_store(tmp_path / "other")).run(1)
    copy = open_store(tmp_path / "copy")
    for path, data in contents(live.store).items():
        copy.write(path, data)
    copy.delete("commits/3")
    copy.delete("state/0/0/3.delta")
    place = ("-r", tmp_path / "repository", "--job", "orders")
    control = JobControl.of_repository(open_store(tmp_path / "repository"), "orders")
    control.generations().ensure_first(live.store.uri, by=BY)
    control.record_query(None, {"query_id": live.query_id})

    answer = streambank("import", tmp_path / "ck", *place)
    assert answer.code == 2 and "not a copy of it" in answer.err
    answer = streambank("import", tmp_path / "other", *place)
    assert answer.code == 6 and f"is of query {other.query_id}" in answer.err
    assert not (tmp_path / "repository" / "savepoints").exists()

    done = succeed("import", tmp_path / "copy", *place, "--note", "monday", "--json").document
    assert (done["batch"], [one["batch"] for one in done["passed_over"]]) == (1, [2])
    event = control.last_event("savepoint-imported")
    assert event is not None and (event["savepoint"], event["batch"]) == (done["savepoint"], 1)
    assert event["source"] == copy.uri and event["why"] == "monday"
    shown = succeed("import", tmp_path / "copy", *place).out
    assert "not whole: batch 2:" in shown and "It was there already" in shown
    assert json.loads(live.store.read("metadata"))["id"] == live.query_id
