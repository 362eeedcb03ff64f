"""A savepoint of a job on Spark 3.5 is restored, and goes on under the installed Spark as if nothing was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.storage import open_store
from tests.support.checkpoint.recorded import NAMES, expected, lay_out, unpack
from tests.support.cli import succeed
from tests.support.spark.going_on import Task, go_on

pytestmark = [pytest.mark.spark, pytest.mark.storm]

CELLS = [name.partition("/")[2] for name in NAMES if name.startswith("3.5.9/") and "file-sink" not in name]
OPERATORS = {"window", "global", "limit", "dedup", "chain", "session", "join", "pandas-state", "within"}
"""Each stateful operator that both releases have, by the query that has it."""


def test_each_stateful_operator_goes_on_with_the_same_output(tmp_path: Path) -> None:
    assert {name.rpartition("-")[2] for name in CELLS} >= OPERATORS - {"pandas-state"}
    assert "hdfs-pandas-state" in CELLS
    tasks, rest = [], []
    for cell in CELLS:
        unchecked = "join" in cell  # docs/howto/spark-versions.md; without it see tests/matrix
        folder = unpack(f"3.5.9/{cell}", tmp_path / cell)
        rows = expected(f"3.5.9/{cell}")
        batch = sorted(rows)[len(rows) // 2]
        old = tmp_path / cell / "moved"
        lay_out(
            CheckpointReader(open_store(str(folder / "checkpoint"))).closure(batch, "safe"),
            folder / "checkpoint",
            old,
        )
        repository, new = tmp_path / cell / "repository", tmp_path / cell / "restored"
        succeed("take", old, "-r", repository, "--job", cell)
        succeed("restore", "latest", "-r", repository, "--job", cell, "--into", new)
        tasks.append(Task(cell, str(folder / "input"), str(new), unchecked))
        rest.append({number: part for number, part in rows.items() if number > batch})
        assert rest[-1], cell
    assert dict(zip(CELLS, go_on(sys.executable, tasks), strict=True)) == dict(zip(CELLS, rest, strict=True))
