"""Rows counted by user, one file a batch: a file sink's twin in memory would not survive, so `foreachBatch`.

The sums of each batch go to `<folder>/out/<batch>.json`, sorted, so that two runs can be compared.
"""

import argparse
import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("folder")
args = parser.parse_args()
spark = SparkSession.builder.appName("hot-user").getOrCreate()
rows = (
    spark.readStream.schema("user string, value long")
    .option("maxFilesPerTrigger", 1)
    .json(f"{args.folder}/in")
)
out = Path(args.folder, "out")
out.mkdir(exist_ok=True)


def keep(batch: DataFrame, number: int) -> None:
    found = sorted((row["user"], row["count"]) for row in batch.collect())
    (out / f"{number}.json").write_text(json.dumps(found))


query = (
    rows.groupBy("user")
    .count()
    .writeStream.outputMode("update")
    .foreachBatch(keep)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
