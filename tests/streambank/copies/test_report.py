"""What people read of a refresh."""

from __future__ import annotations

from streambank.copies.report import QueryRefresh, RefreshReport
from streambank.core.errors import RefusedError
from streambank.core.units import utc_now


def test_what_a_refusal_says_is_not_said_twice() -> None:
    gone = RefusedError("3 files are gone.", code="source-would-lose-files", hint="Accept that.")
    made = QueryRefresh(
        "main", "b41", 41, utc_now(), 60.0, "file:///r", 2, "file:///c.g0002", {"file:///o": "file:///n"},
        files=2, bytes=1000, source_effect="Of the input 3 files are gone.", replayable_effect="An hour.",
    )  # fmt: skip
    report = RefreshReport("orders", "staging", "orders@staging", True, (made,), warnings=("Slow.",))
    expected = [
        ("query main", "b41 of batch 41, 1 min old"),
        ("repository", "file:///r"),
        ("checkpoint", "file:///c.g0002"),
        ("output", "file:///n instead of file:///o"),
        ("size", "1 kB in 2 files"),
        ("input", "Of the input 3 files are gone."),
        ("input", "An hour."),
        ("application", "none runs on it: the copy is of the state alone"),
        ("warning", "Slow."),
    ]
    assert report.rows() == expected
    refused = RefreshReport("orders", "staging", "orders@staging", True, (made,), refusals=(gone,))
    assert [text for title, text in refused.rows() if title == "input"] == ["An hour."]
    assert refused.rows()[-1] == ("against it", "3 files are gone. Accept that.")
