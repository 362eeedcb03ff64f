"""Patterns of whole sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, by_key, final_watermark

GAP = timedelta(minutes=15)
EVERY = 4


def tracked(actions: list[Event]) -> Iterator[dict[str, Any]]:
    """Each session that has ended, and each fourth action of any."""
    watermark = final_watermark(actions)
    for user, visits in by_key(actions, "user").items():
        done = [visit for visit in visits if visit["event_time"] <= watermark]
        starts = [
            at
            for at, visit in enumerate(done)
            if at == 0 or visit["event_time"] - done[at - 1]["event_time"] > GAP
        ]
        for start, end in pairwise([*starts, len(done)]):
            session = done[start:end]
            for length in range(EVERY, len(session) + 1, EVERY):
                yield report(user, "summary", session[:length])
            if end < len(done) or session[-1]["event_time"] + GAP < watermark:
                yield report(user, "ended", session)


def report(user: str, kind: str, session: list[Event]) -> dict[str, Any]:
    uses = Counter(action["feature"] for action in session)
    top = sorted(uses.items(), key=lambda one: one[0])
    top.sort(key=lambda one: one[1], reverse=True)
    return {
        "user": user,
        "kind": kind,
        "first_at": session[0]["event_time"],
        "last_at": session[-1]["event_time"],
        "actions": len(session),
        "pages": [f"{action['action']}/{action['feature']}" for action in session][-3:],
        "top": [{"feature": feature, "uses": count} for feature, count in top[:5]],
    }


ARGS = ("--every", str(EVERY), "--gap-minutes", "15", "--pages", "3")
CASES = [Case("user_sessions", ("actions",), tracked, ARGS)]
