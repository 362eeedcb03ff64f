"""The cells of the storms of state: which query meets which layout, under which verb or on which Spark.

Every query meets every layout under one of the verbs that write state again, every verb meets every query and
every layout that it can do (`tests.support.pairs`): 38 cells, which are 85 in all.

On the installed Spark every query meets every layout that it can have; every release before it meets every
query and every layout that it has.
"""

from __future__ import annotations

from streambank.driver.spark_releases import RELEASES, SparkRelease
from tests.support.pairs import Cell, by_pairs
from tests.support.spark.queries import QUERIES, Query

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


EXACTLY_ONCE = [(query.name, layout) for query in QUERIES.values() for layout in query.layouts]
"""`(query, layout)` of the installed Spark."""


def runs_on(release: SparkRelease, query: Query, layout: str) -> bool:
    """Whether a release has what a cell needs."""
    if query.name == "transform-with-state" and release.name == "4.0":
        return False  # its Python has only the one in pandas
    variables = release.variables or not query.name.startswith("transform-with-state")
    return variables and (release.checkpoint_format >= 2 or not layout.startswith("format-v2"))


*_OLDER, _INSTALLED = RELEASES
ON_RELEASES = by_pairs(
    [
        (release.name, query, layout)
        for release in _OLDER
        for query, layout in EXACTLY_ONCE
        if runs_on(release, QUERIES[query], layout)
    ],
    beside=[(_INSTALLED.name, query, layout) for query, layout in EXACTLY_ONCE],
)
"""`(release, query, layout)`."""
