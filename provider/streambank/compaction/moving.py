"""Move files between a checkpoint and its quarantine: first a second name or a copy, durable, then away.

A crash in the middle leaves a file in one of the two places or in both, never in none. On one disk the second
name is a hard link, so nothing is copied; elsewhere the service copies, or the bytes pass through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from streambank.core.errors import ConflictError, NotFoundError, StorageError
from streambank.storage import CHUNK_BYTES, Store
from streambank.storage.store import chunks, stat_or_none
from streambank.storage.threads import at_once, each
from streambank.work.pace import Meter

AT_A_TIME = 500
"""So many files are made durable together, and then removed from where they were."""


@dataclass(frozen=True, slots=True)
class Move:
    """One file that is to move.

    Attributes:
        new_key: Where it goes, in the other store.
        identity: What it was when the move was planned; None where nobody can have changed it.
        in_order: It must not go before the one that is named before it, nor come after the one that is named
            after it: entries of a log, in which there must never be a gap.
    """

    key: str
    new_key: str
    size_bytes: int
    identity: str | None = None
    in_order: bool = False


def move_files(
    source: Store,
    target: Store,
    moves: Sequence[Move],
    *,
    check: Callable[[], None],
    meter: Meter,
    together: bool = True,
) -> int:
    """Move files from one store to another; how many were not there any more, which is no error.

    Args:
        check: Raises where it must not go on; asked before each step.
        together: Make many files durable at a time. A power cut may then leave an empty file in the target,
            which does not matter in a quarantine; else each is whole as soon as it is there.

    Raises:
        ConflictError: A file is another one by now (code `checkpoint-moved`); it stays where it is.
    """
    gone = 0
    for some in _steps(moves):
        parallel = 1 if some[0].in_order else at_once(source, target)
        check()
        with target.bulk() if together else nullcontext(target) as into:
            there = list(each(partial(_second, source, into), some, parallel))
        check()
        moved = [move for move, is_there in zip(some, there, strict=True) if is_there]
        for move in each(partial(_remove, source, target), moved, parallel):
            meter.add(1, move.size_bytes)
        gone += len(some) - len(moved)
    return gone


def _steps(moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
    for _, alike in groupby(moves, key=lambda move: move.in_order):
        some = list(alike)
        for start in range(0, len(some), AT_A_TIME):
            yield some[start : start + AT_A_TIME]


def _second(source: Store, target: Store, move: Move) -> bool:
    """Let a file be in both places; False where it is in none."""
    try:
        info = source.stat(move.key)
        if move.identity is not None and info.identity != move.identity:
            raise _moved(source, move)
        copied = target.link_from(source, move.key, move.new_key)
        if not copied and not target.copy_from(source, move.key, move.new_key):
            with source.open(move.key) as reader:
                target.write(move.new_key, chunks(reader))
    except NotFoundError:
        return False
    size_bytes = target.stat(move.new_key).size_bytes
    if size_bytes != info.size_bytes:
        raise StorageError(
            f"{move.new_key} in {target.uri} has {size_bytes} bytes instead of {info.size_bytes}.",
            code="io-error",
            hint="Nothing was removed. Try again.",
        )
    return True


def _remove(source: Store, target: Store, move: Move) -> Move:
    """Remove a file that is in both places, if it still is the one that was meant."""
    if move.identity is not None:
        info = stat_or_none(source, move.key)
        if info is None:
            return move
        if info.identity != move.identity:
            target.delete(move.new_key)
            raise _moved(source, move)
    source.delete(move.key)
    return move


def _moved(source: Store, move: Move) -> ConflictError:
    return ConflictError(
        f"{move.key} in {source.uri} was written again meanwhile, so it was left alone.",
        code="checkpoint-moved",
        hint="The query runs: stop it, and compact again.",
    )


def same_bytes(one: Store, key: str, other: Store, other_key: str) -> bool:
    """Whether two files have the same bytes."""
    if one.stat(key).size_bytes != other.stat(other_key).size_bytes:
        return False
    with one.open(key) as left, other.open(other_key) as right:
        while data := left.read(CHUNK_BYTES):
            if data != right.read(len(data)):
                return False
        return not right.read(1)
