"""What a job declares of the sinks of its queries (`[[jobs.NAME.sinks]]`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from streambank.core.environment import fill_in
from streambank.core.errors import InputError, StreambankError
from streambank.core.names import MAIN
from streambank.storage import same_place

if TYPE_CHECKING:
    from streambank.repository.repository import Repository
    from streambank.sinks.iceberg_catalog import IcebergTable
    from streambank.sinks.table import TableGuard
    from streambank.sinks.tags import TagReport, TagScope

SinkKind = Literal["delta", "iceberg", "ledger", "append", "idempotent-by-key"]
"""What a sink is: a table that can be rolled back, or what it makes of a batch that comes again."""
SINK_KINDS: tuple[SinkKind, ...] = get_args(SinkKind)


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    """One sink of a query.

    Attributes:
        kind: `delta`, `iceberg` or `ledger`: a table that is guarded. `append`: it writes again what comes
            again. `idempotent-by-key`: what comes again overwrites what is there.
        table: The table: a location (`delta`), an identifier (`iceberg`) or a name (`ledger`); for the two
            last kinds what messages call the sink.
        writer: `delta`: under which id batches are in its log; None for the query id.
        url: `ledger`: the database, as SQLAlchemy reads it. A `${NAME}` is read when it is asked.
        rows: `ledger`: tables whose rows have the columns `query_id` and `batch_id`.
        overwrites: `ledger`: a batch that comes again overwrites its rows by their key.
        catalog: `iceberg`: properties of the catalog, as PyIceberg reads them; `${NAME}` as in `url`.
        tag: `iceberg`: whether each savepoint leaves a tag, so that its snapshot does not expire before it.
        options: `delta`: options of delta-rs for the storage; `${NAME}` as in `url`.
    """

    kind: SinkKind
    table: str
    query: str | None = None
    writer: str | None = None
    url: str | None = None
    rows: tuple[str, ...] = ()
    overwrites: bool = False
    catalog: Mapping[str, str] = field(default_factory=dict)
    tag: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """What records and messages call the sink: never with a value from the environment."""
        return f"{self.url}#{self.table}" if self.kind == "ledger" else self.table

    def guard(
        self, query_id: str, *, connector: str | None = None, tags: TagScope | None = None
    ) -> TableGuard | None:
        """Who judges the table and rolls it back; None for a sink that is no table.

        A variable that is not set makes a table that cannot be asked.
        """
        try:
            return self._guard(query_id, connector, tags)
        except InputError as error:
            from streambank.sinks.table import UnknownTable

            return UnknownTable(self.kind, self.path, error)

    def iceberg(self) -> IcebergTable | None:
        """Where an Iceberg table is; None for another sink.

        Raises:
            InputError: A variable is not set (code `bad-setting`).
        """
        if self.kind != "iceberg":
            return None
        from streambank.sinks.iceberg_catalog import IcebergTable

        return IcebergTable(self.table, {name: self._filled(value) for name, value in self.catalog.items()})

    def _filled(self, value: str) -> str:
        def mistake(what: str, hint: str) -> InputError:
            return InputError(f"The sink {self.path}: {what}.", code="bad-setting", hint=hint)

        return fill_in(value, os.environ, mistake)

    def _guard(self, query_id: str, connector: str | None, tags: TagScope | None) -> TableGuard | None:
        filled = self._filled
        if self.kind == "delta":
            from streambank.sinks.delta import DeltaGuard

            options = {name: filled(value) for name, value in self.options.items()}
            by_connector = connector is not None and same_place(self.table, connector)
            writer = query_id if by_connector else self.writer or query_id
            own_name = writer != query_id
            return DeltaGuard(
                self.table, writer, options=options, by_connector=by_connector, own_name=own_name
            )
        if (place := self.iceberg()) is not None:
            from streambank.sinks.iceberg import IcebergGuard

            return IcebergGuard(place, query_id, scope=tags if self.tag else None)
        if self.kind == "ledger":
            from streambank.sinks.ledger import LedgerGuard

            return LedgerGuard(
                self.path,
                filled(self.url or ""),
                query_id,
                table=self.table,
                rows=self.rows,
                overwrites=self.overwrites,
            )
        return None


def settle_declared_tags(
    sinks: Iterable[DeclaredSink],
    refs: Mapping[str, str],
    repository: Repository,
    replicas: Sequence[str],
    *,
    ensure: Mapping[str, str] | None = None,
) -> list[TagReport]:
    """Bring the tags of a job's savepoints up to date in each Iceberg table that it declares.

    Never raises: what cannot be done now, the next call does. Reports of tables in which something was
    done, or could not be.

    Args:
        refs: Under which name the savepoints of each query are listed.
        ensure: Ids of savepoints that were just listed, by that name: their tags must be there.
    """
    from streambank.sinks.bounded import SETTLE_S, within
    from streambank.sinks.tags import TagReport, settle_tags

    reports: list[TagReport] = []
    for sink in sinks:
        ref = refs.get(sink.query or next(iter(refs), ""))
        if sink.kind != "iceberg" or ref is None:
            continue
        listed = [] if ensure is None or ref not in ensure else [ensure[ref]]
        try:
            place = sink.iceberg()
        except InputError as error:
            reports.append(TagReport(sink.table, warnings=(error.message,)))
            continue
        assert place is not None
        settle = partial(settle_tags, place, ref, repository, replicas, ensure=listed)
        try:
            reports.append(within(SETTLE_S, settle, f"Iceberg table {place.path}"))
        except StreambankError as error:
            reports.append(TagReport(place.path, warnings=(error.message,)))
    return [report for report in reports if report.removed or report.added or report.warnings]


def of_query(sinks: Iterable[DeclaredSink], query: str | None) -> tuple[DeclaredSink, ...]:
    """The sinks that a query writes to; `main` or None is the only query."""
    return tuple(sink for sink in sinks if (sink.query or MAIN) == (query or MAIN))
