"""Objectives about how unevenly state, and traffic, are spread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.control.progress import progress_keys
from streambank.core.errors import ConflictError, NotFoundError
from streambank.sla.fact import Fact
from streambank.sla.judge.case import Case
from streambank.sla.judge.reported import ReportedObjective, Subject
from streambank.sla.objectives import Objective
from streambank.sla.skew.report import SkewReport, skew_of_checkpoint
from streambank.sla.skew.traffic import hot_key_facts
from streambank.sla.verdict import Verdict
from streambank.storage import open_store

_NOTHING_YET = ("not-a-checkpoint", "no-committed-batch")


@dataclass(frozen=True, slots=True)
class Spread:
    """The largest partitions, or keys, against the mean.

    Attributes:
        facts: One for each store, or operator; None where they are not known.
        why: Why not all is measured that is asked for, as half a sentence; empty where it is.
    """

    facts: Sequence[Fact] | None
    why: str = ""


def skews_of(
    location: str,
    objective: Objective,
    now: datetime,
    *,
    begun: bool,
    with_skew: Callable[[SkewReport], object] = lambda report: None,
) -> list[Fact] | None:
    """The skew of each store of a checkpoint that is large enough for it to mean something.

    Args:
        objective: `partition_skew`, for its limits.
        begun: Whether the query has committed batches for certain.

    Returns:
        None where it has not begun, or went on faster than its checkpoint could be read.
    """
    limits = [limit for limit in (objective.warn, objective.breach) if limit is not None]
    limit = max(1.0, min(limits))
    try:
        report = skew_of_checkpoint(open_store(location), limit=limit)
    except (ConflictError, NotFoundError) as error:
        if error.code != "checkpoint-moved" and (begun or error.code not in _NOTHING_YET):
            raise
        return None
    with_skew(report)
    found = []
    for store in report.stores:
        if store.skew is not None and (store.uneven or store.skew <= limit):
            name = "" if store.store == "default" else f", store {store.store}"
            found.append(Fact(now, store.skew, f"operator {store.operator}{name}", store.advice))
    return found


def _skew(subject: Subject, objective: Objective) -> Spread | None:
    if not subject.skew:
        return None
    keys = subject.looking.at("Its records", lambda: progress_keys(subject.control.store, subject.query))
    place, now, with_skew = subject.location, subject.now, subject.with_skew
    return Spread(skews_of(place, objective, now, begun=bool(keys), with_skew=with_skew))


def _evenness(case: Case, spread: Spread) -> Verdict:
    """By the least even one."""
    facts, why = spread.facts, (f"{spread.why}.",) if spread.why else ()
    # What state alone says is not the answer where traffic was asked for.
    if facts is None or (why and all(case.objective.level_of(fact.value) == "ok" for fact in facts)):
        return case.unmeasured(*why)
    if not facts:
        return case.verdict("ok", "There is too little state for its spread to mean anything.")
    last = max(facts, key=lambda fact: fact.value)
    level = case.objective.level_of(last.value)
    measured, against = case.objective.promise.begin, case.objective.against(level, last.value)
    return case.verdict(
        level,
        f"{measured} ({last.subject}) is {against}.",
        value=last.value,
        subject=last.subject,
        as_of=last.at,
        evidence=(last.what,) if last.what else (),
    )


SPREAD: Mapping[str, ReportedObjective[Any]] = {
    "partition_skew": ReportedObjective("Its state", _skew, _evenness),
    "hot_key": ReportedObjective(
        "Its largest keys",
        lambda subject, _: Spread(*hot_key_facts(subject.control, subject.query, subject.now)),
        _evenness,
    ),
}
