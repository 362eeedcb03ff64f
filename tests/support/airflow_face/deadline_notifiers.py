"""Notifiers that write down what they are told; one of them cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier


class Sync(BaseNotifier):
    """Only knows the way of workers."""

    template_fields: Sequence[str] = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path = path
        self.text = text

    def notify(self, context: Any) -> None:
        Path(self.path).write_text(self.text)


class Async(Sync):
    """Knows the triggerer's way, too."""

    async def async_notify(self, context: Any) -> None:
        Path(self.path).write_text(f"async {self.text}")


class Broken(Sync):
    """Its service does not answer."""

    def notify(self, context: Any) -> None:
        raise ConnectionError("no answer")
