"""What the savepoint before tells of a query's Kafka: the topics that it went on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambank.core.errors import StreambankError
from streambank.kafka.recording import KIND
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository

_MOST_EARLIER = 8
"""How many savepoints of before are looked at for one whose Kafka was asked."""

Before = Mapping[str, Mapping[str, Any]]
"""Sources of a savepoint by their names in the offset log, as its manifest has them."""


def sources_before(repository: Repository, manifest: Manifest) -> Before:
    """The sources of the query's newest savepoint before one whose Kafka was asked.

    Args:
        repository: Where the savepoints are.
        manifest: The savepoint.

    Returns:
        Nothing where that savepoint is gone, or where this one has no Kafka source.
    """
    if not any(isinstance(one, Mapping) and one.get(KIND) is not None for one in manifest.sources):
        return {}
    one = manifest
    try:
        for _ in range(_MOST_EARLIER):
            before = one.parent if one.derived_from is None else one.derived_from
            if before is None:
                break
            one = repository.load(manifest.job, before)
            if one.query_id != manifest.query_id:
                break
            found = {str(each.get("source")): each for each in one.sources if isinstance(each, Mapping)}
            asked = any(_asked(each) for each in found.values())
            if one.batch < manifest.batch and asked:
                return found
    except StreambankError:
        pass  # it was expired, or is damaged, which `verify` tells: then nothing is known of before
    return {}


def _asked(record: Mapping[str, Any]) -> bool:
    kept = record.get(KIND)
    return isinstance(kept, Mapping) and kept.get("asked_at") is not None
