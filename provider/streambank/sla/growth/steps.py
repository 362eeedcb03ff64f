"""A single step in a history: state that was compacted, a backfill. It is no growth, nor the end of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from streambank.sla.growth.slope import Cell

_SIDE = 3
_TIMES_USUAL = 8.0
_SHARE = 0.2


def only_step(cells: Sequence[Cell]) -> int | None:
    """The position at which a new level begins, if there is one such step and no other.

    A step is where the medians of three cells before and after differ by a fifth of the level, and by eight
    times what they usually do, and where all is quiet again afterwards: growth that gets faster and faster
    is none. Several are a habit, such as a nightly purge or RocksDB's own compactions: to leave those out
    would turn their teeth into growth.
    """
    values = [cell.value for cell in cells]
    sides = {
        position: (median(values[position - _SIDE : position]), median(values[position : position + _SIDE]))
        for position in range(_SIDE, len(values) - _SIDE + 1)
    }
    if not sides:
        return None
    usual = median(abs(after - before) for before, after in sides.values())
    large = [
        position
        for position, (before, after) in sides.items()
        if abs(after - before) > max(_TIMES_USUAL * usual, _SHARE * max(abs(before), abs(after)))
    ]
    upwards = {sides[position][1] > sides[position][0] for position in large}
    if len(upwards) != 1 or large[-1] - large[0] >= 2 * _SIDE or large[-1] == max(sides):
        return None
    return max(large, key=lambda position: abs(values[position] - values[position - 1]))
