"""What a form or a template chose, checked before the engine is asked."""

from __future__ import annotations

from typing import Any, get_args

from streambank.errors import InputError
from streambank.recovery.sinks import Mode, SinkChoice


def restore_choices(sink: str, mode: str) -> dict[str, Any]:
    """The two choices of a restore.

    Raises:
        InputError: One of them is no choice there is.
    """
    for option, value, known in (("sink", sink, SinkChoice), ("mode", mode, Mode)):
        if value not in get_args(known):
            raise InputError(
                f"{option} is to be one of {', '.join(get_args(known))}, not {value!r}.", code="bad-option"
            )
    return {"sink": sink, "mode": mode}
