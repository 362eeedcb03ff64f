"""One figure that is known of a query besides its history, such as the age of a savepoint."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Fact:
    """Something with a time.

    Attributes:
        value: The figure, in its objective's unit; 0 where only the time counts.
        subject: What it is of: a savepoint, a driver, a partition, a key.
        what: More, in a sentence; may be empty.
        advice: What to do about it; empty where that of its objective says it.
    """

    at: datetime
    value: float = 0.0
    subject: str = ""
    what: str = ""
    advice: str = ""
