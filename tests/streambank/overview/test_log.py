from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import StreambankError
from streambank.job.start import start_job
from streambank.overview.log import BYTES, LINES, bounded
from streambank.overview.snapshot import snapshot
from tests.support.jobs.declared import BY, declare, end_drivers, fake_launcher
from tests.support.overview.shown_job import use_fake_launcher


def test_a_driver_that_runs_after_one_that_failed_shows_why_that_one_did(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fake_launcher(folder, monkeypatch)
    words = "Traceback (most recent call last):|ValueError: no such table"
    bad = declare(folder, "--die-before-lease", "3", "--last-words", words)
    with pytest.raises(StreambankError, match="no such table"):
        start_job(bad, by=BY, launcher=fake_launcher(folder))
    failed = snapshot(bad, parts={"log"}).parts["log"]
    assert failed["cause"] == "ValueError: no such table" and failed["lines"][1:] == words.split("|")
    assert failed["why"] == ""
    good = declare(folder)
    start_job(good, by=BY, launcher=fake_launcher(folder))
    found = snapshot(good, parts={"log"}).parts["log"]
    assert (found["lines"], found["driver"]) == (failed["lines"], failed["driver"])
    assert "earlier driver" in found["why"] and found["cause"] == failed["cause"]
    end_drivers(good.records())


def test_a_short_log_is_whole() -> None:
    assert bounded(["a", "b"]) == ["a", "b"] and bounded([]) == []


def test_of_a_long_log_the_middle_is_counted() -> None:
    found = bounded([f"line {number}" for number in range(1000)])
    assert len(found) <= LINES and found[0] == "line 0" and found[-1] == "line 999"
    (gap,) = (line for line in found if "lines more" in line)
    assert gap == f"... {1000 - (len(found) - 1)} lines more"


def test_long_lines_count_by_their_bytes() -> None:
    found = bounded(["\u4e2d" * 500] * 200)
    assert sum(len(line.encode()) + 1 for line in found) <= BYTES and len(found) > 3
    assert bounded(["x" * 50_000])[0].startswith("x")
