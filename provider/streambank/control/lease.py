"""The lease: one driver per job, or one restore, at a time.

What it promises (docs/reference/jobs.md says the same): one lease holder; on one host no takeover while the
Python or the JVM process of the holder exists, stopped or not; elsewhere a replaced driver finds out within
one beat. It cannot promise that a batch in flight of a replaced driver on another host does nothing more: it
may rewrite state files of that batch and repeat its side effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streambank.control.claims import DEFAULT_BEAT_S, DEFAULT_TTL_S, Claim, ClaimView, Holder, JobClaim
from streambank.control.keepalive import kept_alive
from streambank.control.processes import ProcessId, this_process
from streambank.core.errors import RefusedError

_RECENT = 20
"""How many of the newest epochs are recent."""
IN_CLUSTER = "in_cluster"
"""The detail of a claim by which a driver says that a cluster runs it."""


class Lease(JobClaim):
    """The lease of one job, as one observer sees it."""

    prefix = "lease"

    def settle(self, timeout_s: float | None = None) -> ClaimView | None:
        """Who holds it, having waited until that can be told (at most the holder's TTL and a little more)."""
        return self.claims.settle(timeout_s)

    def acquire(
        self,
        processes: Sequence[ProcessId],
        *,
        purpose: str = "run",
        beat_s: float = DEFAULT_BEAT_S,
        ttl_s: float = DEFAULT_TTL_S,
        details: Mapping[str, Any] | None = None,
    ) -> Claim:
        """Take the lease; waits where a holder on another host has yet to be judged.

        Args:
            processes: The holder lives while any of them does: a driver gives its Python and its JVM process.
            purpose: `run` for a driver, else the operation (`restore`).
            ttl_s: How long observers elsewhere must see no beat before they may take over.
            details: More for the record, such as `launch_id` and `by`.

        Raises:
            RefusedError: Somebody holds it (code `lease-held`); says who, since when, and how to break a dead
                one.
        """
        holder = Holder(
            self.claims.here, tuple(processes), {"purpose": purpose, **(details or {})}, beat_s, ttl_s
        )
        got = self.claims.claim(holder)
        if isinstance(got, ClaimView):
            raise self.refusal(got)
        return got

    @contextmanager
    def held(self, purpose: str, *, by: Mapping[str, str]) -> Iterator[Claim]:
        """Hold the lease while an operation works, so that no driver can start in the middle of it.

        Raises:
            RefusedError: Somebody holds it, or may hold it all the same (code `lease-held`).
        """
        doubt = self.doubt(self.settle())
        if doubt is not None:
            raise doubt
        claim = self.acquire([this_process("operation")], purpose=purpose, details={"by": dict(by)})
        # Whoever works under it asks `claim.check()` before the step that counts; nothing else is to be done
        # here.
        with kept_alive(claim):
            yield claim

    def recent_launches(self) -> set[str]:
        """The launches that held the newest epochs: their drivers are not coming up, they have been."""
        return self.launches(newest=_RECENT)

    def launches(self, *, newest: int | None = None) -> set[str]:
        """The launches that held any epoch that is still recorded (or only the newest ones)."""
        recent = self.claims.records.history(newest=newest)
        return {str(record.data["launch_id"]) for record in recent if "launch_id" in record.data}

    def require_free(self) -> None:
        """Make sure that nobody runs the job.

        Raises:
            RefusedError: Somebody holds the lease (code `lease-held`).
        """
        view = self.settle()
        if view is not None and not view.free:
            raise self.refusal(view)

    def refusal(self, view: ClaimView) -> RefusedError:
        stop = f"Stop it first: `streambank job stop {self.job}`."
        dead = f"If you know that it is dead: `streambank job break {self.job} --why TEXT`."
        return RefusedError(
            f"Job {self.job} is held by {view.describe()} (epoch {view.epoch}, {view.state}: {view.why}).",
            code="lease-held",
            hint=stop if view.state == "live" else f"{stop} {dead}",
        )

    def doubt(self, view: ClaimView | None) -> RefusedError | None:
        """Why an operation does not believe that the holder is gone; None where it is, or where none was.

        A driver in a cluster whose heartbeat has stood still may be there all the same. Who starts or stops
        the job asks the cluster and ends it; an operation on the job's files asks nobody.
        """
        holder = view.holder if view is not None else None
        if view is None or holder is None or view.state != "dead" or not holder.details.get(IN_CLUSTER):
            return None
        if self.claims.here.sees(holder.host):
            return None  # its processes were looked at
        return RefusedError(
            f"The heartbeat of the driver of job {self.job} has stopped (epoch {view.epoch}), but its "
            "cluster may still run it.",
            code="lease-held",
            hint=f"Stop the job first, which asks the cluster: `streambank job stop {self.job}`. "
            f"If the cluster is gone: `streambank job break {self.job} --why TEXT`.",
        )
