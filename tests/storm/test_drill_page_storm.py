"""The page of a job's drills in a real browser: it draws by itself, from a file, without any network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import plots, shown
from tests.support.cli import succeed
from tests.support.sla.drilled_job import drilled, drilled_job, of_round

pytestmark = pytest.mark.storm


def test_both_plots_are_there(tmp_path: Path) -> None:
    job = drilled_job(tmp_path)
    for week in range(5):
        drilled(job, week)
    drilled(job, 5, failed_step="restore", error="Savepoint b000041 is damaged.")
    for number in (1, 2, 3):
        savepoint = f"b00000{number}-c28c1611906f"
        drilled(job, 6 + number / 100, round=of_round(number, savepoint), rpo_s=3600.0 * number)
    page = tmp_path / "page.html"
    succeed("drill", "flights", "--jobs", job.source, "--history", "--html", page)

    dom, said = shown(page, tmp_path / "profile")

    assert plots(dom) == (2, 2), "each plot is drawn"
    for text in ("first batch", "older savepoints (each)", "failed, at the step", "warning of recovery_time"):
        assert text in dom.split("<script", 1)[0] or f">{text}<" in dom
    assert not [line for line in said.splitlines() if "CONSOLE" in line], said
