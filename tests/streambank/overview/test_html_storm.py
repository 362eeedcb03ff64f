"""The page as a file in a real Chromium: it is drawn from the file alone, without Airflow and a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.pictures.chromium import Chromium, chromium
from streambank.overview.html import write_page
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import declare
from tests.support.page import story
from tests.support.sla.growing_state import grow

pytestmark = pytest.mark.storm

PLOTS = "document.querySelectorAll('.sb-plot canvas').length"
TAKEN = "document.title === 'taken over'"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Chromium]:
    with chromium(tmp_path / "profile") as found:
        found.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        yield found


def written(folder: Path) -> Path:
    """The file of a job of which every text that others write is markup."""
    file = folder / "page.html"
    parts = story.parts()
    parts["log"] = {**parts["log"], "lines": [story.EVIL, *parts["log"]["lines"]]}
    line = story.line("orders", state_why=story.EVIL)
    write_page(str(file), f"orders</script>{story.EVIL}<!--", line["at"], line, parts)
    return file


def test_every_view_of_a_job_is_in_the_file(page: Chromium, tmp_path: Path) -> None:
    file = written(tmp_path).as_uri()
    views = {
        "": "At a glance",
        "#savepoints": "Time line",
        f"#savepoints/{story.savepoint_id(1)}": "What a restore would do",
        "#events": "Restored",
        "#log": "<script>",
        "#recovery": "Newer savepoints that were passed over",
        "#repository": "s3://lake/savepoints",
    }
    for view, words in views.items():
        page.open("about:blank")
        page.open(f"{file}{view}")
        page.shows(words)
        page.shows("As it was at")
        assert not page.js(TAKEN) and page.js("document.querySelectorAll('.sb-root img').length") == 0
        assert (
            page.js("document.querySelectorAll('[aria-haspopup], .sb-toolbar, [href*=\"dags/\"]').length")
            == 0
        )
    page.open("about:blank")
    page.open(file)
    page.until(f"{PLOTS} === 6")
    page.click("Savepoints", ".sb-tabs")
    page.shows("Time line")
    page.js("history.back()")
    page.shows("At a glance")
    assert page.errors == []


def test_a_checkpoint_that_nobody_declares_has_its_verdicts_and_plots(page: Chromium, tmp_path: Path) -> None:
    job = declare(tmp_path, more='[jobs.flights.sla]\nstate_bytes = {breach = "3GB"}\n')
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, hours=24 * 6, per_hour=1e7, epochs=3)
    records = tmp_path / "repository.control/flights/progress/main"
    file = tmp_path / "page.html"
    streambank("sla", job.checkpoint, "--history", records, "--html", file)  # most of it never changes
    page.open(file.as_uri())
    page.until(f"{PLOTS} > 3")
    page.shows("Objectives")
    page.open("about:blank")
    succeed("sla", "flights", "--jobs", job.source, "--html", file)
    page.open(file.as_uri())
    page.shows("state_bytes reaches 3 GB in")
    assert page.errors == []


@pytest.mark.parametrize("evil", ["<script>{}</script>", '<script src="data:text/javascript,{}"></script>'])
def test_a_script_that_is_not_the_page_s_own_does_not_run(page: Chromium, tmp_path: Path, evil: str) -> None:
    """The control: the same browser runs it where the page's policy is taken away."""
    text = written(tmp_path).read_text(encoding="utf-8")
    spoiled = text.replace("</body>", f"{evil.format('document.title=`taken over`')}</body>")
    without = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", spoiled)
    assert spoiled != text and without != spoiled
    for name, content, runs in (("guarded", spoiled, False), ("open", without, True)):
        (tmp_path / f"{name}.html").write_text(content, encoding="utf-8")
        page.open((tmp_path / f"{name}.html").as_uri())
        page.shows("At a glance")
        assert page.js(TAKEN) is runs, name
