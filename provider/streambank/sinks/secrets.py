"""What a library says of a table, without what it was given to reach it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

_LEAST_SECRET = 3
"""Shorter values are words such as `v1`, and a message without them cannot be understood."""


def without_values(text: str, settings: Mapping[str, str]) -> str:
    """A text in which the name of a setting stands for its value, and for user and password of an address."""
    for name, value in sorted(settings.items(), key=lambda item: -len(item[1])):
        for secret in (value, *_login(value)):
            if len(secret) >= _LEAST_SECRET:
                text = text.replace(secret, f"<{name}>")
    return text


def _login(value: str) -> Iterator[str]:
    """User and password of an address, as they are in it and decoded."""
    try:
        parts = urlsplit(value)
        found = [part for part in (parts.password, parts.username) if part]
    except ValueError:
        return
    for part in found:
        yield from (part, unquote(part))
