"""Why a file of a checkpoint is dead, for people and for undo, and in which order dead files are moved."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why Spark will never read a file again."""

    OLD_LOG_ENTRY = "old-log-entry"
    OLD_OPERATOR_METADATA = "old-operator-metadata"
    ABANDONED_PARTITION = "abandoned-partition"
    ABANDONED_ATTEMPT = "abandoned-attempt"
    OTHER_ATTEMPT = "other-attempt"
    SUPERSEDED = "superseded"
    UNNAMED_DATA = "unnamed-data"
    TEMPORARY = "temporary"
    ORPHAN_CHECKSUM = "orphan-checksum"


WHY = {
    Reason.OLD_LOG_ENTRY: "an entry of the offset or commit log before the batches that are kept",
    Reason.OLD_OPERATOR_METADATA: "operator metadata older than what the batches that are kept were run with",
    Reason.ABANDONED_PARTITION: "a partition beyond the number that the state has",
    Reason.ABANDONED_ATTEMPT: "state of a batch that was never committed, and that is run again",
    Reason.OTHER_ATTEMPT: "state of an attempt at a batch that another attempt committed",
    Reason.SUPERSEDED: "state older than what the batches that are kept start from",
    Reason.UNNAMED_DATA: "a data file of RocksDB that no snapshot names that is kept",
    Reason.TEMPORARY: "a write that was never finished",
    Reason.ORPHAN_CHECKSUM: "a checksum of a file that is not there",
}
"""Each reason as a sentence without its end."""

NEVER_NEEDED = frozenset({Reason.ABANDONED_ATTEMPT, Reason.TEMPORARY, Reason.ORPHAN_CHECKSUM})
"""What no batch ever needed: an undo may leave it where it is, if something else has its name by now."""

IN_ORDER = frozenset({Reason.OLD_LOG_ENTRY})
"""What goes one after the other, and comes back the other way round: a log never has a gap."""

_STAGES = (
    # What names other files goes before what it names: nobody who looks in the middle finds it torn.
    {Reason.OLD_LOG_ENTRY, Reason.OLD_OPERATOR_METADATA},
    {Reason.ABANDONED_PARTITION, Reason.ABANDONED_ATTEMPT, Reason.OTHER_ATTEMPT, Reason.SUPERSEDED},
    {Reason.UNNAMED_DATA, Reason.TEMPORARY, Reason.ORPHAN_CHECKSUM},
)


def stage(reason: Reason) -> int:
    """When files of a reason go: those of a lower stage first."""
    return next(number for number, reasons in enumerate(_STAGES) if reason in reasons)
