"""What a drill is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streambank.control.control import JobControl
from streambank.declaration.declaration import Job

RANDOM = "random"
"""The reference that stands for any savepoint that is kept."""
EACH = "each"
"""That for all savepoints that are kept, one after the other."""


@dataclass(frozen=True, slots=True)
class DrillRequest:
    """What a drill is asked for.

    Attributes:
        job: The live job.
        savepoint: `random`, or any reference to a savepoint (`repository/references.py`); `each` for all
            that are kept (`each.py`).
        repository: The repository or replica that it comes from; the declared one when left out.
        batches: How many batches of the live query are executed again; the declared number when left out.
        scratch: Under which location the copy is written; the declared one when left out.
        limit: At most so many savepoints with `each`; 0 for all, the declared number when left out.
        time_limit_s: With `each`: after so long no more drills begin, and the next round with a limit goes on
            with those that are left; 0 for no limit, the declared time when left out.
        keep: Leave the scratch where it is.
        timeout_s: How long the application may take; the declared time when left out.
        runs: The job as it is run on the copy, where its code is another one (an upgrade that is rehearsed);
            as it counts now when left out.
        savepoints: Which savepoint of each query, instead of `savepoint`.
        compare: What has to be as in the live query: `values`, `counts`, or `none` for nothing: differences
            are reported, and the drill passes. What is declared when left out.
        inspect: Called with the records of the copy after it ran; what it raises fails the step `compare`.
    """

    job: Job
    savepoint: str | None = None
    repository: str | None = None
    batches: int | None = None
    limit: int | None = None
    time_limit_s: float | None = None
    scratch: str | None = None
    keep: bool = False
    timeout_s: float | None = None
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    runs: Job | None = None
    savepoints: Mapping[str, str] = field(default_factory=dict)
    compare: str | None = None
    inspect: Callable[[JobControl], None] = lambda records: None

    @property
    def source(self) -> str:
        """The repository or replica that the savepoints come from."""
        return self.repository or self.job.drill.repository or self.job.repository

    @property
    def of_each(self) -> bool:
        """Whether each savepoint that is kept is drilled."""
        return not self.savepoints and (self.savepoint or self.job.drill.savepoint) == EACH
