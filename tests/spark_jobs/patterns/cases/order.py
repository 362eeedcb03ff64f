"""Patterns whose answer depends on the order of events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, by_key, final_watermark

GAP = timedelta(minutes=15)


def sessions_that_ended(actions: list[Event]) -> Iterator[dict[str, Any]]:
    """Sessions by a gap, or by the action `pay`."""
    watermark = final_watermark(actions)
    for user, visits in by_key(actions, "user").items():
        session: list[Event] = []
        for action in visits:
            if action["event_time"] > watermark:
                continue
            if session and action["event_time"] - session[-1]["event_time"] > GAP:
                yield session_row(user, session, "gap")
                session = []
            session.append(action)
            if action["action"] == "pay":
                yield session_row(user, session, "pay")
                session = []
        if session and session[-1]["event_time"] + GAP < watermark:
            yield session_row(user, session, "gap")


def session_row(user: str, session: list[Event], by: str) -> dict[str, Any]:
    first, last = session[0]["event_time"], session[-1]["event_time"]
    ms = sum(action["ms"] for action in session)
    return {
        "user": user,
        "first_at": first,
        "last_at": last,
        "actions": len(session),
        "ms": ms,
        "ended_by": by,
    }


def bursts(payments: list[Event]) -> Iterator[dict[str, Any]]:
    """Each payment that completes five of its card within three minutes."""
    watermark = final_watermark(payments)
    for card, paid in by_key(payments, "card").items():
        due = [payment for payment in paid if payment["event_time"] <= watermark]
        for last in range(4, len(due)):
            five = due[last - 4 : last + 1]
            first_at, last_at = five[0]["event_time"], five[-1]["event_time"]
            if last_at - first_at <= timedelta(minutes=3):
                cents = sum(payment["cents"] for payment in five)
                yield {"card": card, "first_at": first_at, "last_at": last_at, "payments": 5, "cents": cents}


def left_carts(actions: list[Event]) -> Iterator[dict[str, Any]]:
    """The newest search before each first item in the cart that no payment followed within ten minutes."""
    watermark, within = final_watermark(actions), timedelta(minutes=10)
    for user, visits in by_key(actions, "user").items():
        due = [visit for visit in visits if visit["event_time"] <= watermark]
        at = 0
        while at < len(due):
            searches = [n for n in range(at, len(due)) if due[n]["action"] == "search"]
            adds = [
                n for n in range(at, len(due)) if due[n]["action"] == "add" and searches and n > searches[0]
            ]
            pays = [n for n in range(at, len(due)) if due[n]["action"] == "pay"]
            first_pay = pays[0] if pays else len(due)
            if not adds or first_pay < adds[0]:
                if not pays:
                    break
                at = first_pay + 1
                continue
            added = due[adds[0]]["event_time"]
            searched = due[max(n for n in searches if n < adds[0])]["event_time"]
            if pays and due[first_pay]["event_time"] <= added + within:
                at = first_pay + 1
                continue
            if added + within < watermark:
                yield {"user": user, "searched_at": searched, "added_at": added}
            later = [n for n in range(adds[0], len(due)) if due[n]["event_time"] > added + within]
            if not later:
                break
            at = later[0]


def averages(readings: list[Event]) -> Iterator[dict[str, Any]]:
    """Of each reading and the nine before it."""
    watermark = final_watermark(readings)
    for device, made in by_key(readings, "device").items():
        for at, reading in enumerate(made):
            if reading["event_time"] <= watermark:
                ten = [one["milli_degrees"] for one in made[max(0, at - 9) : at + 1]]
                row = {"device": device, "event_time": reading["event_time"]}
                yield {**row, "readings": len(ten), "milli_degrees": sum(ten) // len(ten)}


def vectors(actions: list[Event]) -> Iterator[dict[str, Any]]:
    """Sums over all earlier actions of the user whose minute lies within each span."""
    watermark = final_watermark(actions)
    for user, visits in by_key(actions, "user").items():
        minutes = [int(visit["event_time"].timestamp()) // 60 for visit in visits]
        for at, visit in enumerate(visits):
            if visit["event_time"] > watermark:
                continue
            row = {"user": user, "event_time": visit["event_time"]}
            for name, span in (("5m", 5), ("1h", 60), ("1d", 1440)):
                within = [n for n in range(at + 1) if minutes[at] - minutes[n] < span]
                row[f"actions_{name}"] = len(within)
                row[f"ms_{name}"] = sum(visits[n]["ms"] for n in within)
            yield row


CASES = [
    Case("sessions_timers", ("actions",), sessions_that_ended),
    Case("velocity", ("payments",), bursts),
    Case("sequence", ("actions",), left_carts),
    Case("rolling_average", ("readings",), averages),
    Case("features", ("actions",), vectors),
]
