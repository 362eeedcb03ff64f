"""Choosing cells of a storm by pairs: so few that each pair of properties which can meet does meet in one.

Most faults need two properties to meet (a kind of state and a layout, a layout and a verb), hardly any needs
three: Kuhn, Wallace, Gallo, "Software Fault Interactions and Implications for Software Testing" (2004).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

Cell = tuple[str, ...]
"""One value of each property, in an order that all cells share."""


def pairs_of(cell: Cell) -> set[tuple[int, str, int, str]]:
    """The pairs of values that meet in a cell, each value with the position of its property."""
    return {(a, cell[a], b, cell[b]) for a, b in combinations(range(len(cell)), 2)}


def by_pairs(possible: Iterable[Cell], beside: Iterable[Cell] = ()) -> list[Cell]:
    """Choose some of the possible cells, so that every pair that meets in any of them meets in a chosen one.

    Greedy: next comes the cell with the most pairs that have not met yet; of equals, the one whose values
    were chosen least; then the first. The choice is the same on every machine, since parts of a storm run in
    several processes.

    Args:
        beside: Cells that are played anyway: their pairs have met.

    Returns:
        The chosen ones, in the order in which they were given.
    """
    cells = list(possible)
    missing = {pair for cell in cells for pair in pairs_of(cell)}
    missing -= {pair for cell in beside for pair in pairs_of(cell)}
    chosen = set()
    uses: Counter[tuple[int, str]] = Counter()

    def worth(cell: Cell) -> tuple[int, int]:
        return len(pairs_of(cell) & missing), -sum(uses[value] for value in enumerate(cell))

    while missing:
        best = max(cells, key=worth)
        chosen.add(best)
        missing -= pairs_of(best)
        uses.update(enumerate(best))
    return [cell for cell in cells if cell in chosen]
