"""Where spark-submit and the runner's entry are, found without importing pyspark."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streambank
from streambank.core.errors import FormatError, InputError, StorageError, StreambankError
from streambank.core.json_text import loads
from streambank.driver.environment import driver_environment
from streambank.driver.spark_releases import (
    FOR_JOBS,
    FOR_STATE,
    HOME,
    listed,
    release_of,
    rewrites_state,
    spark_version_of,
)

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job

ENTRY = "run_query.py"
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
        spark_home: A distribution of Spark, or the `pyspark` package of that interpreter, which is one.
        python_path: What must be on PYTHONPATH so that the interpreter finds the engine and the runner.
        ships: Whether that is not enough: the interpreter has no Streambank, and gets ours as a zip.
    """

    python: str
    spark_home: Path
    entry: Path
    python_path: tuple[str, ...]
    ships: bool = False

    @property
    def spark_version(self) -> str | None:
        """The version of this Spark, such as `4.3.0`; None where nothing in it tells.

        Its jars count most: beside them another package may have written another PySpark.
        """
        return spark_version_of(self.spark_home)

    @property
    def spark_submit(self) -> Path:
        """The script that starts Spark."""
        return self.spark_home / "bin" / "spark-submit"

    def with_defaults(self, properties: str, environment: Mapping[str, str]) -> tuple[list[str], str]:
        """How spark-submit is to read a properties file without passing over `spark-defaults.conf`.

        Returns:
            The option that says so; and the content of the file: where spark-submit has no such option, the
            defaults come first in it.
        """
        version = self.spark_version
        release = None if version is None else release_of(version)
        if release is None or release.loads_defaults:
            return ["--load-spark-defaults"], properties
        return [], self.defaults(environment) + properties

    def defaults(self, environment: Mapping[str, str]) -> str:
        """What is in this Spark's `spark-defaults.conf`, with a line end; empty where there is none.

        Raises:
            InputError: It is there and cannot be read (code `bad-spark-conf`).
        """
        folder = environment.get("SPARK_CONF_DIR") or str(self.spark_home / "conf")
        file = Path(folder) / "spark-defaults.conf"
        try:
            return f"{file.read_text(encoding='utf-8')}\n"
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeError) as error:
            raise InputError(
                f"Spark's defaults {file} cannot be read: {error}.",
                code="bad-spark-conf",
                hint="The job must not run without them: let this user read the file, or remove it.",
            ) from error


def find_installation(python: str = sys.executable, spark_home: str | None = None) -> Installation:
    """What is installed for an interpreter.

    Args:
        spark_home: A distribution of Spark, which brings its own PySpark; None for the interpreter's. Where
            this process's interpreter has none, it is the one that the environment variable SPARK_HOME names,
            or whose spark-submit is on the PATH.

    Raises:
        InputError: There is no such interpreter (code `no-python`), or no Spark there (`no-pyspark`).
    """
    path = shutil.which(python)
    if path is None:
        raise InputError(
            f"The Python interpreter {python!r} does not exist.",
            code="no-python",
            hint="Look at the job's `python`.",
        )
    # A virtual environment's interpreter is a link to another: only the place tells them apart.
    here = Path(path).parent.samefile(Path(sys.executable).parent)
    if spark_home is not None:
        home, missing = Path(spark_home), f"{spark_home} is no distribution of Spark"
        origins = {} if not here else _origins_here()
    else:
        origins = _origins_here() if here else _origins_of(path)
        home, missing = Path(origins.get("pyspark", "/nowhere/x")).parent, f"{path} has no PySpark"
        if here and not _has_submit(home):
            home = _distribution_here() or home
    if not _has_submit(home):
        raise InputError(
            f"{missing}: there is no bin/spark-submit.",
            code="no-pyspark",
            hint=f"Install PySpark {listed(FOR_JOBS)} there, or name a distribution of Spark as the job's "
            "`spark_home`, or another interpreter as its `python`.",
        )
    python_path, ships = _python_path(origins, here=here)
    return Installation(path, home, entry_path(), python_path, ships)


def _has_submit(home: Path) -> bool:
    return home.is_absolute() and (home / "bin" / "spark-submit").is_file()


def _distribution_here() -> Path | None:
    on_path = shutil.which("spark-submit")
    for home in (os.environ.get(HOME), on_path and Path(on_path).resolve().parent.parent):
        if home and _has_submit(Path(home)) and (Path(home) / "jars").is_dir():
            return Path(home)
    return None


def installation_of(job: Job) -> Installation:
    """What the drivers of a declared job are started with on this machine."""
    return find_installation(job.python, job.spark_home)


def installation_that_submits(job: Job) -> Installation:
    """What the drivers of a declared job are submitted to a cluster with.

    The job's own, where its interpreter is on this machine, too; else that of this process.
    """
    if job.python == sys.executable or not Path(job.python).is_file():
        return find_installation(spark_home=job.spark_home)
    return installation_of(job)


