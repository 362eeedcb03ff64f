"""Which file each thread has read last, so that the report of a bug can name it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_thread = threading.local()
_NAME = "streambank_last_read"


def reading(address: str | None) -> None:
    """Remember what this thread reads from now on; None for nothing yet."""
    _thread.address = address


def last_read(error: BaseException) -> str | None:
    """What the thread that an error came from had read last; None where it had read nothing."""
    found = getattr(error, _NAME, None) or getattr(_thread, "address", None)
    return found if isinstance(found, str) else None


@contextmanager
def named_in_errors() -> Iterator[None]:
    """Let an error that leaves this thread carry what it had read last: another thread will tell of it."""
    try:
        yield
    except Exception as error:
        if getattr(error, _NAME, None) is None and hasattr(error, "__dict__"):
            setattr(error, _NAME, getattr(_thread, "address", None))
        raise
