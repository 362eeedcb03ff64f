"""Two threads that keep a claim alive: one beats it, the other watches that the beats arrive."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from streambank.control.claims import Claim
from streambank.core.errors import StorageError, StreambankError

_log = logging.getLogger(__name__)

_MARGIN_BEATS = 3.0
_MARGIN_SHARE = 0.4
"""How long before the end of the TTL a claim counts as lost, in beats, and at most as a share of the TTL."""


class Keeper:
    """Beats a claim every `beat_s` seconds until it is stopped or the claim is lost.

    A beat may fail, and it may hang for longer than the TTL, as a request to a remote store does whose
    network is gone. So a thread of its own looks how long ago the last beat was confirmed, and asks nothing
    of anybody. It gives a process that was frozen, and now goes on, the time for one beat more: where others
    have taken over meanwhile that beat finds it, and where they have not, nothing is lost.

    Args:
        on_lost: Called once, in one of the keeper's threads, when somebody else holds the claim, or when no
            beat could be confirmed for almost the whole TTL, with half a sentence that says which. A driver
            kills itself here. None for an operation, which asks before each step that counts whether the
            claim still is its own: a beat that hangs is nothing to it as long as it is.
        status: What to say with each beat; called in the keeper's thread, so it must be quick.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        on_lost: Callable[[str], None] | None = None,
        status: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.claim = claim
        self.lost: str | None = None
        self._on_lost = on_lost
        self._status = status
        self._stop = threading.Event()
        self._losing = threading.Lock()
        self._failure = "it hangs"
        self._failing = False
        self._cramped = False
        self._name = f"{claim.records.prefix} of {claim.records.store.uri}"
        holder = claim.holder
        self._margin_s = min(_MARGIN_BEATS * holder.beat_s, _MARGIN_SHARE * holder.ttl_s)
        prefix = claim.records.prefix
        self._thread = threading.Thread(target=self._run, name=f"keep-{prefix}", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{prefix}", daemon=True)

    def start(self) -> Keeper:
        """Beat once now, then in the background.

        Raises:
            StorageError: The first beat could not be written; then the claim was given back.
        """
        try:
            failed = self._beat_failed()
        except BaseException:
            # A process that lives on would hold for good what it never held.
            with suppress(StreambankError):
                self.end()
            raise
        if failed is None:
            self._thread.start()
            if self._on_lost is not None:
                self._watcher.start()
        return self

    def stop(self) -> None:
        """Stop beating; returns when the threads have ended."""
        self._stop.set()
        for thread in (self._thread, self._watcher):
            if thread.is_alive() and threading.current_thread() is not thread:
                thread.join()

    def end(self) -> None:
        """Stop beating, and give the claim back.

        Raises:
            StorageError: That could not be recorded. It is tried again, once in a while, as long as this
                process lives and nobody else has claimed: for others on its host that would be the holder.
        """
        self.stop()
        try:
            self.claim.release()
        except StorageError as error:
            _log.warning("The end of a claim of %s was not written: %s", self._name, error.message)
            self.claim.release_later()
            raise

    def _beat_failed(self) -> str | None:
        if self.claim.beat(self._status() if self._status else None):
            if self._failing:
                _log.info("Heartbeats of %s are written again.", self._name)
            self._failing = False
            if (self.claim.cramped is None) is self._cramped:
                self._cramped = not self._cramped
                if self._cramped:
                    _log.warning("Heartbeats of %s go into one file: %s", self._name, self.claim.cramped)
                else:
                    _log.info("Heartbeats of %s have room again.", self._name)
            return None
        self._lose("another holder took over")
        return self.lost

    def _run(self) -> None:
        while not self._stop.wait(self.claim.holder.beat_s):
            try:
                self._failure = "it hangs"
                if self._beat_failed() is not None:
                    return
            except Exception as error:
                # A store may fail for a while, and whatever else fails must not end the beating. What
                # counts is that we are gone before others may call us dead.
                self._failure = error.message if isinstance(error, StreambankError) else type(error).__name__
                if not self._failing:
                    # This thread alone logs: where the log hangs, too, the watcher still sees the end come.
                    _log.warning("A heartbeat of %s was not written: %s", self._name, self._failure)
                self._failing = True
                if self._is_overdue():
                    self._lose_for_silence()
                    return

    def _watch(self) -> None:
        overdue_looks = 0
        # Thrice in a row, over half of the margin: a process that was frozen has looked once.
        while not self._stop.wait(self._margin_s / 4):
            overdue_looks = overdue_looks + 1 if self._is_overdue() else 0
            if overdue_looks == 3:
                self._lose_for_silence()
                return

    def _is_overdue(self) -> bool:
        return self.claim.overdue_s() > -self._margin_s

    def _lose_for_silence(self) -> None:
        self._lose(f"no heartbeat could be confirmed for {self.claim.holder.ttl_s:.0f} s: {self._failure}")

    def _lose(self, why: str) -> None:
        with self._losing:
            if self.lost is not None:
                return
            self.lost = why
        self._stop.set()
        if self._on_lost is not None:
            self._on_lost(why)


@contextmanager
def kept_alive(claim: Claim) -> Iterator[None]:
    """Beat a claim while the block lasts, and give it back."""
    keeper = Keeper(claim).start()
    try:
        yield
    finally:
        keeper.end()
