"""What a drill is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streambank.control.control import JobControl
from streambank.core.verb_options import DrillOptions
from streambank.declaration.declaration import Job

RANDOM = "random"
"""The reference that stands for any savepoint that is kept."""
EACH = "each"
"""That for all savepoints that are kept, one after the other."""


@dataclass
class DrillRequest(DrillOptions):
    """What a drill of a live job is asked for.

    Attributes:
        runs: The job as it is run on the copy, where its code is another one (an upgrade that is rehearsed);
            as it counts now when left out.
        savepoints: Which savepoint of each query, instead of `savepoint`.
        compare: What has to be as in the live query: `values`, `counts`, or `none` for nothing: differences
            are reported, and the drill passes. What is declared when left out.
        inspect: Called with the records of the copy after it ran; what it raises fails the step `compare`.
    """

    job: Job
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
