"""News of an SLA in words: as a sentence for people, and as the payload of an asset's event."""

from __future__ import annotations

from typing import Any

from streambank.control.generations import MAIN
from streambank.core.times import to_json_time
from streambank.sla.alerts import News
from streambank.sla.objectives import HISTORY, OF_JOB
from streambank.sla.verdict import LEVELS, Level, Verdict

_EVENT = ("job", "query", "objective", "level", "value", "limit", "unit", "subject", "why", "advice")


def level_of(name: str) -> Level:
    """The level of a name that was checked."""
    return next(level for level in LEVELS if level == name)


def subject_of(verdict: Verdict) -> str:
    """What a verdict is about: `flights: state_bytes`, `orders/left: growth`, `orders: alive`."""
    query = "" if verdict.query == MAIN or verdict.objective in OF_JOB else f"/{verdict.query}"
    return f"{verdict.job}{query}: {verdict.objective}"


def sentence(verdict: Verdict) -> str:
    """A verdict for people."""
    said = {"breach": "is broken", "warn": "warns", "unknown": "is unknown", "ok": "is kept"}[verdict.level]
    muted = f" (muted: {verdict.mute.why})" if verdict.mute is not None else ""
    advice = f" {verdict.advice}" if verdict.advice else ""
    # Of a history that cannot be read the reasons are there: each is a sentence.
    reasons = " ".join(("", *verdict.evidence)) if verdict.objective == HISTORY and advice else ""
    return f"{subject_of(verdict)} {said}{muted}. {verdict.why}{reasons}{advice}"


def message_of(news: News) -> str:
    """What is told, for people."""
    since = to_json_time(news.since)
    if news.kind == "healed":
        was = "warned" if news.was == "warn" else "was broken"
        return f"{subject_of(news.verdict)} is kept again; it {was} since {since}. {news.verdict.why}"
    return f"{sentence(news.verdict)} Since {since}."


def event_of(news: News) -> dict[str, Any]:
    """What an asset's event tells: flat, and never where anything is."""
    verdict = news.verdict.to_dict()
    return {
        **{name: verdict[name] for name in _EVENT},
        "kind": news.kind,
        "was": news.was,
        "since": to_json_time(news.since),
        "at": verdict["at"],
    }


def news_context(news: News) -> dict[str, Any]:
    """What a notifier's templates see beside what every task's do."""
    return {
        "news": {
            "kind": news.kind,
            "since": to_json_time(news.since),
            "was": news.was,
            "message": message_of(news),
        },
        "verdict": news.verdict.to_dict(),
        "job": news.verdict.job,
        # As every alert has them, so that one text serves for all kinds.
        "kind": "sla",
        "message": message_of(news),
        "code": "",
    }
