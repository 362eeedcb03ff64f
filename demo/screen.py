"""The demo's output: one line when a step begins, and one with its time when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape


@dataclass(slots=True)
class Step:
    """One step of the story: its title, its result, how long it took."""

    title: str
    detail: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Screen:
    """Writes the story to a terminal, or as plain lines elsewhere; keeps the steps for the report."""

    console: Console = field(default_factory=lambda: _console())
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)

    def clock(self) -> str:
        """Minutes and seconds since the story began."""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        return f"{minutes}:{seconds:02d}"

    def say(self, text: str) -> None:
        """One line of the story."""
        self.console.print(f"[dim]{self.clock()}[/]  {escape(text)}")

    def say_more(self, text: str) -> None:
        """Lines that belong to the one before."""
        for line in text.splitlines():
            self.console.print(f"      {escape(line)}", style="dim")

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Tell that a step begins and how it went; a step that fails tells nothing more here."""
        step = Step(title)
        self.console.print(f"[dim]{self.clock()}[/]  [bold]{escape(title)}[/] ...")
        started = time.monotonic()
        yield step
        step.seconds = round(time.monotonic() - started, 1)
        self.steps.append(step)
        detail = f": {step.detail}" if step.detail else ""
        self.console.print(f"[dim]{self.clock()}[/]  [green]done[/] in {step.seconds} s{escape(detail)}")


def _console() -> Console:
    """The terminal as wide as it is; elsewhere, such as in a CI log, wide enough for the tables."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console
