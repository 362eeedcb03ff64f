"""A history that is measured in portions has the figures of one pass, however it is cut."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from streambank.sla.history.clock_order import Heads
from streambank.sla.history.history import HistoryScan, Records, file_heads
from streambank.sla.history.point import Point
from streambank.sla.history.sharded import Portion, PortionScan, portions, seen_before
from streambank.storage import open_store
from tests.support.histories import at, line, operator, written

NEVER = {"SnapshotLastUploaded.partition_0_default": -1, "rocksdbSstFileSize": 5}


def scanned(records: Records, heads: Heads, cut: Sequence[Portion]) -> list[PortionScan]:
    return [PortionScan(records.store, heads, one) for one in cut]


def eventful(seed: int) -> list[list[bytes]]:
    """Files of drivers one after the other: restarts, lost batches, damage, a clock that goes wrong, a driver
    that writes on after it was replaced, and a restore."""
    chance = random.Random(seed)
    files: list[list[bytes]] = []
    batch, second, epoch, run, shift = 0, 0.0, 1, 0, 0.0
    for _ in range(30):
        match chance.choice(("same", "same", "same", "restart", "restore", "query", "clock")):
            case "restart":
                epoch, run = epoch + 1, run + 1
            case "restore":
                epoch, run, batch = epoch + 1, run + 1, max(0, batch - chance.randrange(6))
            case "query":
                run += 1
            case "clock":
                shift = chance.choice((0.0, -25.0, 400.0))
            case _:
                pass
        lines = []
        for _ in range(chance.randrange(1, 9)):
            second += 10
            batch += chance.choice((1, 1, 1, 1, 3))
            lines.append(
                line(
                    batch,
                    second + shift,
                    epoch=epoch,
                    run=f"run-{run}",
                    stateOperators=[operator(numRowsTotal=batch, customMetrics=NEVER)],
                )
            )
            if chance.random() < 0.1:
                lines.append(b"not a record")
            if chance.random() < 0.1:
                lines.append(lines[0])
            if chance.random() < 0.2:
                run += 1
        files.append(lines)
        if chance.random() < 0.2:  # by a driver that does not know that it was replaced
            files.append([line(batch + 1, second + 1, epoch=epoch, run=f"run-{run}")])
            files.append([line(batch + 1, second + 2, epoch=epoch + 1, run=f"next-{run}")])
            files.append([line(batch + 2, second + 3, epoch=epoch, run=f"run-{run}")])
            epoch, run, batch, second = epoch + 1, run + 1, batch + 1, second + 3
    return files


@pytest.mark.parametrize("seed", range(5))
def test_portions_together_are_the_whole(tmp_path: Path, seed: int) -> None:
    records = written(open_store(tmp_path), *eventful(seed))
    scan = HistoryScan(records)
    whole = list(scan)
    heads = file_heads(records)
    for portion_bytes in (1, 3000, 9000, 10**9):
        cut = portions(records, heads, portion_bytes=portion_bytes)
        assert [one.begin for one in cut] == [0, *(one.end for one in cut[:-1])]
        parts = scanned(records, heads, cut)
        points: list[Point] = [point for part in parts for _, _, point in part]
        assert points == whole
        assert sum(part.lost for part in parts) == scan.lost
        assert sum(part.duplicates for part in parts) == scan.duplicates
        for name in ("damaged", "torn", "jumps", "stale"):
            assert sum(getattr(part.files, name) for part in parts) == getattr(scan, name), name
    assert len(cut) == 1
    assert len(portions(records, heads, portion_bytes=1)) == len(heads) > 30


def test_the_histories_above_hold_what_they_are_to_show(tmp_path: Path) -> None:
    seen = dict.fromkeys(("lost", "duplicates", "damaged", "jumps", "stale"), 0)
    for seed in range(5):
        scan = HistoryScan(written(open_store(tmp_path / str(seed)), *eventful(seed)))
        ages = [point.values.get("snapshot_age_batches", 0) for point in scan]
        assert max(ages) > 10, "runs are longer than a file"
        for name in seen:
            seen[name] += getattr(scan, name)
    assert all(seen.values()), seen


def test_a_part_of_a_history_goes_on_from_what_is_known_of_the_rest(tmp_path: Path) -> None:
    files = [
        [
            line(batch, batch * 10, stateOperators=[operator(customMetrics=NEVER)])
            for batch in range(first, first + 5)
        ]
        for first in range(0, 50, 5)
    ]
    records = written(open_store(tmp_path), *files)
    heads = file_heads(records, at(400))
    assert len(heads) == 4
    (known,) = portions(records, heads, began={"run-1": 0})
    (part,) = scanned(records, heads, [known])
    points = [point for _, _, point in part]
    assert points[-1].values["snapshot_age_batches"] == 50
    assert part.runs == {"run-1": 0}
    (unknown,) = portions(records, heads)
    assert unknown.began == 30, "as a window of the history says it"


def test_no_files_no_portions(tmp_path: Path) -> None:
    assert portions(Records.of_query(open_store(tmp_path)), []) == []


def test_what_was_there_when_it_was_counted() -> None:
    heads: Heads = [(f"progress/main/{number:010d}.jsonl", None) for number in range(1, 5)]
    seen = {heads[1][0]: 3, heads[2][0]: 2}
    found = [[seen_before(heads, place, number, seen) for number in range(4)] for place in range(4)]
    assert found == [[True] * 4, [True, True, True, False], [True, True, False, False], [False] * 4]
    assert not seen_before(heads, 0, 0, {})
