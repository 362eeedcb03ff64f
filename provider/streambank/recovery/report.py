"""What a restore leaves behind: a report, in the job's records or beside the directory it restored into."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from streambank.control.control import JobControl
from streambank.control.drills import last_passed
from streambank.control.records import RecordStream
from streambank.core.choices import RestoreMode, SinkChoice, SourceChoice
from streambank.core.units import say_bytes, say_duration, time_or_none, to_json_time
from streambank.recovery.choosing.resolve import PassedOver, Skipped, as_of_json
from streambank.recovery.sinks.reached import Reached
from streambank.repository.references import AsOf
from streambank.savepoint.materialize import MaterializeReport
from streambank.storage.store import Opener

REPORT_SUFFIX = ".restored.json"
"""Beside the directory `x` lies `x.restored.json`: a file inside would be no part of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a restore will take, by what an earlier one, or a drill, took.

    Attributes:
        until: `restored`: the checkpoint is there; `first-batch`: the query has committed a batch on it.
        took_s: How long that one took.
        at: When that was.
        bytes: How much it restored; None for a drill.
    """

    until: Literal["restored", "first-batch"]
    seconds: float
    took_s: float
    at: datetime
    bytes: int | None = None

    def sentence(self) -> str:
        """For people, with what it rests on."""
        about, took, at = say_duration(self.seconds), say_duration(self.took_s), to_json_time(self.at)
        if self.until == "restored":
            copied = f"{say_bytes(self.bytes or 0)} took {took} at {at}"
            return f"about {about} for the copy of its files, not until the first batch: {copied}"
        return f"about {about} until the first batch is committed: the drill at {at} took that long"

    def to_dict(self) -> dict[str, Any]:
        return {
            "until": self.until,
            "seconds": round(self.seconds, 3),
            "took_s": round(self.took_s, 3),
            "at": to_json_time(self.at),
            "bytes": self.bytes,
            "says": self.sentence(),
        }


def estimates(control: JobControl, job: str, size_bytes: int) -> tuple[Estimate, ...]:
    """How long a restore will take, by the newest restore of the query and the newest drill that passed.

    A restore of more bytes takes longer in proportion; one of fewer takes as long, since small
    ones take their time for other things. Nothing where there was neither.

    Args:
        job: `job` or `job/query` of the savepoint.
        size_bytes: How much is restored now.
    """
    found: list[Estimate] = []
    for record in RecordStream(control.store, "restores").newest_first():
        took_s, at, then = (record.data.get(name) for name in ("seconds", "started_at", "bytes"))
        moment = time_or_none(at)
        if record.data.get("job") != job or moment is None or not isinstance(then, int):
            continue
        if isinstance(took_s, (int, float)):
            longer = max(1.0, size_bytes / then) if then else 1.0
            found.append(Estimate("restored", took_s * longer, float(took_s), moment, then))
            break
    passed = last_passed(control)
    if passed is not None:
        rto_s, moment = passed.get("rto_s"), time_or_none(passed.get("started_at"))
        if isinstance(rto_s, (int, float)) and moment is not None:
            found.append(Estimate("first-batch", float(rto_s), float(rto_s), moment))
    return tuple(found)


def unknown_times(known: Collection[str]) -> str:
    """What is not known of how long a restore takes, in sentences; empty where all is.

    Args:
        known: What there are estimates for: `restored`, `first-batch`.
    """
    said = []
    if "restored" not in known:
        said.append("How long the copy of its files takes is not known: the query has not been restored yet.")
    if "first-batch" not in known:
        said.append("How long it takes until the first batch is not known: no drill of the job has passed.")
    return " ".join(said)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A restore that has been done.

    Attributes:
        job: `job` or `job/query` of the savepoint.
        batch: The batch after which the query goes on.
        query_id: The query id in the restored checkpoint.
        mode: `no-claim`, `claim` or `fork`.
        sinks: Where each sink stood before.
        sink_effect: What became of output that is newer than the savepoint, in a sentence for people.
        reached: How far the query ever got; None where no sink needed to know.
        sources: Where each source stood before.
        source_effect: What became of the input, in a sentence for people; empty where there is nothing to
            say.
        rolled_back: What was done to each sink that was taken back.
        new_outputs: Output directories that were begun for the restored query.
        generation: The job's generation; None for a directory.
        taken_at: When the savepoint was taken.
        rows: Rows of state, where the files tell.
        repository: The location of the repository or replica that the savepoint is in.
        passed_over: What was wrong with repositories and replicas that were asked first.
        as_of: The moment that a reference by time means; None for another reference.
        skipped: Newer savepoints that `latest-good` walked past, and why.
        warnings: What a person should know.
        started_at: When it began.
    """

    savepoint: str
    job: str
    batch: int
    query_id: str
    mode: RestoreMode
    sink: SinkChoice
    sinks: tuple[Mapping[str, Any], ...]
    sink_effect: str
    reached: Reached | None
    source: SourceChoice
    sources: tuple[Mapping[str, Any], ...]
    source_effect: str
    rolled_back: tuple[Mapping[str, Any], ...]
    new_outputs: tuple[Mapping[str, Any], ...]
    layout: MaterializeReport
    generation: int | None
    taken_at: datetime
    age_s: float
    rows: int | None
    repository: str
    passed_over: tuple[PassedOver, ...]
    as_of: AsOf | None
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]
    started_at: datetime
    seconds: float
    by: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "savepoint": self.savepoint,
            "repository": self.repository,
            "job": self.job,
            "batch": self.batch,
            "query_id": self.query_id,
            "location": self.layout.target,
            "generation": self.generation,
            "mode": self.mode,
            "sink": self.sink,
            "sink_effect": self.sink_effect,
            "sinks": [dict(sink) for sink in self.sinks],
            "reached": None if self.reached is None else self.reached.to_dict(),
            "source": self.source,
            "source_effect": self.source_effect,
            "sources": [dict(one) for one in self.sources],
            "rolled_back": [dict(one) for one in self.rolled_back],
            "new_outputs": [dict(one) for one in self.new_outputs],
            "files": self.layout.files,
            "bytes": self.layout.bytes,
            "linked_files": self.layout.linked_files,
            "rewritten": list(self.layout.rewritten),
            "rows": self.rows,
            "taken_at": to_json_time(self.taken_at),
            "age_s": round(self.age_s, 1),
            "passed_over": [one.to_dict() for one in self.passed_over],
            **as_of_json(self.as_of),
            "skipped": [one.to_dict() for one in self.skipped],
            "warnings": list(self.warnings),
            "by": dict(self.by),
            "started_at": to_json_time(self.started_at),
            "seconds": round(self.seconds, 3),
        }


def write_beside(opener: Opener, location: str, report: Mapping[str, Any]) -> str | None:
    """Write a report beside a restored directory.

    Returns:
        Where it is; None where the directory is the root of its store, and has no beside.
    """
    parent, _, name = location.rstrip("/").rpartition("/")
    if not name or parent.endswith(("/", ":")):
        return None
    opener(parent).write(f"{name}{REPORT_SUFFIX}", json.dumps(report, indent=1).encode())
    return f"{parent}/{name}{REPORT_SUFFIX}"
