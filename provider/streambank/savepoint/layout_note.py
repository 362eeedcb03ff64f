"""The note that stands in the place of `metadata` while a savepoint is laid out (layout.py)."""

from __future__ import annotations

import json
from typing import Any

from streambank.errors import NotFoundError
from streambank.storage.base import Store

METADATA = "metadata"
NOTE = "streambank_restore"


def read_note(target: Store) -> dict[str, Any] | None:
    """The note of an unfinished layout; None where the target's `metadata` is none."""
    try:
        fields = json.loads(target.read(METADATA))
        note = fields[NOTE]
        if isinstance(note["owner"], dict) and isinstance(note["files"], list):
            return dict(note)
    except (NotFoundError, ValueError, KeyError, TypeError):
        return None
    return None
