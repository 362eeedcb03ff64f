"""Whose the directories of a refresh are: a marker beside each, written before anything is put into it.

Another installation may declare the same places, and its refreshes count their directories alike. So a
refresh claims each directory by the file `<directory>.streambank.json`, which is never replaced. Only what is
claimed by the copy itself is filled, and later removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streambank.control.marker import (
    Marker,
    create_marker,
    marker_location,
    read_marker,
    records_root,
    remove_marker,
)
from streambank.control.place import moved_to
from streambank.core.errors import ConflictError, FormatError
from streambank.storage import open_store, service_name

if TYPE_CHECKING:
    from streambank.control.control import JobControl
    from streambank.control.generations import Generation


def claim(location: str, query: str, generation: Generation, control: JobControl) -> None:
    """Claim a directory for a copy, before it is filled.

    Raises:
        ConflictError: Another one has claimed it (code `generation-moved`).
    """
    marker = Marker(
        job=control.name,
        query=query,
        generation=generation.number,
        location=location,
        control=records_root(control),
        by=generation.by,
    )
    if create_marker(location, marker) or is_claimed(location, control):
        return
    raise ConflictError(
        f"Another copy has claimed {location} meanwhile: {marker_location(location)} says so.",
        code="generation-moved",
        hint="Make the copy again: it then leaves that directory out.",
    )


def is_claimed(location: str, control: JobControl) -> bool:
    """Whether a directory is claimed by the copy with these records."""
    marker = _claim_of(location)
    if marker is None or service_name(marker.location) != service_name(location):
        return False
    claimed = f"{marker.control}/{marker.job}"
    return marker.job == control.name and (
        service_name(claimed) == service_name(control.store.uri)
        or moved_to(open_store(claimed)) == records_root(control)
    )


def is_taken(location: str, control: JobControl) -> bool:
    """Whether a directory cannot be filled: there is something in it, or it is claimed by another copy."""
    if any(open_store(location).list()):
        return True
    try:
        return read_marker(location) is not None and not is_claimed(location, control)
    except FormatError:
        return True


def release(location: str) -> None:
    """Drop the claim on a directory that is gone."""
    remove_marker(location)


def _claim_of(location: str) -> Marker | None:
    try:
        return read_marker(location)
    except FormatError:
        return None
