"""A savepoint made from another one: the same batch of the same query with rewritten state.

The first one is materialized in a staging directory. Its state is rewritten into another directory and
verified (rewrite.py), and a savepoint of that is taken into the same repository, which names the first one as
`derived_from`. The query is not read and not changed; to use the new savepoint, restore it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streambank.checkpoint.rewritable import check_codec
from streambank.core.approval import TRIGGER_AGAIN, outdated
from streambank.core.shape import JsonObject
from streambank.core.units import say_count
from streambank.declaration.launch import is_local
from streambank.repository.holds import Holds
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.work.executor import Pace
from streambank_spark.private.state_rewriter import quiet_session
from streambank_spark.rewrite.expiry import ExpiredKeys, SkippedOperator
from streambank_spark.rewrite.rewrite import Rewritten, check_rewritable, rewrite
from streambank_spark.rewrite.row_patch import Patch
from streambank_spark.state.digest import count_going
from streambank_spark.state.staging import Staging, materialized_savepoint, place_beside, require_shared
from streambank_spark.state.state import QueryState
from streambank_spark.state.store_rows import StoreRows, store_rows

Decide = Callable[[QueryState], list[ExpiredKeys]]
"""From the state of the savepoint, which keys go."""
Patches = Callable[[QueryState], Sequence[Patch]]
"""From the state of the savepoint, which rows get other values or are added; called after `Decide`."""
Write = Callable[..., Rewritten]
"""As `rewrite`."""
Say = Callable[[str], None]
"""Called with what is being done."""


@dataclass(frozen=True, slots=True)
class SourceSavepoint:
    """The savepoint of `job` or `job/query` of which another one is made, in a session, and by whom."""

    spark: SparkSession
    repository: Repository
    job: str
    savepoint: str
    staging: Staging
    by: Mapping[str, str] | None = None
    say: Say = lambda text: None


@dataclass(frozen=True, slots=True)
class Going(JsonObject):
    """What of one operator goes, for a person who decides; bytes by the share of rows."""

    operator: int
    name: str | None
    keys: int
    rows: int
    rows_before: int
    about_bytes: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Derived:
    """A savepoint that was made from another one.

    Attributes:
        of: The first one: `job/savepoint`.
        savepoint: The new one; None if nothing changes, or for a dry run.
        rewritten: What became of each store, where there is a new one.
        passed_over: Operators that have no such key, where a key was to go; None where none was.
    """

    of: str
    batch: int
    going: tuple[Going, ...]
    savepoint: str | None = None
    rewritten: Rewritten | None = None
    passed_over: tuple[SkippedOperator, ...] | None = None

    def brief(self) -> dict[str, Any]:
        """As JSON, without what goes."""
        stores = [] if self.rewritten is None else [one.to_dict() for one in self.rewritten.stores]
        return {"of": self.of, "batch": self.batch, "savepoint": self.savepoint, "stores": stores}

    def to_dict(self) -> dict[str, Any]:
        passed = self.passed_over
        return self.brief() | {
            "operators": [each.to_dict() for each in self.going],
            **({} if passed is None else {"passed_over": [each.to_dict() for each in passed]}),
        }


def derive(
    source: SourceSavepoint,
    operation: str,
    *,
    decide: Decide | None = None,
    partitions: int | None = None,
    patch: Patches | None = None,
    write: Write = rewrite,
    dry_run: bool = False,
    note: str = "",
    rehearse: bool = False,
    most_keys: Mapping[int, int] | None = None,
) -> Derived:
    """Make a savepoint from another one.

    Args:
        operation: What it is made by: `compact`, `erase`, `rescale`, `repair`, `migrate`,
            `transform`, `bootstrap`.
        write: What rewrites the state and verifies it; takes `patches` only if there are some.
        rehearse: A rehearsal follows: until it has passed, only its id or its name means the new savepoint.
        most_keys: How many keys of each operator may go: what a plan showed; None for any number.

    Raises:
        RefusedError: More keys would go than a plan showed (code `approval-outdated`); nothing was written.
        StreambankError: As `materialized_savepoint`, `rewrite` and `take`.
    """
    spark, repository, job = source.spark, source.repository, source.job
    staging, by, say = source.staging, source.by, source.say

    def reject(made: Manifest) -> None:
        repository.mark_rehearsal(job, made.savepoint, passed=False, by=by)

    if not dry_run:
        repository.signatures.require_key(job)
    with materialized_savepoint(repository, job, source.savepoint, staging) as laid:
        require_shared(spark, laid.location)
        state = QueryState(spark, laid.location)
        if state.closure.spark.provider == "hdfs":
            check_codec(state.closure, not is_local(spark.sparkContext.master))
        if write is rewrite:
            check_rewritable(state, partitions)
        say("Looking for rows to remove")
        gone = [] if decide is None else decide(state)
        patches = [] if patch is None else patch(state)
        kept_by_spark = [each.sized.persist() for each in gone]
        kept_by_spark += [each.bytes_of.persist() for each in patches]
        try:
            keys = [each.sized.count() for each in gone]
            if most_keys is not None:
                check_planned(gone, keys, most_keys)
            nothing = not (any(keys) or patches or (decide is None and patch is None))
            if dry_run or nothing:
                session = quiet_session(spark, state.closure.spark.checkpoint_format)
                counts = _counted(list(store_rows(session, state)), gone) if gone else {}
                return Derived(laid.of, state.closure.batch, _going(gone, keys, counts))
            with place_beside(laid.location, staging.warn) as target:
                say("Rewriting the state, and reading it again")
                token = f"{source.savepoint} {operation} {uuid.uuid4().hex[:12]}"
                more: dict[str, Any] = {"patches": patches} if patches else {}
                done = write(
                    spark, state, target, derived_from=token, gone=gone, partitions=partitions, **more
                )
                for path in laid.described:  # the job's Spark writes none, and a newer one its own
                    target.delete(path)
                say("Saving it")
                holds = Holds(repository, "restore", by)
                with holds.held(job, source.savepoint):
                    taken = take(
                        TakeRequest(
                            target,
                            repository,
                            job,
                            closure="minimal",
                            note=note,
                            taken_by={**(by or {}), "reason": operation},
                            derived_from=laid.manifest,
                            before_commit=reject if rehearse else None,
                        ),
                        pace=Pace(progress=staging.progress),
                    )
                for warning in holds.warnings:
                    staging.warn(warning)
            counts = {
                (one.operator, one.store): (one.rows_before, one.rows_before - one.rows)
                for one in done.stores
            }
            going = _going(gone, keys, counts)
            return Derived(laid.of, state.closure.batch, going, taken.savepoint, done)
        finally:
            for frame in kept_by_spark:
                frame.unpersist()


def check_planned(gone: Sequence[ExpiredKeys], keys: Sequence[int], most_keys: Mapping[int, int]) -> None:
    """Make sure that no more keys of an operator go than a plan showed.

    Raises:
        RefusedError: More would go (code `approval-outdated`).
    """
    for each, many in zip(gone, keys, strict=True):
        operator = each.operator
        shown = most_keys.get(operator.operator, 0)
        if many > shown:
            raise outdated(
                f"{say_count(many, 'key')} of operator {operator.operator}, {operator.name}, would go now; "
                f"the plan that was approved showed {shown:,}. Nothing was removed.",
                f"{TRIGGER_AGAIN} Where the job makes more such keys all the time, stop it first, or name a "
                "moment in the condition.",
            )


Counts = Mapping[tuple[int, str], tuple[int, int]]
"""Operator and store -> all of its rows, and those that go."""


def _counted(stores: Sequence[StoreRows], gone: Sequence[ExpiredKeys]) -> Counts:
    units = {one.operator.operator: one.units for one in gone}
    return {
        store.named: count_going(store, units[store.operator]) for store in stores if store.operator in units
    }


def _going(gone: Sequence[ExpiredKeys], keys: Sequence[int], counts: Counts) -> tuple[Going, ...]:
    found = []
    for each, many in zip(gone, keys, strict=True):
        operator = each.operator
        rows = before = size_bytes = 0
        for store in operator.stores:
            total, going = counts[operator.operator, store.store]
            rows, before = rows + going, before + total
            size_bytes += store.bytes * going // total if total else 0
        found.append(
            Going(operator.operator, operator.name, many, rows, before, size_bytes, meaning(operator.name))
        )
    return tuple(found)


_MEANINGS = (
    (
        ("stateStoreSave",),
        "A key that comes again starts from zero; results that append mode had not written yet are lost.",
    ),
    (
        ("sessionWindow",),
        "Its open sessions are never written to the output; later rows begin new ones.",
    ),
    (
        ("dedupe",),
        "A row that was seen before counts as new, and is written to the output again.",
    ),
    (
        ("symmetricHashJoin",),
        "Rows that waited for the other side are gone: later rows do not match them, and an outer join "
        "never writes them to the output as unmatched.",
    ),
    (
        ("flatMapGroupsWithState", "applyInPandasWithState", "transformWithState"),
        "If the key comes again, the function finds no state for it; its timeouts and timers are gone too, "
        "and never fire.",
    ),
)


def meaning(operator: str | None) -> str:
    """One sentence or two about an operator."""
    for names, sentence in _MEANINGS:
        if operator is not None and any(operator.lower().startswith(name.lower()) for name in names):
            return sentence
    return "A key that comes again starts from zero."
