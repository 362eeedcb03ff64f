"""Rows of plans and reports."""

from __future__ import annotations

from streambank.procedure.rows import said_s, step_rows, titled


def test_what_says_nothing_has_no_row() -> None:
    assert titled("why", ["", None, "It burns."]) == [("why", "It burns.")]
    assert step_rows({"choose": 0.44, "watch": 120.0}) == [
        ("step choose", "0.4 s"),
        ("step watch", "2 min"),
    ]
    assert (said_s(None), said_s(None, "not known"), said_s(0.0)) == ("not measured", "not known", "0 s")
