"""What a JVM does once and never again, done before it counts: classes, code generation, the state store.

The first batch of a query in a new JVM takes many times as long as the next one, since Spark's planner, its
generated code, the shuffle and the state store are loaded by it. A driver that waits for its release has time
for that: it runs some batches of a small query that counts per key, in a session beside the application's,
with its settings of streaming, from and to a folder of this machine. It shares nothing with the
application's queries but the JVM.

That session is one of the JVM alone (private/jvm.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streambank_spark.private.jvm import session_beside

LISTENERS = (
    "spark.extraListeners",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
)
"""Settings of listeners that hear of each query in the JVM, whatever its session."""
WITHIN_S = 120.0
_LOOK_S = 0.05
_STARTS, _BATCHES = 2, 5
"""By then a batch takes a tenth of what the first one took, and the next ones win little."""
_ROWS = "".join(f'{{"key": "{number % 10}"}}\n' for number in range(100))


def warm_up(on: str, within_s: float = WITHIN_S) -> str:
    """Run the small query. Nothing comes of it where that fails.

    Args:
        on: Where the executors run; those of another machine cannot read the folder.

    Returns:
        What was done, or why it was not, for the log.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        return "there is no session"
    if on != "local":
        return "executors on other machines would not find its files"
    settings = session.sparkContext.getConf()
    if heard := [name for name in LISTENERS if settings.get(name)]:
        return f"{', '.join(heard)} would hear of it"
    began = time.monotonic()
    try:
        with TemporaryDirectory(prefix="streambank-warm-up-", ignore_cleanup_errors=True) as folder:
            batches = _count(session_beside(session), Path(folder), began + within_s)
    except Exception as error:  # whatever it is, the application has not seen any of it
        return f"it failed: {type(error).__name__}: {error}"
    return f"{batches} batches in {time.monotonic() - began:.1f} s"


def _count(session: Any, folder: Path, until: float) -> int:
    """Count per key; the query is started again from its checkpoint, as the application's will be."""
    source, commits = folder / "source", folder / "checkpoint/commits"
    source.mkdir()
    session.conf().set("spark.sql.shuffle.partitions", "2")
    for first in range(0, _STARTS * _BATCHES, _BATCHES):
        rows = session.readStream().schema("key string").json(source.as_uri())
        rows.createOrReplaceTempView("rows")
        counts = session.sql("SELECT key, count(*) FROM rows GROUP BY key")
        writer = counts.writeStream().format("noop").outputMode("update")
        query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
        try:
            for number in range(first, first + _BATCHES):
                (source / f".{number}").write_text(_ROWS, encoding="ascii")
                (source / f".{number}").rename(source / f"{number}.json")
                while not (commits / str(number)).exists():
                    if not query.isActive() or time.monotonic() >= until:
                        return number
                    time.sleep(_LOOK_S)
        finally:
            query.stop()
    return _STARTS * _BATCHES
