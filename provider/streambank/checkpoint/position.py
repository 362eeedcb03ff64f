"""How far a query's checkpoint is, at a glance: the newest planned and the newest committed batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streambank.storage import open_store
from streambank.storage.store import Store

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,18})\Z")


@dataclass(frozen=True, slots=True)
class Batches:
    """The newest batch of the offset log and that of the commit log; None where there is none."""

    planned: int | None
    committed: int | None

    @property
    def at_boundary(self) -> bool:
        """Whether no batch was begun that was not finished."""
        return self.planned == self.committed


def is_batch(name: str) -> bool:
    """Whether Spark takes a name in a log for that of a batch: what its Long does not hold is none of its.

    Source: `isBatchFile` of `HDFSMetadataLog`, which passes over what `toLong` refuses.
    """
    return _NUMBER.match(name) is not None and int(name) < 1 << 63


def batches_of(location: str) -> Batches:
    """The batches of the checkpoint at a location; none where it does not exist."""
    return batches_in(open_store(location))


def batches_in(store: Store) -> Batches:
    """The same of an opened directory."""
    # Committed first: what is planned meanwhile may only make a checkpoint look busier than it is.
    committed = max(batches_in_log(store, "commits"), default=None)
    return Batches(max(batches_in_log(store, "offsets"), default=None), committed)


def batches_in_log(store: Store, log: str) -> set[int]:
    """The batches of which `offsets` or `commits` has an entry."""
    return {int(name) for name in store.names(log) if is_batch(name)}
