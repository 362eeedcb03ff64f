"""The drills of a job as one page that needs nothing else (`page.py`): RTO by step and RPO over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from streambank.cli.output import console
from streambank.cli.output.page import (
    badge,
    document,
    layout,
    limit_line,
    plot,
    plotly_time,
    table,
    text,
    trace,
)
from streambank.control.drills import called, savepoints_of
from streambank.core.units import from_json_time, say_duration
from streambank.drills.report import OF_A_RESTORE, Step

if TYPE_CHECKING:
    from streambank.control.drills import Outcome
    from streambank.control.records import JsonDict
    from streambank.declaration.sla import SlaPolicy

_COLORS = {"choose": "#8250df", "restore": "#0550ae", "launch": "#1b7c83", "first batch": "#bc4c00"}
"""Steps of the RTO, the lowest of the stack first."""
_RED = "#cf222e"
_COLUMNS = ("started", "savepoint", "result", "RTO", "RPO", "why")
_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
"""In what ages are drawn of which the largest is twice as long, in seconds."""
_LIMITED_BY = {"RTO": "recovery_time", "RPO": "savepoint_age"}
"""The objectives whose declared limits are drawn."""


@dataclass(frozen=True, slots=True)
class _Drill:
    """What is drawn of a drill.

    Attributes:
        at: When it began.
        rto_s: The seconds of its RTO, by step; empty where it was not measured.
        rpo_s: How old its savepoint was; None where that is not known.
        failed: The step that failed; empty where it passed.
        older: Whether it is one of a round, and not of the newest savepoint.
    """

    at: datetime
    rto_s: Mapping[str, float]
    rpo_s: float | None
    failed: str
    older: bool


def drill_page(
    job: str, reports: Sequence[JsonDict], newest: Outcome | None, policy: SlaPolicy | None
) -> str:
    """The page's HTML.

    Args:
        reports: The reports of its drills, newest first.
        newest: How the newest of them ended; None where there is none that is over.
    """
    title = f"Drills of {job}"
    said = "" if newest is None else badge("ok" if newest.passed else "breach", _word(newest.passed))
    heading = f"<h1>{text(title)} {said}</h1>"
    if not reports:
        return document(title, f"{heading}\n<p>There was no drill of this job yet.</p>", [])
    drills = [one for one in map(_drill, reversed(reports)) if one is not None]
    figures = {"RTO": _rto(drills, policy), "RPO": _rpo(drills, policy)} if drills else {}
    meanings = {
        "RTO": "how long a restore takes until its first batch is committed, by step",
        "RPO": "how old the savepoint was: what came later would be processed again",
    }
    drawn = "".join(
        f"<h2>{name}</h2><p class='meta'>{meanings[name]}</p>{plot(place, f'{name} of each drill over time')}"
        for place, name in enumerate(figures)
    )
    rows = map(_row, reports)
    body = f"""{heading}
