"""The page shows what the code says; that this is so is tried by the storm, cell by cell."""

from __future__ import annotations

from pathlib import Path

from streambank_spark.change.supported import BOOTSTRAP, DELETE, KINDS, SET, STORES, table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "make-state.md"


def test_the_page_shows_the_table() -> None:
    assert "\n\n" + "\n".join(table()) + "\n\n" in PAGE.read_text(encoding="utf-8")


def test_each_kind_says_why_it_cannot_do_more() -> None:
    for kind in KINDS:
        assert set(kind.can) <= {BOOTSTRAP, SET, DELETE} and set(kind.stores) <= set(STORES)
        assert bool(kind.why) is (len(kind.can) < 3), kind.name
