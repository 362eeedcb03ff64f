"""Progress records as drivers leave them: made up batch by batch, or recorded from real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from streambank.core.units import to_json_time
from streambank.sla.history.history import HistoryScan, Records
from streambank.sla.history.point import History, Point
from streambank.storage.store import Store
from tests.support.paths import ROOT

FOLDER = ROOT / "tests/data/progress/4.3.0"
RECORDED = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def recorded(name: str) -> Records:
    """Real progress of Spark 4.3.0."""
    return Records.at(str(FOLDER / name))


def at(second: float) -> datetime:
    """So many seconds after the beginning."""
    return BEGIN + timedelta(seconds=second)


def line(
    batch: int, second: float, *, epoch: int = 1, run: str | None = None, took_s: float = 1.0, **progress: Any
) -> bytes:
    """One record, of a batch that ended at that second by the driver's clock."""
    run_id = run or f"run-{epoch}"
    said = {
        "runId": run_id,
        "batchId": batch,
        "timestamp": to_json_time(at(second - took_s)),
        "numInputRows": 10,
        "durationMs": {
            "triggerExecution": took_s * 1000,
            "addBatch": 1,
            "walCommit": 20,
            "commitOffsets": 30,
        },
        "stateOperators": [],
        "sources": [],
        **progress,
    }
    record = {
        "at": to_json_time(at(second)),
        "epoch": epoch,
        "query": "main",
        "run_id": run_id,
        "batch": batch,
        "progress": said,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def written(store: Store, *files: Sequence[bytes] | bytes) -> Records:
    """Files of lines (or bytes as they are), in the order in which drivers began them."""
    for number, lines in enumerate(files, 1):
        data = lines if isinstance(lines, bytes) else b"".join(one + b"\n" for one in lines)
        store.write(f"progress/main/{number:010d}.jsonl", data)
    return Records.of_query(store)


def seen(records: Records, **window: Any) -> tuple[list[tuple[int, float]], HistoryScan]:
    """Batches with their seconds since the beginning."""
    scan = HistoryScan(records, **window)
    return [(point.batch, (point.at - BEGIN).total_seconds()) for point in scan], scan


def batches(points: Iterable[Point]) -> list[int]:
    return [point.batch for point in points]


def operator(**fields: Any) -> Mapping[str, Any]:
    return {
        "operatorName": "stateStoreSave",
        "numRowsTotal": 100,
        "numRowsUpdated": 7,
        "numRowsRemoved": 5,
        "numRowsDroppedByWatermark": 1,
        "commitTimeMs": 800,
        "memoryUsedBytes": 9000,
        "numShufflePartitions": 4,
        "numStateStoreInstances": 4,
        "customMetrics": {},
        **fields,
    }


def held(records: Records, since: datetime | None = None) -> History:
    """A history whose points are in memory."""
    scan = HistoryScan(records, since=since)
    points = list(scan)
    return History(records.query, points, scan.runs, scan.notes())
