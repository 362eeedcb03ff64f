"""The queries of a job as they were judged, each with what is drawn of it: read once for both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.declaration.sla import SlaPolicy
from streambank.kafka.settings import Brokers
from streambank.sla.assess import Material, job_material, look_at_life
from streambank.sla.charts import Chart, charts_of
from streambank.sla.history.history import passed_through
from streambank.sla.history.point import Point
from streambank.sla.judge.judge import UnreadableHistory, judge
from streambank.sla.skew.report import SkewReport
from streambank.sla.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the state was after a batch, or at the end of an hour."""

    at: datetime
    rows: float | None
    bytes: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One query.

    Attributes:
        skew: How evenly its state is spread; None where that was not examined.
    """

    query: str
    verdicts: tuple[Verdict, ...]
    charts: tuple[Chart, ...]
    sizes: tuple[Sizes, ...]
    skew: SkewReport | None
    unreadable: tuple[str, ...]


def judge_queries(job: Job, now: datetime) -> list[Judged]:
    """Judge each query of a job, and gather what is drawn of it."""
    life, brokers = look_at_life(job, now), Brokers(job.kafka)
    found = []
    for query in job.queries:
        reports: list[SkewReport] = []
        material = job_material(job, query, now, life=life, brokers=brokers, with_skew=reports.append)
        verdicts = judge(job.name, material.history, job.sla, now, material.facts)
        found.append(drawn(material, job.sla, verdicts, now, next(iter(reports), None)))
    return found


def drawn(
    material: Material,
    policy: SlaPolicy | None,
    verdicts: tuple[Verdict, ...],
    now: datetime,
    skew: SkewReport | None = None,
) -> Judged:
    """A query that was judged, with what is drawn of it.

    Args:
        material: What it was judged by; its history is read once more.
    """
    charts: list[Chart] = []
    sizes: list[Sizes] = []

    def sized(points: Iterable[Point]) -> Iterator[Point]:
        sizes.clear()
        for point in points:
            rows, size_bytes = point.values.get("state_rows"), point.values.get("state_bytes")
            if rows is not None or size_bytes is not None:
                sizes.append(Sizes(point.at, rows, size_bytes))
            yield point

    unreadable = list(material.facts.unreadable)
    if isinstance(material.history, UnreadableHistory):
        unreadable.insert(0, material.history.why)
    else:
        try:
            history = passed_through(material.history, sized)
            charts = charts_of(history, policy, now, breaks=material.facts.breaks)
        except StreambankError as error:
            unreadable.insert(0, error.message)
    query, unread = material.history.query, tuple(dict.fromkeys(unreadable))
    return Judged(query, verdicts, tuple(charts), tuple(sizes), skew, unread)
