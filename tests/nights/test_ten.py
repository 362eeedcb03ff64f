"""The docs' table of ten disasters has each of them, as a night plays it."""

from __future__ import annotations

import pytest

from tests.nights.played import NIGHTS
from tests.nights.ten import COLUMNS, COMMAND, PAGE, PAGE_COLUMNS, PAGE_TABLE, TEN, rows_of

pytestmark = pytest.mark.airflow


def test_each_disaster_is_played_by_a_night() -> None:
    assert len(TEN) == 10
    assert {*TEN} <= {*NIGHTS}


def test_the_docs_have_a_row_for_each_disaster_with_what_was_measured() -> None:
    rows = [*rows_of()]
    assert [row[0] for row in rows] == [one.title for one in TEN.values()]
    for row, disaster in zip(rows, TEN.values(), strict=True):
        measured = dict(zip(COLUMNS, row, strict=True))
        assert measured["RPO"] == "0" or measured["RPO"].endswith(" batches"), row
        assert measured["RTO"].endswith(" s"), row
        assert measured["what is not recovered"] == disaster.not_recovered


def test_the_docs_have_a_row_for_each_disaster_with_what_the_open_page_said() -> None:
    rows = [*rows_of(PAGE_TABLE)]
    played, text = [row[0] for row in rows], PAGE.read_text(encoding="utf-8").split(PAGE_TABLE[0])[1]
    assert played and played == [one.title for one in TEN.values() if one.title in played]
    assert all(one.title in text for one in TEN.values()), "the others are named"
    for row in rows:
        measured = dict(zip(PAGE_COLUMNS, row, strict=True))
        if not measured["which view says it first"].startswith("none"):
            assert measured["after"].endswith(" s"), row
            assert measured["its words"].startswith("\u201c"), row
        clicks, _, names = measured["clicks to recovery"].partition(": ")
        assert int(clicks) == names.count("`") / 2, row


def test_the_docs_name_the_command_that_writes_the_table() -> None:
    assert f"`{COMMAND}`" in PAGE.read_text(encoding="utf-8")
