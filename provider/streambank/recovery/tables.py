"""What a choice makes of tables that remember which batches of the query they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streambank.core.choices import RestoreMode, SinkChoice
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.sinks.table import TableStanding

_ROLL_BACK = "--sink rollback rolls it back to the savepoint's batch, with the batches that it remembers; "


def table_refusals(
    tables: Iterable[TableStanding], choice: SinkChoice, mode: RestoreMode, *, stateful: bool
) -> Iterator[StreambankError]:
    """Why a restore must not go on with this choice.

    A fork has a query id of its own, so a table skips nothing of it: rows come twice if it writes there.

    Args:
        tables: The tables.
        choice: What was chosen for all sinks.
        mode: What becomes of the query id.
        stateful: The query has state.
    """
    for table in tables:
        if mode == "fork":
            if choice != "accept":
                yield RefusedError(
                    f"The {table.name} belongs to the query that is forked. {_shared(table)}",
                    code="fork-shares-sink",
                    hint="Let the fork write to another table, and say so: --sink accept.",
                )
        elif table.safe:
            continue
        elif choice == "accept":
            if stateful and table.skips_computing and table.position == "ahead":
                yield RefusedError(
                    f"{table.sentence()} Spark does not compute the batches that it skips there, so their "
                    "state is never written, and the query, which has state, fails after them "
                    "(CANNOT_LOAD_STATE_STORE).",
                    code="sink-breaks-state",
                    hint=f"{_ROLL_BACK}or use another savepoint." if table.can_roll_back else table.why_not(),
                )
        elif table.safe is None:
            yield _not_known(table)
        elif choice == "rollback":
            if not table.can_roll_back:
                yield RefusedError(
                    " ".join(filter(None, (table.sentence(), table.why_not()))),
                    code="sink-cannot-roll-back",
                    hint="Use another savepoint, roll it back yourself (docs/howto/sinks.md), or use --sink "
                    "accept.",
                )
        else:
            ways = _ROLL_BACK if table.can_roll_back else f"{table.why_not()} "
            yield RefusedError(
                table.sentence(),
                code="sink-would-lose-rows",
                hint=f"{ways}--sink accept restores anyway and leaves it as it is.",
            )


def _not_known(table: TableStanding) -> StreambankError:
    hint = f"{table.hint} Or use --sink accept." if table.hint else "Or use --sink accept."
    if table.transient:  # one that is away for a moment is there at the next try
        return StorageError(table.sentence(), code="sink-not-known", hint=hint)
    return RefusedError(table.sentence(), code="sink-not-known", hint=hint)


def _shared(table: TableStanding) -> str:
    """What becomes of a table into which a query and its fork write."""
    if table.own_name:
        return "Both write there under one name: each skips the batches that the other has written."
    return "If both write there, rows are there twice."


def table_warnings(tables: Iterable[TableStanding], mode: RestoreMode) -> Iterator[str]:
    """What a person should know of tables that stop nothing."""
    for table in tables:
        if mode == "fork":
            yield (
                f"The fork writes into the {table.name} of the query that it is forked from, unless its "
                f"application is configured otherwise. {_shared(table)}"
            )
