"""The page of an SLA in a real browser: it draws by itself, from a file, without any network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.storage import open_store
from tests.support.browser import plots, shown
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import succeed
from tests.support.jobs.declared import declare
from tests.support.sla.growing_state import grow

pytestmark = pytest.mark.storm


def test_verdicts_and_plots_are_there(tmp_path: Path) -> None:
    job = declare(tmp_path, more='[jobs.flights.sla]\nstate_bytes = {breach = "3GB"}\n')
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, hours=24 * 6, per_hour=1e7, epochs=3)
    page = tmp_path / "page.html"
    succeed("sla", "flights", "--jobs", job.source, "--html", page)

    dom, said = shown(page, tmp_path / "profile")

    charts, drawn = plots(dom)
    assert charts > 3
    assert drawn == charts, "every plot is drawn"
    assert dom.count("main-svg") >= charts and "restart" in dom
    assert "time_to_limit" in dom and "state_bytes reaches 3 GB in" in dom
    assert not [line for line in said.splitlines() if "CONSOLE" in line], said


def test_a_script_that_is_not_the_page_s_own_does_not_run(tmp_path: Path) -> None:
    """The control: the same browser runs it where the page's policy is taken away."""
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, hours=24, per_hour=1e7)
    page = tmp_path / "page.html"
    succeed("sla", "flights", "--jobs", job.source, "--html", page)
    text = page.read_text(encoding="utf-8")
    evil = "<script>document.title = 'taken over'</script></body>"
    (tmp_path / "evil.html").write_text(text.replace("</body>", evil), encoding="utf-8")
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert open_page != text
    (tmp_path / "open.html").write_text(open_page.replace("</body>", evil), encoding="utf-8")

    guarded, said = shown(tmp_path / "evil.html", tmp_path / "profile")
    taken, _ = shown(tmp_path / "open.html", tmp_path / "profile")

    assert "<title>taken over</title>" not in guarded and "Content Security Policy" in said
    assert "<title>taken over</title>" in taken
