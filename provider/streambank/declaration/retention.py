"""`[jobs.NAME.retention]` and `[jobs.NAME.replicate.retention]`: what a job declares to be kept."""

from __future__ import annotations

from streambank.declaration.fields import Fields
from streambank.retention.policy import MIN_VERIFIED, Policy


def read_retention(fields: Fields) -> Policy | None:
    """The policy in a table; None where there is none.

    Raises:
        InputError: A field is not known or cannot be right, or no field keeps anything (code
            `bad-declaration`).
    """
    if not fields.data:
        return None
    min_verified = fields.whole("min_verified", minimum=0)
    policy = Policy(
        keep_last=fields.whole("keep_last", minimum=1) or 0,
        keep_hourly=fields.whole("keep_hourly", minimum=1) or 0,
        keep_daily=fields.whole("keep_daily", minimum=1) or 0,
        keep_weekly=fields.whole("keep_weekly", minimum=1) or 0,
        keep_monthly=fields.whole("keep_monthly", minimum=1) or 0,
        keep_yearly=fields.whole("keep_yearly", minimum=1) or 0,
        keep_within_s=fields.duration_s("keep_within") or 0.0,
        min_verified=MIN_VERIFIED if min_verified is None else min_verified,
        max_age_s=fields.duration_s("max_age") or 0.0,
    )
    fields.done()
    if policy.is_empty:
        raise fields.source.mistake(
            fields.path, "it keeps nothing", "Add a rule, such as keep_last = 10 or keep_daily = 7."
        )
    return policy
