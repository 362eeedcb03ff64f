"""Jobs whose records say that they have run for a while, to be assessed."""

from __future__ import annotations

import math

from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from tests.support.sla.progress_records import at, line, operator

EVERY_S = 600.0
"""From batch to batch."""
_IN_A_FILE = 60


def grow(job: Job, *, hours: float, per_hour: float, epochs: int = 1) -> None:
    """Records until a moment ago, of a state that grows by so many bytes an hour from 1 GB on.

    Args:
        epochs: By so many drivers, one after the other.
    """
    count = int(hours * 3600 / EVERY_S)
    end_s = (utc_now() - at(0)).total_seconds() - 5
    lines = []
    for batch in range(count):
        size = int(1e9 + per_hour * batch * EVERY_S / 3600 + 1e5 * math.sin(batch * 7))
        state = [operator(customMetrics={"rocksdbSstFileSize": size})]
        epoch = 1 + batch * epochs // count
        lines.append(
            (epoch, line(batch, end_s - (count - 1 - batch) * EVERY_S, epoch=epoch, stateOperators=state))
        )
    number = 0
    store = job.records().store
    for epoch in range(1, epochs + 1):
        own = [one for of, one in lines if of == epoch]
        for begin in range(0, len(own), _IN_A_FILE):
            number += 1
            data = b"".join(one + b"\n" for one in own[begin : begin + _IN_A_FILE])
            store.write(f"progress/main/{number:010d}.jsonl", data)
