"""Patterns of windows, deduplication and joins."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

from tests.spark_jobs.patterns.cases.case import Case, Event, by_key, final_watermark

GAP = timedelta(minutes=15)


def sessions_by_gap(actions: list[Event]) -> Iterator[dict[str, Any]]:
    """Runs of actions without a gap, that have ended."""
    watermark = final_watermark(actions)
    for user, visits in by_key(actions, "user").items():
        times = [visit["event_time"] for visit in visits]
        begins = [0, *(n for n in range(1, len(visits)) if times[n] - times[n - 1] >= GAP), len(visits)]
        for begin, end in pairwise(begins):
            session = visits[begin:end]
            if times[end - 1] + GAP <= watermark:
                first, last = session[0]["event_time"], session[-1]["event_time"]
                ms = sum(one["ms"] for one in session)
                yield {"user": user, "first_at": first, "last_at": last, "actions": len(session), "ms": ms}


def each_payment(payments: list[Event]) -> Iterator[Event]:
    """Payments by their ids."""
    return iter({payment["payment"]: payment for payment in payments}.values())


def orders_with_deliveries(orders: list[Event], deliveries: list[Event]) -> Iterator[dict[str, Any]]:
    """Each order with its delivery, if that came within three hours; without one only once it is too late."""
    arrived = {delivery["order_id"]: delivery for delivery in deliveries}
    watermark = min(final_watermark(orders), final_watermark(deliveries))
    within = timedelta(hours=3)
    for order in orders:
        at = order["event_time"]
        row = {
            "order_id": order["order_id"],
            "user": order["user"],
            "cents": order["cents"],
            "ordered_at": at,
        }
        delivery = arrived.get(order["order_id"])
        if delivery and at <= delivery["event_time"] <= at + within:
            yield {**row, "delivered_at": delivery["event_time"], "carrier": delivery["carrier"]}
        elif at + within < watermark:
            yield row


def prices(trades: list[Event]) -> Iterator[dict[str, Any]]:
    """Of each minute that has ended."""
    watermark = final_watermark(trades)
    for symbol, made in by_key(trades, "symbol").items():
        minutes = {trade["event_time"].replace(second=0, microsecond=0) for trade in made}
        for minute in minutes:
            within = [one for one in made if minute <= one["event_time"] < minute + timedelta(minutes=1)]
            shares = sum(one["shares"] for one in within)
            if shares and minute + timedelta(minutes=1) <= watermark:
                paid = sum(one["cents"] * one["shares"] for one in within)
                yield {
                    "symbol": symbol,
                    "from": minute,
                    "shares": shares,
                    "centi_cents": paid * 100 // shares,
                }


CASES = [
    Case("sessions_builtin", ("actions",), sessions_by_gap),
    Case("dedup_watermark", ("payments",), each_payment),
    Case("dedup_within", ("payments",), each_payment),
    Case("dedup_ttl", ("payments",), each_payment),
    Case("join_bounds", ("orders", "deliveries"), orders_with_deliveries, rows=30),
    Case("vwap", ("trades",), prices),
]
