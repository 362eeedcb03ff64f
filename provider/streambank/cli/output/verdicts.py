"""Verdicts for people: a table, and under it why something is not well, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streambank.cli.output import console

if TYPE_CHECKING:
    from streambank.sla.assess import Assessment
    from streambank.sla.verdict import Verdict


def show(found: Assessment) -> None:
    """Write an assessment to stdout."""
    from streambank.core.units import to_json_time

    console.line(f"{found.job}: {found.level}, judged at {to_json_time(found.at)}")
    console.line()
    several = len({one.query for one in found.verdicts}) > 1
    columns = ("level", *(("query",) if several else ()), "objective", "value", "limit", "since")
    rows = [
        (level(one), *((one.query,) if several else ()), objective(one), *figures(one), since(one))
        for one in found.verdicts
    ]
    console.table(columns, rows, right=("value", "limit"))
    for one in found.verdicts:
        if one.level in ("warn", "breach") or one.mute is not None:
            console.line()
            _explain(one, several)
    unknown = [one for one in found.verdicts if one.level == "unknown" and one.mute is None]
    if unknown:
        console.line()
    for one in unknown:
        console.line(f"unknown: {one.objective}{f' of {one.query}' if several else ''}: {one.why}")


def level(verdict: Verdict) -> str:
    """The level, and whether somebody has muted it."""
    return f"{verdict.level} (muted)" if verdict.mute is not None else verdict.level


def objective(verdict: Verdict) -> str:
    """The objective, and what of the query it is about."""
    return f"{verdict.objective} ({verdict.subject})" if verdict.subject else verdict.objective


def figures(verdict: Verdict) -> tuple[str, str]:
    """Value and limit."""
    from streambank.sla.verdict import say

    unit = verdict.unit
    if unit is None:
        return "", ""
    value, limit = (None if one is None else say(one, unit) for one in (verdict.value, verdict.limit))
    return value or "", limit or ""


def since(verdict: Verdict) -> str:
    """Since when, to the second."""
    return "" if verdict.since is None else f"{verdict.since:%Y-%m-%d %H:%M:%S}Z"


def _explain(verdict: Verdict, several: bool) -> None:
    from streambank.core.units import to_json_time

    of = f" of {verdict.query}" if several else ""
    console.line(f"{level(verdict)}: {verdict.objective}{of}: {verdict.why}")
    if verdict.mute is not None:
        console.line(f"  muted until {to_json_time(verdict.mute.until)}: {verdict.mute.why}")
    if verdict.advice:
        console.line(f"  what to do: {verdict.advice}")
    for sentence in verdict.evidence:
        console.line(f"  - {sentence}")
