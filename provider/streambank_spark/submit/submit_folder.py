"""The folder (mode 0700) from which an application is submitted: what it reads, what it says, its log.

Its configuration may hold secrets, so it is a file of mode 0600 and never an argument. The folder goes away
at the end; where Spark failed, its log stays and the error names it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from streambank.core.errors import InputError, StorageError
from streambank_spark.submit.properties import property_lines

LOG = "spark.log"


@contextmanager
def submit_folder() -> Iterator[Path]:
    """A folder that nobody else may look into; of a run that failed only Spark's log stays there."""
    folder = Path(tempfile.mkdtemp(prefix="streambank-spark-"))
    try:
        yield folder
    except StorageError as error:
        if error.code != "spark-failed" or not (folder / LOG).exists():
            rmtree(folder)
            raise
        for path in folder.iterdir():
            if path.name != LOG:
                path.unlink()
        raise
    except BaseException:
        rmtree(folder)
        raise
    rmtree(folder)


def write_properties(
    folder: Path,
    given: Path | None,
    conf: Mapping[str, str],
    defaults: Mapping[str, str],
    always: Mapping[str, str],
) -> Path:
    """The configuration: the user's file, the user's options, and what has to be so.

    Args:
        folder: Where to.
        given: A properties file of the user's, for what is secret.
        conf: The user's options, which count more than that file.
        defaults: What both may say otherwise.
        always: What they may not.

    Raises:
        InputError: The file cannot be read (code `bad-spark-conf`).
    """
    try:
        text = given.read_text(encoding="utf-8") if given is not None else ""
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"The Spark properties {given} cannot be read: {error}.",
            code="bad-spark-conf",
            hint="Name a file of lines `spark.key value` that this user may read.",
        ) from error
    lines = property_lines({"spark.ui.enabled": "false", **defaults})
    ours = {
        "spark.submit.deployMode": "client",
        "spark.pyspark.driver.python": sys.executable,
        **always,
    }
    target = folder / "spark.conf"
    target.touch(mode=0o600, exist_ok=False)
    target.write_text(f"{lines}{text}\n{property_lines(conf)}{property_lines(ours)}", encoding="utf-8")
    return target
