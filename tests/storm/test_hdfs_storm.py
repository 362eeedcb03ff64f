"""A query whose checkpoint is on a real HDFS: Spark speaks its own protocol, Streambank WebHDFS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.core.errors import NotFoundError, StorageError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank_spark.state.staging import Staging
from streambank_spark.state.verify import look_deep
from tests.support.refuses import refuses
from tests.support.spark.queries import QUERIES, write_input
from tests.support.spark.sessions import (
    END_S,
    Batches,
    ended,
    prepare,
    read_batches,
    run_to_end,
    session_for,
    start,
)
from tests.support.storage.hdfs import Hdfs, hdfs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["hdfs"]

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(900)]

BATCHES = 8
LAST = 5
"""The batch that is not committed yet when the savepoint is taken."""


@pytest.mark.parametrize(
    ("layout", "repository_on_hdfs", "by_hadoop"),
    [("hdfs", False, False), ("rocksdb-changelog", True, False), ("format-v2", False, True)],
)
def test_a_query_goes_on_from_a_savepoint(
    spark: SparkSession, hdfs: Hdfs, tmp_path: Path, layout: str, repository_on_hdfs: bool, by_hadoop: bool
) -> None:
    """`by_hadoop`: restored to a local disk, and copied by Hadoop's own tools."""
    prepare(spark)
    query, source, live = QUERIES["aggregation"], tmp_path / "input", hdfs.location()
    write_input(source, BATCHES)
    session = session_for(spark, layout, {"dfs.replication": "1"})
    kept = hdfs.on_web(hdfs.location()) if repository_on_hdfs else tmp_path / "repository"
    repository = Repository.open(open_store(kept), create=True)
    batches = Batches(tmp_path / "out", gate_at=LAST)
    with ended(start(session, query, source, live, batches.folder, batches)):
        try:
            assert batches.reached.wait(END_S)
            taken = take(TakeRequest(open_store(hdfs.on_web(live)), repository, "orders"))
        finally:
            batches.gate.set()
    truth = read_batches(batches.folder)
    assert (taken.batch, len(truth)) == (LAST - 1, BATCHES + 1)  # the last one closes windows

    hdfs.shell("-rm", "-r", "-skipTrash", live)
    assert not verify(repository, "orders", taken.savepoint, level="full").findings
    found = look_deep(spark, repository, "orders", taken.savepoint, Staging("local[2]", None, print))
    assert {finding.code for finding in found} <= {"rows-not-counted"}, found
    restored = hdfs.location()
    into = tmp_path / "restored" if by_hadoop else hdfs.on_web(restored)
    restore(RestoreRequest(repository, taken.savepoint, job="orders", into=open_store(into)))
    if by_hadoop:
        hdfs.shell("-put", str(into), restored)
    run_to_end(session, query, source, restored, tmp_path / "again")

    later = {batch: rows for batch, rows in truth.items() if batch > taken.batch}
    assert read_batches(tmp_path / "again") == later
    assert any(later.values())


def test_a_folder_that_may_not_be_listed_is_an_error(hdfs: Hdfs) -> None:
    """Left out, the state in it would be missing from a savepoint that looks like one without state."""
    place = hdfs.location()
    mine = open_store(hdfs.on_web(place))
    for key in ("offsets/0", "state/0/0/1.delta"):
        mine.write(key, b"x")
    theirs = open_store(hdfs.on_web(place, "other"))
    assert sorted(info.path for info in theirs.list()) == ["offsets/0", "state/0/0/1.delta"]
    name = place.rpartition("/")[2]
    root = open_store(hdfs.on_web(place).removesuffix(f"/{name}"))
    assert name in root.names()
    assert f"{name}/offsets/0" in {info.path for info in root.list()}
    hdfs.shell("-chmod", "700", f"{place}/state")
    with refuses(StorageError, "no-permission"):
        list(theirs.list())


def test_what_a_datanode_says_of_an_error_is_not_taken_for_the_file(hdfs: Hdfs) -> None:
    place = hdfs.on_web(hdfs.location())
    store, other = open_store(place), open_store(place)
    store.write("f", b"x" * 100)  # a longer one is asked for again, at the NameNode
    assert store.read("f") == b"x" * 100

    def deleted_meanwhile(answer: Any, *_: Any, **__: Any) -> None:
        if answer.is_redirect:  # the NameNode has said which DataNode to ask
            other.delete("f")

    store._fs.session.hooks["response"].append(deleted_meanwhile)  # type: ignore[attr-defined]  # a WebHdfsStore
    with pytest.raises(NotFoundError):
        store.read("f")
