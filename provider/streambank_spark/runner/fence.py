"""The last resort: the driver ends itself and its JVM at once, with SIGKILL."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

_LAST_WORDS_S = 1.0


def kill_driver(jvm: int, last_words: Callable[[], None] | None = None) -> NoReturn:
    """SIGKILL the JVM, then this process. Nothing is flushed, released or waited for.

    The driver's log is no place for last words: Python's output goes through the JVM.

    Args:
        jvm: The JVM's process id.
        last_words: Leaves behind why, once the JVM is gone; gets a second, since a store may hang.
    """
    try:
        kill(jvm)
        if last_words is not None:
            speaker = threading.Thread(target=last_words, name="streambank-last-words", daemon=True)
            speaker.start()
            speaker.join(_LAST_WORDS_S)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)


def kill(pid: int) -> None:
    """SIGKILL a process; one that is gone already is no error."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
