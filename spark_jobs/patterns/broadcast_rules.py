"""Rules that change while the query runs: a small table, joined with the stream and read again in each batch.

    spark-submit broadcast_rules.py --input DIR --output DIR --rules DIR

A rule is a line of JSON below `--rules`: the limit of a merchant, and from when it is valid. The join is a
broadcast: each batch reads the rules once and sends them to all executors. There is no state, and
nothing to restore.

`spark.read.json(rules)` would not do. Spark 4.3 lists the files once, when the query starts: a new file is
never read, one that has grown is read up to its old size, and one that is gone ends the query. All but the
last happen in silence. So a data source reads the folder here, whose `read` Spark calls in each batch. Delta
tables are read again in each batch, too.

A payment gets the rule that was valid *at its event time*. A batch that runs again, or a restore, may see
rules that came later, and gives the same answer all the same, as long as a rule is written before the moment
from which it is valid, and no rule is ever changed: to change a limit, add a line. In Flink: a
`BroadcastProcessFunction`, whose rules are state, which comes back with the savepoint as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import application
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
RULES = "of STRING, limit BIGINT, valid_from TIMESTAMP, valid_to TIMESTAMP"


class Rules(DataSource):
    """The rules of a folder, as a source of Spark."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "rules"

    def schema(self) -> str:
        """The columns; `valid_to` is null for the newest rule of a merchant."""
        return RULES

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads them."""
        return RulesReader(self.options["path"])


class RulesReader(DataSourceReader):
    """Reads the rules that are there now.

    Args:
        folder: Where their files are.
    """

    def __init__(self, folder: str) -> None:
        """Keep the folder; Spark pickles the object."""
        self.folder = folder

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """Return each rule with the time at which the next one of its merchant takes over."""
        lines = [line for file in Path(self.folder).glob("*.json") for line in file.read_text().splitlines()]
        rules = sorted(
            (json.loads(line) for line in lines), key=lambda rule: rule["valid_from"], reverse=True
        )
        until: dict[str, datetime] = {}
        for rule in rules:
            begins = datetime.fromisoformat(rule["valid_from"])
            yield rule["of"], rule["limit"], begins, until.get(rule["of"])
            until[rule["of"]] = begins


def over_limit(payments: DataFrame, rules: DataFrame) -> DataFrame:
    """One row for each payment above the limit that was valid at its time."""
    valid = (
        (F.col("merchant") == F.col("of"))
        & (F.col("event_time") >= F.col("valid_from"))
        & (F.col("valid_to").isNull() | (F.col("event_time") < F.col("valid_to")))
    )
    found = payments.join(F.broadcast(rules), valid).where("cents > limit")
    return found.select("payment", "merchant", "cents", "limit", "event_time")


def rules_of(spark: SparkSession, folder: str) -> DataFrame:
    """The rules, read again wherever this frame is part of a batch."""
    spark.dataSource.register(Rules)
    return spark.read.format("rules").option("path", folder).load()


def main() -> None:
    """Read payments, append those above the limit of their merchant."""
    parser = application.arguments(__doc__)
    parser.add_argument("--rules", required=True, metavar="DIR")
    args = parser.parse_args()
    spark = application.session("broadcast_rules")
    payments = application.events(spark, args, PAYMENTS)
    application.append(over_limit(payments, rules_of(spark, args.rules)), args, "broadcast_rules")


if __name__ == "__main__":
    main()
