"""A plan or a report as people read it: rows of a title and a text, for the console and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streambank.core.units import say_duration

Rows = list[tuple[str, str]]
WARNING, NOTE = "warning", "note"
"""Titles of what each face says in its own words, since it may name what to do there."""


def titled(title: str, texts: Iterable[str | None]) -> Rows:
    """A row for each text that says something."""
    return [(title, text) for text in texts if text]


def said_s(seconds: float | None, unknown: str = "not measured") -> str:
    """A duration; what stands for one that is not known."""
    return unknown if seconds is None else say_duration(round(seconds, 1))


def step_rows(steps: Mapping[str, float]) -> Rows:
    """How long each step took."""
    return [(f"step {name}", said_s(seconds)) for name, seconds in steps.items()]
