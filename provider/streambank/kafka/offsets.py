"""Offsets of a Kafka source as Spark writes them: `{"flights":{"0":12500}}`, each the next to read."""

from __future__ import annotations

from collections.abc import Mapping

from streambank.checkpoint.text import load_json
from streambank.core.errors import FormatError
from streambank.core.json_text import is_whole_number

Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset."""
Spot = tuple[str, int]
"""A topic and one of its partitions."""


def parse_offsets(text: object) -> Offsets | None:
    """The offsets in a source's JSON; None where it does not count by topic and partition."""
    if not isinstance(text, str):
        return None
    try:
        said = load_json(text)
    except FormatError:
        return None
    if not isinstance(said, dict) or not said:
        return None
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in said.items():
        if not isinstance(partitions, dict) or not partitions:
            return None
        for partition, offset in partitions.items():
            if not is_whole_number(partition) or not isinstance(offset, int) or isinstance(offset, bool):
                return None
            found.setdefault(topic, {})[int(partition)] = offset
    return found


def spots(offsets: Offsets) -> dict[Spot, int]:
    """The same by topic and partition together, sorted."""
    return {
        (topic, partition): offset
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    }
