"""What a refresh of a copy would do, and what it has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any

from streambank.core.errors import StreambankError
from streambank.core.shape import MILLIS, TENTHS, JsonObject, encode
from streambank.core.units import say_bytes, say_duration
from streambank.procedure.rows import WARNING, Rows, titled
from streambank.recovery.together import skew_s

_OF_STATE = "none runs on it: the copy is of the state alone"


@dataclass(frozen=True, slots=True)
class QueryRefresh(JsonObject):
    """A query of a copy.

    Attributes:
        outputs: Where the application writes: outputs of the live job, each with the directory on the copy.
        sources: Where each source stands that can be asked, and what is gone, as in the plan of a restore;
            empty for a copy of the state alone, which reads nothing.
        source_effect: What of the input is still there, in a sentence for people.
        replayable_until: The time until which all of that input can be read again, where the sources say one.
        replayable_effect: The same in a sentence for people.
        query_id: The id of the new query; None in a plan.
    """

    query: str
    savepoint: str
    batch: int
    taken_at: datetime
    age_s: Annotated[float, TENTHS]
    repository: str
    generation: int
    location: str
    outputs: Mapping[str, str]
    files: int
    bytes: int
    sources: tuple[Mapping[str, Any], ...] = ()
    source_effect: str = ""
    replayable_until: datetime | None = None
    replayable_effect: str = ""
    query_id: str | None = None

    def rows(self) -> Rows:
        """What people read of it."""
        age = say_duration(round(self.age_s))
        return [
            (f"query {self.query}", f"{self.savepoint} of batch {self.batch:,}, {age} old"),
            ("repository", self.repository),
            ("checkpoint", self.location),
            *(("output", f"{new} instead of {old}") for old, new in self.outputs.items()),
            ("size", f"{say_bytes(self.bytes)} in {self.files:,} files"),
            *titled("query id", [self.query_id]),
            *titled("input", [self.source_effect, self.replayable_effect]),
        ]

    def made(self, query_id: str) -> QueryRefresh:
        """The same, with the id of the new query."""
        return replace(self, query_id=query_id)


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """A refresh of a copy, planned or done.

    Attributes:
        runs_as: The job as commands name it that runs on the copy.
    """

    job: str
    copy: str
    runs_as: str
    state_only: bool
    queries: tuple[QueryRefresh, ...]
    dry_run: bool = False
    refusals: tuple[StreambankError, ...] = ()
    removed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: Annotated[float, MILLIS] = 0.0
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""

    @property
    def skew_s(self) -> float:
        """Seconds between the oldest and the newest savepoint."""
        return skew_s([one.taken_at for one in self.queries])

    def rows(self) -> Rows:
        """What people read of it, beside which copy it is."""
        refused = [one.message for one in self.refusals]
        together = [say_duration(round(self.skew_s))] if len(self.queries) > 1 else []
        return [
            # What a refusal says is not said twice.
            *(row for one in self.queries for row in one.rows() if not any(why in row[1] for why in refused)),
            *titled("savepoints taken within", together),
            *titled("application", [_OF_STATE if self.state_only else ""]),
            *titled("removed", self.removed),
            *titled(WARNING, self.warnings),
            *titled("against it", (f"{one.message} {one.hint}" for one in self.refusals)),
        ]

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {"skew_s": round(self.skew_s, 1)}
