"""Expiring savepoints: those that a policy does not keep are taken from the list, and can be brought back.

In this order, so that a crash anywhere leaves each savepoint listed, or whole and ready to be brought back:

1. The manifest of each is copied aside.
2. Everything is decided again, since others may have pinned, verified, held or expired meanwhile.
3. What still is to go is deleted from the list. If it was pinned or held in that very moment, it is listed
   again.
4. If several expired at once and together left too few verified savepoints, own ones are listed again.

What is older than the policy's `max_age_s` goes though it is pinned, and though it leaves too few verified
ones. Its pin is taken off in step 3, so that nothing and nobody brings it back for the sake of the pin. How
old a savepoint is, is judged by this machine's clock and by the storage's, where that tells: by both it has
to be too old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.core.errors import ConflictError, InputError, NotFoundError
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.repository.catalog import SavepointSummary, listed, manifest_key
from streambank.repository.holds import held, holds
from streambank.repository.locks import locked_until, visible_locks
from streambank.repository.marks import Marks, add_mark
from streambank.repository.repository import Repository
from streambank.repository.trash import COMMIT_WINDOW_S, boot_clock_s
from streambank.retention.expired import Expired, expired_savepoints, set_aside, unlisted
from streambank.retention.policy import (
    HELD,
    LOCKED,
    MAX_AGE,
    MIN_VERIFIED_RULE,
    Policy,
    RetentionDecision,
    RetentionReason,
    decide,
)
from streambank.retention.undelete import read_back
from streambank.storage.store import Locking
from streambank.work.pace import Meter, Progress

EXPIRED = "expired"
PolicyOf = Callable[[str], Policy | None]
"""The policy of a job, by its name (`job` or `job/query`); None leaves it alone."""
OthersOf = Callable[[str, Sequence[SavepointSummary]], Iterable[str]]
"""Which savepoints of a job, by its name, are of other lines: those take no place from its own."""


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What an expire decided and did.

    Attributes:
        decisions: Of each savepoint that was judged, by job and then from the newest to the oldest.
    """

    dry_run: bool
    decisions: tuple[RetentionDecision, ...]

    @property
    def dropped(self) -> tuple[RetentionDecision, ...]:
        """Those that are not kept."""
        return tuple(decision for decision in self.decisions if not decision.keep)

    @property
    def overruling(self) -> tuple[RetentionDecision, ...]:
        """Those that go by their age though a pin or another rule would have kept them."""
        return tuple(decision for decision in self.dropped if decision.overrules)

    @property
    def verified_left(self) -> dict[str, int]:
        """How many verified savepoints are left of each job of which age takes one of those promised."""
        jobs = {one.summary.job for one in self.overruling if MIN_VERIFIED_RULE in one.overrules}
        kept = [one.summary for one in self.decisions if one.keep and _is_verified(one.summary)]
        return {job: sum(one.job == job for one in kept) for job in sorted(jobs)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What age has gone before, for people: never without a word."""
        go, keep = ("would go", "would keep") if self.dry_run else ("went", "keeps")
        found = []
        for rule, what in (("pinned", "pins"), (MIN_VERIFIED_RULE, "min_verified")):
            which = [_which(one) for one in self.overruling if rule in one.overrules]
            if which:
                names = ", ".join("/".join(each) for each in which)
                found.append(f"{MAX_AGE} overrides {what}, so these savepoints {go}: {names}.")
        found += [f"{job} {keep} {number} verified savepoints." for job, number in self.verified_left.items()]
        return tuple(found)

    @property
    def unreadable(self) -> tuple[RetentionDecision, ...]:
        """Those whose manifest cannot be used."""
        return tuple(decision for decision in self.decisions if decision.summary.error is not None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "ok": not self.unreadable,
            "kept": len(self.decisions) - len(self.dropped),
            "dropped": len(self.dropped),
            "overruled": len(self.overruling),
            "verified_left": self.verified_left,
            "warnings": list(self.warnings),
            "savepoints": [decision.to_dict() for decision in self.decisions],
        }


def expire(
    repository: Repository,
    policy: Policy | PolicyOf,
    *,
    job: str | None = None,
    dry_run: bool = False,
    by: Mapping[str, Any] | None = None,
    now: datetime | None = None,
    source: Repository | None = None,
    others: OthersOf = lambda name, there: (),
    progress: Progress | None = None,
) -> ExpireReport:
    """Take the savepoints that a policy does not keep from the list.

    Args:
        policy: Of all jobs, or a function that gives each job's own.
        job: Only this one: for `job` its queries too, for `job/query` that query.
        now: The time; this machine's by default. It limits how far savepoints from the future reach, and
            says how old each is.
        source: What this is a replica of: what that lists stays here, whatever the policy says, so that the
            replica never holds less, and nothing comes back that was just expired. What is too old goes here.
        others: Which savepoints are of other lines.

    Raises:
        InputError: A policy is empty (code `empty-policy`), or `source` is this very repository (code
            `same-repository`); nothing was changed.
        ConflictError: It took too long between two steps (code `expire-too-slow`); nothing is lost.
    """
    if isinstance(policy, Policy):
        policy.check()
    if source is not None and source.id == repository.id:
        raise InputError(
            f"{repository.store.uri} and {source.store.uri} are the same repository, {source.id}.",
            code="same-repository",
            hint="Name the repository that this is a replica of.",
        )
    work = _Expire(repository, policy, job, dict(by or {}), now, source, others)
    if not dry_run:
        work.bring_back_pinned()
    decisions = work.decide()
    drops = [decision for decision in decisions if not decision.keep]
    if dry_run or not drops:
        return ExpireReport(dry_run, tuple(decisions))
    meter = Meter(progress, "expire", len(drops), sum(drop.summary.bytes for drop in drops))
    aside = work.set_aside(drops)
    gone = []
    # The time by the clock of the storage, where that stamps files: when the newest copy was made.
    anew = work.decide(max((copy.expired_ns for copy, _ in aside.values()), default=0))
    for decision in anew:
        if not decision.keep and _which(decision) in aside and work.drop(decision, aside[_which(decision)]):
            gone.append(decision)
            meter.add(1, decision.summary.bytes)
    relisted = work.keep_promise(decisions, gone, aside)
    went = {_which(decision) for decision in gone}
    younger = {_which(decision): decision for decision in anew if decision.keep}
    return ExpireReport(dry_run, tuple(_final(each, went, relisted, younger) for each in decisions))


@dataclass(eq=False)
class _Expire:
    """One expire: what it was asked."""

    repository: Repository
    policy: Policy | PolicyOf
    job: str | None
    by: Mapping[str, Any]
    now: datetime | None
    source: Repository | None
    others: OthersOf

    def decide(self, now_ns: int = 0) -> list[RetentionDecision]:
        """What becomes of each savepoint as it is listed now.

        Args:
            now_ns: The time by the clock of the storage, by which holds end; this machine's for 0.
        """
        besides: dict[tuple[str, str], RetentionReason] = {}
        if self.source is not None:
            why = RetentionReason("source", f"{self.source.store.uri} lists it")
            besides |= dict.fromkeys(listed(self.source.store, self.job), why)
        for hold in holds(self.repository.store, now_ns or _own_ns()):
            if hold.counts:
                besides[hold.which] = RetentionReason(HELD, f"it is being read: {hold.holder}")
        jobs: dict[str, list[SavepointSummary]] = {}
        for summary in self.repository.manifests(self.job):
            jobs.setdefault(summary.job, []).append(summary)
        decisions = []
        now = self._now(now_ns)
        for name, summaries in jobs.items():
            if (policy := self._policy_of(name)) is not None:
                others = {(name, savepoint) for savepoint in self.others(name, summaries)}
                decisions += decide(summaries, policy, now, besides, others)
        locks = visible_locks(self.repository.store)
        return decisions if locks is None else [_unless_locked(locks, decision) for decision in decisions]

    def _now(self, storage_ns: int) -> datetime:
        """The earlier one of this machine's clock and the storage's, so that neither alone makes all old."""
        if self.now is not None:
            return self.now
        own = utc_now()
        return min(own, datetime.fromtimestamp(storage_ns / 1e9, UTC)) if storage_ns else own

    def bring_back_pinned(self) -> None:
        """List again what was pinned in the moment in which an expire took it, and then died."""
        store = self.repository.store
        for copy in unlisted(store, expired_savepoints(store)):
            mine = self.job is None or copy.job == self.job or copy.job.startswith(f"{self.job}/")
            if mine and Marks(store, *copy.which).may_be_pinned():
                read_back(self.repository, copy)

    def set_aside(self, drops: Sequence[RetentionDecision]) -> dict[tuple[str, str], tuple[Expired, float]]:
        """Copy the manifests; the copies by job and id, each with the moment before it was made."""
        aside = {}
        for decision in drops:
            began_s = boot_clock_s()
            try:
                copy = set_aside(self.repository, *_which(decision))
            except NotFoundError:
                continue  # somebody else expired it
            aside[_which(decision)] = copy, began_s
        return aside

    def drop(self, decision: RetentionDecision, aside: tuple[Expired, float]) -> bool:
        """Delete one from the list, unless it is pinned or held; whether it is gone."""
        copy, made_s = aside
        repository = self.repository
        if decision.by_age and not self._held(copy) and Marks(repository.store, *copy.which).may_be_pinned():
            repository.unpin(*copy.which, by=self.by, note=f"{MAX_AGE}: {decision.reasons[0].why}")
        if self._must_stay(copy):
            return False
        fields = {"reasons": [reason.to_dict() for reason in decision.reasons]}
        add_mark(repository.store, repository.digest_name, *copy.which, EXPIRED, by=self.by, fields=fields)
        # A sweep may remove the copy once it is old, so it must be young when the original goes.
        if boot_clock_s() - made_s > COMMIT_WINDOW_S:
            made_s = boot_clock_s()
            copy = set_aside(repository, *copy.which)
        if boot_clock_s() - made_s > COMMIT_WINDOW_S:
            raise ConflictError(
                f"Expiring the savepoint {copy.savepoint} of {copy.job} took too long.",
                code="expire-too-slow",
                hint="Nothing is lost. Expire again when the storage answers faster.",
            )
        repository.store.delete(manifest_key(*copy.which))
        if self._must_stay(copy):
            read_back(repository, copy)  # that came after we had looked: one of the two sees the other
            return False
        return True

    def _must_stay(self, copy: Expired) -> bool:
        """Whether a savepoint is pinned, or held by the time of its copy."""
        return Marks(self.repository.store, *copy.which).may_be_pinned() or self._held(copy)

    def _held(self, copy: Expired) -> bool:
        return held(self.repository.store, *copy.which, copy.expired_ns or _own_ns()) is not None

    def keep_promise(
        self,
        before: Sequence[RetentionDecision],
        gone: Sequence[RetentionDecision],
        aside: Mapping[tuple[str, str], tuple[Expired, float]],
    ) -> set[tuple[str, str]]:
        """List own ones again where others have expired at the same time and too few are left.

        Returns:
            Job and id of those.
        """
        relisted: set[tuple[str, str]] = set()
        old = {
            _which(decision)
            for decision in before
            if any(reason.rule == MAX_AGE for reason in decision.reasons)
        }
        before = [decision for decision in before if _which(decision) not in old]
        gone = [decision for decision in gone if _which(decision) not in old]
        if not gone:
            return relisted
        left = [each for each in self.repository.manifests(self.job) if (each.job, each.savepoint) not in old]
        for counts in (_is_verified, _is_whole):
            for name in sorted({decision.summary.job for decision in gone}):
                policy = self._policy_of(name)
                had = sum(counts(each.summary) for each in before if each.summary.job == name)
                short = min(had, policy.min_verified) if policy else 0
                short -= sum(counts(each) for each in left if each.job == name)
                for decision in gone:  # the newest first
                    own = decision.summary.job == name and _which(decision) not in relisted
                    if short > 0 and own and counts(decision.summary):
                        read_back(self.repository, aside[_which(decision)][0])
                        relisted.add(_which(decision))
                        left.append(decision.summary)
                        short -= 1
        return relisted

    def _policy_of(self, job: str) -> Policy | None:
        return self.policy if isinstance(self.policy, Policy) else self.policy(job)


def _unless_locked(locks: Locking, decision: RetentionDecision) -> RetentionDecision:
    """A decision, but for a savepoint whose lock lasts longer than the policy keeps it."""
    until = None if decision.keep else locked_until(locks, manifest_key(*_which(decision)))
    if until is None:
        return decision
    return RetentionDecision(
        decision.summary, True, (RetentionReason(LOCKED, f"locked until {until:%Y-%m-%d %H:%M} UTC"),)
    )


def _final(
    decision: RetentionDecision,
    went: set[tuple[str, str]],
    relisted: set[tuple[str, str]],
    anew: Mapping[tuple[str, str], RetentionDecision],
) -> RetentionDecision:
    """A decision as it came out at last."""
    if decision.by_age and (kept := anew.get(_which(decision))) is not None:
        return kept
    if decision.keep or (_which(decision) in went and _which(decision) not in relisted):
        return decision
    rule = MIN_VERIFIED_RULE if _which(decision) in relisted else "changed"
    why = "others expired at the same time" if _which(decision) in relisted else "it was changed meanwhile"
    return RetentionDecision(decision.summary, True, (RetentionReason(rule, why),))


def _own_ns() -> int:
    return int(utc_now().timestamp() * 1e9)


def _is_verified(summary: SavepointSummary) -> bool:
    return summary.error is None and summary.verified_ok is True and not summary.rejected


def _is_whole(summary: SavepointSummary) -> bool:
    return summary.error is None and summary.verified_ok is not False and not summary.rejected


def _which(decision: RetentionDecision) -> tuple[str, str]:
    return decision.summary.job, decision.summary.savepoint
