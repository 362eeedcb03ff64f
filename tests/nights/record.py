"""What came of the nights: one record each, and the table of all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from demo.places import ROOT

FOLDER = ROOT / ".streambank" / "nights"
COLUMNS = (
    "night",
    "what happened",
    "RPO",
    "RTO",
    "back after",
    "acts of a person",
    "red",
    "alerts",
    "rows",
    "verdict",
)


@dataclass(slots=True)
class Run:
    """A DAG run of a night.

    Attributes:
        state: How it ended; `running` where it goes on.
        failed: Of each task that failed: the error codes in its log, the broken objectives, the errors that
            were found.
    """

    dag_id: str
    run_id: str
    state: str
    failed: dict[str, list[str]] = field(default_factory=dict)

    @property
    def codes(self) -> set[str]:
        """Those of all its failed tasks."""
        return {code for codes in self.failed.values() for code in codes}


@dataclass(slots=True)
class Said:
    """What the open page said since the harm, and not before it.

    Attributes:
        view: Which of its views: the list, the card on Home, or the view of the job.
        after_s: How long after the harm they were there, in seconds.
    """

    view: str
    words: list[str]
    after_s: float
    picture: str = ""


@dataclass(slots=True)
class Night:
    """What came of one night.

    Attributes:
        recovery_s: From the harm until rows that arrived after it were in the output; None where the job was
            not down.
        rpo_s: How much of what had been processed was processed again, since a savepoint was restored; 0
            where none was.
        batches_again: The same in batches.
        rto_s: From the harm until the first new row was in the output; None where there was none.
        rows: How many rows a run that is never disturbed gives.
        repeated: How many rows of the output are there once too often.
        with_page: Whether Streambank's page was open, and the person acted there.
        took_s: How long the night was.
        failure: What was not as it must be; empty for a good night.
    """

    name: str
    title: str
    harmed_at: float = 0.0
    recovery_s: float | None = None
    rpo_s: float = 0.0
    batches_again: int = 0
    rto_s: float | None = None
    acts: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    lost: int = 0
    repeated: int = 0
    with_page: bool = False
    said: list[Said] = field(default_factory=list)
    clicks: list[str] = field(default_factory=list)
    took_s: float = 0.0
    failure: str = ""


def table(nights: Sequence[Night]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for night in nights:
        red = [
            f"{run.dag_id.partition('.')[2]}: {', '.join(sorted(run.codes)) or 'no code'}"
            for run in night.runs
            if run.state == "failed"
        ]
        cells = (
            night.name,
            night.title,
            said_rpo(night),
            said_s(night.rto_s),
            said_s(night.recovery_s),
            f"{len(night.acts)}" + (f": {', '.join(night.acts)}" if night.acts else ""),
            "; ".join(red) or "none",
            _alerts(night.alerts) or "none",
            f"{night.rows}, {night.lost} lost, {night.repeated} repeated",
            night.failure.partition("\n")[0][:300] or "ok",
        )
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)


def said_s(seconds: float | None) -> str:
    """A time as the tables show it."""
    return "-" if seconds is None else f"{seconds:.0f} s"


def said_rpo(night: Night) -> str:
    """An RPO as the tables show it."""
    return f"{said_s(night.rpo_s)}, {night.batches_again} batches" if night.batches_again else "0"


def objective_of(alert: dict[str, Any]) -> str:
    """The objective that an alert is about; empty where it is about none."""
    return str(alert.get("verdict", {}).get("objective", ""))


def news_of(alert: dict[str, Any]) -> str:
    """What an alert is about: its kind, or its objective and what became of that."""
    return f"{objective_of(alert)} {alert['news']['kind']}" if objective_of(alert) else str(alert["kind"])


def _alerts(alerts: Sequence[dict[str, Any]]) -> str:
    """To whom what was sent: the kind of each alert, or its objective and what became of that."""
    said: dict[str, Counter[str]] = {}
    for one in alerts:
        said.setdefault(str(one["to"]), Counter())[news_of(one)] += 1
    return "; ".join(
        f"{to}: " + ", ".join(f"{news} ({count} times)" if count > 1 else news for news, count in got.items())
        for to, got in said.items()
    )


def write(nights: Sequence[Night], name: str) -> Path:
    """Write the records and their table; where the table is."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(
        json.dumps([asdict(night) for night in nights], indent=2, default=str) + "\n", encoding="utf-8"
    )
    page = FOLDER / f"{name}.md"
    page.write_text(table(nights) + "\n", encoding="utf-8")
    return page
