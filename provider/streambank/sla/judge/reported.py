"""An objective about what is not in the history, as one object: how its fact is looked up, and judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

from streambank.control.control import JobControl
from streambank.core.errors import ConflictError, StreambankError
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.job.alive import Life
from streambank.kafka.settings import Brokers
from streambank.repository.manifest import Manifest
from streambank.sites.forks import newest_own
from streambank.sla.fact import Fact
from streambank.sla.judge.case import Case
from streambank.sla.objectives import Objective
from streambank.sla.skew.report import SkewReport
from streambank.sla.verdict import Verdict
from streambank.storage import open_store

T = TypeVar("T")

SHOWN = 3
"""So many facts are evidence."""
_SAVEPOINTS = 5
_LOOKS = 3
"""So often is looked at what moves while it is read."""


@dataclass(slots=True)
class Looking:
    """Collects facts; what cannot be looked at becomes a sentence."""

    unreadable: list[str] = field(default_factory=list)

    def at(self, what: str, look: Callable[[], T]) -> T | None:
        """What a look gives; None where it fails. What moved meanwhile is looked at again."""
        for left in reversed(range(_LOOKS)):
            try:
                return look()
            except StreambankError as error:
                if left and isinstance(error, ConflictError):
                    continue
                self.unreadable.append(f"{what}: {error.message}")
                return None
        return None


@dataclass(frozen=True)
class Subject:
    """A query of a declared job, for its facts; `life` is None where that could not be looked at."""

    job: Job
    query: str
    control: JobControl
    location: str
    now: datetime
    skew: bool = True
    life: Life | None = None
    brokers: Brokers = field(default_factory=Brokers)
    with_skew: Callable[[SkewReport], object] = lambda report: None
    looking: Looking = field(default_factory=Looking)

    @property
    def savepoint_name(self) -> str:
        """How its savepoints are called: `job`, or `job/query`."""
        return self.job.savepoint_name(self.query)

    @cached_property
    def savepoints(self) -> list[Manifest] | None:
        """Its newest savepoints, which several objectives need; None where they cannot be read."""
        place, name = self.job.repository, self.savepoint_name
        return self.looking.at("Its savepoints", lambda: newest_heads(place, name, self.control))


@dataclass(frozen=True, slots=True)
class ReportedObjective(Generic[T]):
    """One objective of the kind `reported`. Its row in `declaration/objectives.py` has limits and words.

    Attributes:
        what: What is looked at, as the beginning of a sentence that says why it cannot be read.
        look: Gives the fact of a query; None where there is none to judge.
        nothing: What is judged where nobody looked, or could not; None for a verdict that says so.
        needs_history: Whether it is not known where the history cannot be read.
    """

    what: str
    look: Callable[[Subject, Objective], T | None]
    judge: Callable[[Case, T], Verdict]
    nothing: T | None = None
    needs_history: bool = False

    def verdict(self, case: Case, fact: Any) -> Verdict:
        """The verdict on what `look` gave, if it gave anything."""
        known = self.nothing if fact is None else fact
        return case.unmeasured() if known is None else self.judge(case, known)


def sentence_of(fact: Fact) -> str:
    """A fact as evidence."""
    return f"{to_json_time(fact.at)}: {': '.join(part for part in (fact.subject, fact.what) if part)}"


def newest_heads(repository: str, name: str, control: JobControl | None) -> list[Manifest]:
    """The newest savepoints of a query that are not known to be damaged, nor of another line.

    Args:
        repository: Where; one that is not there has none.
        control: The job's records, which tell its line; None where it is not declared.

    Raises:
        StreambankError: It, or what the records say of the job's sites, cannot be read.
    """
    # What was derived from a savepoint is as old as that, however late it was made.
    found = newest_own(control, open_store(repository), name, _SAVEPOINTS)
    return [head for head in found if head.derived_from is None]


def begun_at(control: JobControl, query: str) -> datetime | None:
    """When the first generation of a query was made; None before the first start."""
    return min((generation.made_at for generation in control.generations(query).all()), default=None)
