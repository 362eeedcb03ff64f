"""The directories that the queries of a live job read files from: nothing of a copy may lie there.

Spark's file source takes whatever lies in its directory: a live query would read what the copy writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from streambank.control.progress import last_progress
from streambank.core.errors import InputError, StreambankError
from streambank.declaration.places.copies import are_apart
from streambank.storage import followed, is_inside, normalize_location

if TYPE_CHECKING:
    from streambank.control.control import JobControl
    from streambank.declaration.declaration import Job

_FILES = re.compile(r"File(?:Stream)?Source\[(?P<path>.+)\]", re.DOTALL)
"""Spark's words for a file source: in the plan of a query, and in the progress of each batch."""
_WILDCARD = re.compile(r"[*?\[{]")
_CHOICE = re.compile(r"\{[^}]*\}?")


def live_inputs(job: Job, control: JobControl) -> list[str]:
    """What the file sources of a live job read: URIs, perhaps with the wildcards of Hadoop.

    Args:
        control: Its records. Where they do not say what a query reads, nothing is known of it.

    Raises:
        StreambankError: What its last driver learnt of a query cannot be read.
    """
    found = set()
    for name in job.queries:
        for text in _described(control, name):
            match = _FILES.fullmatch(text.strip())
            if match is not None and (place := _location(match["path"])) is not None:
                found.add(place)
    return sorted(found)


def is_read_from(place: str, pattern: str) -> bool:
    """Whether a file source reads what lies in a directory, or reads from below it."""
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None:
        return not are_apart(place, pattern)
    fixed = pattern[: wildcard.start()].rpartition("/")[0]
    wild = _CHOICE.sub("*", pattern[len(fixed) + 1 :]).split("/")
    if is_inside(fixed, place):
        return True
    if not is_inside(place, fixed):
        return False
    folders = followed(place)[len(followed(fixed)) :].strip("/").split("/")
    last = folders[-1]
    return any(all(map(fnmatchcase, [*folders[:-1], name], wild)) for name in (last, f"{last}.g0002"))


def _described(control: JobControl, query: str) -> Iterator[str]:
    facts = control.query_facts(query) or {}
    yield from _texts(facts.get("sources"))
    try:
        last = last_progress(control.store, query)
    except StreambankError:
        return
    sources = None if last is None else last.progress.get("sources")
    if isinstance(sources, list):
        yield from _texts([one.get("description") for one in sources if isinstance(one, dict)])


def _texts(found: Any) -> Iterator[str]:
    yield from (one for one in found if isinstance(one, str)) if isinstance(found, list | tuple) else ()


def _location(path: str) -> str | None:
    """A path as a URI; None for one that depends on the folder of the driver."""
    if not path.startswith("/") and ":/" not in path:
        return None
    try:
        return normalize_location(path)
    except InputError:
        return None
