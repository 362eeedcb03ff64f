"""An assessment as one page that needs nothing else (`page.py`): verdicts, and plots of what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from streambank.cli.output import verdicts
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
    write,
)
from streambank.core.text import visible

if TYPE_CHECKING:
    from datetime import datetime

    from streambank.sla.assess import Assessment
    from streambank.sla.charts import Chart
    from streambank.sla.verdict import Verdict

_MOST_RESTARTS = 200
_TICKS = {"bytes": ("~s", "B"), "s": ("~g", " s"), "ms": ("~g", " ms")}
_COLUMNS = ("level", "query", "objective", "value", "limit", "since", "why")


def write_page(location: str, found: Assessment, charts: Sequence[Chart]) -> None:
    """Write the page of an assessment, whole or not at all.

    Args:
        location: The file: a path or a URI.
    """
    write(location, page(found, charts))


def page(found: Assessment, charts: Sequence[Chart]) -> str:
    """The page's HTML."""
    from streambank.core.units import to_json_time

    title = f"SLA of {visible(found.job)}"
    drawn = "".join(_section(place, chart) for place, chart in enumerate(charts))
    body = f"""<h1>{text(title)} {badge(found.level, found.level)}</h1>
<p class="meta">Judged at {text(to_json_time(found.at))}. All times are UTC.</p>
<h2>Verdicts</h2>
{_table(found.verdicts)}
{_explained(found.verdicts)}
<h2>Measurements</h2>
<noscript>Plots need JavaScript; the verdicts above do not.</noscript>
{drawn or "<p>Nothing was measured.</p>"}"""
    return document(title, body, [_figure(chart) for chart in charts])


def _table(found: Iterable[Verdict]) -> str:
    caption = "Each objective, what was measured, and since when it is not ok."
    return table(caption, _COLUMNS, map(_row, found), ("value", "limit"))


def _row(verdict: Verdict) -> str:
    value, limit = verdicts.figures(verdict)
    cells = zip(
        _COLUMNS[1:],
        (verdict.query, verdicts.objective(verdict), value, limit, verdicts.since(verdict), verdict.why),
        strict=True,
    )
    return (
        f"<tr><td>{badge(verdict.level, verdicts.level(verdict))}</td>"
        + "".join(f"<td{_class(name)}>{text(said)}</td>" for name, said in cells)
        + "</tr>"
    )


def _class(column: str) -> str:
    kind = "figure" if column in ("value", "limit") else "why" if column == "why" else None
    return f' class="{kind}"' if kind is not None else ""


def _explained(found: Iterable[Verdict]) -> str:
    """What to do about what is not well, what was seen, and what is muted."""
    from streambank.core.units import to_json_time

    parts = []
    for one in found:
        if one.level not in ("warn", "breach") and one.mute is None:
            continue
        lines = [f"What to do: {one.advice}"] if one.advice else []
        if one.mute is not None:
            lines.append(f"Muted until {to_json_time(one.mute.until)}: {one.mute.why}")
        items = "".join(f"<li>{text(line)}</li>" for line in (*lines, *one.evidence))
        heading = f"{verdicts.objective(one)}, query {one.query}"
        parts.append(f"<h3>{badge(one.level, verdicts.level(one))} {text(heading)}</h3>")
        parts.append(f"<p>{text(one.why)}</p><ul>{items}</ul>")
    return "".join(parts)


def _section(place: int, chart: Chart) -> str:
    heading = f"{chart.name}, query {chart.query}"
    drawn = plot(place, f"{chart.meaning} over time")
    return f"<h3>{text(heading)}</h3><p class='meta'>{text(chart.meaning)}</p>{drawn}"


def _figure(chart: Chart) -> dict[str, Any]:
    """A plotly figure: its texts are our own words, for plotly takes some HTML in them for markup."""
    times = [plotly_time(dot.at) for dot in chart.dots]
    end = chart.forecast.end if chart.forecast is not None else chart.dots[-1].at
    traces = [
        *_band(
            times, [dot.low for dot in chart.dots], [dot.high for dot in chart.dots], "smallest to largest"
        ),
        trace(times, [dot.value for dot in chart.dots], "measured", color="#0550ae"),
        *_forecast(chart),
        *_limits(chart, times[0], plotly_time(end)),
    ]
    form, suffix = _TICKS.get(chart.unit, ("~s", f" {chart.unit}"))
    return {
        "data": traces,
        "layout": {
            **layout(form, suffix),
            "shapes": [_restart(moment) for moment in list(chart.restarts)[-_MOST_RESTARTS:]],
        },
    }


def _forecast(chart: Chart) -> list[dict[str, Any]]:
    forecast = chart.forecast
    if forecast is None:
        return []
    times = [plotly_time(forecast.begin), plotly_time(forecast.end)]
    found = []
    if forecast.low is not None and forecast.high is not None:
        lows, highs = [forecast.value, forecast.low], [forecast.value, forecast.high]
        found += _band(times, lows, highs, "95 % interval", color="rgba(188,76,0,0.15)")
    name = "forecast" if forecast.grows else "forecast (may be chance)"
    found.append(
        trace(times, [forecast.value, forecast.expected], name, color="#bc4c00", dash="dash", mode="lines")
    )
    return found


def _limits(chart: Chart, begin: str, end: str) -> list[dict[str, Any]]:
    tops = [dot.high for dot in chart.dots]
    if chart.forecast is not None:
        tops.append(chart.forecast.expected)
    limits = (("warning", chart.warn), ("limit", chart.breach))
    return [
        limit_line(name, limit, begin, end, max(tops), breach=name == "limit")
        for name, limit in limits
        if limit is not None
    ]


def _restart(moment: datetime) -> dict[str, Any]:
    at = plotly_time(moment)
    line = {"color": "#8c959f", "width": 1, "dash": "dot"}
    where = {"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", "line": line, "layer": "below", "label": {"text": "restart"}, **where}


def _band(
    times: list[str], lows: list[float], highs: list[float], name: str, *, color: str = "rgba(5,80,174,0.12)"
) -> list[dict[str, Any]]:
    """The room between two lines; nothing where they are the same."""
    if lows == highs:
        return []
    edge = {"x": times, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": name}
    return [
        {**edge, "type": "scatter", "y": lows, "showlegend": False},
        {**edge, "type": "scatter", "y": highs, "fill": "tonexty", "fillcolor": color, "name": name},
    ]
