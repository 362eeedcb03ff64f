"""What a person chooses for a restore."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streambank.core.choices import ROLLBACKS, SinkChoice, SourceChoice
from streambank.core.shape import JsonObject


@dataclass(frozen=True, slots=True)
class PossibleChoices(JsonObject):
    """The choices with which a restore could go on, for a person who is asked to choose.

    What speaks against the restore whatever is chosen (a living job, a target in the way) is not counted.

    Attributes:
        sink: Choices for the sinks under which no sink speaks against the restore.
    """

    sink: tuple[SinkChoice, ...]
    source: tuple[SourceChoice, ...]


@dataclass(frozen=True, slots=True)
class SinkChoices:
    """What is done with each sink."""

    default: SinkChoice = "refuse"
    of: Mapping[str, SinkChoice] = field(default_factory=dict)

    def __getitem__(self, path: str) -> SinkChoice:
        return self.of.get(path, self.default)

    def without_files(self, path: str) -> SinkChoice:
        """The same for a sink that is no file sink: no files of it are missing."""
        return "rollback" if self[path] in ROLLBACKS else self[path]
