"""The operation lock: one of start, stop, restore, ... works on a job at a time, whoever asked.

It is a claim (claims.py): the lock of a process that died on this host is free at once, that of one that died
elsewhere when its beat has stood still for its TTL; both are seen in the job's status, and can be broken by
hand.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from streambank.control.claims import DEFAULT_BEAT_S, DEFAULT_TTL_S, Claim, ClaimView, Holder, JobClaim
from streambank.control.keepalive import kept_alive
from streambank.control.processes import this_process
from streambank.core.errors import ConflictError, RefusedError

_log = logging.getLogger(__name__)

LOGGED_EVERY_S = 30.0
"""How often a wait that goes on is logged again."""


class WaitLog:
    """Logs what is waited for: once, and again every `LOGGED_EVERY_S` while it lasts."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._text = ""
        self._began_s = self._logged_s = 0.0

    def __call__(self, text: str, usual: Callable[[], str] = str) -> None:
        """Say what is waited for, at every look; the same text means that the same wait goes on.

        Args:
            usual: How long such waits take, in parentheses or empty: asked only of one that lasts.
        """
        now = time.monotonic()
        if text != self._text:
            self._text, self._began_s = text, now
            self._log.info("%s ...", text)
        elif now - self._logged_s >= LOGGED_EVERY_S:
            self._log.info("%s: %.0f s so far%s ...", text, now - self._began_s, usual())
        else:
            return
        self._logged_s = now


class Operation:
    """The lock, held. `check` it before a step that cannot be taken back."""

    def __init__(self, name: str, claim: Claim) -> None:
        self.name = name
        self.claim = claim

    def check(self) -> None:
        """Make sure that the lock still is ours.

        Raises:
            ConflictError: Somebody broke it (code `claim-lost`).
        """
        self.claim.check()


class OperationLock(JobClaim):
    """The operation lock of one job."""

    prefix = "operation"

    def require_free(self, name: str) -> None:
        """Make sure that nobody works on the job at this moment.

        Raises:
            ConflictError: Somebody does (code `operation-in-progress`).
        """
        view = self.view()
        if view is not None and not view.free:
            raise self._in_the_way(name, view)

    @contextmanager
    def hold(
        self,
        name: str,
        *,
        by: Mapping[str, str],
        wait_s: float = 0.0,
        beat_s: float = DEFAULT_BEAT_S,
        ttl_s: float = DEFAULT_TTL_S,
    ) -> Iterator[Operation]:
        """Hold the lock for the `with` block.

        Args:
            ttl_s: How long others must see no beat before they may call us dead from another host.

        Raises:
            ConflictError: Another operation works on the job (code `operation-in-progress`).
        """
        holder = Holder(
            self.claims.here, (this_process("operation"),), {"operation": name, "by": dict(by)}, beat_s, ttl_s
        )
        claim = self._claim(name, holder, wait_s)
        with kept_alive(claim):
            yield Operation(name, claim)

    def _claim(self, name: str, holder: Holder, wait_s: float) -> Claim:
        clock, waits = self.claims.clock, WaitLog(_log)
        started = clock.monotonic()
        while True:
            got = self.claims.claim(holder)
            if isinstance(got, Claim):
                return got
            if clock.monotonic() - started >= wait_s:
                raise self._in_the_way(name, got)
            waits(f"Waiting for a {_kind(got)} to end: {got.describe()}")
            clock.sleep(0.2)

    def _in_the_way(self, name: str, view: ClaimView) -> ConflictError:
        return ConflictError(
            f"Job {self.job}: {name} must wait, because a {_kind(view)} is working on the job: "
            f"{view.describe()} ({view.state}: {view.why}).",
            code="operation-in-progress",
            hint="Try again when it has ended. "
            f"If you know that it is dead: `streambank job break {self.job} --operation --why TEXT`.",
        )

    def refusal(self, view: ClaimView) -> RefusedError:
        return RefusedError(
            f"The operation on job {self.job} is alive: {view.describe()} ({view.why}).",
            code="operation-live",
            hint="Wait until it ends, or end that process, then break its lock.",
        )


def _kind(view: ClaimView) -> str:
    """What the holder of the lock does: `stop`, ..."""
    return str(view.holder.details.get("operation", "operation")) if view.holder else "operation"
