"""Which savepoints still hold a key: each one is looked into by the state reader, none is guessed about.

A savepoint that is the same to the byte as one that was looked into, as in a replica, has the same answer.
One that cannot be read, or that keeps its state by other keys, has the answer that nobody knows.

State may be in other savepoints, replicas and live checkpoints too: those are listed from manifests, marks
and the job's records. So may it be in what work on the job has left behind
(streambank/cleaning/left_directories.py): what is a checkpoint is looked into batch by batch; of anything
else it is not known.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.errors import PySparkException

from streambank.checkpoint.reader import CheckpointReader
from streambank.cleaning.left_directory import LeftDirectories, LeftDirectory, what_to_do
from streambank.core.errors import StreambankError
from streambank.core.shape import HIDDEN, JsonName, encode
from streambank.core.units import to_json_time
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_spark.failures import first_line
from streambank_spark.rewrite.derive import Derived, SourceSavepoint
from streambank_spark.rewrite.expiry import KeySelection, SkippedOperator, rows_of_key
from streambank_spark.rewrite.key_places import KeyPlace, Live, identity, places
from streambank_spark.state.staging import (
    Materialized,
    Staging,
    materialized_checkpoint,
    materialized_savepoint,
)
from streambank_spark.state.state import QueryState

YES, NO, UNKNOWN = "yes", "no", "unknown"


@dataclass(frozen=True, slots=True)
class Holding:
    """A savepoint that holds a key (`found` is `yes`), or of which nobody knows (`unknown: ` and why)."""

    place: KeyPlace
    found: str

    def to_dict(self) -> dict[str, Any]:
        place = self.place
        return {
            "repository": place.location,
            "job": place.job,
            "savepoint": place.savepoint,
            "batch": place.batch,
            "taken_at": to_json_time(place.taken_at) if place.taken_at else None,
            "pinned": place.pinned,
            "held": place.held,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True)
class LeftHolding:
    """A directory left behind, and whether it holds a key: `yes`, `no`, or `unknown: ` and why."""

    directory: LeftDirectory
    found: str

    def to_dict(self) -> dict[str, Any]:
        hint = None if self.found == NO else what_to_do(self.directory)
        return self.directory.to_dict() | {"found": self.found, "next": hint}


@dataclass(frozen=True, slots=True)
class Search:
    """What a search for a key came to.

    Attributes:
        searched: How many of them were read for it; the others are the same as one of those, or cannot be.
        holding: Those that hold it, and those of which nobody knows.
        live: Directories of live checkpoints, into which nobody looked.
        left: What was left behind by work on the job, and whether it holds the key.
        unread: What of that could not be looked for: a location, and why.
    """

    savepoints: int
    searched: Annotated[int, JsonName("looked_into")]
    holding: tuple[Holding, ...]
    live: tuple[Live, ...]
    left: tuple[LeftHolding, ...]
    unread: Annotated[tuple[tuple[str, str], ...], HIDDEN]
    deletion: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return encode(self) | {
            "searched": True,
            "left_unread": [{"location": location, "why": why} for location, why in self.unread],
        }


def not_searched(why: str) -> dict[str, Any]:
    """What is said of other places where nobody looked, as JSON."""
    return {"searched": False, "why": why, "holding": None}


def search(
    source: SourceSavepoint,
    derived: Derived,
    key: KeySelection,
    *,
    replicas: Sequence[str] = (),
    live: Sequence[Live] = (),
    left: LeftDirectories | None = None,
) -> Search:
    """Look for a key in all savepoints of a job, there and in replicas, after it was erased from one.

    Args:
        left: What work on the job has left behind; None where the job is not declared.

    Raises:
        StreambankError: The repository cannot be listed. What else fails is in the answer.
    """
    repository, job = source.repository, source.job
    every = places(repository, replicas, job)
    first = derived.of.rpartition("/")[2]
    known = {identity(repository, job, first): YES if any(one.keys for one in derived.going) else NO}
    if derived.savepoint is not None:
        known[identity(repository, job, derived.savepoint)] = NO  # it was read again and compared
    known.pop("", None)
    passed = {_operator(one) for one in derived.passed_over or ()}

    def holds(laid: Materialized) -> str:
        return holds_key(QueryState(source.spark, laid.location), key, passed)

    found = []
    searched = 0
    for number, place in enumerate(every, 1):
        answer = known.get(place.identity) if place.identity else None
        if place.why_unknown is not None:
            answer = f"{UNKNOWN}: {place.why_unknown}"
        elif answer is None:
            where = f"{place.job}/{place.savepoint} in {place.location}"
            source.say(f"Looking into {where} ({number} of {len(every)})")
            answer = _answer(partial(_look, place, source.staging, holds))
            searched += 1
            if place.identity and not answer.startswith(UNKNOWN):
                known[place.identity] = answer
        if answer != NO:
            found.append(Holding(place, answer))
    directories = left.directories if left is not None else ()
    behind = []
    for number, one in enumerate(directories, 1):
        source.say(f"Looking into {one.location} ({number} of {len(directories)} directories left behind)")
        behind.append(LeftHolding(one, _answer(partial(_look_into, one, source.staging, holds))))
    lies = {one.location for one in directories}
    return Search(
        len(every),
        searched,
        tuple(found),
        tuple(one for one in live if one.location not in lies),
        tuple(behind),
        left.unread if left is not None else (),
        tuple(deletion(repository, found)),
    )


BATCHES = 10
"""So many batches of a directory are looked into, the newest first."""

Holds = Callable[[Materialized], str]
"""Whether what was laid out holds the key, as `holds_key` says it."""


def _answer(look: Callable[[], str]) -> str:
    try:
        return look()
    except StreambankError as error:
        return f"{UNKNOWN}: {error.message}"
    except (PySparkException, Py4JError) as error:
        return f"{UNKNOWN}: Spark cannot read it: {first_line(error)}"


def _look_into(directory: LeftDirectory, staging: Staging, holds: Holds) -> str:
    """Batch by batch: a key that the newest does not hold may be in an older one."""
    if directory.kind not in ("generation", "restored", "staging"):
        return f"{UNKNOWN}: it is not a checkpoint, so it was not searched"
    batches = sorted(CheckpointReader(open_store(directory.location)).retained_batches(), reverse=True)
    if not batches:
        return f"{UNKNOWN}: it has no committed batch, so it was not searched"
    for batch in batches[:BATCHES]:
        with materialized_checkpoint(directory.location, batch, staging) as laid:
            answer = holds(laid)
        if answer != NO:
            return answer
    if batches[BATCHES:]:
        newest = f"batches {batches[BATCHES - 1]} to {batches[0]}"
        return f"{UNKNOWN}: {newest} do not hold it, and older ones were not searched"
    return NO


def _look(place: KeyPlace, staging: Staging, holds: Holds) -> str:
    assert place.repository is not None and place.savepoint is not None
    with materialized_savepoint(place.repository, place.job, place.savepoint, staging) as laid:
        return holds(laid)


def holds_key(state: QueryState, key: KeySelection, passed: set[tuple[int, str | None]]) -> str:
    """Whether state has rows of a key: `yes`, `no`, or `unknown: ` and why.

    Args:
        passed: Operators, by id and name, that are known to keep nothing by such a key; any other one that
            does not may have kept it by another key.

    Raises:
        InputError: There is no such operator.
    """
    others: list[SkippedOperator] = []
    for _, rows in rows_of_key(state, key, others):
        if any(not frame.isEmpty() for frame in rows):
            return YES
    new = [
        f"operator {one.operator} ({one.name}): {one.why}" for one in others if _operator(one) not in passed
    ]
    return f"{UNKNOWN}: {'; '.join(new)}" if new else NO


def _operator(one: SkippedOperator) -> tuple[int, str | None]:
    return one.operator, one.name


def deletion(repository: Repository, holding: Sequence[Holding]) -> list[str]:
    """The commands that take what holds the key; none of them is run here.

    The newest savepoint stays in each place: the one that was just made, unless another one has been taken
    since. Replicas get it first.
    """
    own = repository.store.uri
    commands = []
    some: dict[tuple[str, str], list[KeyPlace]] = {}
    for each in holding:
        if each.place.savepoint is not None:
            some.setdefault((each.place.location, each.place.job), []).append(each.place)
    for (location, job), found in some.items():
        where = f"-r {shlex.quote(location)} --job {shlex.quote(job)}"
        if location != own:
            target = shlex.quote(location)
            commands.append(
                f"streambank replicate -r {shlex.quote(own)} --job {shlex.quote(job)} --to {target}"
            )
        pinned = [place.savepoint for place in found if place.pinned and not place.expired]
        commands += [f"streambank unpin {savepoint} {where}" for savepoint in pinned]
        commands.append(f"streambank expire {where} --keep-last 1 --min-verified 0 --dry-run")
        commands.append(f"streambank expire {where} --keep-last 1 --min-verified 0")
        commands.append(f"streambank sweep -r {shlex.quote(location)}")
    return commands