def own_installation(find: Callable[[], Job | None]) -> Installation | None:
    """The Spark that a job runs on, for executors where none is installed; None where it has none.

    Args:
        find: Finds the declared job; None, or an error, where no file declares it.
    """
    try:
        job = find()
        return None if job is None else installation_of(job)
    except StreambankError:
        return None


def installation_for_state(job: Job | None, *, rewrites: bool = True) -> Installation:
    """The Spark that works on a job's state, beside the one that the job runs on.

    The one that the job's table `state` names; else the first on which work on state runs: the installed one,
    the one of the environment (`find_installation`), the job's own.

    Args:
        job: The declared job; None for a query that no file declares.
        rewrites: Whether the state may be rewritten: a Spark that cannot do that is the last choice for
            reading, and refused otherwise.

    Raises:
        FormatError: None of these can rewrite state (code `spark-not-supported`).
        InputError: There is none (code `no-pyspark`), or no such interpreter (`no-python`).
    """
    if job is not None and (job.state.python is not None or job.state.spark_home is not None):
        named = find_installation(job.state.python or sys.executable, job.state.spark_home)
        return _first_for_state((named,), rewrites=rewrites)
    found, missing = [], None
    named_here, own = _distribution_here(), () if job is None else (partial(installation_of, job),)
    here = () if named_here is None else (partial(find_installation, spark_home=str(named_here)),)
    for find in (find_installation, *here, *own):
        try:
            found.append(find())
        except InputError as error:
            missing = missing or error
    if missing is not None and not found:
        if missing.code != "no-pyspark":
            raise missing
        raise InputError(
            "State is read by Spark, and this Python has no PySpark.",
            code="no-pyspark",
            hint=f"Install pyspark {listed(FOR_STATE)}, or name a distribution of Spark in SPARK_HOME, or as "
            "`state.spark_home` of the job.",
        ) from missing
    return _first_for_state(found, rewrites=rewrites)


def _first_for_state(found: Sequence[Installation], *, rewrites: bool) -> Installation:
    """The first on which work on state runs; one whose version cannot be read passes, and asks again."""
    for installation in found:
        if installation.spark_version is None or rewrites_state(installation.spark_version):
            return installation
    if not rewrites:
        return found[0]
    there = " and ".join(
        f"{installation.spark_home} has Spark {installation.spark_version}" for installation in found
    )
    raise FormatError(
        f"Work on state needs Spark {listed(FOR_STATE)}, and {there}.",
        code="spark-not-supported",
        hint=f"Name a Spark {listed(FOR_STATE)} as `state.spark_home` or `state.python` of the job, or in "
        "SPARK_HOME. The job itself may go on with another one.",
    )


def require_known_spark(found: Installation) -> str | None:
    """The version of a Spark, unless it is one that the runner does not know, before a driver gets it.

    A Spark whose version cannot be read passes: the runner in the driver asks again.

    Raises:
        FormatError: It is of none of the `RELEASES` (code `spark-not-supported`).
    """
    version = found.spark_version
    if version is not None and release_of(version) is None:
        raise FormatError(
            f"{found.spark_home} has Spark {version}. Streambank does not run jobs on this version.",
            code="spark-not-supported",
            hint=f"Install Spark {listed(FOR_JOBS)}, and name it as the job's `spark_home` or `python`. "
            "Savepoints can be taken of any application's checkpoint.",
        )
    return version


def _origins_here() -> dict[str, str]:
    specs = {name: importlib.util.find_spec(name) for name in _PACKAGES}
    # A process that works on state may have the zips of another Spark first on its path (own_pyspark.py).
    folders = [place for place in sys.path if not place.endswith(".zip")]
    specs["pyspark"] = importlib.machinery.PathFinder.find_spec("pyspark", folders)
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


def _python_path(origins: Mapping[str, str], *, here: bool) -> tuple[tuple[str, ...], bool]:
    """What leads the interpreter to our packages, and whether they must be shipped."""
    root = Path(streambank.__file__).resolve().parent.parent
    if "streambank_spark" in origins and Path(origins["streambank_spark"]).parent.parent != root:
        return (), False
    if root.name not in ("site-packages", "dist-packages"):
        return (str(root),), False
    if here or "streambank_spark" in origins:
        return (), False
    return (), True  # beside our packages are those of this interpreter, which are not for another one


PROGRAMS = {
    "run_query": "runs an application as a job, in place of the application",
    "inspect_state": "finds the largest keys of state",
    "rewrite_state": "compacts, erases or migrates the state of a savepoint",
    "execute_plan": "copies or checks the files of a savepoint on executors; Streambank submits it itself",
    "flights": "the folder of the example applications, on the flights of 2013",
    "patterns": "the folder of applications that show patterns of state; those in `wrong` show mistakes",
}
"""What spark-submit can be given, and what it is for."""


def program_path(name: str) -> Path:
    """Where one of `PROGRAMS` is.

    Raises:
        InputError: It is not installed (code `not-installed`).
    """
    return entry_path(name if name in ("flights", "patterns") else f"{name}.py")


def entry_path(name: str = ENTRY) -> Path:
    """An entry for spark-submit: in the installed package, or in the checkout's `spark_jobs`.

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
