"""`OLD=NEW`: which new output directory a restored query gets instead of a file sink."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streambank.core.errors import InputError

_OLD_NEW = re.compile(r"(?P<old>.+?)=(?P<new>(?:/|[A-Za-z][A-Za-z0-9+.-]*://).*|[^=]+)\Z", re.DOTALL)


def parse_new_sinks(given: Iterable[str]) -> dict[str, str]:
    """Split each OLD=NEW; either may have an equals sign of its own where NEW is absolute.

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
                f"{each!r} does not say which new directory one file sink gets.",
                code="bad-new-sink",
                hint="Give OLD=NEW once for each file sink, with absolute paths or URIs.",
            )
        found[parts["old"]] = parts["new"]
    return found