<p class="meta">{text(console.count(len(reports), "drill"))}. All times are UTC.</p>
<noscript>Plots need JavaScript; the table below does not.</noscript>
{drawn}
<h2>Drills</h2>
{table("Each drill, the newest first.", _COLUMNS, rows, ("RTO", "RPO"))}"""
    return document(title, body, list(figures.values()))


def _drill(report: Mapping[str, Any]) -> _Drill | None:
    """What is drawn of a report; None where it does not say when."""
    try:
        at = from_json_time(str(report.get("started_at")))
    except ValueError:
        return None
    of_round, step = report.get("round") or {}, report.get("failed_step")
    # plotly takes some HTML in texts: only words that are known stand there.
    failed = str(step) if step in get_args(Step) else "unknown step"
    return _Drill(
        at,
        _steps(report),
        _number(report.get("rpo_s")),
        "" if report.get("passed") is True else failed,
        of_round.get("number", 1) != 1,
    )


def _steps(report: Mapping[str, Any]) -> dict[str, float]:
    """The RTO by step: what of it is none of the steps before is the first batch."""
    rto_s, steps = _number(report.get("rto_s")), report.get("steps") or {}
    if rto_s is None or report.get("passed") is not True:
        return {}
    found: dict[str, float] = {name: _number(steps.get(name)) or 0.0 for name in OF_A_RESTORE[:-1]}
    return {**found, "first batch": max(0.0, rto_s - sum(found.values()))}


def _rto(drills: Sequence[_Drill], policy: SlaPolicy | None) -> dict[str, Any]:
    measured = [one for one in drills if one.rto_s]
    times = [plotly_time(one.at) for one in measured]
    stacked = []
    for name, color in _COLORS.items() if measured else ():
        seconds = [round(one.rto_s[name], 3) for one in measured]
        drawn = trace(times, seconds, name, color=color, mode="lines+markers")
        stacked.append({**drawn, "stackgroup": "rto"})
    top = max((sum(one.rto_s.values()) for one in measured), default=0.0)
    failed = _failed([(one, 0.0) for one in drills if one.failed])
    return {"data": [*stacked, *failed, *_limits("RTO", drills, top, policy)], "layout": layout("~g", " s")}


def _rpo(drills: Sequence[_Drill], policy: SlaPolicy | None) -> dict[str, Any]:
    ages = [one.rpo_s for one in drills if one.rpo_s is not None]
    unit_s, unit = next((one for one in _UNITS if max(ages, default=0.0) >= 2 * one[0]), (1.0, "s"))
    known = [(one, one.rpo_s / unit_s) for one in drills if one.rpo_s is not None and not one.failed]
    lines = []
    for name, color, mode, older in (
        ("newest savepoint", "#0550ae", "lines+markers", False),
        ("older savepoints (each)", "#8c959f", "markers", True),
    ):
        shown = [(plotly_time(one.at), rpo) for one, rpo in known if one.older is older]
        if shown:
            times, values = [at for at, _ in shown], [value for _, value in shown]
            lines.append(trace(times, values, name, color=color, mode=mode))
    failed = _failed([(one, (one.rpo_s or 0.0) / unit_s) for one in drills if one.failed])
    limits = _limits("RPO", drills, max(ages, default=0.0) / unit_s, policy, unit_s)
    return {"data": [*lines, *failed, *limits], "layout": layout("~g", f" {unit}")}


def _failed(drills: Sequence[tuple[_Drill, float]]) -> list[dict[str, Any]]:
    """Drills that failed, each marked with its step."""
    if not drills:
        return []
    times, values = [plotly_time(one.at) for one, _ in drills], [value for _, value in drills]
    drawn = trace(times, values, "failed, at the step", color=_RED, mode="markers+text")
    return [
        {
            **drawn,
            "text": [one.failed for one, _ in drills],
            "textposition": "top center",
            "textfont": {"color": _RED},
            "marker": {"symbol": "x", "size": 10, "color": _RED},
            "cliponaxis": False,
        }
    ]


def _limits(
    name: str, drills: Sequence[_Drill], top: float, policy: SlaPolicy | None, unit_s: float = 1.0
) -> Iterator[dict[str, Any]]:
    """The limits of the objective that is about it, where the job declares any."""
    from streambank.sla.objectives import objectives

    begin, end = plotly_time(drills[0].at), plotly_time(drills[-1].at)
    for one in objectives(policy):
        if one.name != _LIMITED_BY[name] or one.usual:
            continue
        for what, limit, breach in (("warning", one.warn, False), ("limit", one.breach, True)):
            if limit is not None:
                yield limit_line(f"{what} of {one.name}", limit / unit_s, begin, end, top, breach=breach)


def _row(report: Mapping[str, Any]) -> str:
    passed = report.get("passed") is True
    result = badge("ok" if passed else "breach", _word(passed))
    step = "" if passed else f" at the step {report.get('failed_step')}"
    why = str(report.get("error") or report.get("not_run") or "")
    times = [_seconds(report.get("rto_s")), _age(report.get("rpo_s"))] if passed else ["", ""]
    return (
        f"<tr><td>{text(str(report.get('started_at', '')))}</td>"
        f"<td>{text(called(savepoints_of(report)))}</td><td>{result}{text(step)}</td>"
        + "".join(f'<td class="figure">{text(one)}</td>' for one in times)
        + f'<td class="why">{text(why)}</td></tr>'
    )


def _word(passed: bool) -> str:
    return "passed" if passed else "failed"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _seconds(value: object) -> str:
    found = _number(value)
    return "" if found is None else f"{found:.1f} s"


def _age(value: object) -> str:
    found = _number(value)
    return "" if found is None else say_duration(round(found))
