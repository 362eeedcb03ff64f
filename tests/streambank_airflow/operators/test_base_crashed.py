"""A task whose process dies before any one of its writes: its next try ends as if nothing had happened.

Each try is a process of its own; `kill -9` comes before its first write, its second one, and so on.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from streambank.job.savepoint import savepoint_job
from streambank.storage.local.store import LocalStore
from streambank_airflow.operators.compact import CompactCheckpointOperator
from streambank_airflow.operators.repository import (
    ExpireSavepointsOperator,
    ReplicateSavepointsOperator,
    SweepRepositoryOperator,
)
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import (
    CreateSavepointOperator,
    PinSavepointOperator,
    VerifySavepointOperator,
)
from tests.streambank_airflow.operators.test_base_retried import attempt
from tests.support.jobs.managed_job import BY, Managed
from tests.support.storage.faulty_store import WRITES

pytestmark = pytest.mark.usefixtures("airflow_database")

CHANGING = ("seconds", "at", "age_s", "started_at", "query_id")
"""What two results of the same work may differ in."""
MOVED = (
    *(
        "already_restored",
        "already_there",
        "already_done",
        "new_bytes",
        "moved_bytes",
        "there_bytes",
        "replans",
    ),
    *("copied", "there", "refilled", "dropped", "kept", "kept_files", "kept_bytes"),
    *("generation", "location"),  # another generation where the switch to the first was not recorded as done
)
"""And what says how much of it was left to do."""
CASES: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "take": (CreateSavepointOperator, {"name": "nightly"}),
    "pin": (PinSavepointOperator, {"savepoint": "latest"}),
    "verify": (VerifySavepointOperator, {"level": "full"}),
    "replicate": (ReplicateSavepointsOperator, {"to": ["{folder}/replica"]}),
    "expire": (ExpireSavepointsOperator, {"keep_last": 1, "min_verified": 0}),
    "sweep": (SweepRepositoryOperator, {"grace_s": "2h"}),
    "restore": (RestoreSavepointOperator, {"sink": "accept"}),
    "restore-into": (RestoreSavepointOperator, {"sink": "accept", "into": "{folder}/in", "mode": "fork"}),
    "compact": (CompactCheckpointOperator, {"stopped": True}),
}
USUAL = ("take", "expire", "pin")
"""Those that take a few seconds."""


@pytest.fixture
def stopped(managed: Managed) -> Managed:
    """A job that stands still, with two savepoints, of which one has a batch less."""
    managed.start(until=1)
    savepoint_job(managed.job, by=BY)
    managed.wait_for_batch(managed.last_batch() + 2)
    managed.stop()
    savepoint_job(managed.job, by=BY)
    return managed


def executed(case: str, managed: Managed, number: int) -> dict[str, Any]:
    operator, options = CASES[case]
    filled = {
        name: [one.format(folder=managed.folder) for one in value]
        if isinstance(value, list)
        else value.format(folder=managed.folder)
        if isinstance(value, str)
        else value
        for name, value in options.items()
    }
    task = operator(task_id="t", job="flights", jobs_file=managed.jobs_file, **filled)
    task.outlets = []
    context = attempt()
    context["ti"].try_number = number
    found: dict[str, Any] = task.execute(context)
    return found


def dies_before(write: int, work: Callable[[], object]) -> bool:
    """Do work in a process that is killed before one of its writes; whether it came to that one."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    try:
        numbers = count(1)

        def counted(inner: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                if next(numbers) == write:
                    os.kill(os.getpid(), signal.SIGKILL)
                return inner(*arguments, **named)

            return call

        for name in WRITES & vars(LocalStore).keys():
            setattr(LocalStore, name, counted(vars(LocalStore)[name]))
        work()
    finally:
        os._exit(0)


def lasting(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in (*CHANGING, *MOVED)}


@pytest.mark.parametrize(
    "case", [case if case in USUAL else pytest.param(case, marks=pytest.mark.storm) for case in CASES]
)
def test_the_next_try_ends_as_if_nothing_had_happened(case: str, stopped: Managed, tmp_path: Path) -> None:
    folder, before = stopped.folder, tmp_path.with_name(f"{tmp_path.name}-before")
    shutil.copytree(folder, before, symlinks=True)

    def undone() -> None:
        shutil.rmtree(folder)
        shutil.copytree(before, folder, symlinks=True)

    undisturbed = lasting(executed(case, stopped, 1))
    listed = [one.savepoint for one in stopped.repository.manifests("flights")]
    generations = [one.number for one in stopped.control.generations(None).all()]
    for write in count(1):
        undone()
        if not dies_before(write, lambda: executed(case, stopped, 1)):
            break
        again = lasting(executed(case, stopped, 2))

        assert again == undisturbed, f"killed before write {write}"
        assert len(list(stopped.repository.manifests("flights"))) == len(listed), f"before write {write}"
        assert (stopped.checkpoint / "metadata").exists(), f"before write {write}"
        assert stopped.generation.number - generations[-1] in (0, 1), f"before write {write}"
    assert write > 1, "it has written"
