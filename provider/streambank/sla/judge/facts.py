"""What is known of a query besides its history: what each objective of the kind `reported` looks up.

Each is looked at by itself, and only where it is judged; what cannot be looked at is said, and ends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from streambank.control.control import JobControl
from streambank.sla.judge.reported import ReportedObjective, Subject
from streambank.sla.judge.running import RUNNING
from streambank.sla.judge.savepoints import SAVED
from streambank.sla.judge.spread import SPREAD
from streambank.sla.objectives import Objective

REPORTED: Mapping[str, ReportedObjective[Any]] = {**RUNNING, **SAVED, **SPREAD}
"""Every objective of the kind `reported`, by its name."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a query besides its history.

    Attributes:
        found: What the objectives have looked up, by their names. None: nobody looked, which is not the same
            as none.
        breaks: Moments at which the state was made smaller or larger: compactions, restores, backfills.
        unreadable: What should have been looked at and could not be, a sentence each.
    """

    found: Mapping[str, Any] = field(default_factory=dict)
    breaks: Sequence[datetime] = ()
    unreadable: Sequence[str] = ()


def look_up(subject: Subject, wanted: Sequence[Objective]) -> Facts:
    """The facts that some objectives are judged by."""
    looking = subject.looking
    found = {
        one.name: looking.at(REPORTED[one.name].what, partial(REPORTED[one.name].look, subject, one))
        for one in wanted
        if one.name in REPORTED
    }
    breaks = looking.at("Its generations", lambda: breaks_of(subject.control, subject.query)) or ()
    return Facts(found, breaks, tuple(looking.unreadable))


def breaks_of(control: JobControl, query: str) -> tuple[datetime, ...]:
    """When another directory became the query's checkpoint: restores, compactions."""
    return tuple(
        generation.made_at for generation in control.generations(query).all() if generation.number > 1
    )
