"""The page in a real Chromium, with names and values that nothing of ours writes: all of it is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.pictures.chromium import Chromium
from tests.support.airflow_face.page_api import page_api
from tests.support.page import story as page_story
from tests.support.page.site import Site, jobs, keep, no_errors, site

__all__ = ["jobs", "page_api", "site"]

# Airflow answers with fields of its own that it has deprecated.
pytestmark = [
    pytest.mark.storm,
    pytest.mark.filterwarnings("default:deprecated:DeprecationWarning"),
]

INHERITED = ("constructor", "__proto__", "toString", "valueOf", "hasOwnProperty")
"""What every object of JavaScript has, and no table of ours."""
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"
NOT_DRAWN = "cannot be drawn"
FUZZ = (Path(__file__).parent / "hostile.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(jobs: Site) -> Iterator[Chromium]:
    """A browser of someone who may press every button, at the job `orders`."""
    with jobs.visit("admin") as found:
        found.open(jobs.page("orders"))
        found.shows("At a glance")
        found.js(FUZZ)
        yield found


def hostile_parts() -> dict[str, dict[str, Any]]:
    """The parts of a job, with such a name in each place where the page looks something up by it."""
    parts = page_story.parts()
    event, verdict = parts["events"]["events"][0], parts["verdicts"]["verdicts"][0]
    drill, finding = parts["recoveries"]["drills"][0], parts["findings"]["findings"][0]
    for name in INHERITED:
        parts["events"]["events"].append({**event, "kind": name, "facts": {"how": name, "step": name}})
        for field in ("objective", "subject", "level"):
            parts["verdicts"]["verdicts"].append({**verdict, field: name})
        step = {"name": name, "seconds": 1.0}
        parts["recoveries"]["drills"].append({**drill, "passed": False, "step": name, "steps": [step]})
        parts["findings"]["findings"].append({**finding, "level": name, "code": name})
    return parts


@pytest.mark.parametrize("name", INHERITED)
def test_names_that_every_object_has_blind_no_view(jobs: Site, name: str) -> None:
    verdict = page_story.parts()["verdicts"]["verdicts"][0]
    line = page_story.line(
        "orders",
        state=name,
        desired={"state": name, "at": page_story.ago(60), "by": "ann", "why": ""},
        waits=[{"kind": name, "what": "It waits.", "since": page_story.ago(60)}],
        verdicts=[{**verdict, "objective": name, "subject": name}, {**verdict, "level": name}],
        drill={
            "at": page_story.ago(60),
            "passed": False,
            "step": name,
            "not_run": "",
            "rto_s": 1,
            "rpo_s": 1,
        },
        error={"part": name, "code": name, "message": "It is away.", "hint": ""},
    )
    keep("orders", line, hostile_parts())
    try:
        with jobs.visit("admin") as page:
            page.open(jobs.page() + f"?show={name}&sort={name}")
            page.shows("sessions")
            assert page.js("document.querySelectorAll(\".sb-job-link[href$='/orders']\").length") == 1
            for view in ("", name, "events", "savepoints", "recovery", "repository", "log"):
                page.open(jobs.page("orders", view) if view else jobs.page("orders"))
                page.until("document.querySelector('.sb-view .sb-card')", f"view {view!r}")
                page.until("!document.querySelector('.sb-loading')")
                assert NOT_DRAWN not in page.text(), view
                assert page.js("document.querySelectorAll('.sb-banner').length") == 1
                assert page.js("document.querySelectorAll('.sb-toolbar .sb-button').length") > 5
            no_errors(page)
    finally:
        keep("orders", page_story.jobs()["orders"], page_story.parts())


VIEWS = (
    "",
    "events",
    "savepoints",
    f"savepoints/{page_story.savepoint_id(0)}",
    "recovery",
    "repository",
    "log",
)


@pytest.mark.parametrize("view", VIEWS)
def test_any_value_in_the_place_of_a_text_is_drawn(page: Chromium, view: str) -> None:
    """Objects, lists, numbers, halves of characters; a tenth of all texts at a time."""
    done = page.js(f"hostile.job({json.dumps(view)}, 'texts', 40)")

    assert done["planted"] > 100 and done["seen"] > 1, "the values were there, and were shown"
    assert done["failed"] == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_part_that_has_no_shape_at_all_leaves_the_others(page: Chromium, view: str) -> None:
    """Trouble, buttons and tabs above all: what is not drawn is a part of the view, and says so."""
    done = page.js(f"hostile.job({json.dumps(view)}, 'all', 40)")

    assert done["planted"] > 100
    assert [one for one in done["failed"] if one["lost"]] == []


def test_a_part_that_cannot_be_drawn_says_so_and_is_drawn_once_it_can(jobs: Site) -> None:
    lost = page_story.line("orders", state="checkpoint-lost", down_since=page_story.ago(60))
    spoiled = {name: {**part, name: 7} for name, part in page_story.parts().items()}
    keep(
        "orders",
        lost,
        {**page_story.parts(), "events": spoiled["events"], "savepoints": spoiled["savepoints"]},
    )
    try:
        with jobs.visit("admin") as page:
            for view in ("", "events", "savepoints"):
                page.open(jobs.page("orders", view))
                page.shows("This cannot be drawn.")
                text = page.text()
                assert "The job's checkpoint is gone" in text and "Restore…" in text, view
                assert ("At a glance" in text and "Measurements" in text) == (view == ""), view
            keep("orders", lost, page_story.parts())
            page.until(f"({LOOK}, document.body.innerText.includes('Time line'))")
            assert NOT_DRAWN not in page.text()
    finally:
        keep("orders", page_story.jobs()["orders"], page_story.parts())


def test_a_line_without_shape_hides_no_other_job(page: Chromium) -> None:
    texts, anything = (page.js(f"hostile.list('{kind}', 60)") for kind in ("texts", "all"))

    assert min(texts["planted"], anything["planted"]) > 100
    assert texts["failed"] == []
    assert [one for one in anything["failed"] if one["lost"]] == []


def test_without_them_every_view_is_whole(page: Chromium) -> None:
    for view in VIEWS:
        done = page.js(f"hostile.job({json.dumps(view)}, 'none', 1)")
        assert done["failed"] == [] and done["planted"] == 0, view
    assert page.js("hostile.list('none', 1)")["failed"] == []
