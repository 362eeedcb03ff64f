"""The program that a driver runs: a PySpark script."""

from __future__ import annotations

from pathlib import Path

from streambank.core.errors import InputError, NotFoundError


def check_application(application: str) -> Path:
    """The application as a readable PySpark program.

    Raises:
        InputError: It is something else (code `not-pyspark`): a jar, a notebook, an archive.
        NotFoundError: There is no such file (code `no-application`).
    """
    path = check_is_pyspark(application)
    if not path.is_file():
        raise NotFoundError(
            f"The application {application} does not exist.",
            code="no-application",
            hint="Give the path that is valid on the driver's host.",
        )
    return path


def check_is_pyspark(application: str) -> Path:
    """The application as a PySpark program, wherever it is.

    Raises:
        InputError: By its name it is something else (code `not-pyspark`).
    """
    path = Path(application)
    if path.suffix != ".py":
        what = "A Scala or Java application" if path.suffix == ".jar" else f"{path.name!r}"
        raise InputError(
            f"{what} cannot be run by the runner: {application}.",
            code="not-pyspark",
            hint="Give a PySpark program (.py). Savepoints can be taken of any application's checkpoint.",
        )
    return path
