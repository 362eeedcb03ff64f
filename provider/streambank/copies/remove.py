"""Removing the directories of a copy that its policy no longer keeps, and what killed refreshes have left.

Only what a refresh has named and claimed before it filled it goes (`control/copies.py`, `claims`), and of
that only what lies where the copy is declared now: `<checkpoint>.g0002`, `<output>.g0002`. What is in use
stays, and what a restore on the copy has made; where the records do not say what that is, everything stays.
What is not the copy's is left out of the records from then on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from itertools import islice

from streambank.control.control import JobControl
from streambank.control.copies import begun_refreshes, committed_refreshes, forget_refreshes
from streambank.control.marker import read_marker
from streambank.copies.claims import is_claimed, release
from streambank.core.errors import StreambankError
from streambank.declaration.declaration import Job
from streambank.storage import open_store
from streambank.work.remove import remove_tree

_log = logging.getLogger(__name__)

_SUFFIX = re.compile(r"\.g([0-9]{4,})$")
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
    check_removable: Callable[[str], None],
    by: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """Remove what the policy of a copy no longer keeps.

    Args:
        control: Its records, with its operation lock held.
        check: Raises where the lock was lost.
        check_removable: Raises where it was lost, or a location is not apart from what is live.

    Returns:
        The locations that were removed, and in sentences what stays. The next refresh tries again what could
        not be removed, and leaves alone what is not the copy's.

    Raises:
        ConflictError: The lock was lost.
    """
    assert copy.copy is not None
    removed: list[str] = []
    failed: dict[str, str] = {}
    others: list[str] = []
    try:
        begun = list(begun_refreshes(control))
        kept = _kept(copy, control, {one for _, directories in begun for one in directories})
    except StreambankError as error:
        if error.code in _OVER:
            raise
        return [], [f"Nothing was removed, since it is not known what the copy uses: {error.message}"]
    for location in dict.fromkeys(one for _, directories in begun for one in directories):
        if location in kept:
            continue
        try:
            if not _is_own(copy, location) or not is_claimed(location, control):
                if any(open_store(location).list()):
                    others.append(f"{location} is not claimed by the copy where it is declared, so it stays.")
                continue
            check_removable(location)
            _record(copy, control, location, by)
            files, _ = remove_tree(open_store(location), first=_FIRST, check=check)
            release(location)
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
    return removed, [*others, *failed.values()]


def _kept(copy: Job, control: JobControl, named: set[str]) -> set[str]:
    """Which of the directories that refreshes have named stay, and whatever else is in use."""
    assert copy.copy is not None
    kept: set[str] = set()
    counted: set[str] = set()
    for name in copy.queries:
        generations = control.generations(name).all()
        counted.update(one for each in generations for one in each.places())
        kept.update(one for each in generations[-1:] for one in each.places())
    refreshes = committed_refreshes(control)
    for made in islice(refreshes, copy.copy.keep):
        kept.update(one for each in made.values() for one in each.generation.places())
    # A number that a killed refresh has named may be that of a restore, which no refresh may remove.
    unknown = (named & counted) - kept
    while unknown and (made_before := next(refreshes, None)) is not None:
        unknown -= {one for each in made_before.values() for one in each.generation.places()}
    return kept | unknown


def _is_own(copy: Job, location: str) -> bool:
    """Whether it is a directory of a place that the copy declares, and that no marker gives to another job.

    Who may write the records of a copy must not choose what is removed.
    """
    assert copy.copy is not None
    for base in (*copy.queries.values(), *copy.copy.outputs.values()):
        if _SUFFIX.fullmatch(location.removeprefix(base)):
            marker = read_marker(base)
            return marker is None or marker.job == copy.name
    return False


def number_of(directory: str) -> int:
    """The number of the refresh that named a directory; 0 where it has none."""
    found = _SUFFIX.search(directory)
    return int(found[1]) if found is not None else 0


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
