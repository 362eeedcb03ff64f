"""What was measured, and when it was saved, as the page draws it in a real Chromium."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.airflow_face.page_api import page_api
from tests.support.page import story as page_story
from tests.support.page.site import Site, jobs, keep, no_errors, seen_in_list, site

__all__ = ["jobs", "page_api", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]


def test_plots_are_drawn_with_marks_of_what_happened(jobs: Site) -> None:
    with jobs.visit("viewer") as page:
        page.open(jobs.page("orders"))
        page.until("document.querySelectorAll('.sb-plot canvas').length === 6")
        page.shows("Restored")
        drawn = page.js(
            "[...document.querySelectorAll('.sb-plot canvas')].every((one) =>"
            " new Set(one.getContext('2d').getImageData(0, 0, one.width, one.height).data).size > 8)"
        )

        assert drawn, "each plot has more than a background"
        assert "expected by" in page.text()
        no_errors(page)


def kept_charts(job: str, *charts: dict[str, Any], **more: Any) -> None:
    """Keep a job of which these charts are known, and its line with other fields."""
    parts = page_story.parts()
    parts["charts"]["charts"] = [*charts]
    parts["events"]["events"] = []
    keep(job, page_story.line(job, **more), parts)


def chart(values: Sequence[float], **more: Any) -> dict[str, Any]:
    """A chart of one value each 10 minutes, until now."""
    found = page_story.parts()["charts"]["charts"][0]
    end = found["t"][-1]
    t = [end - 600 * (len(values) - 1 - n) for n in range(len(values))]
    more = {"restarts": [], "forecast": None, "warn": None, "breach": None, **more}
    return {**found, "t": t, "v": [*values], "low": [], "high": [], **more}


def test_a_heading_shows_the_newest_value_and_not_the_last_median(jobs: Site) -> None:
    newest = {"at": round(time.time()), "value": 987_654_321}
    with jobs.visit("viewer") as page:
        for more, words in (({"newest": newest}, "988 MB"), ({}, "502 MB")):  # as earlier releases kept it
            kept_charts("quiet", chart([5.01e8, 5.02e8], **more))
            page.open(jobs.page("quiet"))
            page.until("document.querySelector('.sb-plot canvas') !== null")
            heading = page.js("document.querySelector('.sb-chart strong').innerText")
            assert heading == words
            said = page.js("document.querySelector('.sb-plot').getAttribute('aria-label')")
            assert f": {words} at " in said and "now" not in said
    keep("quiet", page_story.jobs()["quiet"], page_story.parts())


DRAWN = """
(() => {
  const canvas = document.querySelector(".sb-plot canvas");
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.querySelector(".sb-plot")).getPropertyValue("--sb-line").trim();
  probe.fillRect(0, 0, 1, 1);
  const line = probe.getImageData(0, 0, 1, 1).data;
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const columns = new Set();
  for (let at = 0; at < data.length; at += 4) {
    const same = [0, 1, 2].every((one) => Math.abs(data[at + one] - line[one]) < 4);
    if (same) columns.add((at / 4) % canvas.width);
  }
  return [...columns].sort((a, b) => a - b).filter((one, index, all) => one - all[index - 1] !== 1).length;
})()
"""
"""In how many separate places a plot has the colour of its line."""


def test_a_value_between_two_restarts_can_be_seen(jobs: Site) -> None:
    one = chart([4e8, 5e8, 6e8])
    with jobs.visit("viewer") as page:
        kept_charts("quiet", {**one, "restarts": [at - 300 for at in one["t"][1:]]})
        page.open(jobs.page("quiet"))
        page.until("document.querySelector('.sb-plot canvas') !== null")
        page.until(f"{DRAWN} === 3", "each value is drawn")
        # As it is soon after a restart: the newest run has one value, measured as it began.
        kept_charts("quiet", {**one, "restarts": one["t"][2:]})
        page.open(jobs.page("quiet"))
        page.until("document.querySelector('.sb-plot canvas') !== null")
        page.until(f"{DRAWN} === 2", "no line goes across the newest restart")
        kept_charts("quiet", {**one, "restarts": []})
        page.open(jobs.page("quiet"))
        page.until("document.querySelector('.sb-plot canvas') !== null")
        page.until(f"{DRAWN} === 1", "values of one run are one line, without dots")
    keep("quiet", page_story.jobs()["quiet"], page_story.parts())


def test_the_time_line_shows_how_long_nothing_was_saved(jobs: Site) -> None:
    parts = page_story.parts()
    two = parts["savepoints"]["savepoints"][:2]
    for one, hours in zip(two, (9, 10), strict=True):
        one["taken_at"] = page_story.ago(hours * page_story.HOUR)
    keep(
        "quiet", page_story.line("quiet"), {**parts, "savepoints": {**parts["savepoints"], "savepoints": two}}
    )
    with jobs.visit("viewer") as page:
        page.open(jobs.page("quiet", "savepoints"))
        page.shows("Time line")
        places = page.js(
            "[...document.querySelectorAll('.sb-timeline-dot')].map((one) => parseFloat(one.style.left))"
        )
        last = page.js("[...document.querySelectorAll('.sb-timeline-tick')].pop().innerText")
        now = page.js(
            "import('/streambank/static/format.js').then((m) =>"
            " [0, 60].map((s) => m.time(new Date(Date.now() - 1000 * s).toISOString())))"
        )

        assert max(places) < 15, "a tenth of ten hours"
        assert last in now
    keep("quiet", page_story.jobs()["quiet"], page_story.parts())


def test_what_is_lost_is_not_what_never_was(jobs: Site) -> None:
    """Measurements that went with the records, and a batch that the checkpoint alone knew."""
    words = {
        "repository-lost": "Measurements were among the job's records, and are lost with them.",
        "checkpoint-lost": "There are no measurements: the checkpoint is gone",
    }
    with jobs.visit("viewer") as page:
        for state, said in words.items():
            kept_charts("quiet", state=state, down_since=page_story.ago(60), batch=None, batch_at=None)
            page.open(jobs.page("quiet"))
            page.shows(said)
            assert "No batch has been measured yet" not in page.text()
            assert "Newest batch\nnot known" in page.text()
            page.open(jobs.page())
            page.shows("quiet")
            assert seen_in_list(page, "quiet", "Newest batch") == "not known"
        kept_charts("quiet", state="starting", batch=None, batch_at=None)
        page.open(jobs.page("quiet"))
        page.shows("No batch has been measured yet.")
    keep("quiet", page_story.jobs()["quiet"], page_story.parts())
