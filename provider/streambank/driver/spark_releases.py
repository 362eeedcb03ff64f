"""The releases of Spark that jobs run on: what each has that Streambank has to know, one row a release.

A release is in the table once its private parts (streambank_spark/private) were tried, by `make test-matrix`.
CONTRIBUTING.md says how the next one gets in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HOME = "SPARK_HOME"
"""The variable that names a distribution of Spark, for every tool of it."""
_OF_JAR = re.compile(r"spark-core_2\.\d+-(\d+\.\d+\.\d+[^/]*)\.jar")
_TELLING = {
    "RELEASE": re.compile(r"^Spark (\d+\.\d+\.\d+\S*)"),
    "version.py": re.compile(r"^__version__\b[^=]*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE),
}
"""Files that say what a Spark is: of a distribution, and of a `pyspark` package."""
_STREAMING = "org.apache.spark.sql.execution.streaming."


@dataclass(frozen=True, slots=True)
class SparkRelease:
    """A minor release.

    Attributes:
        name: Such as `3.5`.
        query_states: The package of a query's states (`ACTIVE`, `TERMINATED`), which a stop at a batch
            boundary sets.
        loads_defaults: Whether spark-submit reads `spark-defaults.conf` beside a properties file where it is
            asked to (`--load-spark-defaults`, SPARK-48392).
        rewrites_state: Whether work on state runs on it: reading, digests, compaction, erasure, migration.
        offsets_version: The newest format of the offset log that it reads.
        checkpoint_format: The newest `stateStore.checkpointFormatVersion` that it reads: 2 has unique ids.
        join_format: The newest `join.stateFormatVersion` that it runs.
        variables: Whether it has transformWithState.
        samples_keys: Whether hot keys by traffic are sampled on it (private/key_samples.py).
    """

    name: str
    query_states: str = f"{_STREAMING}runtime."
    loads_defaults: bool = True
    rewrites_state: bool = False
    offsets_version: int = 2
    checkpoint_format: int = 2
    join_format: int = 3
    variables: bool = True
    samples_keys: bool = False


RELEASES = (
    SparkRelease(
        "3.5",
        query_states=_STREAMING,
        loads_defaults=False,
        offsets_version=1,
        checkpoint_format=1,
        join_format=2,
        variables=False,
    ),
    SparkRelease("4.0", query_states=_STREAMING, offsets_version=1, join_format=2),
    SparkRelease("4.1", offsets_version=1),
    SparkRelease("4.2"),
    SparkRelease("4.3", rewrites_state=True, samples_keys=True),
)
"""Oldest first."""
FOR_JOBS = tuple(release.name for release in RELEASES)
FOR_STATE = tuple(release.name for release in RELEASES if release.rewrites_state)
FOR_KEY_SAMPLES = tuple(release.name for release in RELEASES if release.samples_keys)


def release_of(version: str) -> SparkRelease | None:
    """The row of a version such as `4.3.0`; None for one that is not in the table."""
    return next((release for release in RELEASES if version.startswith(f"{release.name}.")), None)


def rewrites_state(version: str) -> bool:
    """Whether work on state runs on a version."""
    release = release_of(version)
    return release is not None and release.rewrites_state


def listed(names: tuple[str, ...]) -> str:
    """Releases as a sentence names them: `3.5, 4.0 or 4.1`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def spark_version_of(home: Path, *, jars: bool = True) -> str | None:
    """The version of a Spark, such as `4.3.0`; None where nothing in it tells.

    Args:
        home: A distribution, or a `pyspark` package.
        jars: Ask its jars first; else only its files of text.
    """
    for jar in sorted(home.glob("jars/spark-core_2.*.jar")) if jars else ():
        if (said := _OF_JAR.fullmatch(jar.name)) is not None:
            return said[1]
    for name, pattern in _TELLING.items():
        try:
            text = (home / name).read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        if (said := pattern.search(text)) is not None:
            return said[1]
    return None
