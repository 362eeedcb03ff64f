"""Rewritten state against the state that it was made from: the rows that had to stay, each in its place.

Rows are compared as they are stored, by a fingerprint that does not depend on order (digest.py). A row in the
wrong partition would be there, and the query would never find it; so its partition is checked, too.

What was written is read once for all of that. What it was made from is read once more, and not by the read
that the writing used: a row that this one lost would be missing in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from streambank.core.errors import IntegrityError
from streambank.core.shape import JsonObject
from streambank_spark.state.digest import Counted, count_all, digest_frame
from streambank_spark.state.store_rows import StoreRows

_HINT = "Nothing was saved. The query and its savepoint are unchanged. Report this, with the Spark version."


@dataclass(frozen=True, slots=True)
class Compared(JsonObject):
    """One store before and after; `digest` is of the rows that were to stay, which those there have, too."""

    operator: int
    store: str
    rows_before: int
    rows: int
    digest: str
    partitions_before: int
    partitions: int


def compare(
    before: Sequence[StoreRows],
    kept: Mapping[tuple[int, str], DataFrame],
    after: Sequence[StoreRows],
    partitions: int | None,
    counted: Mapping[tuple[int, str], Counted] | None = None,
    unpatched: Mapping[tuple[int, str], DataFrame] | None = None,
) -> tuple[Compared, ...]:
    """Compare all stores.

    Args:
        partitions: How many partitions there have to be; as before for None.
        counted: What was counted of stores before; what is left out is counted here.
        unpatched: The rows of each store that were to stay, as they were before rows changed or were added:
            where the partitions are as before, a row of a loose distribution has to lie where it lies of
            these. As `kept` for None.

    Raises:
        IntegrityError: They differ (code `rewrite-differs`).
    """
    written = {store.named: store for store in after}
    if set(written) != {store.named for store in before}:
        raise differs(f"it has the stores {sorted(written)}")
    seen, there = counted or {}, unpatched or kept
    return tuple(
        _compare(
            store,
            kept[store.named],
            there[store.named],
            written[store.named],
            partitions,
            seen.get(store.named),
        )
        for store in before
    )


def _compare(
    before: StoreRows,
    kept: DataFrame,
    unpatched: DataFrame,
    after: StoreRows,
    partitions: int | None,
    seen: Counted | None,
) -> Compared:
    place = f"operator {before.operator}, store {before.name}"
    expected = before.partitions if partitions is None or before.alone else partitions
    if after.partitions != expected:
        raise differs(f"{place} has {after.partitions} partitions instead of {expected}")
    rows, digest, elsewhere = count_all(after)
    if seen is None:
        seen = Counted(before.frame.count(), *digest_frame(kept), count_all(before.of(unpatched))[2])
    if (rows, digest) != (seen.rows, seen.digest):
        raise differs(f"{place} has {rows:,} rows ({digest}) instead of {seen.rows:,} ({seen.digest})")
    if elsewhere[0] if partitions is not None else elsewhere != seen.elsewhere:
        raise differs(f"rows of {place} are in the wrong partition, where Spark would not find them")
    return Compared(
        before.operator, before.name, seen.rows_before, rows, digest, before.partitions, after.partitions
    )


def differs(what: str, of: str = "state that was written") -> IntegrityError:
    """The error where what was written is not what it has to be (code `rewrite-differs`)."""
    return IntegrityError(f"The {of} is wrong: {what}.", code="rewrite-differs", hint=_HINT)
