"""Something else is laid in the place of a directory that is worked on, right before a call of the system."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

CALLS = ("lstat", "stat", "open", "scandir", "listdir", "unlink", "rmdir", "readlink")
"""What a removal asks of the system."""


@contextmanager
def exchanged(at: int, exchange: Callable[[], None]) -> Iterator[list[str]]:
    """Do something right before the call of this number, if it comes; gives the calls."""
    calls: list[str] = []
    busy = False

    def counted(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            nonlocal busy
            if not busy:
                calls.append(name)
                if len(calls) == at:
                    busy = True
                    exchange()
                    busy = False
            return act(*args, **how)

        return call

    with ExitStack() as patches:
        for name in CALLS:
            patches.enter_context(patch.object(os, name, counted(name, getattr(os, name))))
        yield calls


def lay_link(target: Path, led_to: Path, moved: Path) -> bool:
    """Lay a link in the place of a directory, which is moved away; not where it is gone by now."""
    with suppress(FileNotFoundError):
        target.rename(moved)
        target.symlink_to(led_to)
        return True
    return False
