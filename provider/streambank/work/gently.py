"""Giving way: work that takes only the processor and disk time that nobody else wants."""

from __future__ import annotations

import os

LOWEST = 19
"""The niceness of work that gives way to all other; the kernel derives the priority of its reads from it."""


def give_way() -> None:
    """Let this process give way from now on, for good: only root may take priority back.

    On Linux it is this thread, and those that it begins from here on.
    """
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
