"""Valid logs that name millions of files: each way of reading them stays within 300 MB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from streambank.core.errors import FormatError
from streambank.inputs.files import look_at_files
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.position import SavedLog, read_saved_log
from streambank.sinks.file.rollback import roll_back, stand
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import FileInfo, Store, chunks
from tests.attacks.test_long_lines import refused
from tests.support.repository.repositories import manifest_of

pytestmark = pytest.mark.storm

FILES = 1_000_000
COMPACTED = "_spark_metadata/9.compact"


def name_of(number: int) -> str:
    """Names of files as Spark makes them, in no order."""
    mixed = number * 2_654_435_761 % (1 << 64)
    return f"day=2026-11-{number % 28 + 1:02d}/part-{mixed:016x}-4a2e-9a7e-{number:012d}.c000.snappy.parquet"


class Listing(LocalStore):
    """An output directory with a log, and with data files that only its listing has."""

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        yield from super().list(prefix)
        for number in range(FILES if not prefix else 0):
            yield FileInfo(name_of(number), 1000, 0, "x")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("output")
    (root / COMPACTED).parent.mkdir()
    with (root / COMPACTED).open("w") as file:
        file.write("v1")
        for number in range(FILES):
            file.write(
                f'\n{{"path":"file://{root}/{name_of(number)}","size":1000,"isDir":false,"modificationTime":1,'
                '"blockReplication":1,"blockSize":33554432,"action":"add"}'
            )
    for batch in (10, 11):
        entry = {"path": f"file://{root}/later-{batch}.csv", "size": 4, "action": "add"}
        (root / f"_spark_metadata/{batch}").write_text(f"v1\n{json.dumps(entry)}")
        (root / f"later-{batch}.csv").write_text("1,2\n")
    return Listing(root)


def bounded(work: Callable[[], object]) -> None:
    """Assert that work takes no more than 300 MB, in a separate process that may take long."""

    def ends_well() -> None:
        work()
        raise FormatError("done", code="done")

    refused(ends_well, "done", "done", cpu_s=1200)


def saved(output: Store, batch: int = 10) -> SavedLog:
    def read(key: str) -> Iterator[bytes]:
        with output.open(key) as reader:
            yield from chunks(reader)

    record = {"path": output.uri, "batch": batch, "data_files": FILES + batch - 9}
    keys = [COMPACTED, *(f"_spark_metadata/{number}" for number in range(10, batch + 1))]
    return read_saved_log(record, {key: partial(read, key) for key in keys}, output.uri)


def test_a_savepoint_takes_it(output: Store) -> None:
    def work() -> None:
        record = FileSinkCapture(output.uri, output).capture(10).record
        assert (record["data_files"], record["data_bytes"]) == (FILES + 1, 1000 * FILES + 4)

    bounded(work)


def test_a_restore_compares_it_and_rolls_it_back(output: Store) -> None:
    def work() -> None:
        log = saved(output)
        standing = stand(log, output, output.uri)
        assert (standing.standing, standing.missing) == ("ahead", 0)
        assert dict(standing.later) == {"later-11.csv": 4}
        report = roll_back(log, output, output.uri, "b-one")
        assert (report.files_aside, report.log_aside) == (1, ("11",))

    bounded(work)


def test_data_files_that_are_all_gone_are_counted(output: Store) -> None:
    def work() -> None:
        log = saved(output)
        standing = stand(log, LocalStore(Path(output.uri.removeprefix("file://"))), output.uri)
        assert standing.missing == FILES
        assert len(standing.sentence()) < 1000

    bounded(work)


def test_files_that_a_source_read_after_a_savepoint(tmp_path: Path) -> None:
    (tmp_path / "sources/0").mkdir(parents=True)
    with (tmp_path / "sources/0/0.compact").open("w") as file:
        file.write("v1")
        for number in range(FILES):
            file.write(f'\n{{"path":"file:///nowhere/{name_of(number)}","timestamp":1,"batchId":0}}')

    def work() -> None:
        source = {"source": "0", "kind": "file", "offset": None}
        (found,) = look_at_files(replace(manifest_of(), sources=(source,)), open_store(tmp_path).uri)
        assert found.read == FILES

    bounded(work)
