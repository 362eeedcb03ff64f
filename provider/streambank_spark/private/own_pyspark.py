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

from streambank.core.errors import InputError
from streambank.driver.spark_releases import FOR_STATE, listed, spark_version_of

_HOME = "SPARK_HOME"


def use_own_pyspark() -> None:
    """Let this process import PySpark from its Spark, before another module imports it from elsewhere.

    That is the installed PySpark, or the distribution that SPARK_HOME names. One that is as it was installed
    is imported as ever.

    Raises:
        InputError: There is no Spark (code `no-pyspark`).
    """
    home = _home()
    if "pyspark" in sys.modules or _is_whole(home):
        return
    libraries = home / "python" / "lib"
    zips = [libraries / "pyspark.zip", *sorted(libraries.glob("py4j-*-src.zip"))]
    sys.path[:0] = [str(one) for one in zips if one.is_file()]
    importlib.invalidate_caches()
    os.environ[_HOME] = str(home)  # by it the JVM finds the same for its Python workers


def _home() -> Path:
    """Where the Spark of this process is."""
    spec = importlib.util.find_spec("pyspark")
    package = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    named = os.environ.get(_HOME)
    for home in (package, Path(named) if named else None):
        if home is not None and (home / "bin" / "spark-submit").is_file():
            return home
    raise InputError(
        "State is read by Spark, and this Python has no PySpark.",
        code="no-pyspark",
        hint=f"Install pyspark {listed(FOR_STATE)}, name a distribution of Spark in SPARK_HOME, or run this "
        "where one of them is.",
    )


def _is_whole(home: Path) -> bool:
    """Whether the Python files beside the jars are of the same version, so that nothing wrote over them."""
    version = home / "version.py"
    return version.is_file() and spark_version_of(home) == spark_version_of(home, jars=False)
