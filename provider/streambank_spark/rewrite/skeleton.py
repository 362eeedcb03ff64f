"""Everything of a checkpoint but its state, in a separate directory: what state is rewritten into.

The batch stays the same one (streambank/checkpoint/rewritten.py), and the directory holds it alone, so a
query that starts from it goes on with the next batch. Until `metadata` is there, which comes last, no
query starts from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streambank.checkpoint.logs import UniqueIds
from streambank.checkpoint.paths import needs_rewrite, rewrite_paths
from streambank.checkpoint.rewritten import DERIVED_FROM, with_conf, with_partitions, with_unique_ids
from streambank.checkpoint.shape import PARTITIONS, Closure
from streambank.storage.store import Store

_METADATA = "metadata"
_CARRIED = ("offsets", "commits", "source", "operator", "schema")


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A directory that waits for its state."""

    source: Store
    target: Store
    batch: int

    @contextmanager
    def finished(self, unique_ids: UniqueIds | None) -> Iterator[None]:
        """Make it a checkpoint, when all state is in place; none any more where the block fails.

        Args:
            unique_ids: The new state versions, for checkpoint format v2.
        """
        if unique_ids is not None:
            path = f"commits/{self.batch}"
            self.target.write(path, with_unique_ids(self.target.read(path), path, unique_ids))
        self.target.write(_METADATA, self.source.read(_METADATA))
        try:
            yield
        except BaseException:
            self.target.delete(_METADATA)
            raise


def lay_skeleton(
    source: Store,
    target: Store,
    closure: Closure,
    *,
    derived_from: str,
    partitions: int | None = None,
    alone: Collection[int] = (),
    conf: Mapping[str, str] | None = None,
) -> Skeleton:
    """Write logs, schemas and operator metadata; operators `alone` run in one partition whatever is set.

    Raises:
        FormatError: A file is not understood.
    """
    batch = closure.batch
    changed = {DERIVED_FROM: derived_from, **(conf or {})}
    if partitions is not None:
        changed[PARTITIONS] = str(partitions)
    for file in closure.files:
        if file.role not in _CARRIED:
            continue
        data = source.read(file.path)
        if file.path == f"offsets/{batch}":
            data = with_conf(data, file.path, changed)
        if needs_rewrite(file.path):
            data = rewrite_paths(data, file.path, target.uri)
            of_operator = file.role == "operator"
            if of_operator and partitions is not None and int(file.path.split("/")[1]) not in alone:
                data = with_partitions(data, file.path, partitions)
        target.write(file.path, data)
    return Skeleton(source, target, batch)
