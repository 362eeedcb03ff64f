"""What was measured of one change of code, and figures of several."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UPGRADE = "`streambank upgrade`"
COLD = "`streambank upgrade --cold`"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to change Flink's code.

    Attributes:
        name: What the page calls it.
        form: Of the savepoint, as Flink's command line calls it.
        client: Whether a client that runs already does it; the command line otherwise.
        fresh: Whether the new code gets new processes, which are started after the stop.
    """

    name: str
    form: str
    client: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Swap:
    """One change of code.

    Attributes:
        what: Who did it, and how.
        without_s: Seconds from the last output of the old code to the first of the new.
        steps: Seconds of its parts, in their order.
        commit_s: Seconds from the last output of the old code to the first commit of the new; None where
            outputs are commits.
    """

    what: str
    without_s: float
    steps: Mapping[str, float] = field(default_factory=dict)
    commit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Those of all swaps of one kind.

    Attributes:
        what: The kind.
        median_s: Seconds without processing.
        low_s: The shortest.
        high_s: The longest.
        rounds: How many there were.
        commit_s: The median to the first commit; None where it was not measured.
        steps: The median of each step.
    """

    what: str
    median_s: float
    low_s: float
    high_s: float
    rounds: int
    commit_s: float | None
    steps: Mapping[str, float]


def figures(swaps: Sequence[Swap]) -> list[Figures]:
    """Figures of each kind, in the order in which the kinds came first."""
    found = []
    for what in dict.fromkeys(one.what for one in swaps):
        of_kind = [one for one in swaps if one.what == what]
        seconds = [one.without_s for one in of_kind]
        commits = [one.commit_s for one in of_kind if one.commit_s is not None]
        names = dict.fromkeys(name for one in of_kind for name in one.steps)
        found.append(
            Figures(
                what,
                statistics.median(seconds),
                min(seconds),
                max(seconds),
                len(seconds),
                statistics.median(commits) if commits else None,
                {
                    name: statistics.median(one.steps[name] for one in of_kind if name in one.steps)
                    for name in names
                },
            )
        )
    return found
