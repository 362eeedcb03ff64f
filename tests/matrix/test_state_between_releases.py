"""State between releases of Spark: what a table allows goes on with the same output, and no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.checkpoint.schema.unnamed import write_missing_metadata
from streambank.core.errors import RefusedError
from streambank.driver.other_release import check_rewritable, obstacles
from streambank.driver.spark_releases import FOR_JOBS, release_of
from streambank.storage import open_store
from streambank_spark.rewrite.migrate import migrate
from streambank_spark.rewrite.rewrite import rewrite
from streambank_spark.state.state import QueryState
from tests.support.archives import unpack_tar
from tests.support.checkpoint.recorded import FOLDER, lay_out, rows_of
from tests.support.spark.going_on import Task, go_on, make
from tests.support.spark.releases import OtherSpark, other_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1200)]

INSTALLED = "4.3.0"
OLDER = [one for one in FOR_JOBS if not INSTALLED.startswith(one)]
NEWEST = (
    "hdfs-session",
    "hdfs-window",
    "ids-changelog-window",
    "ids-changelog-join",
    "ids-changelog-join3",
    "rocksdb-changelog-join3",
    "rocksdb-changelog-window",
    "stateless-offsets2",
)
"""Checkpoints of the installed Spark: one for each thing that an older one may not know, and some others."""


WAYS: dict[str, dict[str, Callable[..., Any]]] = {
    "hdfs": {"rewritten": rewrite, "migrated": migrate},
    "rocksdb": {"rewritten": rewrite, "rescaled": partial(rewrite, partitions=3)},
}
"""How state is rewritten, by the state store provider that it has."""


@dataclass(frozen=True, slots=True)
class Halfway:
    """A recorded query, laid out after a batch in its middle."""

    cell: str
    folder: Path
    closure: Closure
    rest: dict[int, list[Any]]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "restored"

    def task(self, checkpoint: Path | None = None) -> Task:
        return Task(self.cell, str(self.folder / "input"), str(checkpoint or self.checkpoint))


def halfway(archive: Path, folder: Path) -> Halfway:
    cell = archive.name.partition(".")[0]
    unpack_tar(archive, folder / cell)
    rows = rows_of(folder / cell / "expected.json")
    batch = sorted(rows)[len(rows) // 2]
    original = folder / cell / "checkpoint"
    closure = CheckpointReader(open_store(str(original))).closure(batch, "minimal")
    lay_out(closure, original, folder / cell / "restored")
    return Halfway(cell, folder / cell, closure, {one: part for one, part in rows.items() if one > batch})


def made(spark: OtherSpark, folder: Path) -> list[Halfway]:
    """Checkpoints that a Spark has just made."""
    release = release_of(spark.version)
    assert release is not None
    cells = ["hdfs-window", "hdfs-session", "hdfs-join", "rocksdb-changelog-window", "rocksdb-window"]
    cells += ["rocksdb-session", "rocksdb-changelog-join"]
    if release.checkpoint_format == 2:
        cells += ["ids-window", "ids-changelog-window"]
    make(spark.python, cells, folder)
    return [halfway(folder / spark.version / f"{cell}.tar.xz", folder) for cell in cells]


def same(queries: Sequence[Halfway], found: Sequence[dict[int, list[Any]] | str]) -> dict[str, bool]:
    """Which of them went on with the recorded output; a wrong output is never what a table allows."""
    for query, rows in zip(queries, found, strict=True):
        assert isinstance(rows, str) or rows == query.rest, query.cell
    return {query.cell: rows == query.rest for query, rows in zip(queries, found, strict=True)}


@pytest.mark.parametrize("release", OLDER)
def test_what_a_release_wrote_goes_on_under_the_installed_one(release: str, tmp_path: Path) -> None:
    spark = other_spark(release)
    queries = made(spark, tmp_path)
    found = go_on(sys.executable, [query.task() for query in queries])
    says = {query.cell: not obstacles(query.closure, INSTALLED, spark.version) for query in queries}
    assert same(queries, found) == says and any(says.values())


@pytest.mark.parametrize("release", OLDER)
def test_what_the_installed_one_wrote_goes_back_as_the_table_says(release: str, tmp_path: Path) -> None:
    spark = other_spark(release)
    queries = [halfway(FOLDER / INSTALLED / f"{cell}.tar.xz", tmp_path) for cell in NEWEST]
    found = go_on(spark.python, [query.task() for query in queries])
    says = {query.cell: not obstacles(query.closure, spark.version, INSTALLED) for query in queries}
    assert same(queries, found) == says and any(says.values())


@pytest.mark.parametrize("release", OLDER)
def test_what_the_installed_one_has_rewritten_goes_back(
    release: str, spark: SparkSession, tmp_path: Path
) -> None:
    other = other_spark(release)
    rewritten, refused = [], []
    for query in made(other, tmp_path):
        try:
            check_rewritable(query.closure, other.version)
        except RefusedError:
            refused.append(query)
            continue
        described = write_missing_metadata(open_store(str(query.checkpoint)), query.closure)
        state = QueryState(spark, str(query.checkpoint))
        for name, write in WAYS[str(query.closure.spark.provider)].items():
            target = open_store(str(query.folder / name))
            write(spark, state, target, derived_from="made by a test")
            for path in described:
                target.delete(path)
            rewritten.append((query, name))
    found = go_on(other.python, [query.task(query.folder / name) for query, name in rewritten])
    for (query, name), rows in zip(rewritten, found, strict=True):
        assert rows == query.rest, f"{query.cell}, {name}"
    for query in refused:  # and not without need
        target = open_store(str(query.folder / "rewritten"))
        with pytest.raises(Exception, match=r"SCHEMA|CHECKPOINT|rewrite"):
            rewrite(spark, QueryState(spark, str(query.checkpoint)), target, derived_from="made by a test")
