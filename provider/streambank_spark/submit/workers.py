"""Which Python runs beside executors."""

from __future__ import annotations

import os
import sys

VARIABLE = "PYSPARK_PYTHON"


def python_of_workers(master: str) -> str | None:
    """The interpreter of Python workers: what the environment says; else, on this machine, this very one.

    Left to itself PySpark takes the first `python3` of the path, which has neither our packages nor, perhaps,
    our version (`pyspark.SparkContext._do_init`).

    Args:
        master: Spark's master.

    Returns:
        None where a cluster's own default is right.
    """
    said = os.environ.get(VARIABLE)
    return said or (sys.executable if master.startswith("local") else None)
