"""What a disaster cost: work that was done again (RPO), and the time until new work was done (RTO)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.units import from_json_time
from streambank.storage import Store
from tests.support.checkpoint.file_sink import FileSinkWriter


@dataclass(frozen=True, slots=True)
class Before:
    """Where the job was when the disaster began.

    Attributes:
        committed: When each batch was committed that the checkpoint retains, in seconds since 1970.
    """

    at: float
    committed: Mapping[int, float]
    rows: frozenset[int]


def before(checkpoint: Store, rows: Iterable[int]) -> Before:
    """Look where a job is."""
    names = [name for name in checkpoint.names("commits") if name.isdigit()]
    committed = {int(name): checkpoint.stat(f"commits/{name}").mtime_ns / 1e9 for name in names}
    return Before(time.time(), committed, frozenset(rows))


def restores_since(control: JobControl, at: float) -> list[dict[str, Any]]:
    """The reports of restores into the job's generations that began later, the newest first."""
    found = [record.data for record in RecordStream(control.store, "restores").newest_first()]
    return [one for one in found if from_json_time(one["started_at"]).timestamp() >= at]


def rpo(was: Before, restores: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    """How much was processed again: the time between the savepoint's batch and the last one, and the batches.

    Both are 0 where nothing was restored, or where nothing was processed after the savepoint.

    Args:
        restores: What was restored since, the newest first.
    """
    if not restores or not was.committed:
        return 0.0, 0
    last, restored = max(was.committed), int(restores[0]["batch"])
    of_batch = was.committed.get(restored, from_json_time(restores[0]["taken_at"]).timestamp())
    return max(0.0, was.committed[last] - of_batch), max(0, last - restored)


def rto_s(was: Before, output: Store) -> float | None:
    """The time from the disaster to the first file of the output with a row that was not there before it.

    None where there is no such row.
    """
    written = [
        at_ms / 1000
        for at_ms, rows in FileSinkWriter(output).files()
        if any(int(str(row["id"])) not in was.rows for row in rows)
    ]
    return min(written) - was.at if written else None
