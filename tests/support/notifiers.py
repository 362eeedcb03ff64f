"""Airflow notifiers that write what they are told to a file, or fail as they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier

MESSAGE = "{{ job }} {{ verdict.objective }} {{ news.kind }} {{ verdict.level }}"


class FileNotifier(BaseNotifier):
    """Appends a line to a file, unless a file `<file>.down` is there."""

    template_fields: Sequence[str] = ("file", "text")

    def __init__(self, file: str, text: str = MESSAGE) -> None:
        super().__init__()
        self.file = file
        self.text = text

    def notify(self, context: Any) -> None:
        write(self.file, self.text)


class AsyncNotifier(FileNotifier):
    """Knows only the asynchronous way."""

    notify = BaseNotifier.notify

    async def async_notify(self, context: Any) -> None:
        write(self.file, self.text)


class NoNotifier:
    """Is none."""


def write(file: str, text: str) -> None:
    if Path(f"{file}.down").exists():
        raise ConnectionError("nobody answers")
    with Path(file).open("a", encoding="utf-8") as lines:
        lines.write(f"{text}\n")


def told(file: Path) -> list[str]:
    """What was told so far."""
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
