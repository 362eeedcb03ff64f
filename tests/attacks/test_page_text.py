"""What the page shows was written by others: it stays text, and a link leads to pages on the web alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.airflow_face.metadata_db import airflow_database
from tests.support.airflow_face.page_api import page_api
from tests.support.page import story as page_story
from tests.support.page.modules import AIRFLOW, FILE, SHARED, own_modules
from tests.support.page.site import Site, jobs, keep, site

__all__ = ["airflow_database", "jobs", "page_api", "site"]

pytestmark = pytest.mark.airflow

MODULES = {
    f"{path.parent.name}/{path.name}" if path.parent == FILE else path.name: path.read_text(encoding="utf-8")
    for path in own_modules(AIRFLOW, SHARED, FILE)
}
OURS = r"`#|(?:airflowUrl|pageUrl|questionUrl)\(|path\b|new URL\(|sheet\.href"
"""What makes an address: of Airflow's or the page's own, part by part, or of a view in a file."""
EVIL = page_story.EVIL


def test_an_address_is_made_of_encoded_parts_or_checked() -> None:
    found = [
        (name, value.strip())
        for name, text in MODULES.items()
        for value in re.findall(r"\bhref:\s*([^,}]+)", text)
    ]
    assert len(found) > 8
    others = [one for one in found if not re.match(OURS, one[1].removeprefix("`${"))]
    assert others == [("job.js", "status.data.tracking")], "of what is stored only this, by WebLink"
    assert "h(WebLink, { href: status.data.tracking }" in MODULES["job.js"]
    for name, function in (("api.js", "airflowUrl"), ("api.js", "own"), ("route.js", "pathOf")):
        (made,) = re.findall(rf"const {function} = (.*);", MODULES[name])
        assert "parts.map(encodeURIComponent)" in made, function


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " javascript:alert(1)",
        "\tjavascript:alert(1)",
        "java\nscript:alert(1)",
        "javascript://https://x/%0aalert(1)",
        "data:text/html,<script>",
        "vbscript:x",
        "file:///etc/passwd",
        "//evil.example/x",
        "/dags",
        "https:evil.example",
        "https:/evil.example",
        "x\nhttps://evil.example",
        "",
    ],
)
def test_a_link_of_what_is_stored_leads_to_the_web_alone(address: str) -> None:
    (source,) = re.findall(r"return /(.+)/(i)\.test\(href\) \? h\(\"a\"", MODULES["job.js"])
    pattern = re.compile(source[0].replace(r"\/", "/"), re.IGNORECASE)
    assert pattern.search("https://spark-master:8080/app") and pattern.search("HTTP://host")
    assert not pattern.search(address)
    assert 'rel: "noreferrer noopener"' in MODULES["job.js"]


def test_no_module_sets_what_a_browser_would_run() -> None:
    """Beside what test_static.py forbids: no handler, frame, style or address is set from a text."""
    for name, text in MODULES.items():
        for words in (
            "srcdoc",
            "setAttribute(",
            "onerror: `",
            "location =",
            "location.assign",
            "window.open",
        ):
            assert words not in text, (name, words)
        assert not re.search(r"\bh\(\s*(?:one|data|facts|event)\.", text), "no element is named by data"
        assert not re.search(r"\.\.\.(?:one|data|facts|event)\b(?!\.)\s*[,}]\s*\)", text), (
            "nor has it its own"
        )


def spoiled() -> dict[str, Any]:
    """The parts of a job, in which every text that others write is markup."""
    parts = page_story.parts()
    events = [
        page_story._event(9, kind, EVIL, EVIL, error=EVIL, cause=EVIL, how=EVIL, savepoint=EVIL)
        for kind in ("restored", "driver-died", "stopped", EVIL, "a-kind-of-a-later-version")
    ]
    parts["events"] = {**parts["events"], "events": events}
    parts["status"] = {**parts["status"], "tracking": "javascript:document.title='taken over'"}
    return parts


@pytest.mark.storm
@pytest.mark.filterwarnings("default:deprecated:DeprecationWarning")
def test_markup_in_events_is_text_and_runs_nothing(jobs: Site) -> None:
    keep("imports", page_story.line("imports", state_why=EVIL, down_since=page_story.ago(60)), spoiled())
    try:
        with jobs.visit("admin") as page:
            for path in ("imports/events", "imports"):
                page.open(jobs.page(*path.split("/")))
                page.shows("<script>")
                assert page.js("document.title") != "taken over"
                assert page.js("document.querySelectorAll('.sb-root img, .sb-root script').length") == 0
                assert page.js("document.querySelectorAll('a[href^=\"javascript\"]').length") == 0
    finally:
        keep("imports", page_story.jobs()["imports"], page_story.parts())
