"""TERM, whoever gets it: this Python process, the JVM above it, or their process group.

Python's handlers run in the main thread, which may sit inside a py4j call; a handler that calls back into the
JVM then breaks the connection. So the signal is blocked and a thread waits for it. The JVM's own TERM handler
is replaced as soon as there is a session (through `sun.misc.Signal`, as Spark itself does for its own
handlers).

A TERM to *every* process, Python workers too, as a container's or a cgroup's kill does, cannot be survived by
the batch: let service managers signal the main process only (systemd: `KillMode=mixed`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from streambank.control.processes import ProcessId, end_gently, send_signal

OnTerm = Callable[[str], None]


def block_term() -> None:
    """Keep TERM from ending this process; must be called before any other thread is there."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def watch_python(on_term: OnTerm) -> threading.Thread:
    """Wait for TERM to this process in a thread, for as long as it lives."""

    def wait() -> None:
        while True:
            signal.sigwait({signal.SIGTERM})
            on_term("python")

    thread = threading.Thread(target=wait, name="streambank-term", daemon=True)
    thread.start()
    return thread


class _JavaHandler:
    """A `sun.misc.SignalHandler` that lives here; called in a thread of py4j's callback server."""

    def __init__(self, on_term: OnTerm) -> None:
        self._on_term = on_term

    def handle(self, _signal: Any) -> None:
        self._on_term("jvm")

    class Java:
        implements = ("sun.misc.SignalHandler",)


def watch_jvm(on_term: OnTerm) -> object:
    """Take over the JVM's TERM handler; needs a session. Keep what it gives: the JVM has only a proxy."""
    from pyspark.java_gateway import ensure_callback_server_started

    from streambank_spark.private import jvm

    gateway = jvm.gateway()
    start_callback_server: Any = ensure_callback_server_started
    start_callback_server(gateway)
    handler = _JavaHandler(on_term)
    name = getattr(gateway.jvm, "sun.misc.Signal")
    name.handle(name("TERM"), handler)
    return handler


_LAST_WORDS_S = 1.0


def kill_driver(
    jvm: ProcessId, last_words: Callable[[], None] | None = None, *, gently_s: float = 0.0
) -> NoReturn:
    """SIGKILL the JVM, then this process. Nothing is flushed, released or waited for.

    The driver's log is no place for last words: Python's output goes through the JVM.

    Args:
        jvm: The JVM; no later process that has its pid is touched.
        last_words: Leaves behind why, once the JVM is gone; gets a second, since a store may hang.
        gently_s: For so long the JVM, if it has nothing to lose, may end by TERM and remove its temporary
            files; 0 for not at all.
    """
    try:
        if gently_s:
            end_gently([jvm], gently_s)
        send_signal(jvm, signal.SIGKILL)
        if last_words is not None:
            speaker = threading.Thread(target=last_words, name="streambank-last-words", daemon=True)
            speaker.start()
            speaker.join(_LAST_WORDS_S)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)
