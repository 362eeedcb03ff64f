"""An assessment as one page that needs nothing else: verdicts, and plots by plotly, whose script is in it.

Names and reasons come from directories, logs and savepoints, so nothing of them is trusted: text is escaped,
data is JSON that cannot end its script, and the page's own policy lets no other script run and nothing be
loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streambank.cli.output import verdicts
from streambank.cli.output.plots import missing
from streambank.core.text import visible

if TYPE_CHECKING:
    from datetime import datetime

    from streambank.sla.assess import Assessment
    from streambank.sla.charts import Chart
    from streambank.sla.verdict import Verdict

FAR = 3.0
"""A limit that is so many times beyond all that is drawn is hidden until somebody asks for it."""
_MOST_RESTARTS = 200
_TICKS = {"bytes": ("~s", "B"), "s": ("~g", " s"), "ms": ("~g", " ms")}
_COLUMNS = ("level", "query", "objective", "value", "limit", "since", "why")

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff;
       margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin-top: 2rem; }
h3 { font-size: 1rem; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; color: #57606a; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d0d7de; vertical-align: top;
         overflow-wrap: break-word; }
td.why { overflow-wrap: anywhere; }
td.figure, th.figure { text-align: right; white-space: nowrap; }
.level { font-weight: 600; padding: 0 .5rem; border-radius: .5rem; white-space: nowrap; }
.ok { background: #dafbe1; color: #0b4a1b; } .unknown { background: #eaeef2; color: #32383f; }
.warn { background: #fff1c2; color: #5c4300; } .breach { background: #ffd8d3; color: #82071e; }
.plot { height: 22rem; } p.meta { color: #57606a; margin-top: 0; }
"""
_SCRIPT = """
const charts = JSON.parse(document.getElementById("charts").textContent);
charts.forEach((chart, place) => {
  Plotly.newPlot("chart-" + place, chart.data, chart.layout,
    {responsive: true, displaylogo: false, plotlyServerURL: "",
     modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]]});
});
"""


def require_plotly() -> None:
    """Make sure that a page can be made.

    Raises:
        StorageError: plotly is not installed (code `missing-package`).
    """
    if find_spec("plotly") is None:
        raise missing("--html", "plotly")


def write_page(location: str, found: Assessment, charts: Sequence[Chart]) -> None:
    """Write the page of an assessment, whole or not at all.

    Args:
        location: The file: a path or a URI.
        found: The assessment.
        charts: What is drawn of it.

    Raises:
        StorageError: It cannot be written.
    """
    from streambank.storage import open_store

    folder, slash, name = location.rpartition("/")
    place = (folder or "/") if slash else "."
    open_store(place).write(name, page(found, charts).encode())


def page(found: Assessment, charts: Sequence[Chart]) -> str:
    """The page's HTML."""
    from plotly.offline import get_plotlyjs

    from streambank.core.units import to_json_time

    library: str = get_plotlyjs()
    data = _json([_figure(chart) for chart in charts])
    title = f"SLA of {visible(found.job)}"
    policy = (
        f"default-src 'none'; script-src {_allowed(library)} {_allowed(_SCRIPT)}; "
        "style-src 'unsafe-inline'; img-src data: blob:"
    )
    drawn = "".join(_section(place, chart) for place, chart in enumerate(charts))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)} {_badge(found.level, found.level)}</h1>
<p class="meta">Judged at {escape(to_json_time(found.at))}. All times are UTC.</p>
<h2>Verdicts</h2>
{_table(found.verdicts)}
{_explained(found.verdicts)}
<h2>Measurements</h2>
<noscript>Plots need JavaScript; the verdicts above do not.</noscript>
{drawn or "<p>Nothing was measured.</p>"}
<script type="application/json" id="charts">{data}</script>
<script>{library}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _allowed(script: str) -> str:
    """How the page's policy names a script: by what it is, so that no other one runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(data: Any) -> str:
    """JSON that can stand in a script element: it holds nothing that HTML would read."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _badge(level: str, text: str) -> str:
    return f'<span class="level {escape(level)}">{escape(text)}</span>'


