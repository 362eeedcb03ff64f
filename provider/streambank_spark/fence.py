"""The last resort: the driver ends itself and its JVM at once, with SIGKILL."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def kill_driver(jvm: int | None, why: str) -> NoReturn:
    """SIGKILL the JVM, then this process. Nothing is flushed, released or waited for.

    Args:
        jvm: The JVM's process id, where it is known.
        why: Half a sentence for the driver's log.
    """
    try:
        os.write(2, f"streambank: the driver kills itself: {why}\n".encode())
    finally:
        if jvm is not None:
            kill(jvm)
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)


def kill(pid: int) -> None:
    """SIGKILL a process; one that is gone already is no error."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
