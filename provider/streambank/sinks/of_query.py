"""All sinks of one query: what Spark says that it writes to, and what its job declares.

Spark names one sink of a query. Of the file sink, Kafka and Delta it tells what they are; behind
`ForeachBatchSink` or a name that is not known here may be several tables, which the job declares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from streambank.savepoint.sinks import SinkCapture
from streambank.sinks.bounded import BoundedGuard
from streambank.sinks.declared import DeclaredSink
from streambank.sinks.delta import KIND as DELTA
from streambank.sinks.delta import DeltaGuard
from streambank.sinks.table import TableGuard
from streambank.sinks.tags import TagScope
from streambank.sinks.unguarded import UnguardedSink, harm_of, sink_from_description
from streambank.storage import normalize_location, same_place

_DELTA = re.compile(r"DeltaSink\[(?P<location>.+)\]\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QuerySinks:
    """What a query writes to.

    Attributes:
        plain: Sinks of which it is declared what they make of a batch that comes again.
        named: What Spark names besides; None where it names nothing, or the others are what is behind it.
    """

    tables: tuple[TableGuard, ...] = ()
    plain: tuple[UnguardedSink, ...] = ()
    named: SinkCapture | None = None

    def covers(self, kind: str) -> bool:
        """Whether what Spark calls `kind`, as old savepoints keep it, is one of the tables or plain sinks."""
        if kind == "DeltaSink":
            return any(table.kind == DELTA for table in self.tables)
        return bool(self.tables or self.plain) and harm_of(kind) == "unknown"

    def captures(self) -> list[SinkCapture]:
        return [*self.tables, *self.plain, *([] if self.named is None else [self.named])]


def sinks_of_query(
    description: str | None,
    query_id: str | None,
    declared: Sequence[DeclaredSink],
    tags: TagScope | None = None,
) -> QuerySinks:
    """What a query writes to.

    Args:
        description: What Spark said of the sink to the query's last driver; None where nothing is known.
        query_id: The query's id; None where nothing is known, and so nothing can be asked about.
    """
    named = sink_from_description(description) if description else None
    connector = _delta_location(description)
    if query_id is None:
        return QuerySinks(named=named)
    guards = [one.guard(query_id, connector=connector, tags=tags) for one in declared]
    tables: list[TableGuard] = [BoundedGuard(guard) for guard in guards if guard is not None]
    if connector is not None and not any(
        table.kind == DELTA and same_place(table.path, connector) for table in tables
    ):
        tables.append(BoundedGuard(DeltaGuard(connector, query_id, by_connector=True)))
    plain = [
        UnguardedSink(one.kind, one.path) for one, guard in zip(declared, guards, strict=True) if not guard
    ]
    found = QuerySinks(tuple(tables), tuple(plain), None)
    if connector is not None or (named is not None and found.covers(named.kind)):
        return found
    return QuerySinks(found.tables, found.plain, named)


def _delta_location(description: str | None) -> str | None:
    """The table of Spark's sink for Delta, such as `DeltaSink[file:/data/orders]`."""
    match = _DELTA.match(description.strip()) if description else None
    return None if match is None else normalize_location(match["location"])
