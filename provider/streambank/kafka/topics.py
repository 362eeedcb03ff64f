"""Whether a topic is the one that a query read, or another one of its name."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

from streambank.kafka.broker import Topic
from streambank.kafka.offsets import Offsets

_FIELD = "kafka"
_LONGEST_NAME = 249
"""Characters of a topic's name."""
_MOST_STEPS = _LONGEST_NAME**3
"""So many ways to match a name are tried within a second."""
_NO_TOPIC = ""
"""The id of no topic: that of the one that was read is not known, and it is not the one that was there."""


def ids_of(
    offsets: Offsets, kept: Mapping[str, Any], earlier: Mapping[str, Any] | None
) -> Mapping[str, frozenset[str]]:
    """The ids that each topic had when the query read it: more than one is as good as none of them.

    A cluster is asked after the batch was committed. Where the topic was made again before that, the id is of
    the new topic and the offsets are of the old one. They tell so as long as they lie beyond its end; after
    that, the savepoint before does, which the query has gone on from: it names another id.
    """
    was = topics_of(kept)
    before = earlier.get(_FIELD) if earlier is not None else None
    former = topics_of(before) if isinstance(before, Mapping) else {}
    found = {}
    for topic, partitions in offsets.items():
        known = [was.get(topic, {}).get("topic_id")]
        if _outgrown(was.get(topic, {})):
            known.append(_NO_TOPIC)
        if _goes_on(partitions, former.get(topic, {})):
            known.append(former[topic].get("topic_id"))
        found[topic] = frozenset(one for one in known if isinstance(one, str))
    return found


def _outgrown(was: Mapping[str, Any]) -> bool:
    """Whether the query was to read on beyond a partition's end when the savepoint was taken."""
    return any(
        isinstance(partition.get("next"), int)
        and isinstance(partition.get("latest"), int)
        and partition["next"] > partition["latest"]
        for partition in partitions_of(was).values()
    )


def _goes_on(partitions: Mapping[int, int], former: Mapping[str, Any]) -> bool:
    """Whether no offset is less than it was before; a query that begins in a new topic has such ones."""
    ends = {number: one.get("next") for number, one in partitions_of(former).items()}
    known = [(offset, ends[str(one)]) for one, offset in partitions.items() if str(one) in ends]
    return bool(known) and all(isinstance(end, int) and offset >= end for offset, end in known)


def is_another(found: Topic, ids: frozenset[str]) -> bool:
    """Whether a topic is not the one that the query read, whose ids are those that `ids_of` gives."""
    return _NO_TOPIC in ids or (found.topic_id is not None and bool(ids) and ids != {found.topic_id})


def topics_of(kept: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """What a savepoint keeps of each topic."""
    return _objects(kept.get("topics"))


def partitions_of(topic: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """What a savepoint keeps of each partition of a topic, by its number as text."""
    return _objects(topic.get("partitions"))


def _objects(said: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(said, Mapping):
        return {}
    return {str(name): one for name, one in said.items() if isinstance(one, Mapping)}


def topic_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""The pattern; None where Python cannot read it, or would read it otherwise than Java.

    None, too, where a name may keep it busy for long: whoever wrote the savepoint chose the pattern.

    Topics are made of ASCII letters, digits, `.`, `_` and `-`, so only what is written in a pattern may
    differ: classes within classes and their intersections, `\Q...\E`, `\p{...}` and names of groups are
    Java's own.
    """
    if "&&" in pattern or _nested_class(pattern):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = re.compile(pattern, re.ASCII)
        return compiled if _steps(pattern) <= _MOST_STEPS else None
    except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError):
        return None


_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:[:=!>]|<[=!]|[ims-]+[:)])|.", re.DOTALL)
_REPEAT = re.compile(r"([*+?]|\{[0-9]*,?[0-9]*\})[?+]?")


def _steps(pattern: str) -> float:
    """At most so many ways to match a topic's name: infinite where what is repeated has several itself."""
    outer: list[tuple[float, float]] = []  # of each open group: ways of the branches before, and of this one
    before, ways, place = 0.0, 1.0, 0
    while place < len(pattern):
        repeat = _REPEAT.match(pattern, place)
        if repeat is not None:
            ways *= 2 if repeat[1] == "?" else _LONGEST_NAME
            place = repeat.end()
            continue
        atom = _ATOM.match(pattern, place)
        assert atom is not None
        place = atom.end()
        if atom[0] == "(" and pattern.startswith("?", place):
            return math.inf  # a group of a kind that is not known here, such as `(?x)`
        if atom[0] == "|":
            before, ways = before + ways, 1.0
        elif atom[0] == ")":
            inside = before + ways
            before, ways = outer.pop()
            repeat = _REPEAT.match(pattern, place)
            if inside > 1 and repeat is not None and repeat[1] != "?":
                return math.inf
            ways *= inside
        elif atom[0].startswith("(") and not atom[0].endswith(")"):
            outer.append((before, ways))
            before, ways = 0.0, 1.0
    return before + ways


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
