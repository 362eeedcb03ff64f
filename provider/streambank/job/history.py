"""What happened to a job: what people asked for, what its drivers and savepoints did. Only reads."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.control.control import JobControl
from streambank.control.processes import person
from streambank.control.records import Record
from streambank.core.names import MAIN
from streambank.core.units import from_json_time, to_json_time
from streambank.declaration.declaration import Job
from streambank.driver.failure import shown

_FACTS = ("epoch", "batch", "savepoint", "generation", "exit_code", "failure", "error", "cause", "code")
"""Fields of an event that are shown, as they are called in docs/formats/job.md."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened.

    Attributes:
        at: When; None where the record does not say or is damaged.
        kind: One of the kinds of events in docs/formats/job.md, `desired-running`, `desired-stopped` or
            `restored`; the error's code where the record is damaged.
        query: The query it is about; None for the job.
        facts: What else is known, such as `epoch` and `batch`.
        by: Who asked for it; None where nobody did.
        why: Why, in their words or those of a refusal.
    """

    at: datetime | None
    kind: str
    query: str | None = None
    facts: Mapping[str, Any] | None = None
    by: str | None = None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "at": None if self.at is None else to_json_time(self.at),
            "kind": self.kind,
            "query": self.query,
            "facts": dict(self.facts or {}),
            "by": self.by,
            "why": self.why,
        }


def job_history(job: Job, newest: int = 50) -> list[Happening]:
    """The newest things that happened to a job, oldest first.

    Args:
        job: As it was declared.
        newest: How many at most.

    Raises:
        StorageError: The records cannot be read.
    """
    records = job.records()
    streams = [_events(records, newest), _desired(records, newest), *_generations(job, records)]
    found = heapq.merge(*(sorted(stream, key=_when) for stream in streams), key=_when)
    return list(found)[-newest:]


def _when(one: Happening) -> float:
    return 0.0 if one.at is None else one.at.timestamp()


def _events(records: JobControl, newest: int) -> Iterator[Happening]:
    for record in records.events(newest=newest):
        data = record.data
        query = data.get("query")
        facts = {name: data[name] for name in _FACTS if data.get(name) is not None}
        yield Happening(
            _at(data.get("at")),
            _kind(record),
            None if query == MAIN or query is None else str(query),
            {name: shown(value) if isinstance(value, str) else value for name, value in facts.items()},
            person(data["by"]) if isinstance(data.get("by"), Mapping) else None,
            shown(str(data.get("why") or data.get("message") or "")),
        )


def _desired(records: JobControl, newest: int) -> Iterator[Happening]:
    for record in records.desired_records.history(newest=newest):
        data = record.data
        kind = _kind(record) if "error" in data else f"desired-{data.get('state')}"
        by = data.get("by")
        who = person(by) if isinstance(by, Mapping) else None
        yield Happening(_at(data.get("at")), kind, by=who, why=shown(str(data.get("why") or "")))


def _generations(job: Job, records: JobControl) -> Iterator[Iterator[Happening]]:
    for name in job.queries:
        yield _restored(records, name)


def _restored(records: JobControl, name: str) -> Iterator[Happening]:
    for record in records.generations(name).records.history():
        data = record.data
        if data.get("from_savepoint"):
            facts = {"generation": record.number, "savepoint": data["from_savepoint"]}
            by = data.get("by")
            who = person(by) if isinstance(by, Mapping) else None
            yield Happening(_at(data.get("made_at")), "restored", None if name == MAIN else name, facts, who)


def _kind(record: Record) -> str:
    return str(record.data.get("kind") or record.data.get("error") or "unknown")


def _at(text: object) -> datetime | None:
    try:
        return from_json_time(str(text))
    except ValueError:
        return None
