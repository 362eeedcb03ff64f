"""The cells of the storms of state: which kind of query meets which layout, under which verb.

Every query meets every layout under one of the verbs that write state again, every verb meets every query and
every layout that it can do (`tests.support.pairs`): 38 cells, which are 85 in all.
"""

from __future__ import annotations

from tests.support.pairs import Cell, by_pairs
from tests.support.spark.queries import QUERIES

CAN_BE_BROKEN = ("aggregation", "session-window", "apply-in-pandas-with-state")
"""Queries whose state holds a sum, which a test can spoil and repair."""


def rewriting() -> list[Cell]:
    """`(query, layout, verb)` for all that can be; the verbs are `compact`, `rescale` and `repair`."""
    return [
        (query.name, layout, verb)
        for query in QUERIES.values()
        if not query.file_sink
        for layout in query.layouts
        for verb in ("compact", "rescale", "repair")
        # HDFS-backed state keeps its number of partitions; that this is refused is no cell of the storm.
        if not (verb == "rescale" and layout == "hdfs")
        if verb != "repair" or query.name in CAN_BE_BROKEN
    ]


REWRITING = by_pairs(rewriting())


def cells_of(verb: str) -> list[tuple[str, str]]:
    """The chosen cells of one verb, as `(query, layout)`."""
    return [(query, layout) for query, layout, each in REWRITING if each == verb]
