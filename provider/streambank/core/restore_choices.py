"""What a person writes about the sinks of a restore: `PATH=CHOICE`, `QUERY=DIR` and `OLD=NEW`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from streambank.core.choices import SINK_CHOICES, SinkChoice
from streambank.core.errors import InputError


def parse_sink_choices(given: Iterable[str]) -> dict[str, SinkChoice]:
    """Split each PATH=CHOICE; the path may have equals signs of its own.

    Raises:
        InputError: One says no such thing, or a sink is named twice (code `bad-sink-choice`).
    """
    found: dict[str, SinkChoice] = {}
    for each in given:
        path, _, text = each.rpartition("=")
        choice = next((one for one in SINK_CHOICES if one == text), None)
        if not path or choice is None or path in found:
            raise InputError(
                f"{each!r} does not name one sink and what is done with it.",
                code="bad-sink-choice",
                hint=f"Give PATH=CHOICE once for each sink, with a choice of: {', '.join(SINK_CHOICES)}.",
            )
        found[path] = choice
    return found


def parse_file_sinks(given: Iterable[str], queries: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Split each QUERY=DIR; DIR alone will do for a job with one query, and may have an equals sign itself.

    Raises:
        InputError: One does not say which query writes it (code `bad-file-sink`).
    """
    found: dict[str, tuple[str, ...]] = {}
    for each in given:
        query, _, place = each.partition("=")
        if query not in queries:
            only = next(iter(queries)) if len(queries) == 1 and not _OTHER_QUERY.match(each) else ""
            query, place = only, each
        if not query or not place:
            raise InputError(
                f"{each!r} does not say which query writes to which directory.",
                code="bad-file-sink",
                hint=f"Give QUERY=DIR once for each directory, with a query of: {', '.join(queries)}.",
            )
        found[query] = (*found.get(query, ()), place)
    return found


_OTHER_QUERY = re.compile(r"[^/=]+=(?:/|[A-Za-z][A-Za-z0-9+.-]*://)")
"""A mistyped query before a directory that is named whole, which is no directory of such a name."""
_OLD_NEW = re.compile(r"(?P<old>.+?)=(?P<new>(?:/|[A-Za-z][A-Za-z0-9+.-]*://).*|[^=]+)\Z", re.DOTALL)


def parse_new_sinks(given: Iterable[str]) -> dict[str, str]:
    """Split each OLD=NEW; either may have its own equals sign where NEW is absolute.

    Returns:
        The file sinks of the savepoint, each with its new directory, both as they were written.

    Raises:
        InputError: One says no such thing, or a file sink is named twice (code `bad-new-sink`).
    """
    found: dict[str, str] = {}
    for each in given:
        parts = _OLD_NEW.match(each)
        if parts is None or parts["old"] in found:
            raise InputError(
                f"{each!r} does not name one file sink and its new directory.",
                code="bad-new-sink",
                hint="Give OLD=NEW once for each file sink, with absolute paths or URIs.",
            )
        found[parts["old"]] = parts["new"]
    return found
