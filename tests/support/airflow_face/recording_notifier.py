"""An Airflow notifier that writes all that Streambank gives it to a file, a line of JSON for each alert."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier, Context

AIRFLOWS_OWN = frozenset(Context.__annotations__) | {"task_instance_key_str", "task_reschedule_count"}


class RecordingNotifier(BaseNotifier):
    """Appends to `file` what it is given, for whom (`to`), and in which DAG run."""

    template_fields: Sequence[str] = ()

    def __init__(self, file: str, to: str = "somebody") -> None:
        super().__init__()
        self.file = file
        self.to = to

    def notify(self, context: Any) -> None:
        run = context.get("dag_run")  # of a deadline it is a dict
        given = {name: value for name, value in dict(context).items() if name not in AIRFLOWS_OWN}
        line = {
            "at": datetime.now(UTC).isoformat(),
            "to": self.to,
            "run": run.get("dag_run_id") if isinstance(run, dict) else getattr(run, "run_id", None),
            **_plain(given),
        }
        with Path(self.file).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")


def alerts(file: Path) -> list[dict[str, Any]]:
    """What was written so far, oldest first."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is Streambank's own: texts, numbers, mappings and dataclasses."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if is_dataclass(value) and not isinstance(value, type):
            found[name] = asdict(value)
        elif isinstance(value, str | int | float | Mapping):
            found[name] = value
    return found
