"""State as Parquet files, for whatever else reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streambank.core.errors import RefusedError
from streambank.storage import open_store
from streambank_spark.state.read import Choice, chosen, chosen_parts
from streambank_spark.state.state import QueryState


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written of one part.

    Attributes:
        operator: The stateful operator's id.
        part: The part.
        path: Where, as a URI: a folder of Parquet files.
        rows: How many rows the files hold.
        columns: Their columns, in Spark's words.
    """

    operator: int
    part: str
    path: str
    rows: int
    columns: str

    def to_dict(self) -> dict[str, Any]:
        """The export as JSON."""
        return {
            "operator": self.operator,
            "part": self.part,
            "path": self.path,
            "rows": self.rows,
            "columns": self.columns,
        }


def export_state(spark: SparkSession, state: QueryState, target: str, choice: Choice) -> list[Exported]:
    """Write rows of state as Parquet, a folder for each part: `<operator>-<part>`.

    Args:
        spark: A session.
        state: The state.
        target: An empty place, as Spark and the engine both read it.
        choice: Which rows.

    Raises:
        RefusedError: There are files already (code `target-not-empty`).
        InputError: As `chosen_parts` and `chosen`.
    """
    place = open_store(target)
    if next(iter(place.list()), None) is not None:
        raise RefusedError(
            f"{place.uri} is not empty.",
            code="target-not-empty",
            hint="Export into a directory of its own: what is in this one may be somebody's.",
        )
    location = (target if "://" in target else place.uri).rstrip("/")
    written = []
    for part in chosen_parts(state, choice):
        path = f"{location}/{part.operator}-{part.name}"
        chosen(state, part, choice).write.parquet(path)
        back = spark.read.parquet(path)
        written.append(Exported(part.operator, part.name, path, back.count(), back.schema.simpleString()))
    return written
