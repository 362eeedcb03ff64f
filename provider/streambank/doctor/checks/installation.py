"""What is installed here, and what of it will hurt.

Each check takes what it looks at as arguments, so that a test can show it every machine there is.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from streambank import __version__
from streambank.core.finding import Finding
from streambank.core.units import say_count_are
from streambank.declaration.launch import PLACES
from streambank.doctor.subject import SkippedCheck, gathered
from streambank.driver.launchers.registered import broken, registered
from streambank.driver.spark_releases import FOR_JOBS, FOR_STATE, listed, release_of, rewrites_state

MIN_PYTHON = (3, 11)
MIN_JAVA = 17
SPARK = FOR_JOBS[-1]
"""The Spark version that drivers are run with."""

MIN_DESCRIPTORS = 4096
"""Open files that a take of a large checkpoint needs; its soft limit is raised up to the hard one."""

JAVA_TIMEOUT_S = 20


def facts(environment: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """Versions of what Streambank works with; None for what is not installed."""
    return {
        "streambank": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "java": java_version(environment),
        "pyspark": _version("pyspark"),
        "pyspark-client": _version("pyspark-client"),
        "apache-airflow": _version("apache-airflow"),
        "launchers": ", ".join([*PLACES, *(name for name in registered() if name not in PLACES)]),
    }


def check_installation(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Everything that is wrong, or worth knowing, about this installation."""
    return [
        *check_python(sys.version_info[:2]),
        *check_java(java_version(environment)),
        *check_spark(_find("pyspark"), _find("pyspark-client")),
        *check_container(environment, Path("/")),
        *check_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        *check_host_name(socket.gethostname(), environment),
        *check_host_name("localhost"),
        *check_launchers(),
    ]


def check_job_installation(python: str, spark_home: str | None = None) -> list[Finding]:
    """What of this installation counts for the drivers of a job: the PySpark that they import.

    Args:
        python: The interpreter that runs them; of another one than this nothing is known here.
    """
    if spark_home is not None:
        return []
    if python != sys.executable:
        return gathered(
            [
                SkippedCheck(
                    "the PySpark that its drivers import",
                    f"They run in {python}, which is another interpreter than this one.",
                    f"Run `{python} -m streambank doctor`.",
                )
            ]
        )
    return list(check_spark(_find("pyspark"), _find("pyspark-client")))


def check_launchers() -> list[Finding]:
    """Launchers that packages register, and that no job can use."""
    return [
        Finding(
            "launcher-not-usable",
            "warning",
            name,
            why,
            f"No job can run on {name!r} by this launcher.",
            "Repair or uninstall the package that registers it.",
        )
        for name, why in broken().items()
    ]


def check_python(version: tuple[int, ...]) -> Iterator[Finding]:
    """Old Pythons."""
    if version < MIN_PYTHON:
        yield Finding(
            "old-python",
            "error",
            sys.executable,
            f"This is Python {'.'.join(map(str, version))}.",
            "Streambank does not run on it.",
            f"Install Python {'.'.join(map(str, MIN_PYTHON))} or newer.",
        )


