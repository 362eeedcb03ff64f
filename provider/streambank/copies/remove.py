"""Removing the directories of a copy that its policy no longer keeps, and what killed refreshes have left.

Only what a refresh has named before it filled it goes (`control/copies.py`), and only beside the places that
the copy declares. The copy in use never goes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from streambank.control.control import JobControl
from streambank.control.copies import (
    CopiedQuery,
    begun_refreshes,
    committed_refreshes,
    forget_refreshes,
)
from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.storage import open_store
from streambank.storage.store import Opener
from streambank.work.remove import remove_tree

_log = logging.getLogger(__name__)

_SUFFIX = re.compile(r"\.g([0-9]{4,})")
"""What the directories of a refresh are called, after the place that the copy declares."""
_OVER = ("claim-lost", "records-moved")
"""Codes of errors after which nothing more may be removed."""
_FIRST = ("commits", "metadata", "offsets")
"""What goes first of a checkpoint, so that no query can go on in what is left of it."""


def remove_old(
    copy: Job,
    control: JobControl,
    check: Callable[[], None],
    *,
    by: Mapping[str, str],
    opener: Opener = open_store,
) -> tuple[list[str], list[str]]:
    """Remove what the policy of a copy no longer keeps.

    Args:
        copy: The job on the copy.
        control: Its records, with its operation lock held.
        check: Raises where the lock was lost.
        by: Who asks.
        opener: Opens what is removed.

    Returns:
        The locations that were removed, and in sentences what could not be; the next refresh tries again.

    Raises:
        ConflictError: The lock was lost.
    """
    assert copy.copy is not None
    kept = {one for made in islice(committed_refreshes(control), copy.copy.keep) for one in _places(made)}
    removed: list[str] = []
    failed: dict[str, str] = {}
    begun = list(begun_refreshes(control))
    for location in dict.fromkeys(one for _, directories in begun for one in directories):
        if location in kept:
            continue
        if not _is_of(copy, location):
            failed[location] = f"{location} is not beside a place that the copy declares, so it stays."
            continue
        try:
            check()
            _record(copy, control, location, by)
            files, _ = remove_tree(opener(location), first=_FIRST, check=check)
        except StreambankError as error:
            if error.code in _OVER:
                raise
            _log.warning("%s could not be removed: %s", location, error.message)
            failed[location] = f"{location} could not be removed: {error.message}"
            continue
        if files:
            removed.append(location)
    stays = kept | failed.keys()
    gone = [number for number, directories in begun[:-1] if stays.isdisjoint(directories)]
    forget_refreshes(control, gone)
    return removed, list(failed.values())


def _places(made: Mapping[str, CopiedQuery]) -> Iterator[str]:
    for one in made.values():
        yield one.generation.location
        yield from one.generation.new_sinks.values()


def _is_of(copy: Job, location: str) -> bool:
    assert copy.copy is not None
    bases = (*copy.queries.values(), *copy.copy.outputs.values())
    return any(_SUFFIX.fullmatch(location.removeprefix(base)) for base in bases)


def _record(copy: Job, control: JobControl, location: str, by: Mapping[str, str]) -> None:
    """Leave behind that a generation's directory goes, so that it never counts again."""
    for name, base in copy.queries.items():
        found = _SUFFIX.fullmatch(location.removeprefix(base))
        generations = control.generations(name)
        if found is None or int(found[1]) not in generations.records.numbers():
            continue  # an output, or what a killed refresh has left: it never counted
        last = generations.removals.latest()
        if last is None or last.data.get("location") != location:
            generations.record_removal(int(found[1]), location, by=by, why="the copy was made again")
