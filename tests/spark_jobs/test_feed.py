"""Feeding a topic counts what arrives there, and nothing else."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from spark_jobs.flights.replay import feed

FLIGHTS = [{"event_time": "2013-01-01T10:00:00Z", "tailnum": f"N{number}"} for number in range(5)]
NOBODY = "127.0.0.1:1"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real producer, which gives up on a record soon."""
    real = confluent_kafka.Producer

    def producer(settings: Any) -> Any:
        return real({**settings, "message.timeout.ms": "300", "log_level": "0"})

    monkeypatch.setattr(confluent_kafka, "Producer", producer)


@pytest.mark.usefixtures("impatient")
def test_records_that_were_given_up_are_not_counted_as_written() -> None:
    with pytest.raises(OSError, match="5 of 5 records did not reach flights at 127") as raised:
        feed(FLIGHTS, NOBODY, "flights")
    assert "timed out" in str(raised.value)


@pytest.mark.usefixtures("impatient")
def test_a_record_that_is_too_large_is_told_in_words() -> None:
    large = {**FLIGHTS[0], "note": "x" * 2_000_000}
    with pytest.raises(OSError, match=r"Departure 1 cannot go to flights: .*too large"):
        feed([FLIGHTS[0], large], NOBODY, "flights")
