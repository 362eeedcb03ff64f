"""What a test of an event trigger gives it: a memory, and an end."""

from __future__ import annotations

from typing import Any


class EndOfTestError(Exception):
    pass


class TriggerMemory:
    """The state store of the asset that is watched."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value
