"""What queries have done since a launch, and how that is said."""

from __future__ import annotations

import pytest

from streambank.job.readiness import are_done, query_starts, say_starts


@pytest.mark.parametrize(
    ("said", "start"),
    [
        ({"batch": 3, "triggered": True}, "committed"),
        ({"batch": -1, "triggered": True}, "no-input"),
        ({"batch": -1, "triggered": False, "over": True, "failed": False}, "no-input"),
        ({"batch": -1, "triggered": False, "over": True, "failed": True}, "failed"),
        ({"batch": -1, "triggered": False}, "working"),
        (None, "not-started"),
    ],
)
def test_what_a_heartbeat_says_of_a_query(said: object, start: str) -> None:
    found = query_starts(["raw"], None, {"queries": {"raw": said} if said else {}})
    assert found == {"raw": start}
    assert are_done(found) is (start in ("committed", "no-input"))


def test_how_far_a_job_is_in_words() -> None:
    assert say_starts({"main": "committed"}) == "first batch committed"
    assert say_starts({"main": "not-started"}) == "no query started"
    assert say_starts({"a": "committed", "b": "committed"}) == "first batch committed by 2 of 2 queries"
    assert say_starts({"a": "no-input", "b": "not-started", "c": "no-input"}) == (
        "first batch committed by 0 of 3 queries; no new input for a, c; not started: b"
    )
