"""Executing batches of a live query again, on a copy of its checkpoint that is at an earlier batch.

Spark executes a batch that is planned and not committed exactly as it was planned: what it reads stands in
`offsets/<batch>`, and for a file source in the log below `sources/` (MicroBatchExecution, FileStreamSource in
Spark's sources). So a copy that gets the live query's plans, one at a time, computes what the live one did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streambank.checkpoint.compactible import LogName, parse_log_name
from streambank.checkpoint.logs import parse_offsets
from streambank.checkpoint.position import batches_in_log
from streambank.checkpoint.sources import file_log_offset
from streambank.core.errors import NotFoundError
from streambank.storage.store import Store, read_record

OFFSETS = "offsets"
"""The live query's entry of the offset log, in the folder of a staged batch."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Batches of a live query that its copy executes again.

    Attributes:
        plans: URI of the directory with the live query's plan of each batch (`stage_replay`).
        live: URI of the live checkpoint, with whose state the copy's is compared; None for no comparison.
        output: URI of the directory that the live query's file sink writes; None where there is none.
    """

    batches: tuple[int, ...]
    plans: str
    live: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """What a copy was given."""

    batches: tuple[int, ...]
    why: str | None = None


def stage_replay(live: Store, copy: Store, plans: Store, *, after: int, most: int) -> Staged:
    """Bring the plans of a live query's batches to a place beside its copy. Neither checkpoint is changed.

    Args:
        plans: An empty directory, which gets a folder for each batch: `offsets`, and below `sources/` the
            entries of the sources' logs that the copy lacks until then.

    Raises:
        FormatError: A plan cannot be understood.
    """
    planned, committed = batches_in_log(live, "offsets"), batches_in_log(live, "commits")
    staged: list[int] = []
    have: dict[str, int] = {}
    for batch in range(after + 1, after + 1 + most):
        if batch not in committed or batch not in planned:
            return Staged(tuple(staged), _why(batch, planned, committed))
        try:
            data = read_record(live, f"offsets/{batch}")
            for source, needed in _logs(parse_offsets(data, f"offsets/{batch}").sources):
                folder = f"sources/{source}"
                if folder not in have:
                    have[folder] = max((name.batch for name in _log(copy, folder)), default=-1)
                have[folder] = _bring(live, plans.child(str(batch)), folder, have[folder], needed)
        except NotFoundError as error:  # the live query cleans up meanwhile
            return Staged(tuple(staged), f"batch {batch} could not be read any more: {error.message}")
        plans.write(f"{batch}/{OFFSETS}", data)
        staged.append(batch)
    return Staged(tuple(staged))


def lay_plan(plans: Store, copy: Store, batch: int) -> None:
    """Make a batch the copy's planned one: the entries of the sources' logs first, then the offsets."""
    plan = plans.child(str(batch))
    for info in plan.list("sources"):
        copy.write(info.path, plan.read(info.path))
    copy.write(f"offsets/{batch}", plan.read(OFFSETS))


def _why(batch: int, planned: Iterable[int], committed: Iterable[int]) -> str:
    newest, oldest = max(committed, default=None), min(planned, default=None)
    if newest is None or oldest is None:
        return "the live checkpoint has no batches"
    if batch > newest:
        return f"the live query has committed batches up to {newest}"
    return (
        f"the live checkpoint has plans from batch {oldest} on, and not of batch {batch} "
        "(spark.sql.streaming.minBatchesToRetain says how many it keeps)"
    )


def _logs(sources: Mapping[str, str | None]) -> Iterator[tuple[str, int]]:
    """The sources that keep a log of files, each with the newest entry that a batch needs."""
    for source, offset in sources.items():
        needed = file_log_offset(offset)
        if needed is not None:
            yield source, needed


def _bring(live: Store, plan: Store, folder: str, newest: int, needed: int) -> int:
    """Copy the entries of a log after the newest that is there; which is the newest then."""
    theirs = sorted(_log(live, folder))
    wanted = [name for name in theirs if newest < name.batch <= needed]
    missing = set(range(newest + 1, needed + 1)) - {name.batch for name in wanted}
    if missing:
        # Spark has deleted them: a later entry that holds everything stands for them.
        later = [name for name in theirs if name.compact and name.batch >= max(missing)]
        if not later:
            raise NotFoundError(
                f"{folder} lacks entry {min(missing)}.",
                code="missing-log-entry",
                hint="Drill a newer savepoint.",
            )
        wanted = sorted({*wanted, later[0]})
    for name in wanted:
        with live.open(f"{folder}/{name}") as entry:
            plan.write(f"{folder}/{name}", entry.read())
    return max((name.batch for name in wanted), default=newest)


def _log(store: Store, folder: str) -> Iterator[LogName]:
    return (found for name in store.names(folder) if (found := parse_log_name(name)) is not None)
