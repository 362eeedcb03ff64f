"""The queries of recorded checkpoints, continued by any Spark: in a separate process, on its interpreter.

`python going_on.py TASKS ANSWER`: TASKS is a JSON file with a list of tasks. ANSWER gets a list as long: the
rows of each batch that was run, or the first lines of what Spark said. It imports nothing of Streambank, and
runs on Python 3.11.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MAKER = Path(__file__).resolve().parents[2] / "data" / "checkpoints" / "make.py"


@dataclass(frozen=True)
class Task:
    """A query to continue.

    Attributes:
        cell: Which one; those of checkpoint format v2 get their own JVM.
        unchecked: Whether Spark does not compare the state's schema with the query's.
    """

    cell: str
    input: str
    checkpoint: str
    unchecked: bool = False


def go_on(python: str | Path, tasks: Sequence[Task]) -> list[dict[int, list[Any]] | str]:
    """Continue queries by the Spark of an interpreter.

    Returns:
        For each the rows of the batches that were run, or what Spark said where it failed.
    """
    found: dict[Task, dict[int, list[Any]] | str] = {}
    for ids in (False, True):
        some = [one for one in tasks if one.cell.startswith("ids-") == ids]
        if some:
            found |= dict(zip(some, _run(python, some), strict=True))
    return [found[one] for one in tasks]


def make(python: str | Path, cells: Sequence[str], folder: Path) -> None:
    """Make checkpoints by the Spark of an interpreter: `<folder>/<version>/<cell>.tar.xz`."""
    for ids in (False, True):
        some = [one for one in cells if one.startswith("ids-") == ids]
        if some:
            command = [python, "-W", "ignore", MAKER, "--work", folder / "work", "--out", folder, *some]
            subprocess.run(command, check=True, capture_output=True)


def _run(python: str | Path, tasks: Sequence[Task]) -> list[dict[int, list[Any]] | str]:
    with tempfile.TemporaryDirectory() as folder:
        file, answer = Path(folder) / "tasks.json", Path(folder) / "answer.json"
        file.write_text(json.dumps([asdict(one) for one in tasks]), encoding="utf-8")
        done = subprocess.run(
            [python, "-W", "ignore", __file__, file, answer], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        rows = json.loads(answer.read_text(encoding="utf-8"))
    return [
        one if isinstance(one, str) else {int(batch): part for batch, part in one.items()} for one in rows
    ]


def _main(file: str, answer: str) -> None:
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        # Catalyst plans a join by recursion, which can take more than the usual stack of a JVM that is cold.
        PYSPARK_SUBMIT_ARGS="--driver-java-options -Xss8m pyspark-shell",
    )
    spec = importlib.util.spec_from_file_location("make_checkpoints", MAKER)
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = maker
    spec.loader.exec_module(maker)
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(maker)  # type: ignore[no-untyped-call]  # PySpark has no types for it
    found: list[dict[int, list[Any]] | str] = []
    for task in json.loads(Path(file).read_text(encoding="utf-8")):
        cell = maker.CELLS[task["cell"]]
        if not task["cell"].startswith("ids-"):
            cell = maker.Cell(cell.query)  # what counts is in the checkpoint; format v2 is the session's
        try:
            spark = maker.session(cell, Path(file).parent / "warehouse")
            spark.conf.set(maker.STORE + "stateSchemaCheck", str(not task["unchecked"]).lower())
            found.append(maker.run(spark, cell.query, Path(task["input"]), Path(task["checkpoint"])))
        except Exception as error:
            found.append("\n".join(str(error).splitlines()[:20]))
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
