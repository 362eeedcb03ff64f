"""Many writers of one file of a commit log, each through Spark's own checkpoint file manager.

Says how many of one round at most believed to have written it; ends with the first round in which more than
one did. A log is safe only where that is never more than one.
"""

import argparse
import json
import threading
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j ships no types
from pyspark.sql import SparkSession

MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$"

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--writers", type=int, default=8)
parser.add_argument("--rounds", type=int, default=20)
args = parser.parse_args()

spark = SparkSession.builder.appName("racing_commits").getOrCreate()
jvm: Any = spark._jvm
conf = spark._jsc.hadoopConfiguration()
folder = jvm.org.apache.hadoop.fs.Path(args.folder)
manager = getattr(getattr(jvm, MANAGER), "MODULE$").create(folder, conf)
manager.mkdirs(folder)


def race(number: int) -> int:
    """How many writers of one file were told that it is theirs."""
    path = jvm.org.apache.hadoop.fs.Path(f"{args.folder}/{number}")
    barrier = threading.Barrier(args.writers)
    winners = []

    def write(writer: int) -> None:
        stream = manager.createAtomic(path, False)
        stream.write(bytearray(f"v1\n{writer}".encode()))
        barrier.wait()
        try:
            stream.close()
        except Py4JJavaError:  # the file is there already
            return
        winners.append(writer)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(args.writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(winners)


most = rounds = 0
while most < 2 and rounds < args.rounds:
    most = max(most, race(rounds))
    rounds += 1
print(json.dumps({"most": most, "rounds": rounds}), flush=True)
spark.stop()