def _table(found: Iterable[Verdict]) -> str:
    heads = "".join(f"<th{_class(name)} scope='col'>{name}</th>" for name in _COLUMNS)
    rows = "".join(_row(one) for one in found)
    return (
        "<table><caption>Each objective, what was measured, and since when it is not ok.</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(verdict: Verdict) -> str:
    value, limit = verdicts.figures(verdict)
    cells = zip(
        _COLUMNS[1:],
        (verdict.query, verdicts.objective(verdict), value, limit, verdicts.since(verdict), verdict.why),
        strict=True,
    )
    return (
        f"<tr><td>{_badge(verdict.level, verdicts.level(verdict))}</td>"
        + "".join(f"<td{_class(name)}>{_text(text)}</td>" for name, text in cells)
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
        items = "".join(f"<li>{_text(line)}</li>" for line in (*lines, *one.evidence))
        heading = f"{verdicts.objective(one)}, query {one.query}"
        parts.append(f"<h3>{_badge(one.level, verdicts.level(one))} {_text(heading)}</h3>")
        parts.append(f"<p>{_text(one.why)}</p><ul>{items}</ul>")
    return "".join(parts)


def _section(place: int, chart: Chart) -> str:
    heading = f"{chart.name}, query {chart.query}"
    label = f"{chart.meaning} over time"
    return (
        f"<h3>{_text(heading)}</h3><p class='meta'>{_text(chart.meaning)}</p>"
        f'<div class="plot" id="chart-{place}" role="img" aria-label="{_text(label)}"></div>'
    )


def _text(text: str) -> str:
    return escape(visible(text))


def _figure(chart: Chart) -> dict[str, Any]:
    """A plotly figure: its texts are our own words, for plotly takes some HTML in them for markup."""
    times = [_time(dot.at) for dot in chart.dots]
    end = chart.forecast.end if chart.forecast is not None else chart.dots[-1].at
    traces = [
        *_band(
            times, [dot.low for dot in chart.dots], [dot.high for dot in chart.dots], "smallest to largest"
        ),
        _trace(times, [dot.value for dot in chart.dots], "measured", color="#0550ae"),
        *_forecast(chart),
        *_limits(chart, times[0], _time(end)),
    ]
    form, suffix = _TICKS.get(chart.unit, ("~s", f" {chart.unit}"))
    return {
        "data": traces,
        "layout": {
            "margin": {"t": 20, "r": 20},
            "xaxis": {"type": "date", "title": {"text": "UTC"}},
            "yaxis": {"rangemode": "tozero", "tickformat": form, "ticksuffix": suffix},
            "legend": {"orientation": "h", "y": -0.25},
            "hovermode": "x",
            "shapes": [_restart(moment) for moment in list(chart.restarts)[-_MOST_RESTARTS:]],
        },
    }


def _forecast(chart: Chart) -> list[dict[str, Any]]:
    forecast = chart.forecast
    if forecast is None:
        return []
    times = [_time(forecast.begin), _time(forecast.end)]
    found = []
    if forecast.low is not None and forecast.high is not None:
        lows, highs = [forecast.value, forecast.low], [forecast.value, forecast.high]
        found += _band(times, lows, highs, "95 % interval", color="rgba(188,76,0,0.15)")
    name = "forecast" if forecast.grows else "forecast (may be chance)"
    found.append(
        _trace(times, [forecast.value, forecast.expected], name, color="#bc4c00", dash="dash", mode="lines")
    )
    return found


def _limits(chart: Chart, begin: str, end: str) -> list[dict[str, Any]]:
    tops = [dot.high for dot in chart.dots]
    if chart.forecast is not None:
        tops.append(chart.forecast.expected)
    found = []
    for name, limit, color in (("warning", chart.warn, "#9a6700"), ("limit", chart.breach, "#cf222e")):
        if limit is not None:
            trace = _trace([begin, end], [limit, limit], name, color=color, dash="dot", mode="lines")
            found.append({**trace, "visible": "legendonly"} if limit > FAR * max(tops) else trace)
    return found


def _restart(moment: datetime) -> dict[str, Any]:
    at = _time(moment)
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


def _trace(
    times: list[str], values: list[float], name: str, *, color: str, dash: str = "solid", mode: str = ""
) -> dict[str, Any]:
    drawn = mode or ("lines" if len(times) > 1 else "markers")
    line = {"color": color, "dash": dash, "width": 2}
    return {"type": "scatter", "mode": drawn, "x": times, "y": values, "name": name, "line": line}


def _time(moment: datetime) -> str:
    """As plotly reads dates: without a zone, and all of them are UTC."""
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
