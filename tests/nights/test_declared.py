"""Whom the jobs of the nights alert: the team of everything, and a pager of what cannot wait."""

from __future__ import annotations

from pathlib import Path

from streambank.declaration.load import load_jobs
from streambank.declaration.notify import KINDS
from tests.nights.declared import MORNING, PAGES, declaration

COPIES = '[jobs.orders.copies.staging]\ncheckpoint = "staging/orders"\n'


def test_each_kind_of_alert_either_wakes_a_person_or_waits_until_the_morning() -> None:
    assert sorted(PAGES + MORNING) == sorted(KINDS)


def test_the_team_gets_all_and_the_pager_what_can_occur_and_cannot_wait(tmp_path: Path) -> None:
    file = tmp_path / "streaming_jobs.toml"
    for more, tables, late in (("", COPIES, False), ('restore.deadline = "10m"', "", True)):
        text = declaration("orders", tmp_path, tmp_path / "app.py", more=more, tables=tables)
        file.write_text(text, encoding="utf-8")
        team, pager = load_jobs(file).job("orders").notify
        assert set(team.kinds) == set(KINDS)
        assert set(pager.kinds) == set(PAGES) - (set() if late else {"late-restore"})