def java_version(environment: Mapping[str, str] = os.environ) -> str | None:
    """The version of the Java that Spark would start, such as `17.0.15`; None where none answers."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        return None
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # reported as `no-java`
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return found[1] if found else None


def check_java(version: str | None) -> Iterator[Finding]:
    """No Java, or too old a one."""
    if version is None:
        yield Finding(
            "no-java",
            "warning",
            "java",
            "No Java answers here.",
            "Drivers cannot be started on this machine; savepoints need no Java.",
            f"Install Java {MIN_JAVA} or newer (Debian: openjdk-17-jre-headless), or set JAVA_HOME.",
        )
        return
    major = int(re.split(r"[.\-+_]", version.removeprefix("1."))[0])
    if major < MIN_JAVA:
        yield Finding(
            "old-java",
            "warning",
            "java",
            f"Java is {version}.",
            f"Spark {SPARK} does not start on it.",
            f"Install Java {MIN_JAVA} or newer, or set JAVA_HOME.",
        )


def check_spark(pyspark: Distribution | None, client: Distribution | None) -> Iterator[Finding]:
    """No PySpark, another version, or one whose files another package has overwritten."""
    if pyspark is None:
        found = "only pyspark-client is" if client is not None else "it is not"
        yield Finding(
            "no-pyspark",
            "warning",
            "pyspark",
            f"PySpark is not installed here ({found}).",
            "Drivers cannot be started from this environment; savepoints need no PySpark.",
            f"Install pyspark {SPARK}; pyspark-client (Spark Connect) cannot run a driver.",
        )
        return
    foreign = changed_files(pyspark)
    if foreign:
        cause = (
            f"{say_count_are(len(foreign), 'file')} not of pyspark {pyspark.version} (such as {foreign[0]})"
        )
        who = f", pyspark-client {client.version} is installed over it" if client is not None else ""
        yield Finding(
            "mixed-pyspark",
            "warning",
            "pyspark",
            f"{cause}{who}.",
            "Jobs and Streambank's own work are not hurt: they take the PySpark that belongs to the jars. In "
            "a program of your own (`python program.py`) Python functions and stateful operators fail oddly.",
            "Remove pyspark-client, then: "
            f"pip install --force-reinstall --no-deps pyspark=={pyspark.version}",
        )
    if release_of(pyspark.version) is None:
        yield Finding(
            "other-spark",
            "warning",
            "pyspark",
            f"PySpark is {pyspark.version}.",
            f"Jobs run on Spark {listed(FOR_JOBS)}: one that names no other Spark cannot be started.",
            "Install one of these, or name it as the job's `spark_home` or `python`.",
        )
    elif not rewrites_state(pyspark.version):
        yield Finding(
            "other-spark",
            "warning",
            "pyspark",
            f"PySpark is {pyspark.version}.",
            f"Jobs run on it; work on their state (compact, erase, rescale) needs {listed(FOR_STATE)}.",
            f"Where state is worked on, install pyspark {listed(FOR_STATE)}.",
        )


def changed_files(package: Distribution) -> list[str]:
    """Python files of an installed package that are not what its own record says, or are gone."""
    return sorted(str(file) for file in package.files or () if file.suffix == ".py" and not _is_own(file))


def _is_own(file: object) -> bool:
    expected = getattr(file, "hash", None)
    if expected is None:
        return True  # the record does not say
    path = Path(str(file.locate()))  # type: ignore[attr-defined]  # a PackagePath, which importlib types loosely
    if not path.is_file():
        return False
    digest = hashlib.new(expected.mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == str(expected.value)


def check_container(environment: Mapping[str, str], root: Path) -> Iterator[Finding]:
    """A driver started here is detached from its task and terminal, but not from its container."""
    signs = [str(root / name) for name in (".dockerenv", "run/.containerenv") if (root / name).exists()]
    signs += [name for name in ("KUBERNETES_SERVICE_HOST", "container") if environment.get(name)]
    if signs:
        yield Finding(
            "in-a-container",
            "info",
            signs[0],
            "This is a container.",
            "A driver that is started here survives the task that started it, and ends with the container.",
            "Start drivers where they may stay: on a host, or in a separate container.",
        )


def check_descriptors(hard_limit: int) -> Iterator[Finding]:
    """A take holds the files that it still has to copy open, so that nobody can take them away."""
    if hard_limit != resource.RLIM_INFINITY and hard_limit < MIN_DESCRIPTORS:
        yield Finding(
            "few-descriptors",
            "warning",
            "ulimit -Hn",
            f"A process may open {hard_limit} files at most.",
            "A take of a large checkpoint holds its files in slices, and has to plan again more often.",
            f"Raise the hard limit to {MIN_DESCRIPTORS} or more.",
        )


def check_host_name(name: str, environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """A JVM asks for the address of its own host when Spark starts, and many containers know none.

    Spark's Python asks for that of `localhost`.

    Args:
        environment: That of Spark, for the host's own name: it may give the address.
    """
    if environment and environment.get("SPARK_LOCAL_IP"):
        return
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError) as error:
        yield Finding(
            "host-name-unknown",
            "error",
            name,
            f"This machine has no address for its own name {name!r}: {error}.",
            "Spark does not start here (UnknownHostException, JAVA_GATEWAY_EXITED or socket.gaierror).",
            "Add a line `127.0.0.1 localhost` to /etc/hosts."
            if name == "localhost"
            else f"Add a line `127.0.1.1 {name}` to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1.",
        )


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _version(name: str) -> str | None:
    found = _find(name)
    return found.version if found is not None else None


def worst(found: Iterable[Finding]) -> str:
    """The worst severity among findings: `error`, `warning`, `info`, or `ok` for none."""
    severities = {finding.severity for finding in found}
    return next((each for each in ("error", "warning", "info") if each in severities), "ok")
