"""Where spark-submit and the runner's entry are, found without importing pyspark."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import streambank
from streambank.core.errors import FormatError, InputError, StorageError
from streambank.core.json_text import loads
from streambank.driver.environment import driver_environment

ENTRY = "run_query.py"
KNOWN_SPARK = ("4.3",)
"""The minor versions of Spark whose private parts the runner knows."""
_VERSION = re.compile(r"^__version__\b[^=]*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_PACKAGES = ("pyspark", "streambank_spark")
_PROBE = f"""
import importlib.util, json
found = {{name: importlib.util.find_spec(name) for name in {_PACKAGES!r}}}
print(json.dumps({{name: spec.origin for name, spec in found.items() if spec and spec.origin}}))
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """What a driver is started with.

    Attributes:
        python: The interpreter, as a path.
        spark_home: The `pyspark` package of that interpreter.
        entry: `run_query.py`.
        python_path: What must be on PYTHONPATH so that the interpreter finds the engine and the runner.
    """

    python: str
    spark_home: Path
    entry: Path
    python_path: tuple[str, ...]

    @property
    def spark_version(self) -> str | None:
        """The version that this PySpark says it is, such as `4.3.0`; None where it does not say."""
        try:
            text = (self.spark_home / "version.py").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
        said = _VERSION.search(text)
        return said[1] if said else None

    @property
    def spark_submit(self) -> Path:
        """The script that starts Spark."""
        return self.spark_home / "bin" / "spark-submit"


def find_installation(python: str = sys.executable) -> Installation:
    """What is installed for an interpreter.

    Raises:
        InputError: There is no such interpreter (code `no-python`), it has no PySpark (`no-pyspark`), or it
            does not find this package (`not-installed`).
    """
    path = shutil.which(python)
    if path is None:
        raise InputError(
            f"The Python interpreter {python!r} does not exist.",
            code="no-python",
            hint="Look at the job's `python`.",
        )
    # A virtual environment's interpreter is a link to another: only the place tells them apart.
    origins = _origins_here() if os.path.samestat(*_places(path)) else _origins_of(path)
    if "pyspark" not in origins:
        raise InputError(
            f"{path} has no PySpark.",
            code="no-pyspark",
            hint="Install pyspark 4.3 there, or name another interpreter as the job's `python`.",
        )
    return Installation(path, Path(origins["pyspark"]).parent, entry_path(), _python_path(path, origins))


def require_known_spark(found: Installation) -> None:
    """Refuse a Spark that the runner does not know, before a driver is launched with it.

    A Spark whose version cannot be read passes: the runner in the driver asks again.

    Raises:
        FormatError: It is another version than `KNOWN_SPARK` (code `spark-not-supported`).
    """
    version = found.spark_version
    if version is not None and not is_known_spark(version):
        raise FormatError(
            f"{found.python} has PySpark {version}. Streambank does not run jobs on this version.",
            code="spark-not-supported",
            hint=f"Install PySpark {' or '.join(KNOWN_SPARK)} there, or name another interpreter as the "
            "job's `python`. Savepoints can be taken of any application's checkpoint.",
        )


def is_known_spark(version: str) -> bool:
    """Whether the runner knows a version of Spark, such as `4.3.0`."""
    return any(version.startswith(f"{known}.") for known in KNOWN_SPARK)


def _places(python: str) -> tuple[os.stat_result, os.stat_result]:
    return Path(python).parent.stat(), Path(sys.executable).parent.stat()


def _origins_here() -> dict[str, str]:
    specs = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    return {name: spec.origin for name, spec in specs.items() if spec is not None and spec.origin is not None}


def _origins_of(python: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            [os.path.abspath(python), "-c", _PROBE],  # noqa: PTH100 - Path.resolve would follow links
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd="/",  # modules in the caller's folder are not the interpreter's
            env=driver_environment(os.environ),
        )
        found: dict[str, str] = loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StorageError(
            f"{python} does not run: {error}.",
            code="python-does-not-run",
            hint="Name another one in the job's field python, or repair its environment.",
        ) from error
    return found


def _python_path(python: str, origins: dict[str, str]) -> tuple[str, ...]:
    root = Path(streambank.__file__).resolve().parent.parent
    if "streambank_spark" in origins and Path(origins["streambank_spark"]).parent.parent != root:
        return ()
    if root.name not in ("site-packages", "dist-packages"):
        return (str(root),)
    if "streambank_spark" in origins:
        return ()
    raise InputError(
        f"{python} does not find the package streambank_spark.",
        code="not-installed",
        hint="Install airflow-provider-streambank there as well, in this same version.",
    )


PROGRAMS = {
    "run_query": "runs an application as a job, in place of the application",
    "inspect_state": "finds the largest keys of state",
    "rewrite_state": "compacts, erases or migrates the state of a savepoint",
    "execute_plan": "copies or checks the files of a savepoint on executors; Streambank submits it itself",
    "flights": "the folder of the example applications, on the flights of 2013",
}
"""What spark-submit can be given, and what it is for."""


def program_path(name: str) -> Path:
    """Where one of `PROGRAMS` is.

    Raises:
        InputError: It is not installed (code `not-installed`).
    """
    return entry_path(name if name == "flights" else f"{name}.py")


def entry_path(name: str = ENTRY) -> Path:
    """An entry for spark-submit: in the installed package, or in the checkout's `spark_jobs`.

    Args:
        name: Its file; the runner's where none is named.

    Raises:
        InputError: It is at neither place (code `not-installed`).
    """
    root = Path(streambank.__file__).resolve().parent.parent
    places = (root / "streambank_airflow" / "spark_jobs" / name, root.parent / "spark_jobs" / name)
    for place in places:
        if place.exists():
            return place
    raise InputError(
        f"{name} is at neither {places[0]} nor {places[1]}.",
        code="not-installed",
        hint="Install airflow-provider-streambank again.",
    )
