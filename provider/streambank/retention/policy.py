"""Which savepoints a policy keeps, and why each one is kept or dropped: pure, without any I/O.

Rules are those that restic and borg have made known: of the last N hours (days, weeks, ...) in which there
are savepoints, the newest of each is kept, by the calendar of the policy's time
zone. Rules add up; several may keep a savepoint. Each job, and each query of a job, is judged by itself.

One rule is of another kind: `max_age_s` takes what is older, before pins and whatever else would keep it,
since somebody may have the right that nothing of them is kept for longer. Only what is being read stays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

from streambank.core.errors import InputError
from streambank.core.python310 import UTC
from streambank.core.shape import JsonObject
from streambank.core.units import say_duration, to_json_time
from streambank.core.verb_options import ExpireOptions
from streambank.core.zones import UTC_NAME, check_time_zone, time_zone
from streambank.repository.catalog import SavepointSummary

MIN_VERIFIED = 1
"""How many verified savepoints are kept where a policy does not say."""
FOUND_DAMAGE = "a verification found damage"
MAX_AGE = "max-age"
"""The rule that goes before pins."""
YOUNG = "young"
"""Why what is not too old stays where no rule says what else is kept."""
DAMAGED = "damaged"
HELD = "held"
"""Why what is being read stays, too old or not."""
LOCKED = "locked"
"""Why what the storage keeps from being deleted stays, too old or not."""
MIN_VERIFIED_RULE = "min-verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(JsonObject):
    """What is kept; a rule of 0 is none.

    Attributes:
        keep_last: So many newest savepoints.
        keep_hourly: The newest of each of so many last hours that have one; so for the other calendars.
        keep_within_s: All that were taken within so many seconds before the newest.
        min_verified: So many of the newest that were verified and found whole stay, whatever the rules say.
        max_age_s: What was taken longer ago goes, pinned or not, verified or not; 0 for no limit. As the only
            rule it keeps all that is younger.
        time_zone: By whose calendar and clocks, such as `Europe/Berlin`. A day may have 23 or 25 hours there,
            and an hour that comes twice is two.
    """

    keep_last: int = 0
    keep_hourly: int = 0
    keep_daily: int = 0
    keep_weekly: int = 0
    keep_monthly: int = 0
    keep_yearly: int = 0
    keep_within_s: float = 0.0
    min_verified: int = MIN_VERIFIED
    max_age_s: float = 0.0
    time_zone: str = UTC_NAME

    @property
    def is_empty(self) -> bool:
        """Whether no rule keeps anything; `min_verified` is a promise, not a rule."""
        return not (self.has_keep_rule or self.max_age_s)

    @property
    def has_keep_rule(self) -> bool:
        """Whether a rule says what is kept; `max_age_s` alone keeps all that is young enough."""
        return bool(self.keep_last or self.keep_within_s or self.goes_by_calendar)

    @property
    def goes_by_calendar(self) -> bool:
        """Whether a rule goes by hours, days, weeks, months or years, which begin by a time zone."""
        return any(n for _, n, _ in _calendars(self))

    def check(self) -> Policy:
        """The same policy, if it keeps something.

        Raises:
            InputError: No rule does (code `empty-policy`), a number is negative (`bad-policy`), or the time
                zone is none (as `core.zones.time_zone`).
        """
        numbers = (
            self.keep_last,
            self.keep_within_s,
            self.min_verified,
            self.max_age_s,
            *(n for _, n, _ in _calendars(self)),
        )
        if any(number < 0 for number in numbers):
            raise InputError(
                "A number of a retention policy is negative.",
                code="bad-policy",
                hint="Give how many to keep: 0 or more.",
            )
        if self.is_empty:
            raise InputError(
                "The retention policy is empty: it would drop every savepoint.",
                code="empty-policy",
                hint="Give at least one rule, such as --keep-last 10 or --keep-daily 7.",
            )
        check_time_zone(self.time_zone)
        return self


def policy_of(options: ExpireOptions, time_zone: str = UTC_NAME) -> Policy | None:
    """The policy that a person asks for; None without a rule.

    Args:
        time_zone: That of the policy where the options name none.

    Raises:
        InputError: As `Policy.check`, or `max_age_s` would drop every savepoint (code `bad-policy`).
    """
    asked = {each.name: getattr(options, each.name) for each in fields(Policy)}
    given = {name: value for name, value in asked.items() if value is not None}
    if not given.keys() - {"min_verified", "time_zone"}:
        return None
    if given.get("max_age_s", 1) <= 0:
        raise InputError(
            f"A limit of age of {given['max_age_s']:g} s would drop every savepoint.",
            code="bad-policy",
            hint="Give a duration above zero, such as 90d.",
        )
    return Policy(**{"time_zone": time_zone, **given}).check()


@dataclass(frozen=True, slots=True)
class RetentionReason(JsonObject):
    """Why a savepoint is kept, or why a rule does not keep it.

    Attributes:
        rule: `last`, `hourly`, ..., `within`, `pinned`, `held`, `source`, `min-verified`, `young`, `max-age`,
            `unreadable` or `damaged`.
    """

    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What becomes of one savepoint.

    Attributes:
        reasons: At least one.
        overrules: The rules that would have kept what goes by its age: `pinned`, `min-verified`, `last`, ...
    """

    summary: SavepointSummary
    keep: bool
    reasons: tuple[RetentionReason, ...]
    overrules: tuple[str, ...] = ()

    @property
    def by_age(self) -> bool:
        """Whether it goes since it is older than anything may be."""
        return not self.keep and any(reason.rule == MAX_AGE for reason in self.reasons)

    def to_dict(self) -> dict[str, Any]:
        taken_at = self.summary.taken_at
        return {
            "job": self.summary.job,
            "savepoint": self.summary.savepoint,
            "batch": self.summary.batch,
            "taken_at": to_json_time(taken_at) if taken_at else None,
            "bytes": self.summary.bytes,
            "keep": self.keep,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "overrules": list(self.overrules),
        }


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule applied to some savepoints: why it keeps each that it keeps, and passes over the others."""

    name: str
    keeps: Mapping[str, str]
    passes: Mapping[str, str]


def decide(
    summaries: Iterable[SavepointSummary],
    policy: Policy,
    now: datetime,
    besides: Mapping[tuple[str, str], RetentionReason] = MappingProxyType({}),
    others: Container[tuple[str, str]] = (),
) -> list[RetentionDecision]:
    """What becomes of each savepoint, by job and then from the newest to the oldest.

    A savepoint that a verification found damaged, or of another line, takes no place from a whole one, and
    one that claims to be from the future none from those of today: rules are applied to all of them, to the
    whole ones alone, and to those of these that are not newer than now, and what any way keeps is kept.

    Args:
        now: A savepoint that claims to be newer was taken where a clock was wrong. Ages are up to then.
        besides: Why a savepoint, by job and id, stays whatever the policy says; it takes no place from any
            other. What is too old stays only if it is `held`.
        others: Savepoints of other lines than the job's, by job and id.

    Raises:
        InputError: As `Policy.check`.
    """
    policy.check()
    jobs: dict[str, list[SavepointSummary]] = {}
    for summary in summaries:
        jobs.setdefault(summary.job, []).append(summary)
    return [decision for job in sorted(jobs) for decision in _decide(jobs[job], policy, now, besides, others)]


def _decide(
    summaries: Sequence[SavepointSummary],
    policy: Policy,
    now: datetime,
    besides: Mapping[tuple[str, str], RetentionReason],
    others: Container[tuple[str, str]],
) -> list[RetentionDecision]:
    """As `decide`, of one job: what is too old goes first, and takes no place from the rest."""
    ages_s = {
        each.savepoint: (now - _taken_at(each)).total_seconds()
        for each in summaries
        if each.error is None and each.taken_at is not None
    }
    old = {name for name, age_s in ages_s.items() if policy.max_age_s and age_s > policy.max_age_s}
    young = [one for one in summaries if one.savepoint not in old]
    decisions = _by_rules(young, policy, now, besides, others)
    if not old:
        return decisions
    limit = say_duration(policy.max_age_s)
    for other in _by_rules(summaries, policy, now, besides, others):
        each = other.summary
        if each.savepoint not in old:
            continue
        why = RetentionReason(
            MAX_AGE, f"{say_duration(ages_s[each.savepoint])} old; at most {limit} is allowed"
        )
        hold = besides.get((each.job, each.savepoint))
        if hold is not None and hold.rule == HELD:
            decisions.append(RetentionDecision(each, True, (hold, why)))
        else:
            decisions.append(RetentionDecision(each, False, (why,), _overruled(other, summaries, policy)))
    return decisions


def _overruled(
    decision: RetentionDecision, summaries: Sequence[SavepointSummary], policy: Policy
) -> tuple[str, ...]:
    """The rules that would have kept a savepoint without a limit of age."""
    verified = sorted((each for each in summaries if each.verified_ok), key=_age, reverse=True)
    rules = [reason.rule for reason in decision.reasons] if decision.keep else []
    if decision.summary in verified[: policy.min_verified]:
        rules.append(MIN_VERIFIED_RULE)
    return tuple(dict.fromkeys(rule for rule in rules if rule not in (YOUNG, DAMAGED)))


def _by_rules(
    summaries: Sequence[SavepointSummary],
    policy: Policy,
    now: datetime,
    besides: Mapping[tuple[str, str], RetentionReason],
    others: Container[tuple[str, str]],
) -> list[RetentionDecision]:
    unreadable = [each for each in summaries if each.error is not None or each.taken_at is None]
    usable = sorted((each for each in summaries if each not in unreadable), key=_age, reverse=True)
    # What nothing but its id means takes no place from what a restore goes back to.
    passed_over = {each.savepoint for each in usable if each.rejected or (each.job, each.savepoint) in others}
    whole = [each for each in usable if each.verified_ok is not False and each.savepoint not in passed_over]
    present = [each for each in whole if _taken_at(each) <= now]
    of_all, of_whole, of_present = (_rules(some, policy, now) for some in (usable, whole, present))
    kept: dict[str, list[RetentionReason]] = {}
    for each in usable:
        reasons = [RetentionReason("pinned", "it is pinned")] if each.pinned else []
        for rules in (of_whole, of_present, of_all):
            for rule in rules:
                if each.savepoint in rule.keeps:
                    ahead = "" if _taken_at(each) <= now else ", by a time that is in the future"
                    reason = RetentionReason(rule.name, f"{rule.keeps[each.savepoint]}{ahead}")
                    if reason not in reasons:
                        reasons.append(reason)
        if reasons:
            kept[each.savepoint] = reasons
    for some in (whole, present):
        _keep_verified(some, kept, policy.min_verified)
    for each in usable:
        if (each.job, each.savepoint) in besides:
            kept.setdefault(each.savepoint, []).append(besides[each.job, each.savepoint])
    decisions = [_unreadable(each) for each in unreadable]
    for each in usable:
        bad = [RetentionReason(DAMAGED, FOUND_DAMAGE)] if each.verified_ok is False else []
        if each.savepoint in kept:
            decisions.append(RetentionDecision(each, True, tuple(kept[each.savepoint] + bad)))
            continue
        rules = of_all if bad or each.savepoint in passed_over else of_whole
        passed = [RetentionReason(rule.name, rule.passes[each.savepoint]) for rule in rules]
        decisions.append(RetentionDecision(each, False, tuple(bad + passed)))
    return decisions


def _keep_verified(
    whole: Sequence[SavepointSummary], kept: dict[str, list[RetentionReason]], wanted: int
) -> None:
    """Keep the newest verified ones, then, until there are enough, others that nothing is known against.

    That rules keep older verified ones is no reason to drop the newest: it is what a restore goes back to.
    """
    verified = [each for each in whole if each.verified_ok]
    for each in verified[:wanted]:
        if each.savepoint not in kept:
            kept[each.savepoint] = [
                RetentionReason(MIN_VERIFIED_RULE, f"one of the last {wanted} that are verified")
            ]
    short = wanted - sum(each.savepoint in kept for each in whole)
    for each in whole:
        if short > 0 and each.savepoint not in kept:
            why = f"only {len(verified)} of the {wanted} that must stay are verified, so this one stays too"
            kept[each.savepoint] = [RetentionReason(MIN_VERIFIED_RULE, why)]
            short -= 1


def _unreadable(summary: SavepointSummary) -> RetentionDecision:
    why = summary.error.message if summary.error else "it does not record when it was taken"
    return RetentionDecision(summary, True, (RetentionReason("unreadable", f"never dropped unread: {why}"),))


def _rules(summaries: Sequence[SavepointSummary], policy: Policy, now: datetime) -> list[_Rule]:
    """Each rule of a policy on savepoints of one job, the newest first."""
    rules = [_last(summaries, policy.keep_last)] if policy.keep_last else []
    for name, number, bucket in _calendars(policy):
        if number:
            rules.append(_calendar(name, summaries, number, _local(bucket, policy.time_zone)))
    if policy.keep_within_s:
        rules.append(_within(summaries, policy.keep_within_s, now))
    if not policy.has_keep_rule:
        young = f"no more than {say_duration(policy.max_age_s)} old"
        rules.append(_Rule(YOUNG, {each.savepoint: young for each in summaries}, {}))
    return rules


def _last(summaries: Sequence[SavepointSummary], number: int) -> _Rule:
    keeps = {each.savepoint: f"one of the last {number}" for each in summaries[:number]}
    passes = {each.savepoint: f"not one of the last {number}" for each in summaries[number:]}
    return _Rule("last", keeps, passes)


def _calendar(
    name: str, summaries: Sequence[SavepointSummary], number: int, bucket: Callable[[datetime], str]
) -> _Rule:
    keeps: dict[str, str] = {}
    passes: dict[str, str] = {}
    newest: dict[str, str] = {}
    for each in summaries:
        place = bucket(_taken_at(each))
        if place in newest:
            passes[each.savepoint] = f"{newest[place]} is the newest of {place}"
        elif len(newest) < number:
            newest[place] = each.savepoint
            keeps[each.savepoint] = f"the newest of {place}"
        else:
            passes[each.savepoint] = f"{place} is before the last {number} that have one"
    return _Rule(name, keeps, passes)


def _local(bucket: Callable[[datetime], str], name: str) -> Callable[[datetime], str]:
    """A calendar of UTC as that of a zone, which it says."""
    if name == UTC_NAME:
        return bucket
    zone = time_zone(name)

    def local(at: datetime) -> str:
        try:
            there = at.astimezone(zone)
        except OverflowError:  # a damaged clock said the year 9999
            there = at
        return f"{bucket(there)} ({name})"

    return local


def _within(summaries: Sequence[SavepointSummary], seconds: float, now: datetime) -> _Rule:
    keeps: dict[str, str] = {}
    passes: dict[str, str] = {}
    newest = min((max(_taken_at(each) for each in summaries), now)) if summaries else now
    for each in summaries:
        age_s = (newest - _taken_at(each)).total_seconds()
        if age_s <= seconds:
            keeps[each.savepoint] = f"within {say_duration(seconds)} of the newest"
        else:
            passes[each.savepoint] = f"{say_duration(age_s)} older than the newest"
    return _Rule("within", keeps, passes)


def _calendars(policy: Policy) -> list[tuple[str, int, Callable[[datetime], str]]]:
    """Name, number and calendar of each rule that goes by one."""
    return [
        ("hourly", policy.keep_hourly, _hour),
        ("daily", policy.keep_daily, lambda at: at.strftime("%Y-%m-%d")),
        ("weekly", policy.keep_weekly, lambda at: at.strftime("%G-W%V")),
        ("monthly", policy.keep_monthly, lambda at: at.strftime("%Y-%m")),
        ("yearly", policy.keep_yearly, lambda at: at.strftime("%Y")),
    ]


def _hour(at: datetime) -> str:
    # At the end of summer an hour comes twice: its distance from UTC tells which it is.
    return at.strftime("%Y-%m-%d %Hh" if at.tzinfo is UTC else "%Y-%m-%d %Hh%z")


def _taken_at(summary: SavepointSummary) -> datetime:
    # Those that do not say when they were taken are sorted out before any rule is applied.
    return (summary.taken_at or datetime.min.replace(tzinfo=UTC)).astimezone(UTC)


def _age(summary: SavepointSummary) -> tuple[datetime, int, str]:
    return _taken_at(summary), summary.batch or 0, summary.savepoint
