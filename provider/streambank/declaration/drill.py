"""What a job declares about its drills: when a restore is rehearsed, from where, and how far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from streambank.declaration.policy import UNDECLARED, Location, Schedule, at_least, one_of

DRILL_BATCHES = 3
"""How many batches of the live query a drill executes again where no number is given."""
DRILL_TIMEOUT_S = 1800.0
"""How long the application of a drill may take."""


@dataclass(frozen=True, slots=True)
class DrillPolicy:
    """`[jobs.NAME.drill]`: a restore that is rehearsed on a copy, with the job's own application.

    Attributes:
        savepoint: Which savepoint: `latest-good`, `random` for any of those that are kept, or `each` for all
            of them, one after the other.
        limit: At most so many savepoints with `each`, the newest ones; None for all.
        time_limit_s: With `each`: after so long no more drills begin, and the next round goes on with those
            that are left; None for no limit.
        repository: The repository or replica that it comes from; None for the job's own repository.
        batches: How many batches of the live query are executed again.
        scratch: Under which location the copy is written, seen by the job's Spark; None for beside the
            checkpoint.
        timeout_s: How long the application may take, for each savepoint.
        compare: What of output and state has to be as in the live query: `values`, or only `counts` of rows,
            for an application whose values depend on the order of rows.
        sources: Kinds of sources that a copy may read although it is not known that this leaves the live
            query alone, in Spark's words.
        spread: Whether it begins at a minute of the job's own, beside drills of other jobs.
    """

    schedule: Schedule | None = None
    savepoint: Annotated[str, one_of("latest-good", "random", "each")] = "latest-good"
    limit: int | None = None
    time_limit_s: float | None = None
    repository: Location | None = None
    batches: Annotated[int, at_least(0)] = DRILL_BATCHES
    scratch: Location | None = None
    timeout_s: float = DRILL_TIMEOUT_S
    compare: Annotated[str, one_of("values", "counts")] = "values"
    sources: tuple[str, ...] = ()
    spread: Annotated[bool, UNDECLARED] = True
