"""The parts that a keeper keeps running: what each is started with, when it is ready, how it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """One process that is started, watched and ended.

    Attributes:
        name: The name of its log, and in the keeper's report.
        command: What is run, in a separate session.
        environment: All of its environment. It may hold secrets, so it is handed over by a pipe only.
        folder: Where it is run.
        once: It does one piece of work and ends with 0; the next part is started after that.
        ready: One of the checks of `demo.ready`; the next part is started when it passes. Empty: at once.
        start_timeout_s: How long that may take.
        again: Once it was ready, it is started again whenever it ends by itself.
        ends_last: It is ended after all other parts, since they need it to end cleanly.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: str
    once: bool = False
    ready: str = ""
    start_timeout_s: float = 300.0
    again: bool = False
    ends_last: bool = False


def write(parts: Sequence[Part]) -> bytes:
    """The parts as a keeper reads them from its standard input."""
    return json.dumps([asdict(part) for part in parts]).encode()


def read(data: bytes) -> list[Part]:
    """What `write` wrote."""
    found: list[dict[str, Any]] = json.loads(data)
    return [Part(**{**one, "command": tuple(one["command"])}) for one in found]
