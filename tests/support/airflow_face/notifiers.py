"""Airflow notifiers that write what they are told to a file, or fail as they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseNotifier

from tests.support.waiting import poll

FILE_NOTIFIER = f"{__name__}.FileNotifier"
"""As a declaration names it."""
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


class HangingNotifier(FileNotifier):
    """Sends nothing until the file is there, or ten seconds have passed."""

    template_fields: Sequence[str] = ("file",)

    def notify(self, context: Any) -> None:
        poll(Path(self.file).exists, timeout_s=10)


class WebhookNotifier(BaseNotifier):
    """Fails as clients of HTTP do, whose errors show the address."""

    template_fields: Sequence[str] = ("url", "text")

    def __init__(self, url: str, token: str = "", text: str = "{{ job }}") -> None:
        super().__init__()
        self.url = url
        self.token = token
        self.text = text

    def notify(self, context: Any) -> None:
        path = urlsplit(self.url).path
        raise ConnectionError(
            f"POST {self.url}?key={self.token}: HTTPSConnectionPool(host='hooks.example', port=443): "
            f"Max retries exceeded with url: {path} (by https://me:{self.token}@proxy.example:80/{self.token})"
        )


class AsyncWebhookNotifier(WebhookNotifier):
    """The same in the triggerer's way alone."""

    notify = BaseNotifier.notify

    async def async_notify(self, context: Any) -> None:
        WebhookNotifier.notify(self, context)


class NoNotifier:
    """Is none."""


def write(file: str, text: str) -> None:
    if Path(f"{file}.down").exists():
        raise ConnectionError("nobody answers")
    with Path(file).open("a", encoding="utf-8") as lines:
        lines.write(f"{text}\n")


def told(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
