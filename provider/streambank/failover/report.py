"""What a fail-over is asked for, what it would do, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from streambank.core.choices import SinkChoice
from streambank.core.errors import StreambankError
from streambank.core.names import other_of
from streambank.core.shape import HIDDEN, TENTHS, Digits, JsonObject, encode
from streambank.core.units import say_duration, say_minute
from streambank.core.verb_options import FailoverOptions
from streambank.declaration.declaration import Job
from streambank.procedure.rows import WARNING, Rows, said_s, step_rows, titled
from streambank.recovery.approval import newest_of
from streambank.recovery.plan import RestorePlan


@dataclass
class FailoverRequest(FailoverOptions):
    """What a fail-over of a job at either of its sites is asked for.

    Attributes:
        sink_of: What to do with single sinks, in place of `sink`.
        new_outputs: New output directories instead of file sinks, over those that are declared.
        file_sinks: Output directories of file sinks that the savepoint of a query does not name, by query.
    """

    job: Job
    sink_of: Mapping[str, SinkChoice] = field(default_factory=dict)
    new_outputs: Mapping[str, str] = field(default_factory=dict)
    file_sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class SavepointAtSite(JsonObject):
    """The savepoint that a query goes on from at its new site.

    Attributes:
        age_s: How old it was when the fail-over began.
    """

    savepoint: str
    batch: int
    taken_at: datetime
    age_s: Annotated[float, TENTHS]

    def __str__(self) -> str:
        return f"{self.savepoint} of batch {self.batch:,}, {say_duration(round(self.age_s))} old"


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What a fail-over would do.

    Attributes:
        number: The number of the record that would begin it.
        driver: How the job is doing at the other site, such as `running`; None where it does not answer.
        resumes: A fail-over to this site has begun, or only the start is missing: this would finish it.
        savepoints: The newest savepoint of each query at the site that verifies, or what it was restored
            from already.
        rpo_s: How old the oldest of them is now: what would be lost or repeated without a last savepoint, in
            seconds; None where nothing is restored, or there is none.
        batches_behind: By how many batches they are behind at most; None where that is not known.
        without_final: What would speak against it as well if the other site, which answers, gave no last
            savepoint.
        committed: The newest committed batch of each query at the other site, where that is known.
        saves: A last savepoint is taken at the other site first, with which nothing is lost.
        needs_final: The fail-over is refused where the other site answers, and gives none.
        disagree: The sites do not agree which is the active one, and this decides it.
        gives_up: A fail-over to the other site has begun, and this gives it up.
    """

    job: str
    site: str
    was: str
    number: int
    answers: bool
    answers_why: str
    driver: str | None
    resumes: bool
    savepoints: Mapping[str, SavepointAtSite]
    rpo_s: Annotated[float | None, TENTHS]
    restores: Mapping[str, RestorePlan]
    batches_behind: int | None
    refusals: tuple[StreambankError, ...]
    without_final: tuple[StreambankError, ...]
    committed: Annotated[Mapping[str, int], HIDDEN]
    saves: bool
    needs_final: bool
    disagree: bool
    gives_up: bool

    @property
    def newest(self) -> dict[str, int]:
        """The newest batch of each query, its sinks, or the other site, as far as is known."""
        return {
            name: max(newest_of(one), self.committed.get(name, -1)) for name, one in self.restores.items()
        }

    @property
    def lost_after(self) -> datetime | None:
        """What came after it is lost or repeated without a last savepoint; None where nothing is."""
        return min((one.taken_at for one in self.savepoints.values()), default=None)

    @property
    def lost(self) -> str:
        """The same, for people; empty where nothing is."""
        if self.rpo_s is None or self.lost_after is None:
            return ""
        return f"everything after {say_minute(self.lost_after)} ({say_duration(round(self.rpo_s))} by now)"

    def rows(self) -> Rows:
        """What people read of it before they approve it."""
        other = other_of(self.site)
        rows = [
            row
            for name, one in self.restores.items()
            for row in titled(f"query {name}: another line", [one.another_line])
        ]
        rows += [("active site now", self.was), ("goes on at", self.site)]
        if self.resumes:
            rows.append(("finishes", "a fail-over that has begun"))
        if self.gives_up:
            goes_on = f"the {self.site} goes on in its own checkpoint"
            rows.append(("gives up", f"the fail-over to the {other} that has begun; {goes_on}"))
        if self.disagree:
            decided = f"each may be active by its own records; this decides for the {self.site}"
            rows.append(("the sites disagree", decided))
        if self.answers:
            driver = self.driver or "not known"
            rows.append((f"the {other}", f"answers; the job there: {driver}. It is fenced first"))
        else:
            rows.append((f"the {other}", f"does not answer, and CANNOT BE FENCED: {self.answers_why}"))
            risk = "if its driver runs on, two drivers write to every sink that both sites share"
            rows.append((f"once the {other} is said to be down", risk))
        if self.lost:
            best = "0 with the last savepoint that is taken first; else " if self.saves else ""
            behind = "not known" if self.batches_behind is None else f"{self.batches_behind:,}"
            rows += [("RPO", f"{best}{self.lost}"), ("batches behind", behind)]
        rows += [(f"query {name}", str(one)) for name, one in self.savepoints.items()]
        if not (self.saves and self.needs_final):
            without = ", without a last savepoint" if self.saves else ""
            for name, restore in self.restores.items():
                rows.append((f"output of {name} written later{without}", restore.sink_effect()))
        rows += [("without a last savepoint refused", one.message) for one in self.without_final]
        return [*rows, *(("refused", one.message) for one in self.refusals)]

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "refusals": [one.message for one in self.refusals],
            "without_final": [one.message for one in self.without_final],
        }


@dataclass(frozen=True, slots=True)
class FailoverReport(JsonObject):
    """What a fail-over came to.

    Attributes:
        number: The number of the record that says so.
        fenced: Whether the other site is known not to write any more, and not to start.
        fence: How its driver ended: as for a stop, or `broken`: its lease was ended, and its TTL waited for;
            None where it did not answer.
        resumed: This finished a fail-over that had begun before.
        savepoints: What each query went on from; empty where its own checkpoint went on.
        rpo_s: What was lost or is repeated at most, in seconds; 0 where a last savepoint was taken; None
            where nothing was restored.
        batches_behind: By how many batches the savepoint was behind; None where that is not known.
        rto_s: From the beginning until each query has committed a batch, or found no input; None where one
            has done neither.
        batches: The newest committed batch of each query at its end.
    """

    job: str
    site: str
    was: str
    number: int
    fenced: bool
    fence: str | None
    resumed: bool
    savepoints: Mapping[str, SavepointAtSite]
    rpo_s: Annotated[float | None, TENTHS]
    batches_behind: int | None
    rto_s: Annotated[float | None, TENTHS]
    steps: Annotated[Mapping[str, float], Digits(2)]
    batches: Mapping[str, int | None]
    warnings: tuple[str, ...]
    started_at: datetime
    by: Mapping[str, str]
    why: str

    def rows(self) -> Rows:
        """What people read of it."""
        rpo = "nothing was restored" if self.rpo_s is None else said_s(round(self.rpo_s))
        return [
            ("active site", self.site),
            ("fenced", "yes" if self.fenced else "NO"),
            ("RTO", said_s(self.rto_s, "not known")),
            ("RPO", rpo),
            *titled("batches behind", [None if self.batches_behind is None else f"{self.batches_behind:,}"]),
            *((f"query {name}", str(one)) for name, one in self.savepoints.items()),
            *step_rows(self.steps),
            *titled(WARNING, self.warnings),
        ]
