"""What a person chooses for a restore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SinkChoice = Literal["refuse", "rollback", "accept"]
"""Where rows would be lost or repeated in the output."""
SourceChoice = Literal["refuse", "accept"]
"""Where Kafka no longer has what the query would read next, or cannot be asked, or a source gives no row
twice."""
Mode = Literal["no-claim", "claim", "fork"]
"""What becomes of the savepoint, and of the query id."""


@dataclass(frozen=True, slots=True)
class PossibleChoices:
    """The choices with which a restore could go on, for a person who is asked to choose.

    What speaks against the restore whatever is chosen (a living job, a target in the way) is not counted.

    Attributes:
        sink: Choices for the sinks under which no sink speaks against the restore.
        source: The same for its sources.
    """

    sink: tuple[SinkChoice, ...]
    source: tuple[SourceChoice, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"sink": list(self.sink), "source": list(self.source)}
