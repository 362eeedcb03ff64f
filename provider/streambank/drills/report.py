"""What a drill leaves behind: what was restored, executed and compared, and how long each step took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from streambank.control.drills import for_queries
from streambank.core.shape import HIDDEN, MILLIS, TENTHS, encode
from streambank.core.units import say_count, say_duration
from streambank.procedure.rows import Rows, said_s, step_rows, titled

Step = Literal["choose", "restore", "stage", "launch", "state", "batches", "compare", "clean"]
"""The steps of a drill, in their order: choose and verify the savepoint, restore it into scratch, bring the
live query's plans there, launch the application, open the state, process batches, compare, clean up."""
OF_A_RESTORE: tuple[Step, ...] = ("choose", "restore", "launch", "batches")
"""Steps that a real restore takes, too: their time is the RTO. Of `batches` only the first batch counts."""
UNPROVEN = "no batch was processed"
"""Stands in `not_compared` of a query of which that is so."""


@dataclass(frozen=True, slots=True)
class BatchDrill:
    """One batch that the copy has executed.

    Attributes:
        seconds: How long it took, from the start of the query to its end.
        input_rows: Rows that the copy read; None where Spark did not say.
        live_input_rows: Rows that the live query read; None where its progress is not kept any more.
        state_rows: Rows of state after it, of all operators.
        live_state_rows: The same of the live query.
        output: `rows`, `live_rows`, and how many rows `only_copy` or `only_live` has; or `why` it was not
            compared.
    """

    batch: int
    seconds: float
    input_rows: int | None = None
    live_input_rows: int | None = None
    state_rows: int | None = None
    live_state_rows: int | None = None
    output: Mapping[str, Any] = field(default_factory=dict)

    @property
    def same(self) -> list[str]:
        """What is as in the live batch, for people."""
        return [
            f"{ours:,} {what}"
            for what, ours, theirs in (
                ("rows of input", self.input_rows, self.live_input_rows),
                ("rows of state", self.state_rows, self.live_state_rows),
                ("rows of output", self.output.get("rows"), self.output.get("live_rows")),
            )
            if ours is not None and ours == theirs
        ]

    def differences(self, *, values: bool = True) -> list[str]:
        """In what it differs from the live batch, for people.

        Args:
            values: Whether what rows hold counts, or only how many there are.
        """
        found = []
        for what, ours, theirs in (
            ("rows of input", self.input_rows, self.live_input_rows),
            ("rows of state", self.state_rows, self.live_state_rows),
        ):
            if ours is not None and theirs is not None and ours != theirs:
                found.append(f"batch {self.batch} has {ours:,} {what}, and {theirs:,} in the live query")
        if not values and self.output.get("rows") == self.output.get("live_rows"):
            return found
        lacks, adds = self.output.get("only_live", 0), self.output.get("only_copy", 0)
        if lacks or adds:
            lacking = f"lacks {lacks:,} rows of the live query's" if lacks else ""
            others = f"has {adds:,} rows that the live query's has not" if adds else ""
            found.append(f"the output of batch {self.batch} {' and '.join(filter(None, (lacking, others)))}")
        return found


@dataclass(frozen=True, slots=True)
class QueryDrill:
    """What was drilled of one query.

    Attributes:
        age_s: How old it was: what is younger would have to be processed again (RPO).
        batches_behind: How many batches the live query was ahead; None where it has none.
        state: The state right after the restore: of each part its rows and digest, or `why` not.
        state_equal: Whether the state after the last of them is that of the live query; None where that was
            not compared.
    """

    query: str
    savepoint: str
    batch: int
    taken_at: datetime
    age_s: Annotated[float, TENTHS]
    batches_behind: int | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    batches: tuple[BatchDrill, ...] = ()
    state_equal: bool | None = None
    not_compared: tuple[str, ...] = ()

    def differences(self, *, values: bool = True) -> list[str]:
        """In what the copy differs from the live query, for people.

        Args:
            values: Whether what rows hold counts, or only how many there are.
        """
        found = [difference for one in self.batches for difference in one.differences(values=values)]
        if self.state_equal is False and values:
            found.append(f"the state after batch {self.batches[-1].batch} is not that of the live query")
        return found

    def rows(self) -> Rows:
        """What people read of it."""
        behind = "" if self.batches_behind is None else f", {say_count(self.batches_behind, 'batch')} behind"
        age = say_duration(round(self.age_s))
        rows = [(f"query {self.query}", f"{self.savepoint} of batch {self.batch:,}, {age} old{behind}")]
        for one in self.batches:
            said = "it differs" if one.differences() else "nothing of it was compared"
            if one.same and not one.differences():
                said = f"as in the live query: {', '.join(one.same)}"
            rows.append((f"batch {one.batch:,}", f"{one.seconds:.1f} s, {said}"))
        if self.state_equal:
            rows.append((f"state after {self.batches[-1].batch:,}", "as in the live query"))
        return [*rows, *titled("differs", self.differences()), *titled("not compared", self.not_compared)]

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"differences": self.differences()}


