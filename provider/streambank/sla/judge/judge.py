"""From a history, and what else is known, to verdicts: one pass over the batches, whatever their number.

What cannot be read is a breach of its own (objective `history`), and what rests on it is unknown then: a
limit that nobody could look at is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streambank.core.errors import StreambankError
from streambank.core.units import to_json_time
from streambank.declaration.objectives import PROMISES
from streambank.declaration.sla import SlaPolicy
from streambank.sla.history.point import History, Point
from streambank.sla.judge.case import Case, active
from streambank.sla.judge.events import BESIDE_HISTORY, Facts, reported_verdict
from streambank.sla.judge.trends import TrendGauge
from streambank.sla.judge.windows import WindowGauge
from streambank.sla.objectives import HISTORY, Objective, objectives
from streambank.sla.verdict import Level, Verdict

_CLOCKS_APART = timedelta(minutes=1)
_READ_AGAIN = "Look at the checkpoint and the job's records, and repair what cannot be read."


@dataclass(frozen=True, slots=True)
class UnreadableHistory:
    """A history that should be there and cannot be read.

    Attributes:
        why: What went wrong, in a sentence.
    """

    query: str
    why: str
    advice: str = _READ_AGAIN


@dataclass(slots=True)
class _Pass:
    """One walk through a history."""

    gauges: tuple[WindowGauge | TrendGauge, ...]
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
            for gauge in self.gauges:
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
        job: Its job's name.
        history: Its batches; points may be read while they are judged.
        policy: What the job promises; the usual limits for None.
        now: The moment of the judgement, by which windows end.
    """
    case, known = Case(job, history.query, now), facts or Facts()
    wanted = objectives(policy)
    if isinstance(history, UnreadableHistory):
        return _unreadable(case, wanted, policy, history, known)
    limited = [one for one in wanted if one.name in PROMISES["time_to_limit"].measure.metrics]
    windows = [WindowGauge(one, now) for one in wanted if one.measure.kind == "window"]
    trends = [
        TrendGauge(one, limited if one.name == "time_to_limit" else [one], now, known.breaks)
        for one in wanted
        if one.measure.kind == "trend"
    ]
    walk = _Pass((*windows, *trends))
    try:
        walk.walk(history.points)
    except StreambankError as error:
        return _unreadable(case, wanted, policy, UnreadableHistory(history.query, error.message), known)
    measured = {gauge.objective.name: gauge.verdict(case, walk.batches, walk.newest) for gauge in walk.gauges}
    return (
        _history(case, policy, history, walk, known),
        *(
            measured[one.name] if one.name in measured else reported_verdict(case, one, known, walk.newest)
            for one in wanted
        ),
    )


def _history(case: Case, policy: SlaPolicy | None, history: History, walk: _Pass, facts: Facts) -> Verdict:
    evidence = [*history.notes]
    if walk.replaced:
        epochs = ", ".join(map(str, sorted(walk.by_epoch)))
        evidence.append(
            f"{walk.replaced} batches of drivers that had been replaced (epochs {epochs}) are left out."
        )
    if walk.newest is not None and walk.newest - case.now > _CLOCKS_APART:
        evidence.append(f"The newest batch is of {to_json_time(walk.newest)}, which is later than now.")
    odd = len(evidence) > len(history.notes)
    if facts.unreadable:
        return _verdict(
            case,
            policy,
            "breach",
            "Not everything could be read.",
            walk.newest,
            (*facts.unreadable, *evidence),
        )
    if not walk.batches:
        return _verdict(case, policy, "unknown", "The history has no batch.", None, tuple(evidence))
    runs = f" of {history.runs} runs" if history.runs > 1 else ""
    why = f"The history has {walk.batches} batches{runs}."
    return _verdict(case, policy, "warn" if odd else "ok", why, walk.newest, tuple(evidence))


def _verdict(
    case: Case,
    policy: SlaPolicy | None,
    level: Level,
    why: str,
    as_of: datetime | None,
    evidence: tuple[str, ...],
    advice: str = _READ_AGAIN,
) -> Verdict:
    return Verdict(
        job=case.job,
        query=case.query,
        objective=HISTORY,
        level=level,
        why=why,
        as_of=as_of,
        evidence=evidence,
        advice=advice if level in ("warn", "breach") else "",
        mute=active(policy.mute if policy else None, case.now),
        at=case.now,
    )


def _unreadable(
    case: Case,
    wanted: Iterable[Objective],
    policy: SlaPolicy | None,
    history: UnreadableHistory,
    facts: Facts,
) -> tuple[Verdict, ...]:
    why, evidence = f"The history cannot be read: {history.why}", tuple(facts.unreadable)
    return (
        _verdict(case, policy, "breach", why, None, evidence, history.advice),
        *(
            reported_verdict(case, one, facts, None)
            if one.name in BESIDE_HISTORY
            else case.verdict(one, "unknown", "The history cannot be read.")
            for one in wanted
        ),
    )
