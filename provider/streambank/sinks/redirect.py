"""Where a copy of a query writes, so that the outputs of the live one stay as they are.

A drill, a rehearsal and a fork run the job's application, unchanged, on a copy of its checkpoint. The runner
puts the places of a `Redirect` where the application names its own (streambank_spark/runner/redirect.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Redirect:
    """The places that stand for those that an application names.

    Attributes:
        directory: URI of the directory that stands for the directory of a file sink or of a Delta table;
            None where such an output is refused.
        table: The table that stands for the one of `toTable`; None for none.
        topic: The topic that stands for the one of a Kafka sink; None for none.
        scratch: Whether an output without a place of its own kind here is written below `directory` as
            Parquet, a folder for each batch (`batch_folder`).
        sources: Kinds of sources that it may read besides those that are known to leave the live query alone.
        outputs: Single outputs, each with the directory that stands for it: the URI of a directory, or the
            name of a table or a topic. A directory of files or of a Delta table stays one; the rows of any
            other output are kept as Parquet, as with `scratch`.
        folder: Where below the directory of one of `outputs` such rows are, since other queries of the job
            may write to the same table or topic; empty for the directory itself.
    """

    directory: str | None = None
    table: str | None = None
    topic: str | None = None
    scratch: bool = False
    sources: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""


def query_folder(query: str) -> str:
    """The folder of one of several queries, below which its batches are."""
    return f"query={query}"


def batch_folder(directory: str, batch: int) -> str:
    """Where the rows of one batch are that are kept as Parquet."""
    return f"{directory}/batch={batch}"
