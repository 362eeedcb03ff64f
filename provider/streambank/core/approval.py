"""The refusal of what a person approved and is not so any more."""

from __future__ import annotations

from streambank.core.errors import RefusedError

TRIGGER_AGAIN = "Trigger it again: its plan shows how things are now."


def outdated(why: str, hint: str = TRIGGER_AGAIN) -> RefusedError:
    """The refusal of what was approved and is not so any more."""
    return RefusedError(why, code="approval-outdated", hint=hint)
