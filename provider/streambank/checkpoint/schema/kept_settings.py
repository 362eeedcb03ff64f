"""Settings that a checkpoint keeps, so that another value in a declaration changes nothing.

Spark writes them into the offset log with the first batch of a query, and each start of a query with state
takes them from there, whatever its session says (tests/streambank/checkpoint/schema/test_kept_settings.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streambank.checkpoint.schema.compatibility import KEPT_SETTINGS
from streambank.checkpoint.shape import Closure

_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True, slots=True)
class KeptSetting:
    """A setting whose declared value has no effect: the one that the checkpoint kept counts."""

    name: str
    kept: str
    declared: str
    hdfs_backed: bool

    @property
    def cause(self) -> str:
        return f"{self.name} is declared as {self.declared}, and the checkpoint keeps {self.kept}."

    def way_out(self, job: str) -> str:
        if self.hdfs_backed and self.name in (_PARTITIONS, _PROVIDER):
            more = f" --partitions {self.declared}" if self.name == _PARTITIONS else ""
            return (
                f"HDFS-backed state becomes RocksDB by `streambank state migrate --provider rocksdb{more}` "
                "(docs/howto/migrate-state.md)."
            )
        if self.name == _PARTITIONS:
            return f"To change it: `streambank job rescale {job} --partitions {self.declared}`."
        return "To change it, start the query with a new checkpoint."


def kept_settings(closure: Closure, declared: Mapping[str, str]) -> list[KeptSetting]:
    """Declared settings to which a query does not listen, since its checkpoint keeps other values.

    None of a query without state: a number of partitions counts from its next start on.
    """
    if not closure.operators:
        return []
    kept = closure.offset_conf
    return [
        KeptSetting(name, kept[name], declared[name], closure.spark.provider == "hdfs")
        for name in KEPT_SETTINGS
        if name in kept and name in declared and declared[name].strip() != kept[name]
    ]
