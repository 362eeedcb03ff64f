"""What a person chooses for a restore."""

from __future__ import annotations

from typing import Literal

SinkChoice = Literal["refuse", "rollback", "accept"]
"""Where rows would be lost or repeated in the output."""
SourceChoice = Literal["refuse", "accept"]
"""Where Kafka no longer has what the query would read next, or cannot be asked."""
Mode = Literal["no-claim", "claim", "fork"]
"""What becomes of the savepoint, and of the query id."""
