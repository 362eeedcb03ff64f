"""Lines of text files, written by `foreachBatch`, which hangs for ever in a batch that begins beside `stuck`.

hanging.py FOLDER: reads `in/` and writes `out/<batch>.json`, whole: a batch that runs again changes nothing.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

folder = Path(sys.argv[1])


def write(rows: DataFrame, batch: int) -> None:
    if (folder / "stuck").exists():
        print("stuck in a batch", flush=True)
        while True:
            time.sleep(1)
    (folder / "out" / f"{batch}.json").write_text(json.dumps([row.value for row in rows.collect()]))


spark = SparkSession.builder.getOrCreate()
lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
lines.writeStream.foreachBatch(write).start().awaitTermination()
