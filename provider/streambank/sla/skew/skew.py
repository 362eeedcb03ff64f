"""How evenly the state of one store is spread over its partitions, as far as files tell.

Skew is the largest partition over the mean of all, empty ones included: 1.0 is even, and the number of
partitions is the most there can be. A batch takes as long as its largest partition. It is looked at by rows,
where the files count them, and always by bytes: many rows of one key show in both, one huge value only in
bytes.

Rows are counted in RocksDB's snapshots (`numKeys` in the zip's metadata, over all column families), so of a
partition they are known where its newest snapshot is of the very version; what changes after it did to the
number of rows only Spark can tell. HDFS-backed files count nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streambank.checkpoint.shape import PartitionState

DEFAULT_LIMIT = 3.0
"""From here on a store is called uneven: the largest partition is three times the mean."""
FEW_BYTES = 1_000_000
"""By bytes alone a store smaller than this is not called uneven: its files are mostly overhead."""
HOWTO = "docs/howto/skew.md"

Measure = Literal["rows", "bytes"]

_BY_CHANCE = 0.01
# What Spark writes where there is nothing to write: a stream that holds only its end mark (LZ4Block framing).
_EMPTY_FILE_BYTES = {"lz4": 46}


@dataclass(frozen=True, slots=True)
class StoreSkew:
    """One store of one operator, over its partitions.

    Attributes:
        name: Spark's name of it; None where Spark 3.5 left no operator metadata.
        codec: Compression of its files; by it empty HDFS-backed files are told.
    """

    operator: int
    name: str | None
    store: str
    parts: tuple[PartitionState, ...]
    codec: str | None = None
    limit: float = DEFAULT_LIMIT

    @property
    def rows(self) -> int | None:
        """Rows of all partitions; None where those of one are not known."""
        known = self._values("rows")
        return None if known is None else sum(known)

    @property
    def bytes(self) -> int:
        """Bytes that hold rows: snapshots' SST files or HDFS-backed snapshots, and the changes after them."""
        return sum(part.bytes for part in self.parts)

    @property
    def row_skew(self) -> float | None:
        """Rows of the largest partition over the mean; None where rows are not known, or there are none."""
        return _skew(self._values("rows"))

    @property
    def byte_skew(self) -> float | None:
        """Bytes of the largest partition over the mean; None where there are none."""
        return _skew(self._values("bytes"))

    @property
    def by(self) -> Measure:
        """What the store is judged by: whichever is uneven, and of both whichever is spread less evenly."""
        rows = (self._is_uneven("rows"), self.row_skew or 0.0)
        return "rows" if rows >= (self._is_uneven("bytes"), self.byte_skew or 0.0) else "bytes"

    @property
    def skew(self) -> float | None:
        """The skew by that measure; None where the store is empty."""
        return self._skew_by(self.by)

    @property
    def largest(self) -> int | None:
        """The largest partition by that measure; None where the store is empty."""
        values = self._values(self.by)
        return None if not values or not max(values) else self.parts[values.index(max(values))].partition

    @property
    def chance(self) -> float | None:
        """The skew that chance gives to so many keys of one row at most; None where rows are not known."""
        return None if self.rows is None else chance_skew(self.rows, len(self.parts))

    @property
    def uneven(self) -> bool:
        """Whether the skew is above the limit, and neither chance nor the overhead of small files is why."""
        return self._is_uneven(self.by)

    @property
    def mean(self) -> float | None:
        """What a partition has on average, by the measure that the store is judged by; None where empty."""
        values = self._values(self.by)
        return sum(values) / len(values) if values and sum(values) else None

    def is_empty(self, part: PartitionState) -> bool | None:
        """Whether a partition holds no rows; None where its files do not tell."""
        if part.rows is not None:
            return part.rows == 0
        if part.base_rows is not None and part.base_version:
            # RocksDB, with changes after the snapshot: they may have removed every row, or added the first.
            return None
        empty_bytes = _EMPTY_FILE_BYTES.get(self.codec or "")
        if empty_bytes is None:
            return None
        if part.base_bytes in (0, empty_bytes) and part.largest_change_bytes in (0, empty_bytes):
            return True
        return False if part.base_bytes > empty_bytes and not part.change_files else None

    @property
    def empty(self) -> list[int]:
        """Partitions that are known to hold no rows."""
        return [part.partition for part in self.parts if self.is_empty(part)]

    @property
    def unknown(self) -> list[str]:
        """What the files do not tell, in sentences."""
        said = []
        changed = [part for part in self.parts if part.rows is None and part.base_rows is not None]
        uncounted = len(self.parts) - len(changed) - sum(part.rows is not None for part in self.parts)
        of = f"of {len(self.parts)} partitions"
        if changed:
            said.append(
                f"{len(changed)} {of} have changed since their newest snapshots. It is not known how many "
                "rows that added or removed, and bytes of changes count a row as often as it changed."
            )
        if uncounted:
            said.append(f"The files of {uncounted} {of} do not count rows.")
        return said

    @property
    def advice(self) -> str:
        """What there is to do, in a sentence or two."""
        if len(self.parts) == 1:
            return "It has one partition, so there is nothing to spread."
        if self.skew is None or len(self.empty) == len(self.parts):
            return "It is empty."
        empty = f" {len(self.empty)} of {len(self.parts)} partitions hold no rows." if self.empty else ""
        if self.uneven:
            return (
                f"Partition {self.largest} has {self.skew:.1f} times the mean by {self.by}.{empty} "
                "The program inspect_state names the keys that cause this: spread a hot key by a salt; if "
                f"there are few keys, use fewer partitions or a finer key ({HOWTO})."
            )
        if self.skew <= self.limit:
            return f"It is spread evenly enough.{empty}"
        why = (
            "there is so little of it that its files are mostly overhead"
            if self.chance is None or self.skew > self.chance
            else f"so few rows are spread like that by chance (up to {self.chance:.1f})"
        )
        return f"The skew of {self.skew:.1f} by {self.by} means nothing: {why}.{empty}"

    def to_dict(self) -> dict[str, Any]:
        by, mean = self.by, self.mean
        return {
            "operator": self.operator,
            "name": self.name,
            "store": self.store,
            "rows": self.rows,
            "bytes": self.bytes,
            "skew": _rounded(self.skew),
            "by": by,
            "row_skew": _rounded(self.row_skew),
            "byte_skew": _rounded(self.byte_skew),
            "chance": _rounded(self.chance),
            "largest": self.largest,
            "empty": len(self.empty),
            "uneven": self.uneven,
            "unknown": self.unknown,
            "advice": self.advice,
            "partitions": [self._part_to_dict(part, by, mean) for part in self.parts],
        }

    def _part_to_dict(self, part: PartitionState, by: Measure, mean: float | None) -> dict[str, Any]:
        value = part.rows if by == "rows" else part.bytes
        return {
            "partition": part.partition,
            "rows": part.rows,
            "bytes": part.bytes,
            "times_mean": _rounded(value / mean) if value is not None and mean else None,
            "empty": self.is_empty(part),
            "snapshot_version": part.base_version or None,
            "snapshot_rows": part.base_rows if part.base_version else None,
            "snapshot_bytes": part.base_bytes,
            "changes": part.change_files,
            "change_bytes": part.change_bytes,
        }

    def _skew_by(self, measure: Measure) -> float | None:
        return self.row_skew if measure == "rows" else self.byte_skew

    def _is_uneven(self, measure: Measure) -> bool:
        skew, chance = self._skew_by(measure), self.chance
        if skew is None or self.rows == 0 or skew <= self.limit or (chance is not None and skew <= chance):
            return False
        return measure == "rows" or self.bytes >= FEW_BYTES

    def _values(self, measure: Measure) -> list[int] | None:
        """The measure of each partition; None where it is not known of one."""
        if measure == "bytes":
            return [part.bytes for part in self.parts]
        known = [part.rows for part in self.parts if part.rows is not None]
        return known if len(known) == len(self.parts) else None


def chance_skew(keys: int, partitions: int) -> float:
    """The largest skew that hashing gives to keys of one row each, 99 times of 100.

    The partition that gets most of `keys` evenly hashed keys is bounded by Chernoff's bound of the Poisson
    distribution, so the true figure is a little smaller. A few keys are spread unevenly by nature.

    Returns:
        At least 1.0, and at most the number of partitions.
    """
    if keys == 0 or partitions < 2:
        return 1.0
    mean = keys / partitions
    rarity = math.log(partitions / _BY_CHANCE)
    low, high = mean, float(keys)
    for _ in range(100):
        middle = (low + high) / 2
        if middle * math.log(middle / mean) - middle + mean < rarity:
            low = middle
        else:
            high = middle
    return max(1.0, high / mean)


def _skew(values: Sequence[int] | None) -> float | None:
    return max(values) * len(values) / sum(values) if values and sum(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