@dataclass(frozen=True, slots=True)
class StillRejected:
    """A savepoint that could not be marked as proven at a location, although a drill of it has passed.

    Attributes:
        location: The repository or replica that refused.
    """

    query: str
    savepoint: str
    location: str
    why: str

    @property
    def said(self) -> str:
        """The same, for people."""
        return (
            f"savepoint {self.savepoint} could not be marked as proven in {self.location}, "
            f"so it is still rejected there: {self.why}"
        )


@dataclass(frozen=True, slots=True)
class DrillReport:
    """A drill that is over.

    Attributes:
        rto_s: Seconds from the decision to the first batch of every query; None where it did not get there.
        hint: What to do about the error; only where the drill has run.
        failed_queries: The queries that failed: one of them, or all where the application did.
        not_run: Why the application was not run on the copy, so that the drill proves the savepoint and its
            state and no more; empty where it was run.
        round: The round that it is part of (`each.py`); None for a drill by itself.
        still_rejected: Savepoints whose rejection it could not end (`accept.py`).
    """

    job: str
    repository: str
    started_at: datetime
    seconds: Annotated[float, MILLIS]
    queries: tuple[QueryDrill, ...] = ()
    steps: Annotated[Mapping[str, float], MILLIS] = field(default_factory=dict)
    rto_s: Annotated[float | None, MILLIS] = None
    failed_step: str | None = None
    code: str | None = None
    error: str = ""
    hint: Annotated[str, HIDDEN] = ""
    not_run: str = ""
    scratch: str = ""
    kept: bool = False
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    round: Mapping[str, Any] | None = None
    failed_queries: tuple[str, ...] = ()
    still_rejected: tuple[StillRejected, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether a restore would have worked: each step did, and nothing that was compared differs."""
        return self.failed_step is None

    @property
    def rpo_s(self) -> float | None:
        """How old the oldest of the savepoints was, in seconds; None where none was chosen."""
        return max((one.age_s for one in self.queries), default=None)

    @property
    def verdict(self) -> str:
        """How it ended, for people."""
        if self.passed:
            return "passed"
        return f"failed{for_queries(self.to_dict())} at the step {self.failed_step}: {self.error}"

    def rows(self) -> Rows:
        """What people read of it, beside the verdict."""
        return [
            ("RTO", said_s(self.rto_s)),
            ("RPO", said_s(None if self.rpo_s is None else round(self.rpo_s))),
            ("repository", self.repository),
            *titled("application", [self.not_run and f"not run on the copy: {self.not_run}"]),
            *(row for one in self.queries for row in one.rows()),
            *titled("still rejected", (one.said for one in self.still_rejected)),
            *step_rows(self.steps),
            *titled("the copy", [self.scratch if self.kept else ""]),
        ]

    def to_dict(self) -> dict[str, Any]:
        rpo_s = None if self.rpo_s is None else round(self.rpo_s, 1)
        return encode(self) | {"passed": self.passed, "rpo_s": rpo_s}


def why_unproven(report: DrillReport) -> str:
    """Why a rehearsal that passed has processed no batch of a query; empty if it has of each."""
    return report.not_run or next(
        (
            f"of query {one.query} {why}"
            for one in report.queries
            for why in one.not_compared
            if UNPROVEN in why
        ),
        "",
    )
