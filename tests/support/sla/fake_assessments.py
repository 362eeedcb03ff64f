"""Assessments as a test says, where it is not about how they come about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streambank.core.names import QueryRef
from streambank.declaration.declaration import Job
from streambank.declaration.sla import Mute
from streambank.sla.assess import Assessment
from streambank.sla.objectives import HISTORY
from streambank.sla.verdict import Level, Verdict

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
MUTE = Mute(datetime(2027, 1, 1, tzinfo=UTC), "known")


def verdict(
    objective: str, level: Level, *, job: str = "flights", query: str = "main", **more: Any
) -> Verdict:
    said: dict[str, Any] = {"why": f"It is {level}.", "value": 1.5, "since": AT, "at": AT, **more}
    return Verdict(job=job, query=query, objective=objective, level=level, **said)


class Assessor:
    """Stands in for the engine's `assess_job` and `assess_checkpoint`.

    Attributes:
        levels: By job (and `job/query`), the level of each objective; those of `history` are ok.
        errors: Jobs whose assessment raises.
    """

    def __init__(self) -> None:
        self.levels: dict[str, dict[str, Level]] = {}
        self.errors: dict[str, Exception] = {}
        self.muted: set[str] = set()
        self.asked: list[tuple[str, str | None, bool]] = []

    def says(self, job: str = "flights", **levels: Level) -> None:
        self.levels[job] = levels

    def assess_job(self, job: Job, *, query: str | None = None, skew: bool = True) -> Assessment:
        self.asked.append((job.name, query, skew))
        queries = [query] if query else [*job.queries]
        refs = {
            f"{job.name}/{one}" if f"{job.name}/{one}" in self.levels else job.name: one for one in queries
        }
        return self._found(job.name, refs)

    def assess_checkpoint(
        self, location: str, *, repository: str | None, name: str, skew: bool = True
    ) -> Assessment:
        self.asked.append((location, repository, skew))
        asked = QueryRef.parse(name)
        return self._found(asked.job, {name: asked.name})

    def _found(self, job: str, refs: dict[str, str]) -> Assessment:
        if job in self.errors:
            raise self.errors[job]
        verdicts = []
        for ref, query in refs.items():
            levels: dict[str, Level] = {HISTORY: "ok", **self.levels.get(ref, {})}
            for objective, level in levels.items():
                mute = MUTE if objective in self.muted else None
                verdicts.append(verdict(objective, level, job=job, query=query, mute=mute))
        return Assessment(job, AT, tuple(verdicts))


@pytest.fixture
def assessor(monkeypatch: pytest.MonkeyPatch) -> Assessor:
    """What is found from now on, in this process."""
    found = Assessor()
    monkeypatch.setattr("streambank_airflow.watch.sla.assess_job", found.assess_job)
    monkeypatch.setattr("streambank_airflow.watch.sla.assess_checkpoint", found.assess_checkpoint)
    return found
