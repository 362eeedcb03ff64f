"""What changes in a checkpoint's small files when its state is rewritten elsewhere, after the same batch.

Every other byte stays: offsets and watermark are those of the batch, so the query goes on after it, and its
sinks have nothing to notice. The one addition is a setting in the offset log of the batch that names where
the state comes from. Spark passes over settings that it does not know (OffsetSeqMetadata.setSessionConf) and
leaves them out of the next batch. By it this batch is told from the one it was made from, which has the same
number and the same offsets: a savepoint's id is made of these files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambank.checkpoint.logs import UniqueIds, parse_commit, parse_offsets
from streambank.checkpoint.operators import parse_operator_metadata
from streambank.checkpoint.text import compact, decode, encode, load_json, with_document

DERIVED_FROM = "spark.streambank.derivedFrom"
"""The setting that says which savepoint the state was made from, and by what."""


def with_conf(data: bytes, path: str, conf: Mapping[str, str]) -> bytes:
    """An entry of the offset log with some settings set.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    parse_offsets(data, path)
    version, batch, rest = decode(data, path).split("\n", 2)
    document = load_json(batch, path)
    document["conf"] = {**document.get("conf", {}), **conf}
    return encode("\n".join((version, compact(document), rest)), path)


def with_unique_ids(data: bytes, path: str, unique_ids: UniqueIds) -> bytes:
    """An entry of the commit log, of version 2 or later, that names other state versions.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    parse_commit(data, path)
    ids = {
        str(operator): [list(stores) for stores in partitions]
        for operator, partitions in sorted(unique_ids.items())
    }
    return with_document(data, path, lambda document: document.update(stateUniqueIds=ids))


def with_partitions(data: bytes, path: str, partitions: int) -> bytes:
    """Operator metadata that says another number of state partitions; version 1 stays, as Spark leaves it.

    Operators that run in one partition whatever the setting says have to be left out by the caller.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    if parse_operator_metadata(data, path).version < 2:
        return data

    def change(document: Any) -> None:
        for store in document["stateStoreInfo"]:
            store["numPartitions"] = partitions

    return with_document(data, path, change)
