"""A directory that work on a job has left behind, as one process tells it to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from streambank.core.errors import RefusedError
from streambank.core.shape import HIDDEN, JsonObject
from streambank.storage.local.trees import DirectoryIdentity

Kind = Literal[
    "generation", "unfinished-restore", "restored", "quarantine", "output-aside", "staging", "drill"
]


@dataclass(frozen=True, slots=True)
class LeftDirectory(JsonObject):
    """A directory in which no query works.

    Attributes:
        since: Since when it is of no use to the query, or when it was last written to; None if unknown.
        counted: Whether every file was counted; else there are more.
        ours: Whether it is the job's: it lies where the job is declared to work, by a name that such
            directories have, and the job's records, or what lies in it, say so. Else one of these alone does.
        number: The number of a generation that the records name; None for anything else.
        judged: Which directory it was that all of this is said of; None where it is not on this machine.
        refused: Why this user does not remove it, where everybody could exchange it.
    """

    kind: Kind
    query: str
    location: str
    since: datetime | None
    files: int
    bytes: int
    counted: bool
    needed_by: str
    removal: str
    ours: bool = True
    number: int | None = None
    judged: Annotated[DirectoryIdentity | None, HIDDEN] = field(default=None, compare=False)
    refused: Annotated[RefusedError | None, HIDDEN] = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LeftDirectories(JsonObject):
    """What was left behind, and what could not be read: a location, and why."""

    directories: tuple[LeftDirectory, ...]
    unread: tuple[tuple[str, str], ...]

    @property
    def needless(self) -> tuple[LeftDirectory, ...]:
        return tuple(one for one in self.directories if not one.needed_by)


def what_to_do(directory: LeftDirectory) -> str:
    """The next step for who wants to be rid of it."""
    if directory.needed_by:
        return f"Keep it while it is needed by {directory.needed_by}. Then remove it: `{directory.removal}`"
    return f"Remove it: `{directory.removal}`"
