"""Charts in the terminal, by plotext, which the extra `plots` brings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streambank.cli.output import console
from streambank.core.errors import StorageError
from streambank.core.python310 import UTC

if TYPE_CHECKING:
    from streambank.sla.charts import Chart

HEIGHT = 16
NARROW, WIDE = 60, 120
FAR = 3.0
"""A limit that is so many times beyond all that is drawn is named, not drawn: it would flatten the rest."""
_TICKS = 5
_MOST_LINES = 20
_ASCII = str.maketrans("┌┐└┘─│┬┴├┤┼", "++++-|+++++")


def require_plotext() -> None:
    """Make sure that plots can be drawn.

    Raises:
        StorageError: plotext is not installed (code `missing-package`).
    """
    if find_spec("plotext") is None:
        raise missing("--plot", "plotext")


def missing(option: str, package: str) -> StorageError:
    """The error of a package that draws and is not there."""
    return StorageError(
        f"{option} needs the package {package}, which is not installed.",
        code="missing-package",
        hint="pip install 'airflow-provider-streambank[plots]'",
    )


def draw(charts: Sequence[Chart]) -> None:
    """Draw charts, one below the other."""
    several = len({chart.query for chart in charts}) > 1
    for chart in charts:
        console.line()
        of = f"{chart.query}: " if several else ""
        console.line(f"{of}{chart.name}: {chart.meaning}")
        for row in _drawn(chart).splitlines():
            console.line(row)
        for sentence in _notes(chart):
            console.line(f"  {sentence}")


def _drawn(chart: Chart) -> str:
    import plotext

    figure: Any = plotext.figure
    figure.clear()
    width = min(WIDE, max(NARROW, shutil.get_terminal_size((WIDE, HEIGHT)).columns))
    figure.plot_size(width, HEIGHT)
    figure.theme("simple" if console.is_terminal() else "colorless")
    times = [dot.at.timestamp() for dot in chart.dots]
    values = [dot.value for dot in chart.dots]
    _add(figure, times, values, "hd")
    ends, tops = list(times), [*values]
    forecast = chart.forecast
    if forecast is not None:
        begin, end = forecast.begin.timestamp(), forecast.end.timestamp()
        for value, marker in ((forecast.high, "."), (forecast.low, "."), (forecast.expected, "+")):
            if value is not None:
                _add(figure, [begin, end], [forecast.value, value], marker)
        ends, tops = [*ends, end], [*tops, forecast.expected]
    near = [limit for _, limit in _limits(chart) if not _is_far(chart, limit)]
    for limit in near:
        _add(figure, [min(times), max(ends)], [limit, limit], "=")
    for moment in chart.restarts[-_MOST_LINES:]:
        _add(figure, [moment.timestamp()] * 2, [min(0.0, *values), max(*tops, *near, 0.0)], "|")
    _scale(figure, chart, times, ends, [*tops, *near])
    text: str = figure.build().string(not console.is_terminal())
    return text.rstrip("\n") if console.is_utf8() else _to_ascii(text.rstrip("\n"))


def _add(figure: Any, x: list[float], y: list[float], marker: str) -> None:
    signal = figure.signal(x, y, marker=marker)
    if len(x) > 1:
        signal.lines()
    figure.draw(signal)


def _scale(figure: Any, chart: Chart, times: list[float], ends: list[float], heights: list[float]) -> None:
    """Ticks that people read: dates, and sizes with their units; heights from zero on."""
    from streambank.sla.verdict import say

    low, high = min(0.0, *heights), max(heights)
    high = high if high > low else low + 1.0
    y = [low + (high - low) * step / (_TICKS - 1) for step in range(_TICKS)]
    figure.ruler("y").lim(low, high + (high - low) * 0.05)
    figure.ruler("y").ticks(y, [say(value, chart.unit) for value in y])
    first, last = min(times), max(*ends, min(times) + 1.0)
    x = [first + (last - first) * step / (_TICKS - 1) for step in range(_TICKS)]
    form = "%m-%d %H:%M" if last - first > 7200 else "%H:%M:%S"
    figure.ruler("x").lim(first, last)
    figure.ruler("x").ticks(x, [datetime.fromtimestamp(at, UTC).strftime(form) for at in x])


def _limits(chart: Chart) -> list[tuple[str, float]]:
    pairs = (("warning", chart.warn), ("limit", chart.breach))
    return [(name, limit) for name, limit in pairs if limit is not None]


def _is_far(chart: Chart, limit: float) -> bool:
    tops = [dot.value for dot in chart.dots]
    if chart.forecast is not None:
        tops.append(chart.forecast.expected)
    return limit > FAR * max(tops)


def _notes(chart: Chart) -> list[str]:
    """What the marks mean, and what is not drawn."""
    from streambank.sla.verdict import say

    said = []
    for name, limit in _limits(chart):
        far = ", far above" if _is_far(chart, limit) else ""
        said.append(f"{'' if far else '=== '}{name} {say(limit, chart.unit)}{far}")
    if chart.forecast is not None:
        chance = "" if chart.forecast.grows else ", which may be chance"
        said.append(f"+++ forecast{chance}, ... its 95 % interval")
    if chart.restarts:
        said.append(f"||| {console.count(len(chart.restarts), 'restart')}")
    return ["; ".join(said)] if said else []


def _to_ascii(text: str) -> str:
    return "".join(one if one.isascii() else "*" for one in text.translate(_ASCII))
