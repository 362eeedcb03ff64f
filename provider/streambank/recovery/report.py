"""What a restore leaves behind: a report, in the job's records or beside the directory it restored into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streambank.core.units import say_count, to_json_time
from streambank.procedure.rows import WARNING, Rows, said_s, titled
from streambank.recovery.plan import RestorePlan
from streambank.savepoint.materialize import MaterializeReport
from streambank.storage.store import Opener

REPORT_SUFFIX = ".restored.json"
"""Beside the directory `x` lies `x.restored.json`: a file inside would be no part of a checkpoint."""
_AS_PLANNED = (
    "savepoint", "repository", "job", "batch", "generation", "mode", "sink", "sinks", "reached", "source",
    "source_effect", "sources", "rows", "taken_at", "age_s", "passed_over", "as_of", "as_of_zone", "skipped",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A restore that has been done.

    Attributes:
        plan: What was planned; sinks and sources as they stood before.
        new_outputs: Output directories that were begun for the restored query.
    """

    plan: RestorePlan
    layout: MaterializeReport
    rolled_back: tuple[Mapping[str, Any], ...]
    new_outputs: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]
    started_at: datetime
    seconds: float
    by: Mapping[str, str] = field(default_factory=dict)

    @property
    def sink_effect(self) -> str:
        """What became of output that is newer than the savepoint, in a sentence for people."""
        return self.plan.sink_effect(done=True)

    def shown_rows(self) -> Rows:
        """What people read of it."""
        return [
            *self.plan.chosen_rows(),
            ("output written later", self.sink_effect),
            *self.plan.rows_of_input(),
            *titled("rolled back", map(_said_of_rollback, self.rolled_back)),
            *titled("began", map(_said_of_output, self.new_outputs)),
            *self.plan.passed_rows(),
            *titled(WARNING, self.warnings),
            ("took", said_s(self.seconds)),
        ]

    def to_dict(self) -> dict[str, Any]:
        planned = self.plan.to_dict()
        return {
            **{name: planned[name] for name in _AS_PLANNED},
            "query_id": self.layout.query_id,
            "location": self.layout.target,
            "sink_effect": self.sink_effect,
            "rolled_back": [dict(one) for one in self.rolled_back],
            "new_outputs": [dict(one) for one in self.new_outputs],
            "files": self.layout.files,
            "bytes": self.layout.bytes,
            "linked_files": self.layout.linked_files,
            "rewritten": list(self.layout.rewritten),
            "warnings": list(self.warnings),
            "by": dict(self.by),
            "started_at": to_json_time(self.started_at),
            "seconds": round(self.seconds, 3),
        }


def _said_of_rollback(done: Mapping[str, Any]) -> str:
    if "did" in done:
        return f"{done['kind']} {done['path']}: {done['did']}"
    return f"{done['path']}: {say_count(done['files_aside'], 'file')} set aside in {done['aside']}"


def _said_of_output(begun: Mapping[str, Any]) -> str:
    instead = f"{begun['path']} instead of {begun['instead_of']}"
    return f"{instead}: its log names no file up to batch {begun['batch']}"


def write_beside(opener: Opener, location: str, report: Mapping[str, Any]) -> str | None:
    """Write a report beside a restored directory; where it is, None for the root of a store."""
    parent, _, name = location.rstrip("/").rpartition("/")
    if not name or parent.endswith(("/", ":")):
        return None
    opener(parent).write(f"{name}{REPORT_SUFFIX}", json.dumps(report, indent=1).encode())
    return f"{parent}/{name}{REPORT_SUFFIX}"
