"""Checkpoints that real Spark versions wrote: taken, verified, restored elsewhere, planned again there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.checkpoint.paths import needs_rewrite, schema_paths
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import FormatError, RefusedError
from streambank.core.lines import pieces
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.log import LOG_DIRECTORY, Roots, chain, list_log, read_entry, relocate_entry
from streambank.sinks.file.rows import count_rows
from streambank.storage.store import Store
from tests.support.checkpoint.recorded import PLANNED, REFUSED, checkpoint, unpack
from tests.support.jobs.simulated_job import JOB, quick_store
from tests.support.storage.contents import contents


def places(tmp_path: Path, name: str) -> tuple[Store, Repository]:
    base = f"memory://{tmp_path.name}"
    return checkpoint(name).into(quick_store(f"{base}/ck")), Repository.open(
        quick_store(f"{base}/repository"), create=True
    )


@pytest.mark.parametrize("name", PLANNED)
def test_taken_and_restored_every_byte_is_the_same_but_for_paths(tmp_path: Path, name: str) -> None:
    source, repository = places(tmp_path, name)
    result = take(TakeRequest(source, repository, JOB))
    report = verify(repository, JOB, result.savepoint, "full")
    assert report.ok, report.findings
    target = quick_store(f"memory://{tmp_path.name}/restored")
    restored = restore(RestoreRequest(repository, result.savepoint, into=target, opener=quick_store))
    closure = CheckpointReader(source).closure()
    rewritten = [path for path in closure.paths if needs_rewrite(path)]
    assert sorted(restored.layout.rewritten) == sorted(rewritten)
    there = contents(target)
    assert set(there) == set(closure.paths)
    for path, data in there.items():
        if path in rewritten:
            for schema in schema_paths(data, path):
                assert schema.startswith(f"{target.uri}/state/")
                assert schema.removeprefix(f"{target.uri}/") in there
        else:
            assert data == source.read(path), path
    again = CheckpointReader(target).closure(kind="minimal")
    assert (again.batch, again.query_id) == (closure.batch, closure.query_id)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused(tmp_path: Path, name: str) -> None:
    source, repository = places(tmp_path, name)
    with pytest.raises(FormatError):
        take(TakeRequest(source, repository, JOB))
    assert list(repository.manifests()) == []


@pytest.mark.parametrize("name", ["3.5.9/file-sink", "4.3.0/file-sink"])
@pytest.mark.parametrize("batch", [5, 11])
def test_a_real_file_sink_is_taken_back(tmp_path: Path, name: str, batch: int) -> None:
    unpacked = unpack(name, tmp_path / "unpacked")
    output = quick_store(unpacked / "output")
    was = _where_it_was_written(output)
    for info in list(output.list(LOG_DIRECTORY)):
        if not info.path.rpartition("/")[2].startswith("."):
            moved = relocate_entry(pieces(output.read(info.path)), info.path, Roots(was), output.uri)
            output.write(info.path, moved)
    source = quick_store(unpacked / "checkpoint")
    repository = Repository.open(quick_store(tmp_path / "repository"), create=True)
    sinks = [FileSinkCapture(output.uri, output)]
    result = take(TakeRequest(source, repository, JOB, batch=batch, sinks=sinks))
    plan = plan_restore(RestoreRequest(repository, result.savepoint, into=quick_store(tmp_path / "restored")))
    assert [error.code for error in plan.refusals] == ["sink-would-lose-rows"]
    parts = [info.path for info in output.list() if info.path.startswith("part-")]
    total = sum(output.read(path).count(b"\n") for path in parts)
    later = plan.sinks[0]["later_rows"]
    assert plan.sinks[0]["later_files"] == 12 - batch
    restore(
        RestoreRequest(
            repository,
            result.savepoint,
            into=quick_store(tmp_path / "restored"),
            sink="rollback",
            opener=quick_store,
        )
    )
    names = list_log(output)
    assert max(one.batch for one in names) == batch
    roots = Roots(output.uri)
    keys = [file.key for name in chain(names, batch, "") for file in read_entry(output, name, roots)]
    kept = sum(count_rows(output, key) or 0 for key in keys if key is not None)
    assert 0 < kept == total - later < total
    assert {info.path for info in output.list() if info.path.startswith("part-")} == set(keys)


def test_a_real_file_sink_that_was_copied_away_is_refused(tmp_path: Path) -> None:
    """Its log names files where they were written: readers would drop them without a word."""
    unpacked = unpack("4.3.0/file-sink", tmp_path / "unpacked")
    output = quick_store(unpacked / "output")
    repository = Repository.open(quick_store(tmp_path / "repository"), create=True)
    sinks = [FileSinkCapture(output.uri, output)]
    result = take(TakeRequest(quick_store(unpacked / "checkpoint"), repository, JOB, sinks=sinks))
    for choice in ("refuse", "rollback"):
        with pytest.raises(RefusedError, match="lacks 13 data files"):
            restore(
                RestoreRequest(
                    repository,
                    result.savepoint,
                    into=quick_store(tmp_path / "restored"),
                    sink=choice,
                    opener=quick_store,
                )
            )
    assert contents(quick_store(tmp_path / "restored")) == {}


def _where_it_was_written(output: Store) -> str:
    first = json.loads(output.read(f"{LOG_DIRECTORY}/0").split(b"\n")[1])["path"]
    return str(first).rpartition("/")[0]
