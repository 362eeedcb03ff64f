"""The PySpark that a plain Python process imports: the one that belongs to its Spark.

The Spark provider of Airflow asks for pyspark-client, which writes its files over those of PySpark: the
Python of one version then talks to the jars of another, and Python functions fail in odd ways. A distribution
of Spark is no package at all. Each has its own Python in two zips, which spark-submit puts first on the path
of a driver. A process that nothing submits does here what spark-submit does.

Private: the zips `python/lib/pyspark.zip` and `python/lib/py4j-*-src.zip` of a Spark, as its own
`bin/load-spark-env.sh` and `sbin/spark-config.sh` use them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from streambank.driver.spark_releases import HOME, spark_version_of


def use_own_pyspark(home: Path) -> None:
    """Let this process import PySpark from its Spark, before another module imports it from elsewhere.

    An installed PySpark that is as it was installed is imported as ever.

    Args:
        home: That Spark (`streambank.driver.installed.installation_for_state`).
    """
    if "pyspark" in sys.modules:
        return
    if home == _installed() and _is_whole(home):
        if HOME in os.environ:  # PySpark would start the JVM of that one
            os.environ[HOME] = str(home)
        return
    libraries = home / "python" / "lib"
    zips = [libraries / "pyspark.zip", *sorted(libraries.glob("py4j-*-src.zip"))]
    sys.path[:0] = [str(one) for one in zips if one.is_file()]
    importlib.invalidate_caches()
    os.environ[HOME] = str(home)  # by it the JVM finds the same for its Python workers


def _installed() -> Path | None:
    """The installed package, whether it is a Spark or a client alone."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _is_whole(home: Path) -> bool:
    """Whether the Python files beside the jars are of the same version, so that nothing wrote over them."""
    version = home / "version.py"
    return version.is_file() and spark_version_of(home) == spark_version_of(home, jars=False)
