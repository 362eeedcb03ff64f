"""From a history, and what else is known, to verdicts: one pass over the batches, whatever their number.

What cannot be read is a breach of its own (objective `history`), and what rests on it is unknown then: a
limit that nobody could look at is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streambank.core.errors import StreambankError
from streambank.core.units import to_json_time
from streambank.declaration.objectives import PROMISES
from streambank.declaration.sla import SlaPolicy
from streambank.sla.history.point import History, Point
from streambank.sla.judge.case import Case, active
from streambank.sla.judge.facts import REPORTED, Facts
from streambank.sla.judge.trends import TrendGauge
from streambank.sla.judge.windows import WindowGauge
from streambank.sla.objectives import HISTORY, Objective, objectives
from streambank.sla.verdict import Level, Verdict

_CLOCKS_APART = timedelta(minutes=1)
_READ_AGAIN = "Look at the checkpoint and the job's records, and repair what cannot be read."


@dataclass(frozen=True, slots=True)
class UnreadableHistory:
    """A history that should be there and cannot be read."""

    query: str
    why: str
    advice: str = _READ_AGAIN


@dataclass(slots=True)
class _Pass:
    gauges: dict[str, WindowGauge | TrendGauge]
    batches: int = 0
    replaced: int = 0
    epoch: int | None = None
    newest: datetime | None = None
    by_epoch: set[int] = field(default_factory=set)

    def walk(self, points: Iterable[Point]) -> None:
        for point in points:
            if point.epoch is not None:
                # Whoever holds a smaller epoch was replaced: what it still commits is not the query's.
                if self.epoch is not None and point.epoch < self.epoch:
                    self.replaced += 1
                    self.by_epoch.add(point.epoch)
                    continue
                self.epoch = point.epoch
            self.batches += 1 if point.stretch is None else point.stretch.count
            self.newest = point.at
            for gauge in self.gauges.values():
                gauge.add(point)


def judge(
    job: str,
    history: History | UnreadableHistory,
    policy: SlaPolicy | None,
    now: datetime,
    facts: Facts | None = None,
) -> tuple[Verdict, ...]:
    """Verdicts on one query: that of `history` first, then each objective in the order of the docs.

    Args:
        history: Its batches; points may be read while they are judged.
        now: The moment of the judgement, by which windows end.
    """
    known, wanted = facts or Facts(), objectives(policy)
    walk = _Pass(_gauges(wanted, now, known))
    if isinstance(history, History):
        try:
            walk.walk(history.points)
        except StreambankError as error:
            history = UnreadableHistory(history.query, error.message)
    if isinstance(history, History):
        newest, advice = walk.newest, _READ_AGAIN
        level, why, evidence = _of_history(history, walk, now, known)
    else:
        newest, advice = None, history.advice
        level, why = "breach", f"The history cannot be read: {history.why}"
        evidence = [*known.unreadable]
    first = Verdict(
        job=job,
        query=history.query,
        objective=HISTORY,
        level=level,
        why=why,
        as_of=newest,
        evidence=tuple(evidence),
        advice=advice if level in ("warn", "breach") else "",
        mute=active(policy.mute if policy else None, now),
        at=now,
    )
    found = [first]
    for objective in wanted:
        case, reported = Case(objective, job, history.query, now, newest), REPORTED.get(objective.name)
        if isinstance(history, UnreadableHistory) and (reported is None or reported.needs_history):
            found.append(case.verdict("unknown", "The history cannot be read."))
        elif reported is not None:
            found.append(reported.verdict(case, known.found.get(objective.name)))
        else:
            found.append(walk.gauges[objective.name].verdict(case, walk.batches))
    return tuple(found)


def _gauges(wanted: Sequence[Objective], now: datetime, facts: Facts) -> dict[str, WindowGauge | TrendGauge]:
    found: dict[str, WindowGauge | TrendGauge] = {}
    limited = [one for one in wanted if one.name in PROMISES["time_to_limit"].metrics]
    for one in wanted:
        if one.promise.kind == "window":
            found[one.name] = WindowGauge(one, now)
        elif one.promise.kind == "trend":
            sizes = limited if one.name == "time_to_limit" else [one]
            found[one.name] = TrendGauge(one, sizes, now, facts.breaks)
    return found


def _of_history(history: History, walk: _Pass, now: datetime, facts: Facts) -> tuple[Level, str, list[str]]:
    odd = []
    if walk.replaced:
        epochs = ", ".join(map(str, sorted(walk.by_epoch)))
        odd.append(
            f"{walk.replaced} batches of drivers that had been replaced (epochs {epochs}) are left out."
        )
    if walk.newest is not None and walk.newest - now > _CLOCKS_APART:
        odd.append(f"The newest batch is of {to_json_time(walk.newest)}, which is later than now.")
    evidence = [*facts.unreadable, *history.notes, *odd]
    if facts.unreadable:
        return "breach", "Not everything could be read.", evidence
    if not walk.batches:
        return "unknown", "The history has no batch.", evidence
    runs = f" of {history.runs} runs" if history.runs > 1 else ""
    return "warn" if odd else "ok", f"The history has {walk.batches} batches{runs}.", evidence
