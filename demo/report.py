"""The demo's last screen, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from demo.screen import Step


@dataclass(frozen=True, slots=True)
class SavepointFigures:
    """One savepoint of the story.

    Attributes:
        savepoint: Its id.
        batch: The batch it holds.
        kind: What it is in the story.
        files: Files in it.
        bytes: Their size together.
        new_bytes: Bytes that were added to the repository for it.
        seconds: How long the take took.
        replans: How often it was planned again, because Spark had deleted files.
        source: How far it has read its topic, and how long the following records stay there; empty for files.
    """

    savepoint: str
    batch: int
    kind: str
    files: int
    bytes: int
    new_bytes: int
    seconds: float
    replans: int
    source: str = ""

    @property
    def saved_bytes(self) -> int:
        """Bytes that were in the repository already."""
        return max(0, self.bytes - self.new_bytes)


@dataclass(frozen=True, slots=True)
class Fault:
    """A part that was killed in the middle of the story.

    Attributes:
        part: Its name.
        away_s: From the kill until it was ready again.
        goes_on_s: From the kill until the job had committed new batches.
        batch: The newest of those.
    """

    part: str
    away_s: float
    goes_on_s: float
    batch: int


@dataclass(slots=True)
class Report:
    """All figures of one story.

    Attributes:
        savepoints: In the order they were taken.
        steps: In the order they were told.
        faults: What was killed and brought back, in that order.
        restored: The savepoint that was restored, and its batch.
        source_effect: What its plan said about the topic that the job reads; empty for files.
        lost_batches: Batches that had been committed after it, and were computed again.
        rpo_s: How old the restored savepoint was when the disaster struck.
        rto_s: From the disaster to the first batch committed after it, the person's approval included.
        approval_s: How much of that was the wait for the approval.
        drill_rto_s: How long the drill's restore took until its first batch.
        drill_batches: How many batches of the live job it executed again.
        drill_state_equal: Whether the state after them was that of the live job.
        drill_steps: Seconds of each of its steps.
        rows: Rows compared, and how many were missing or there too often.
        listening: Every address on which a process of the demo accepted connections.
        where_to_click: What to look at: title -> address.
        total_s: The whole story.
        ok: Whether all checks passed.
    """

    savepoints: list[SavepointFigures] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    restored: str = ""
    restored_batch: int = -1
    source_effect: str = ""
    lost_batches: int = 0
    rpo_s: float = 0.0
    rto_s: float = 0.0
    approval_s: float = 0.0
    drill_rto_s: float = 0.0
    drill_batches: int = 0
    drill_state_equal: bool = False
    drill_steps: dict[str, float] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    listening: list[str] = field(default_factory=list)
    where_to_click: dict[str, str] = field(default_factory=dict)
    left_behind: list[str] = field(default_factory=list)
    total_s: float = 0.0
    ok: bool = False

    def write(self, path: Path) -> None:
        """Leave the report as JSON."""
        data = asdict(self)
        for figures, entry in zip(self.savepoints, data["savepoints"], strict=True):
            entry["saved_bytes"] = figures.saved_bytes
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

    def show(self, console: Console, path: Path) -> None:
        """The last screen."""
        console.print()
        console.print(self._savepoint_table())
        console.print(self._step_table())
        if self.faults:
            console.print(self._fault_table())
        console.print(self._summary_table())
        if self.where_to_click:
            console.print(self._click_table())
        console.print(f"The same as JSON: {path}", style="dim")

    def _savepoint_table(self) -> Table:
        table = _table("Savepoints")
        for name in ("savepoint", "what", "batch", "files", "holds", "moved", "saved", "took"):
            table.add_column(
                name, justify="left" if name in {"savepoint", "what"} else "right", overflow="fold"
            )
        for one in self.savepoints:
            share = 100 * one.saved_bytes / one.bytes if one.bytes else 0.0
            table.add_row(
                one.savepoint,
                one.kind,
                str(one.batch),
                str(one.files),
                size(one.bytes),
                size(one.new_bytes),
                f"{size(one.saved_bytes)} ({share:.0f} %)",
                f"{one.seconds:.2f} s",
            )
        return table

    def _step_table(self) -> Table:
        table = _table("Steps")
        table.add_column("step")
        table.add_column("took", justify="right", no_wrap=True)
        for step in self.steps:
            table.add_row(step.title, f"{step.seconds:.1f} s")
        table.add_row("the whole story", f"{self.total_s:.1f} s", style="bold")
        return table

    def _fault_table(self) -> Table:
        table = _table("Killed in the middle")
        table.add_column("part")
        for name in ("away", "job continued after", "batch"):
            table.add_column(name, justify="right", no_wrap=True)
        for fault in self.faults:
            table.add_row(fault.part, f"{fault.away_s:.1f} s", f"{fault.goes_on_s:.1f} s", str(fault.batch))
        return table

    def _summary_table(self) -> Table:
        table = _table("Recovery")
        table.add_column("what")
        table.add_column("", justify="right")
        table.add_row("restored savepoint", f"{self.restored} (batch {self.restored_batch})")
        if self.source_effect:
            table.add_row("its input", self.source_effect)
        table.add_row(
            "age of the savepoint (RPO)", f"{self.rpo_s:.1f} s, {self.lost_batches} batches computed again"
        )
        table.add_row(
            "disaster to next committed batch (RTO)",
            f"{self.rto_s:.1f} s, of which {self.approval_s:.1f} s for plan and approval",
        )
        if self.drill_batches:
            table.add_row(
                "a drill of the next restore",
                f"{self.drill_batches} batches again, state equal; first one after {self.drill_rto_s:.1f} s",
            )
        if self.rows:
            same = "equal" if self.rows.get("equal") else "DIFFERENT"
            table.add_row(
                "output compared with the batch computation",
                f"{self.rows.get('found')} rows of {self.rows.get('expected')}: {same}",
            )
        table.add_row("listened on", ", ".join(self.listening))
        return table

    def _click_table(self) -> Table:
        table = _table("Where to click")
        table.add_column("what")
        table.add_column("where", overflow="fold")
        for title, address in self.where_to_click.items():
            table.add_row(title, address)
        return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
