"""Which topics a `subscribePattern` finds: a pattern of Java's, as far as Python reads it in the same way."""

from __future__ import annotations

import re
import warnings


def topic_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""The pattern; None where Python cannot read it, or would read it otherwise than Java.

    Topics are made of ASCII letters, digits, `.`, `_` and `-`, so only what is written in a pattern may
    differ: classes within classes and their intersections, `\Q...\E`, `\p{...}` and names of groups are
    Java's own.

    Args:
        pattern: As the query gave it to Spark; all of a topic's name has to match.
    """
    if "&&" in pattern or _nested_class(pattern):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(pattern, re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError):
        return None


def _nested_class(pattern: str) -> bool:
    """Whether a `[` stands within `[...]`, where Java begins another class and Python reads a character."""
    inside, place = False, 0
    while place < len(pattern):
        one = pattern[place]
        if one == "\\":
            place += 1
        elif one == "[":
            if inside:
                return True
            inside = True
        elif one == "]":
            inside = False
        place += 1
    return False
