"""Options of the JVMs that tests start: each lives for seconds, and spends half of them loading classes.

`python -m tests.support.spark.jvm` (`make test` runs it first) runs a few queries once, and keeps the classes
that they loaded in an archive that every later JVM maps into its memory (Java's application class data
sharing). A JVM without that archive, or of another Java or other jars than the archive's, starts as slowly
as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Short lives: the optimizing compiler would cost a quarter of a test's time, and never pay."""
CHEAP_PROCESSES = "-Djdk.lang.Process.launchMechanism=VFORK"
"""On a local disk Spark starts sixty processes a batch: four times `readlink` and once `chmod` for each file
that it writes, since Hadoop's native library is not there. Java's usual way to start one costs ten times as
much."""
MAKE_S = 900
TRAINED = (("aggregation", "hdfs"), ("transform-with-state", "format-v2"), ("stateless", "hdfs"))
"""Queries and layouts whose classes go into the archive."""


def java() -> str:
    """The Java that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def archive() -> Path:
    """Where the archive for this Java and these jars of Spark lies, made or not."""
    import importlib.util

    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations
    jars = Path(found.submodule_search_locations[0]) / "jars"
    program = Path(shutil.which(java()) or java()).resolve()
    parts = [program, *sorted(jars.iterdir())]
    facts = [f"{part} {part.stat().st_mtime_ns}" for part in parts if part.exists()]
    key = hashlib.sha256("\n".join([*facts, QUICK_START]).encode()).hexdigest()[:16]
    return ROOT / ".streambank" / "classes" / f"spark-{key}.jsa"


def spark_options() -> str:
    """Options of Java for a driver, an executor or a daemon of Spark."""
    # Without the last one a JVM that cannot use the archive says so in the log that a test reads.
    return f"{QUICK_START} {CHEAP_PROCESSES} -XX:SharedArchiveFile={archive()} -Xlog:disable"


def make_archive() -> bool:
    """Make the archive unless it is there.

    Returns:
        Whether it is there now: a Java that was installed without an archive of its own classes cannot.
    """
    target = archive()
    if target.exists():
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    for other in target.parent.glob("spark-*.jsa"):
        other.unlink()
    with tempfile.TemporaryDirectory(dir=target.parent) as name, (target.parent / "log").open("wb") as log:
        made = Path(name) / target.name
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "provider"))),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [sys.executable, "-m", "tests.support.spark.jvm", str(made)]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=MAKE_S, check=False)
        if made.exists():
            made.rename(target)
    return target.exists()


def _train(made: Path) -> None:
    from tests.support.spark.queries import QUERIES, write_input
    from tests.support.spark.sessions import own_spark, prepare, run_to_end, session_for

    folder = made.parent
    spark = own_spark(
        {
            "spark.driver.extraJavaOptions": f"{QUICK_START} -XX:ArchiveClassesAtExit={made} -Xlog:disable",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        }
    )
    prepare(spark)
    write_input(folder / "input", 3)
    for query, layout in TRAINED:
        place = folder / query
        session = session_for(spark, layout)
        run_to_end(session, QUERIES[query], folder / "input", place / "checkpoint", place / "output")
    _read(spark, folder)
    _end(spark)


def _read(spark: SparkSession, folder: Path) -> None:
    state = spark.read.format("statestore").load(str(folder / "aggregation" / "checkpoint"))
    state.write.parquet(str(folder / "state"))
    assert spark.read.parquet(str(folder / "state")).count()


def _end(spark: SparkSession) -> None:
    """End the JVM, and wait until it has written the archive."""
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # it started its own JVM
    spark.stop()
    process.stdin.close()
    process.wait(MAKE_S)


if __name__ == "__main__":
    if sys.argv[1:]:
        _train(Path(sys.argv[1]))
    elif not make_archive():
        print("Java did not keep Spark's classes in an archive, so each JVM of the tests loads them again")
