"""Tables that remember which batches of the query they hold: where each is, and what a choice makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streambank.core.choices import RestoreMode, SinkChoice
from streambank.core.errors import RefusedError, StorageError, StreambankError
from streambank.repository.manifest import Manifest
from streambank.sinks.delta import KIND as DELTA
from streambank.sinks.ledger import KIND as LEDGER
from streambank.sinks.of_query import QuerySinks
from streambank.sinks.table import TITLES, TableGuard, TableStanding, UnknownTable
from streambank.storage import same_place

_ROLL_BACK = "--sink rollback rolls it back to the savepoint's batch, with the batches that it remembers; "


@dataclass(frozen=True, slots=True)
class GuardedTable:
    """A table of the query as it is now.

    Attributes:
        guard: Who judges it and rolls it back.
        record: What the savepoint keeps of it; None where it was taken without.
    """

    guard: TableGuard
    record: Mapping[str, Any] | None
    standing: TableStanding


def look_at_tables(manifest: Manifest, now: QuerySinks, *, same_line: bool | None) -> list[GuardedTable]:
    """Each table that the query writes to now, and each that the savepoint names and the job does not.

    Args:
        same_line: The query was not restored to an earlier batch since the savepoint; None where no records
            tell.
    """
    kept = [record for record in manifest.sinks if record.get("kind") in TITLES]
    found: list[GuardedTable] = []
    for guard in now.tables:
        record = next((one for one in kept if _is_of(one, guard)), None)
        kept = [one for one in kept if one is not record]
        standing = guard.stand(manifest.batch, record)
        if not _tells(record) and standing.safe is not None:
            standing = _by_number(guard, standing, manifest, same_line=same_line)
        found.append(GuardedTable(guard, record, standing))
    for record in kept:
        why = RefusedError(
            "The savepoint names it, and what the query writes to by its job does not.",
            hint="Declare it in the job's `sinks`, and restore with that declaration.",
        )
        guard = UnknownTable(str(record.get("kind")), str(record.get("path")), why)
        found.append(GuardedTable(guard, record, guard.stand(manifest.batch, record)))
    return found


def _by_number(
    guard: TableGuard, standing: TableStanding, manifest: Manifest, *, same_line: bool | None
) -> TableStanding:
    """The standing of a table of which a savepoint does not say how far it was; not known if in doubt.

    Its batch of the savepoint's number may be another one than then: if the query went back further since and
    the table with it. The table itself may remember; else the records of the job have to exclude that.
    """
    same = guard.same_batch(manifest.batch, manifest.taken_at)
    if same or (same is None and same_line):
        return standing
    if same is False:
        why = f"its batch {manifest.batch} is another one than when that was taken."
    elif same_line is None:
        why = (
            "neither it nor any records of the job show whether it was rolled back further since: a batch of "
            "its number may be another one."
        )
    else:
        why = "the query was restored since: a batch of its number may be another one."
    way_out = (
        "Use a savepoint that was taken since, or one that says so. To leave this sink as it is: "
        f'--sink-of "{standing.path}=accept".'
    )
    return replace(
        standing,
        position="not-known",
        not_known=f"The savepoint does not say how far it was, and {why}",
        hint=way_out,
    )


def _is_of(record: Mapping[str, Any], guard: TableGuard) -> bool:
    """Whether a savepoint's record is of a table, which may be named in another way now."""
    kind, path = record.get("kind"), str(record.get("path"))
    same = path == guard.path or (kind == DELTA and same_place(path, guard.path))
    return kind == guard.kind and same


def _tells(record: Mapping[str, Any] | None) -> bool:
    """Whether a record tells one line of the query's life from another; a bare batch number does not."""
    if record is None or record.get("sink_batch") is None or record.get("not_asked"):
        return False
    return record.get("kind") != LEDGER or record.get("run_id") is not None


def table_refusals(
    tables: Iterable[TableStanding], choice: SinkChoice, mode: RestoreMode, *, stateful: bool
) -> Iterator[StreambankError]:
    """Why a restore must not go on with this choice.

    A fork has its own query id, so a table skips nothing of it: rows come twice if it writes there.
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
    kind = StorageError if table.transient else RefusedError  # what is away for a moment may be back later
    return kind(table.sentence(), code="sink-not-known", hint=f"{table.hint} Or use --sink accept.".lstrip())


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


def check_table_still_even(table: GuardedTable, batch: int) -> None:
    """Make sure that a table that was not ahead of a savepoint still is not.

    Raises:
        RefusedError: It is ahead now (code `sink-would-lose-rows`), or cannot be asked (`sink-not-known`).
    """
    for refusal in table_refusals(
        [table.guard.stand(batch, table.record)], "refuse", "no-claim", stateful=True
    ):
        raise refusal
