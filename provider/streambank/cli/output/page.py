"""A page that needs nothing else: text, tables, and plots by plotly, whose script is in it.

Names and reasons come from directories, logs and records, so nothing of them is trusted: text is escaped,
data is JSON that cannot end its script, and the page's own policy lets no other script run and nothing be
loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streambank.cli.output.plots import missing
from streambank.core.text import visible

if TYPE_CHECKING:
    from datetime import datetime

FAR = 3.0
"""A limit that is so many times beyond all that is drawn is hidden until somebody asks for it."""

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


def write(location: str, page: str) -> None:
    """Write a page, whole or not at all.

    Args:
        location: The file: a path or a URI.
    """
    from streambank.storage import open_store

    folder, slash, name = location.rpartition("/")
    place = (folder or "/") if slash else "."
    open_store(place).write(name, page.encode())


def document(title: str, body: str, figures: Sequence[Mapping[str, Any]]) -> str:
    """The HTML of a page.

    Args:
        body: What it shows, as HTML: whatever is not trusted is escaped already.
        figures: What plotly draws, each where `plot` stands for it.
    """
    from plotly.offline import get_plotlyjs

    library: str = get_plotlyjs()
    policy = (
        f"default-src 'none'; script-src {_allowed(library)} {_allowed(_SCRIPT)}; "
        "style-src 'unsafe-inline'; img-src data: blob:"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
<script type="application/json" id="charts">{_json(figures)}</script>
<script>{library}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def plot(place: int, label: str) -> str:
    """The place of a figure, by its number.

    Args:
        place: Its number, from 0.
        label: What it shows, for those who do not see it.
    """
    return f'<div class="plot" id="chart-{place}" role="img" aria-label="{text(label)}"></div>'


def badge(level: str, said: str) -> str:
    """A word in the color of a level: `ok`, `unknown`, `warn` or `breach`."""
    return f'<span class="level {escape(level)}">{escape(said)}</span>'


def table(caption: str, columns: Sequence[str], rows: Iterable[str], figures: Collection[str] = ()) -> str:
    """A table.

    Args:
        figures: Headings of columns that are aligned on the right.
    """
    figure = ' class="figure"'
    heads = "".join(
        f"<th{figure if name in figures else ''} scope='col'>{text(name)}</th>" for name in columns
    )
    return (
        f"<table><caption>{text(caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def text(said: str) -> str:
    """Text that is shown as it is, with nothing in it that HTML would read."""
    return escape(visible(said))


def limit_line(name: str, limit: float, begin: str, end: str, top: float, *, breach: bool) -> dict[str, Any]:
    """A limit, which is hidden until somebody asks for it where it is far beyond all that is drawn.

    Args:
        name: What it is called.
        begin: From when on it is drawn, by `plotly_time`.
        end: Until when.
        top: The largest value that is drawn.
        breach: Whether it is one of a breach, and not of a warning.
    """
    color = "#cf222e" if breach else "#9a6700"
    drawn = trace([begin, end], [limit, limit], name, color=color, dash="dot", mode="lines")
    return {**drawn, "visible": "legendonly"} if limit > FAR * top else drawn


def trace(
    times: list[str],
    values: Sequence[float],
    name: str,
    *,
    color: str,
    dash: str = "solid",
    mode: str = "",
) -> dict[str, Any]:
    """A line, or the marker of a single value.

    Args:
        times: By `plotly_time`.
        values: Of each time one.
        name: What it is called: our own words, for plotly takes some HTML in them for markup.
        mode: Lines, markers, or both.
    """
    drawn = mode or ("lines" if len(times) > 1 else "markers")
    line = {"color": color, "dash": dash, "width": 2}
    return {"type": "scatter", "mode": drawn, "x": times, "y": values, "name": name, "line": line}


def layout(tickformat: str, suffix: str) -> dict[str, Any]:
    """How a figure over time looks.

    Args:
        tickformat: How plotly writes the values.
    """
    return {
        "margin": {"t": 20, "r": 20},
        "xaxis": {"type": "date", "title": {"text": "UTC"}},
        "yaxis": {"rangemode": "tozero", "tickformat": tickformat, "ticksuffix": suffix},
        "legend": {"orientation": "h", "y": -0.25},
        "hovermode": "x",
    }


def plotly_time(at: datetime) -> str:
    """As plotly reads dates: without a zone, and all of them are UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")


def _allowed(script: str) -> str:
    """How the page's policy names a script: by what it is, so that no other one runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(data: Any) -> str:
    """JSON that can stand in a script element: it holds nothing that HTML would read."""
    found = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return found.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
