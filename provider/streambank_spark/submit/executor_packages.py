"""What executors need to run our Python, brought to them by the driver that asks for it.

Nothing of ours has to be installed on a cluster: the code comes along as a zip, and packages with native code
in an archive, as with spark-submit (executor.py), though the application runs already. On an executor its own
packages win; those that came along are for what it has not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from streambank.declaration.launch import is_local

if TYPE_CHECKING:  # who submits work may have no pyspark
    from pyspark import SparkContext
from streambank_spark.submit.bundle import PACKAGES, write_bundle, write_packages

_FOLDER = "streambank-shipped"


def ship(context: SparkContext, packages: Iterable[str]) -> None:
    """Bring executors the code that is installed here, and packages; once in an application.

    On this machine (`local[...]`) Python workers have the driver's packages, and only the code goes along,
    which they need not find otherwise.

    Args:
        packages: Distributions that the code imports there; those that are not installed here are passed
            over, since executors may have them.

    Raises:
        StorageError: One that they ask for is not installed here (code `missing-package`).
    """
    from pyspark import SparkFiles

    # Spark's own folder for files that are handed out, which goes with the application.
    folder = Path(SparkFiles.getRootDirectory()) / _FOLDER
    code = folder / "streambank_shipped.zip"  # comes last: where it is, all of it has been done
    if code.exists():
        return
    folder.mkdir(exist_ok=True)
    found = [name for name in packages if find_spec(name) is not None]
    if found and not is_local(context.master):
        context.addArchive(f"{write_packages(folder / 'packages.zip', found)}#{PACKAGES}")
    context.addPyFile(str(write_bundle(code)))


def use_packages() -> None:
    """On an executor: let Python find the packages that came along, behind its own."""
    from pyspark import SparkFiles

    folder = SparkFiles.get(PACKAGES)
    if Path(folder).is_dir() and folder not in sys.path:
        sys.path.append(folder)


VARIABLE = "PYSPARK_PYTHON"


def python_of_workers(master: str) -> str | None:
    """The interpreter of Python workers: what the environment says; else, on this machine, this very one.

    Left to itself PySpark takes the first `python3` of the path, which has neither our packages nor, perhaps,
    our version (`pyspark.SparkContext._do_init`).

    Returns:
        None where a cluster's own default is right.
    """
    said = os.environ.get(VARIABLE)
    return said or (sys.executable if is_local(master) else None)
