"""Who asks, where a scheduler may ask again: a task, and which round of its tries.

A try finds what the try before it has done; in a later round a person asks once more.
"""

from __future__ import annotations

ASKER = "asker"
"""The field of `by` in which both are, separated by the last blank."""


def is_same_task(asker: str, before: str) -> bool:
    """Whether two askers are one task, be it in another round of its tries."""
    return asker.rpartition(" ")[0] == before.rpartition(" ")[0]
