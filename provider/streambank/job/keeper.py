"""A thread that keeps a claim alive by beating it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from streambank.errors import StreambankError
from streambank.job.claims import Claim


class Keeper:
    """Beats a claim every `beat_s` seconds until it is stopped or the claim is lost.

    Args:
        claim: What to keep.
        on_lost: Called once, in the keeper's thread, when somebody else holds the claim, or when no beat
            could be confirmed for the whole TTL, with half a sentence that says which. A driver kills itself
            here.
        status: What to say with each beat; called in the keeper's thread, so it must be quick.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        on_lost: Callable[[str], None],
        status: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.claim = claim
        self.lost: str | None = None
        self._on_lost = on_lost
        self._status = status
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"keep-{claim.records.prefix}", daemon=True)

    def start(self) -> Keeper:
        """Beat once now, then in the background.

        Raises:
            StorageError: The first beat could not be written.
        """
        if self._beat_failed() is None:
            self._thread.start()
        return self

    def stop(self) -> None:
        """Stop beating; returns when the thread has ended."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _beat_failed(self) -> str | None:
        if self.claim.beat(self._status() if self._status else None):
            return None
        self._lose("another holder took over")
        return self.lost

    def _run(self) -> None:
        while not self._stop.wait(self.claim.holder.beat_s):
            try:
                if self._beat_failed() is not None:
                    return
            except StreambankError as error:
                # A store may fail for a while. What counts is that we are gone before others may call us
                # dead.
                if self.claim.overdue_s() > -2 * self.claim.holder.beat_s:
                    self._lose(
                        f"no beat could be confirmed for {self.claim.holder.ttl_s:.0f} s: {error.message}"
                    )
                    return

    def _lose(self, why: str) -> None:
        self.lost = why
        self._on_lost(why)
