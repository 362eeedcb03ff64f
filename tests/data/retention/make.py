"""Makes the golden files: what becomes of a year of savepoints under some policies, with every reason.

    python -m tests.data.retention.make

Look at what `git diff` shows before you commit it: each line is a promise to somebody.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streambank.repository.catalog import SavepointSummary
from streambank.retention.policy import Policy, decide

HERE = Path(__file__).parent
NOW = datetime(2014, 1, 2, tzinfo=UTC)
POLICIES = {
    "last": Policy(keep_last=5),
    "hourly": Policy(keep_hourly=12),
    "daily": Policy(keep_daily=14),
    "weekly": Policy(keep_weekly=8),
    "monthly": Policy(keep_monthly=24),
    "yearly": Policy(keep_yearly=3),
    "within": Policy(keep_within_s=3 * 86400),
    "all": Policy(
        keep_last=3, keep_hourly=6, keep_daily=7, keep_weekly=4, keep_monthly=12, keep_yearly=5,
        keep_within_s=86400, min_verified=2,
    ),
    "verified": Policy(keep_last=1, min_verified=6),
    "unverified": Policy(keep_last=1, min_verified=400),
    "new_york": Policy(
        keep_daily=7, keep_weekly=4, keep_monthly=12, keep_yearly=5, min_verified=2,
        time_zone="America/New_York",
    ),
    "berlin_spring": Policy(keep_hourly=6, keep_daily=3, min_verified=0, time_zone="Europe/Berlin"),
    "berlin_autumn": Policy(keep_hourly=6, keep_daily=3, min_verified=0, time_zone="Europe/Berlin"),
}  # fmt: skip
CHANGES = {
    "berlin_spring": datetime(2013, 3, 31, 1, tzinfo=UTC),
    "berlin_autumn": datetime(2013, 10, 27, 1, tzinfo=UTC),
}
"""When the clocks of Berlin are changed: to 3 o'clock, and back to 2 o'clock."""


def year() -> Iterator[SavepointSummary]:
    """Five a day with an outage in August; some pinned, some damaged, every seventh verified."""
    at = datetime(2013, 1, 1, 0, 7, tzinfo=UTC)
    number = 0
    while at < datetime(2014, 1, 1, tzinfo=UTC):
        if not datetime(2013, 8, 3, tzinfo=UTC) < at < datetime(2013, 8, 20, tzinfo=UTC):
            verified = True if number % 7 == 0 else False if number % 41 == 0 else None
            yield SavepointSummary(
                savepoint=f"b{number:06d}",
                job="flights",
                batch=number,
                taken_at=at,
                pinned=number in (20, 900),
                verified_ok=verified,
                verified_at=at if verified is not None else None,
            )
        number += 1
        at += timedelta(hours=4, minutes=48)


def days_around(change: datetime) -> Iterator[SavepointSummary]:
    """Every half hour, from three days before a moment to three hours after it."""
    for number in range(-144, 7):
        at = change + timedelta(minutes=30 * number)
        yield SavepointSummary(savepoint=f"b{1000 + number:06d}", job="flights", batch=1, taken_at=at)


def golden(name: str) -> str:
    """What a golden file holds: all kept ones, how many are dropped, and the newest of those."""
    savepoints = days_around(CHANGES[name]) if name in CHANGES else year()
    decisions = decide(savepoints, POLICIES[name], NOW)
    lines = []
    for keep in (True, False):
        some = [decision for decision in decisions if decision.keep is keep]
        lines.append(f"{'kept' if keep else 'dropped'}: {len(some)}")
        for decision in some if keep else some[:12]:
            reasons = "; ".join(f"{reason.rule}: {reason.why}" for reason in decision.reasons)
            summary = decision.summary
            at = summary.taken_at.strftime("%Y-%m-%d %a %H:%M") if summary.taken_at else ""
            lines.append(f"  {summary.savepoint} {at}  {reasons}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in POLICIES:
        (HERE / f"{name}.txt").write_text(golden(name), encoding="utf-8")
