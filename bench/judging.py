"""How long it takes to judge what many jobs promise, and how much memory, in a separate process.

    python -m bench.judging JOBS

Each job has an hour of batches (a batch every ten seconds) in its own records and a checkpoint that is
looked into for skew, which all of them share. One line of JSON comes out: seconds, memory in MB.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.histories import made_up_line
from bench.memory import peak_mb
from bench.workloads import SmallFiles
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.sla.assess import assess_job

BATCHES, EVERY_S = 360, 10


def main(count: int) -> dict[str, Any]:
    """Judge all of them, twice."""
    with TemporaryDirectory() as name:
        jobs = made_up_jobs(Path(name), count)
        answer: dict[str, Any] = {"jobs": count, "batches": BATCHES, "start_mb": peak_mb()}
        for what in ("first", "again"):
            levels: Counter[str] = Counter()
            verdicts = 0
            began, used = time.perf_counter(), time.process_time()
            for job in jobs:
                found = assess_job(job)
                levels[found.level] += 1
                verdicts += len(found.verdicts)
            answer |= {
                f"{what}_s": time.perf_counter() - began,
                f"{what}_cpu_s": time.process_time() - used,
                f"{what}_mb": peak_mb(),
                "levels": dict(levels),
                "verdicts": verdicts,
            }
        return answer


def made_up_jobs(folder: Path, count: int) -> list[Job]:
    """So many jobs with an hour of batches each, and the checkpoint that they share."""
    SmallFiles(partitions=2).build(folder / "checkpoint")
    begin = utc_now() - timedelta(seconds=BATCHES * EVERY_S)
    lines = "".join(
        made_up_line(batch, begin + timedelta(seconds=EVERY_S * batch)) for batch in range(BATCHES)
    )
    return [_job(folder, f"job-{number:04d}", lines) for number in range(count)]


def _job(folder: Path, name: str, lines: str) -> Job:
    file = folder / "savepoints.control" / name / "progress" / "main" / "0000000001.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(lines, encoding="utf-8")
    checkpoint = f"file://{folder}/checkpoint"
    repository = f"file://{folder}/savepoints"
    return Job(name, "app.py", checkpoint, {"main": checkpoint}, repository)


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
